#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Installs tessera and builds the first programs by the README's own blocks, once by the plain
build and once by the preset, in a copy of the tree and with a home of its own.
usage: readme_test.py SOURCE_DIR [plain|preset]..."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(sys.argv[1]).resolve()
readme = (root / "README.md").read_text(encoding="utf-8")


def blocks(heading, language):
    section = re.search(rf"^## {heading}\n(.*?)(?=^## )", readme, re.M | re.S).group(1)
    return re.findall(rf"^```{language}\n(.*?)^```$", section, re.M | re.S)


def run(tree, commands):
    """Each line as a user would type it; the first that fails ends the test."""
    home = tree.parent / "home"
    env = dict(os.environ, HOME=str(home))
    env.pop("DESTDIR", None)
    if shutil.which("ccache"):  # as use_ccache in scripts/common.sh
        env.update(CMAKE_C_COMPILER_LAUNCHER="ccache", CMAKE_CXX_COMPILER_LAUNCHER="ccache",
                   CCACHE_BASEDIR=str(tree), CCACHE_NOHASHDIR="1",
                   CCACHE_SLOPPINESS="pch_defines,time_macros")
        env.setdefault("CCACHE_DIR", subprocess.run(
            ["ccache", "--get-config", "cache_dir"], capture_output=True, text=True,
            check=True).stdout.strip())
    output = ""
    for command in commands.splitlines():
        start = time.monotonic()
        done = subprocess.run(["bash", "-c", command], cwd=tree, env=env, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        print(f"{time.monotonic() - start:7.1f} s  {command}", flush=True)
        output += done.stdout
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-8000:]}\nexit code {done.returncode}: {command}")
    return output


def check(condition, what):
    if not condition:
        sys.exit(what)


def check_plain(tree):
    """The Release library alone, without warnings as errors, from what it needs and no more."""
    cache = (tree / "build/CMakeCache.txt").read_text(encoding="utf-8")
    check("\nCMAKE_BUILD_TYPE:STRING=Release\n" in cache, "a plain build is no Release build")
    for package in ("CLI11", "nlohmann_json", "GTest", "benchmark", "Python3"):
        check(package.lower() not in cache.lower(), f"a plain build looks for {package}")
    commands = json.loads((tree / "build/compile_commands.json").read_text(encoding="utf-8"))
    check(len(commands) > 50 and not any("-Werror" in c["command"] for c in commands),
          f"a plain build of {len(commands)} files has warnings as errors")
    files = {pathlib.Path(c["file"]).relative_to(tree).parts[0] for c in commands}
    check(files == {"host", "reference", "tuning", "build"}, f"a plain build compiles {files}")
    check(not list((tree / "build").glob("bin/*")), "a plain build makes programs")


def check_preset(tree):
    version = run(tree, "~/tessera/bin/tessera-info")
    check(version.startswith("tessera "), f"tessera-info of the preset: {version}")


def main():
    installs = dict(zip(("plain", "preset"), blocks("Install", "sh"), strict=True))
    (program,), (project,), (build,) = (blocks("A first program", language)
                                        for language in ("cpp", "cmake", "sh"))
    (device_program,), (device_project,) = (blocks("Arrays on a device", language)
                                            for language in ("cpp", "cmake"))
    for name in sys.argv[2:] or installs:
        with tempfile.TemporaryDirectory() as temporary:
            tree = pathlib.Path(temporary).resolve() / "tessera"
            shutil.copytree(root, tree, ignore=shutil.ignore_patterns(".git", "build", "shared"))
            (tree / "first").mkdir()
            (tree / "first/first.cpp").write_text(program, encoding="utf-8")
            (tree / "first/device.cpp").write_text(device_program, encoding="utf-8")
            (tree / "first/CMakeLists.txt").write_text(project + device_project, encoding="utf-8")
            run(tree, installs[name])
            {"plain": check_plain, "preset": check_preset}[name](tree)
            output = run(tree, build)
            check(re.search(r"^loss \d+\.\d{4} on \S+", output, re.M), f"{name}: {output[-2000:]}")
            if re.search(r"^loss \S+ on opencl", output, re.M):
                output = run(tree, "first/build/device")
                # All logits are equal: the logarithm of the vocabulary.
                check(re.search(r"^loss 6\.9078 on opencl", output, re.M), f"{name}: {output}")


main()
