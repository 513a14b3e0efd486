#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long JAX's TPU interpret mode takes for the programs of jax_programs.py, as JSON.

    python3 bench/tile/jax_interpret.py [--venv build/tools/jax] [--quick] [--out FILE] [NAME...]

Every program runs in a process of its own, without and with race detection (the loss without only):
the first call, which compiles, then some more, of which best and median are told; peak_rss_bytes is
the process's largest, import_rss_bytes what it had before the program."""
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/tile_goldens"))
import jax_environment  # noqa: E402

PARSER = jax_environment.parser(__doc__)
PARSER.add_argument("names", nargs="*", help="programs; all by default")
PARSER.add_argument("--quick", action="store_true", help="two calls each, not five")
PARSER.add_argument("--out", type=pathlib.Path, help="file for the JSON; else standard output")
PARSER.add_argument("--child", choices=("plain", "races"), help="internal: one program")
ARGUMENTS = PARSER.parse_args()
jax_environment.enter(ARGUMENTS)


def rss():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def child(name):
    # pylint: disable=import-outside-toplevel
    import jax
    import numpy as np
    from jax.experimental.pallas import tpu as pltpu

    import jax_programs
    before = rss()

    def params(cores):
        return pltpu.InterpretParams(num_cores_or_threads=cores,
                                     detect_races=ARGUMENTS.child == "races")
    make, steps = jax_programs.PROGRAMS[name]
    times = []
    with jax_programs.tpu():
        run, arrays = make(params)
        for _ in range(3 if ARGUMENTS.quick else 6):
            start = time.perf_counter()
            result = jax.block_until_ready(run(*arrays))
            times.append(time.perf_counter() - start)
    peak = rss()
    result = [np.asarray(part) for part in jax.tree.leaves(result)]
    for got, wanted in zip(result, jax_programs.expected(name), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=2e-4, atol=1e-6)
    later = times[1:]
    print(json.dumps({
        "program": name, "races": ARGUMENTS.child == "races", "steps": steps, "first_s": times[0],
        "best_s": min(later), "median_s": statistics.median(later), "calls": len(later),
        "best_per_step_us": min(later) / steps * 1e6, "import_rss_bytes": before,
        "peak_rss_bytes": peak}))


def main():
    # pylint: disable=import-outside-toplevel
    import jax

    import jax_programs
    rows = []
    for name in ARGUMENTS.names or jax_programs.PROGRAMS:
        for mode in ("plain", "races")[:1 if name.startswith("loss") else 2]:
            done = subprocess.run(
                [sys.executable, __file__, "--venv", str(ARGUMENTS.venv), "--child", mode, name]
                + ["--quick"] * ARGUMENTS.quick, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                rows.append({"program": name, "races": mode == "races",
                             "error": (done.stderr.strip().splitlines() or ["?"])[-1]})
            else:
                rows.append(json.loads(done.stdout.splitlines()[-1]))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    text = json.dumps({"jax": jax.__version__, "rows": rows}, indent=1) + "\n"
    if ARGUMENTS.out:
        ARGUMENTS.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    if ARGUMENTS.child:
        child(ARGUMENTS.names[0])
    else:
        main()
