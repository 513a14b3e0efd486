#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles every header of the tree by itself: what it needs, it includes.

usage: scripts/headers_alone.py BUILD_FOLDER [HEADER...]

With the flags of a source that includes it, or else of one nearby (BUILD_FOLDER's
compile_commands.json, for which configuring is enough), and by clang, which is a little faster than
g++ and warns of other things. What is public compiles once more with no folder of the tree but
include/. A header is included twice, so that a missing guard shows, too."""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLIC = "include"
# A few errors of a header say enough: all that include it repeat them. Some flags are g++'s.
STRICT = ["-Wall", "-Wextra", "-Werror", "-ferror-limit=3", "-Wno-unknown-warning-option"]
SYSTEM = ["-isystem", "/usr/include/eigen3"]
# Header -> why it does not stand alone.
PARTS = {"reference/streaming/kernels_impl.hpp":
         "the text of kernels_<instructions>.cpp, which say by a macro for which it is",
         "reference/streaming/kernels_types.hpp": "a part of the former",
         "reference/streaming/kernels_distill.hpp": "a part of the former"}
# Public headers for those who have another library; all others stand without any.
WITH_EIGEN = ("include/tessera/eigen.hpp",)


def headers():
    """The tree's, in git or about to be, and those of kernels that the host includes."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard",
                             "*.hpp", "cl_kernels/*.h"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in sorted(listed.split("\0"))
            if name and name not in PARTS and (ROOT / name).exists()]


def sources(build):
    """(path within the tree, flags) of every source that is compiled, but for generated ones."""
    entries = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
    for entry in sorted(entries, key=lambda e: e["file"]):
        file = pathlib.Path(entry["file"])
        if not file.is_relative_to(ROOT) or file.is_relative_to(build):
            continue
        words = shlex.split(entry["command"])
        # Without the compiler and its launcher, the output, the source; and none is optimised.
        first = next(i for i, w in enumerate(words) if w.startswith("-"))
        out = words.index("-o")
        kept = [w for w in words[first:out] + words[out + 2:] if w not in ("-c", entry["file"])]
        if "-include" in kept:  # precompiled headers
            del kept[kept.index("-include"):kept.index("-include") + 2]
        yield str(file.relative_to(ROOT)), [w for w in kept if not w.startswith("-O")]


def included_by(source, flags):
    """The headers of the tree that a source names."""
    folders = [(ROOT / source).parent, *(pathlib.Path(f[2:]) for f in flags if f[:2] == "-I")]
    text = (ROOT / source).read_text(encoding="utf-8")
    for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        for folder in folders:
            if (folder / name).is_file():
                yield os.path.relpath(folder / name, ROOT)
                break


def flags_of_headers(names, build):
    users, by_folder = {}, {}
    for source, flags in sources(build):
        by_folder.setdefault(os.path.dirname(source), flags)
        for header in included_by(source, flags):
            users.setdefault(header, flags)

    def distance(header, folder):
        """Headers of include/ and cl_kernels/, without sources beside them, are the host's."""
        shared = len(os.path.commonprefix([header.split("/")[:-1], folder.split("/")]))
        return -shared, not folder.startswith("host/")

    return {name: users.get(name) or by_folder[min(by_folder, key=lambda f: distance(name, f))]
            for name in names}


def compile_alone(compiler, flags, header):
    """What the compiler has to say; nothing where it has not."""
    line = f'#include "{ROOT / header}"\n'
    result = subprocess.run([compiler, *flags, *STRICT, "-fsyntax-only", "-x", "c++", "-"],
                            input=line + line, capture_output=True, text=True, check=False)
    return "" if result.returncode == 0 and not result.stderr else result.stderr or "it failed"


def compilations(names, build):
    """(what it is, flags, header)"""
    for name, flags in flags_of_headers(names, build).items():
        yield name, flags, name
        if name.startswith(PUBLIC + "/"):
            other = SYSTEM if name in WITH_EIGEN else []
            yield f"{name}, of {PUBLIC}/ alone", ["-std=c++20", f"-I{ROOT / PUBLIC}", *other], name


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    compiler = shutil.which("clang++") or sys.exit("clang++ is not installed")
    jobs = list(compilations(sys.argv[2:] or headers(), pathlib.Path(sys.argv[1]).resolve()))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(pool.map(lambda job: compile_alone(compiler, *job[1:]), jobs))
    problems = [f"{what}:\n{text}" for (what, *_), text in zip(jobs, said, strict=True) if text]
    for problem in problems:
        print(problem)
    print(f"{len(jobs)} headers compiled by themselves, {len(problems)} did not")
    return 1 if problems or not jobs else 0


if __name__ == "__main__":
    sys.exit(main())
