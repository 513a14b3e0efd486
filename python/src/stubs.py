# SPDX-License-Identifier: Apache-2.0
"""Writes the type stubs of the package in FOLDER, or of the one that Python finds, to FOLDER.

usage: python stubs.py FOLDER
"""

import pathlib
import sys

from nanobind.stubgen import StubGen

# PYTHONPATH stays as it is: pip keeps the tools of an isolated build there.
sys.path.insert(0, str(pathlib.Path(sys.argv[1]).resolve().parent))

import tessera  # noqa: E402

# What the signatures of the operators name.
HEAD = """\
from collections.abc import Iterable
from typing import Any

from tessera import Context, CostEstimate, PartialResult, Plan, Result

"""


def stub(module, name):
    module.__name__ = name  # what it has from elsewhere would be imported
    writer = StubGen(module)
    writer.put(module)
    return writer.get()


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in tessera.operators:
        text = stub(getattr(tessera, name), f"tessera._core.{name}")
        (folder / f"{name}.pyi").write_text(HEAD + text)
    (folder / "_core.pyi").write_text(stub(tessera._core, "tessera._core"))


if __name__ == "__main__":
    main()
