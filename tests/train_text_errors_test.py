#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_text and distill end as the programs do: 2 after a bad call, 1 where the run itself fails.

train_text_errors_test.py BIN_FOLDER TEXT...
"""
import os
import subprocess
import sys
import tempfile

SMALL = ["--batch", "16", "--hidden", "8", "--embedding", "8", "--max-vocab", "200",
         "--eval-tokens", "32", "--steps", "3"]


def main():
    bin_folder, text = sys.argv[1], sys.argv[2:]
    failures = 0
    with tempfile.TemporaryDirectory(prefix="tessera_train_text_") as folder:
        def path(name):
            return os.path.join(folder, name)

        with open(path("short.txt"), "w") as file:
            file.write("a few words\n")
        # Written as if it were a file, until it takes no byte.
        os.makedirs(path("full"))
        os.symlink("/dev/full", path("full/curve.csv"))
        here = ["--text", *text]
        cases = {
            "train_text": [
                (2, "--nonsense", ["--nonsense"]),
                (2, "--batch", ["--batch", "0", *here]),
                (2, "nowhere.txt", ["--text", path("nowhere.txt")]),
                (2, "has 3 words", ["--text", path("short.txt")]),
                (2, "/dev/zero has more than", ["--text", "/dev/zero"]),
                (2, "no such device", ["--device", "no such device", *here]),
                (2, "nothing", ["--implementation", "nothing", *here]),
                (2, "workspace_bytes", ["--implementation", "eigen", "--workspace-bytes", "1",
                                        *here]),
                (2, "curve.csv", ["--out", path("short.txt"), *here]),
                (2, "curve.csv", ["--out", path("short.txt/below"), *here]),
                (1, "curve.csv", ["--implementation", "eigen", "--out", path("full"), *here]),
                (2, "--profile-start-step 5", ["--trace", path("trace.json"), *here]),
                (2, "--trace", ["--profile-steps", "2", *here]),
                (1, "Profile::write", ["--profile-start-step", "1", "--trace",
                                       path("nowhere/trace.json"), *here]),
                (1, "not finite", ["--implementation", "eigen", "--learning-rate", "1e30", *here]),
            ],
            "distill": [
                (2, "--nonsense", ["--nonsense"]),
                (2, "has 3 words", ["--text", path("short.txt")]),
                (2, "curve.csv", ["--out", path("short.txt"), *here]),
                (1, "curve.csv", ["--teacher-steps", "3", "--out", path("full"), *here]),
            ],
        }
        for program, calls in cases.items():
            for expected, part, arguments in calls:
                if path("full") in arguments and not os.path.exists("/dev/full"):
                    continue
                done = subprocess.run([os.path.join(bin_folder, program), *SMALL, *arguments],
                                      capture_output=True, text=True)
                line = done.stderr.splitlines()[-1:] or [""]
                if (done.returncode == expected and part in line[0]
                        and line[0].startswith(f"{program}: error: ")):
                    continue
                failures += 1
                print(f"{program} {' '.join(arguments[:4])}: exit {done.returncode}, not "
                      f"{expected} with {part!r}: {done.stderr!r}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
