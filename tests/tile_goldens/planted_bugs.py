#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes planted_bugs.json: what JAX's TPU interpret mode says of programs that are wrong.

    python3 tests/tile_goldens/planted_bugs.py [--venv build/tools/jax] [NAME...]

The programs are in planted_*.py. Each runs in a process of its own, because one that fails may
spoil the next and some hang; once as by default, once with race detection. Verdicts:
    caught         an exception; its head is given
    race           race detection reported one
    printed        nothing but a line on standard output
    silently wrong no word, and a wrong result
    silent         no word, and a result that happens to be right
    hangs          killed after the timeout
    cannot run     the interpreter lacks what the program needs"""
import json
import os
import pathlib
import subprocess
import sys

import jax_environment

HERE = pathlib.Path(__file__).resolve().parent
PARSER = jax_environment.parser(__doc__)
PARSER.add_argument("names", nargs="*", help="programs; all by default")
PARSER.add_argument("--timeout", type=float, default=20.0, help="seconds per program")
PARSER.add_argument("--child", choices=("default", "races"), help=PARSER.format_usage())
ARGUMENTS = PARSER.parse_args()
jax_environment.enter(ARGUMENTS, devices=4)

MARK = "PLANTED "
# Exceptions that tell of JAX's own gaps.
GAPS = ("Unsupported TPU",)


def child(name):
    """Runs one program and prints one line of JSON behind MARK."""
    # pylint: disable=import-outside-toplevel
    import numpy as np
    from jax._src.pallas.mosaic.interpret import interpret_pallas_call as interpreter
    from jax.experimental.pallas import tpu as pltpu

    import planted_cores  # pylint: disable=unused-import
    import planted_grids  # pylint: disable=unused-import
    import planted_kernels
    races = ARGUMENTS.child == "races"

    def params(cores, **more):
        # The default has so few slots that copies share one and races are missed.
        return pltpu.InterpretParams(num_cores_or_threads=cores, detect_races=races,
                                     vector_clock_size=64 if races else None, **more)
    del planted_cores, planted_grids
    result = {}
    try:
        got, expected = planted_kernels.BUGS[name](params)
        result["right"] = bool(np.array_equal(np.asarray(got, np.float64),
                                              np.asarray(expected, np.float64)))
        result["nan"] = bool(np.isnan(np.asarray(got, np.float64)).any())
    except Exception as error:  # pylint: disable=broad-except
        # The innermost message stands last in what the runtime wraps.
        lines = [line for line in str(error).splitlines() if line.strip()]
        inner = [line for line in lines if not line.startswith((" ", "\t", "-", "For simplicity"))
                 and "Error" in line.split(":")[0] and "CpuCallback" not in line]
        result["error"] = f"{type(error).__name__}: {(inner or lines or [''])[-1].strip()}"
    result["races"] = bool(races and interpreter.races and interpreter.races.races_found)
    print(MARK + json.dumps(result), flush=True)
    os._exit(0)  # threads of a program that failed may still wait


def run(name, mode):
    command = [sys.executable, __file__, "--venv", str(ARGUMENTS.venv), "--child", mode, name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ARGUMENTS.timeout)
    except subprocess.TimeoutExpired:
        return "hangs"
    lines = done.stdout.splitlines()
    marked = [line for line in lines if line.startswith(MARK)]
    if not marked:
        return "crashes: " + (done.stderr.strip().splitlines() or [""])[-1][:160]
    result = json.loads(marked[-1][len(MARK):])
    if "error" in result:
        verdict = "cannot run" if any(gap in result["error"] for gap in GAPS) else "caught"
        return f"{verdict}: {result['error'][:160]}"
    if result["races"]:
        return "race"
    printed = [line for line in lines if not line.startswith(MARK) and line.strip()]
    outcome = "result right" if result["right"] else "NaN" if result["nan"] else "result wrong"
    if printed:
        return f"printed: {printed[0].strip()[:120]} ({outcome})"
    if result["right"]:
        return "silent"
    return "silently wrong" + (" (NaN)" if result["nan"] else "")


def main():
    # pylint: disable=import-outside-toplevel
    import jax

    import planted_cores  # pylint: disable=unused-import
    import planted_grids  # pylint: disable=unused-import
    import planted_kernels
    del planted_cores, planted_grids
    path = HERE / "planted_bugs.json"
    verdicts = json.loads(path.read_text(encoding="utf-8"))["verdicts"] if ARGUMENTS.names else {}
    for name, function in planted_kernels.BUGS.items():
        if ARGUMENTS.names and name not in ARGUMENTS.names:
            continue
        verdicts[name] = {"what": " ".join(function.__doc__.split()),
                          "default": run(name, "default"), "races": run(name, "races")}
        print(name, "|", verdicts[name]["default"], "|", verdicts[name]["races"], flush=True)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in verdicts.items()]
    text = (f'{{"jax": "{jax.__version__}", "verdicts": {{\n' + ",\n".join(lines) + "\n}}\n")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if ARGUMENTS.child:
        child(ARGUMENTS.names[0])
    main()
