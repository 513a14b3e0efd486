#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu.sh run with programs that crash, hang or print in place of the library's: what a part
does is told and the others go on, in time. usage: gpu_run_test.py SOURCE_DIR"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(sys.argv[1])
problems = []

DEVICE = """* 0:0  Fake 9000 (gpu)
      Fake platform, OpenCL 3.0, driver 1
      132 compute units
"""
ENGINES = """+ opencl.cpu   on CPUs
+ opencl.mma   matrix units
+ opencl.simt  any device
+ eigen        the host
"""
PEAKS = """
Measured peaks of the device (best, median)
  fma_f32             64728.4  64699.6 GFLOP/s   groups
  write_nontemporal   absent: on CPUs only

Measured peaks of the host (best, median)
  fma_f32              1204.3   1187.7 GFLOP/s   threads
"""
ROW = ("linear_cross_entropy/$2/opencl.x/bf16/vh/B1/H2/V3 %s 1.5%% 89000.0 14.0%% - 6.0 1 1 1 1"
       "\\n    label\\n")
INFO = f"""case "$*" in
*--dump*) trap "" TERM; sleep 300 ;;
*--peaks*) cat <<END
{PEAKS}
END
;;
*) cat <<END
tessera 0.1.0 (fake)

{DEVICE}{ENGINES}
END
;;
esac"""
BENCH = f"""case "$*" in
*opencl.mma*4096x2048x32768*no-peak-list*) kill -SEGV $$ ;;
*opencl.simt*8192*) exit 3 ;;
*"dtypes f32 "*|*"dtypes f16 "*) echo "error: no row can run" >&2; exit 2 ;;
*--profile*) echo "    kernel  grad_x   32   734.186   34.6%"
  echo "    of 2124.0 ms a call: kernels 97.2%" ;;
*) printf 'row ms spread\\n{ROW}' 0.770; printf '{ROW}' 2.500 ;;
esac""".replace("$2", "forward", 1).replace("$2", "value_and_grad", 1)
TESTS = """[ "$TESSERA_TEST_IMPLEMENTATIONS" != opencl.simt ] || kill -KILL $$
echo "[       OK ] one (1 ms)"; echo "[       OK ] another (2 ms)\""""


def check(condition, what):
    if not condition:
        problems.append(what)
        print("FAILED:", what, flush=True)


class Bundle:
    def __init__(self, folder):
        self.folder = folder
        for name in ("bin", "lib", "path"):
            (folder / name).mkdir()
        shutil.copy(root / "scripts/gpu.sh", folder)
        (folder / "needs").write_text("tessera 0.1.0 (fake)\nx86_64, glibc 2.34\n")
        (folder / "driver.so").touch()
        self.fake("tessera-info", INFO)
        self.fake("tessera-bench", BENCH)
        self.fake("tessera-tune", "echo '  tuned'")
        self.fake("matrix_test", TESTS)
        for name in ("python3", "python", "nvidia-smi", "rocminfo"):
            self.fake(name, "exit 1", "path")

    def fake(self, name, script, folder="bin"):
        path = self.folder / folder / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def start(self, *arguments, before=()):
        environment = dict(os.environ, PATH=f"{self.folder / 'path'}:{os.environ['PATH']}")
        return subprocess.Popen([*before, self.folder / "gpu.sh", *arguments], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *arguments, before=()):
        """Exit code, all that was printed, and its summary."""
        child = self.start(*arguments, before=before)
        text = child.communicate()[0]
        return child.returncode, text, text[text.rfind("\n== "):]


def has(summary, *lines):
    for line in lines:
        check(line in summary, f"{line!r} is not in:\n{summary}")


