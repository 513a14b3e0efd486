#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes programs/*.json: what small programs give in JAX's TPU interpret mode.

    python3 tests/tile_goldens/make_programs.py [--venv build/tools/jax] [NAME...]

The programs are in programs_*.py; each says what it computes and from what, so that a test can
compute the inputs again. The JSON is committed, so that the tests need no JAX."""
import pathlib

import jax_environment

HERE = pathlib.Path(__file__).resolve().parent
PARSER = jax_environment.parser(__doc__)
PARSER.add_argument("names", nargs="*", help="programs; all by default")
ARGUMENTS = PARSER.parse_args()
jax_environment.enter(ARGUMENTS, devices=4)

import jax  # noqa: E402

import golden_programs  # noqa: E402
import programs_calls  # noqa: E402, F401  pylint: disable=unused-import
import programs_remote  # noqa: E402, F401  pylint: disable=unused-import

# isort: split
# Last: after kernels on several cores others may fail (JAX's own fault, docs/tile_reference.md).
import programs_pipelines  # noqa: E402, F401  pylint: disable=unused-import


def main():
    total = 0
    for name in ARGUMENTS.names or golden_programs.PROGRAMS:
        size = golden_programs.write(HERE / "programs", name, jax.__version__)
        total += size
        print(name, size, flush=True)
    print(f"{total} bytes")


if __name__ == "__main__":
    main()
