#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera beside PyTorch, JAX, Tokamax and OpenBLAS on the same arrays, in turns, in one run.

usage: run.py [--out DIR] [--shape BxHxV] [--dtypes f32,bf16] [--passes forward,value_and_grad] ...
The first run installs the peers from PyPI into build/tools/peers (some GB: PyTorch). README.md
says what is measured and how."""
import argparse
import json
import os
import sys

import environment
from environment import HERE, ROOT

sys.path.append(str(ROOT / "bench"))
from command_line import command_text  # noqa: E402

# Name, and the layout of w in which it runs unless --w-layout says otherwise: its users' own.
PEERS = {
    "tessera.opencl": "vh", "tessera.opencl.eighth": "vh", "tessera.eigen": "vh",
    "torch.default": "vh", "torch.chunked": "vh", "torch.compile": "vh",
    "jax.textbook": "vh", "jax.streaming": "vh", "tokamax.xla": "hv", "tokamax.chunked_xla": "hv",
    "openblas.gemm": "vh",
}
DTYPES = ("f32", "bf16")
PASSES = ("forward", "value_and_grad")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default=str(ROOT / "build/peers"), help="folder of the results")
    parser.add_argument("--venv", default=str(ROOT / "build/tools/peers"),
                        help="folder of the Python packages, made where there is none")
    parser.add_argument("--no-install", action="store_true", help="take --venv as it is")
    parser.add_argument("--build", default=str(ROOT / "build/release"), help="tessera's build")
    parser.add_argument("--peers", default=",".join(PEERS), help="some of: " + ",".join(PEERS))
    parser.add_argument("--shape", default="512x2048x32768", help="BxHxV")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--passes", default=",".join(PASSES))
    parser.add_argument("--w-layout", choices=("own", "vh", "hv"), default="own",
                        help="own: the one that each peer's users have")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=9, help="samples of each peer")
    parser.add_argument("--max-seconds", type=float, default=60.0,
                        help="of calls, after which a peer leaves with three samples or more, or "
                             "after three times as many with fewer")
    parser.add_argument("--timeout", type=float, default=1200.0, help="seconds for one answer")
    a = parser.parse_args()
    a.peers, a.dtypes, a.passes = (text.split(",") for text in (a.peers, a.dtypes, a.passes))
    for name, given, known in (("--peers", a.peers, PEERS), ("--dtypes", a.dtypes, DTYPES),
                               ("--passes", a.passes, PASSES)):
        for item in given:
            if item not in known:
                parser.error(f"{name}: '{item}' is not one of {', '.join(known)}")
    try:
        a.b, a.h, a.v = (int(n) for n in a.shape.split("x"))
    except ValueError:
        parser.error(f"--shape: '{a.shape}' is not BxHxV")
    a.layouts = {p: PEERS[p] if a.w_layout == "own" else a.w_layout for p in a.peers}
    if min(a.b, a.h, a.v, a.threads, a.rounds) < 1:
        parser.error("a number below 1")
    return a


def main():
    a = arguments()
    if not a.no_install:
        environment.install(a.venv)
    python = environment.venv_python(a.venv)
    if not python.exists():
        sys.exit(f"run.py: error: {python} does not exist; leave out --no-install")
    tessera = environment.build_tessera(a.build)
    job = dict(vars(a), tessera=str(tessera) if tessera else None,
               command=command_text(["bench/peers/run.py", *sys.argv[1:]]))
    # numpy and matplotlib are in that folder too.
    os.execv(python, [str(python), str(HERE / "compare.py"), json.dumps(job)])


if __name__ == "__main__":
    main()
