#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every kernel file of the operators by itself: clang, for a GPU and for a CPU, with no
options but the engine's own. usage: kernels_alone_test.py KERNELS_ALONE CLANG
"""
import os
import pathlib
import subprocess
import sys
import tempfile

SKIPPED = 77  # as tests/kernels_alone.cmake says
KERNELS = pathlib.Path(__file__).resolve().parent.parent / "cl_kernels"
TARGETS = ("nvptx64", "x86_64")
# Without options a kernel leaves some of its functions and variables unused; nothing here is called
# across a boundary at which the width of vectors matters.
FLAGS = ["-x", "cl", "-cl-std=CL1.2", "-Xclang", "-finclude-default-header", "-Wall", "-Werror",
         "-Wno-unused-function", "-Wno-unused-variable", "-Wno-psabi", "-fsyntax-only"]


def compile_alone(clang, target, options, source):
    """What the compiler has to say; nothing where it has not."""
    own = [o for o in options.split() if not o.startswith("-cl-nv-")]  # the driver's alone
    result = subprocess.run([clang, *FLAGS, "-target", target, *own, source],
                            capture_output=True, text=True, check=False)
    return "" if result.returncode == 0 and not result.stderr else result.stderr or "it failed"


def check(kernels_alone, clang):
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        listed = subprocess.run([kernels_alone, folder], check=True, capture_output=True, text=True)
        files = [line.split("\t") for line in listed.stdout.splitlines()]
        for folder_of_kernels in KERNELS.iterdir():
            name = folder_of_kernels.name
            # Those two have headers, and what engines keep to themselves.
            if name not in ("common", "engines") and not any(
                    path.startswith(name + "/") for _, path, _ in files):
                problems.append(f"no kernels of {name}")
        for engine, path, options in files:
            for target in TARGETS:
                if "-DEX2=1" in options and not target.startswith("nvptx"):
                    continue  # it is written in NVIDIA's instructions
                said = compile_alone(clang, target, options, os.path.join(folder, engine, path))
                if said:
                    problems.append(f"{path} for {engine} on {target} ({options}): {said}")
    return problems


def main():
    if not sys.argv[2] or sys.argv[2].endswith("NOTFOUND"):
        print("skipped: clang is not installed")
        sys.exit(SKIPPED)
    problems = check(*sys.argv[1:3])
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