def test_parts(bundle, folder):
    """A hang that ignores SIGTERM, a crash, a kill and an exit code, each of another part."""
    out = folder / "out"
    began = time.monotonic()
    code, text, summary = bundle.run("run", "--minutes", "1", "--out", out, "--driver",
                                     bundle.folder / "driver.so")
    check(code == 1 and time.monotonic() - began < 20, f"exit {code} after "
          f"{time.monotonic() - began} s")
    has(summary, " failures, all files in ", f"driver: {bundle.folder}/driver.so",
        "facts: Fake 9000 (gpu)\n", "facts: peaks: fma_f32 64728.4 GFLOP/s\n", "nvidia-smi",
        "probe: probe: ended after its 2 s", "correct: opencl.mma: 2 right, 0 wrong",
        "correct: correct.opencl.simt: ended by signal 9",
        "speed: 512x2048x32768 opencl.x bf16: forward 0.770 ms, 89 TFLOP/s, 14.0% of the "
        "peak, spread 1.5%; value_and_grad 2.500 ms",
        "speed: speed.4096x2048x32768.bf16.mma: ended by signal 11",
        "speed: speed.8192x4096x128256.bf16.simt: exit code 3",
        "speed: speed.512x2048x32768.f32.mma: exit code 2: error: no row can run",
        "torch: not run: no python3",
        "kernels: opencl.mma of 2124.0 ms a call: kernels 97.2%, grad_x 734.186 ms",
        "rows: ", "tune:   tuned")
    check("opencl.simt: 0 right" not in summary, f"nothing ran, and is counted: {summary}")
    check("opencl.cpu" not in summary, f"a GPU has no opencl.cpu: {summary}")
    check(len(summary.strip().splitlines()) <= 60, "the summary is longer than 60 lines")
    icd = (out / "icd/driver.icd").read_text()
    check(icd == f"{bundle.folder}/driver.so\n", f"the .icd: {icd!r}")
    check(not (out / "cache").exists(), "the caches of the run are still there")
    written = (out / "summary.txt").read_text().splitlines()
    check(all(line in summary for line in written), "summary.txt is another one")


def test_again(bundle, folder):
    """Into the same folder, with two devices, and ended from outside."""
    bundle.fake("tessera-info", INFO.replace(ENGINES, "  0:1  Fake 8000 (gpu)\n" + ENGINES))
    child = bundle.start("run", "--out", folder / "out", "--driver", bundle.folder / "driver.so")
    for line in child.stdout:
        if "nvidia-smi" in line:
            break
    time.sleep(0.5)  # until the probe hangs
    child.send_signal(signal.SIGTERM)
    text = child.communicate()[0]
    check(child.returncode == 1, f"ended from outside: exit {child.returncode}")
    has(text, "/out/run2\n", "Fake 9000 (gpu), and not 0:1 Fake 8000 (gpu): TESSERA_DEVICE=P:D",
        "probe: the run was ended here")
    check((folder / "out/run2/summary.txt").exists(), "run2 has no summary.txt")


def test_no_device(bundle, folder):
    bundle.fake("tessera-info", "echo 'tessera 0.1.0'")
    code, text, summary = bundle.run("run", "--out", folder / "none", "--driver", "/nonexistent.so")
    check(code == 1, f"no device: exit {code}")
    has(summary, "driver: there is no /nonexistent.so", "--driver",
        "facts: no OpenCL device", "speed: not run: no OpenCL device", "tune: not run",
        "torch: not run: no python3")


def test_no_space(bundle, folder):
    """Where a file system of a megabyte can be made."""
    place = folder / "small"
    place.mkdir()
    mounted = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=1m none {place} && "$@"', "-"]
    if subprocess.run([*mounted, "true"], capture_output=True).returncode != 0:
        print("no file system can be mounted here: not tried without space")
        return
    code, text, summary = bundle.run("run", "--out", place, "--driver", "/nonexistent.so",
                                     before=mounted)
    has(summary, "has less than 200 MiB free: results are in ", "tune: not run")
    other = pathlib.Path(summary.split("results are in ")[1].split()[0])
    check((other / "summary.txt").exists(), f"{other} has no summary.txt")
    shutil.rmtree(other, ignore_errors=True)


def test_bad_calls(bundle, folder):
    link = folder / "link"
    (folder / "target").mkdir()
    link.symlink_to(folder / "target")
    for arguments, words in (
            (["run", "--out", link], "is a link: name the folder itself"),
            (["run", "--out", f"{link}/"], "is a link: name the folder itself"),
            (["run", "--out", folder / "x", "--minutes", "0"], "no number from 1"),
            (["run", "--out", folder / "x", "--minutes"], "needs a value"),
            (["run"], "--out FOLDER is missing"), (["run", "--fast", "1"], "unknown option --fast"),
            (["walk"], "usage: ")):
        code, text, _ = bundle.run(*arguments)
        check(code == 2 and text.startswith("error: ") and words in text,
              f"{arguments}: {code} {text}")
    check(not list((folder / "target").iterdir()), "it was written through a link")
    check(not (folder / "x").exists(), "a bad call made a folder")


with tempfile.TemporaryDirectory(prefix="tessera_gpu_") as temporary:
    place = pathlib.Path(temporary)
    (place / "bundle").mkdir()
    fakes = Bundle(place / "bundle")
    for test in (test_parts, test_again, test_no_device, test_no_space, test_bad_calls):
        test(fakes, place)
sys.exit(1 if problems else 0)
