#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/setup.sh on systems that are not Debian: it names what is missing as that system is
likely to call it, and goes on where all is there. usage: setup_test.py SOURCE_DIR"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(sys.argv[1])
problems = []


def check(condition, what):
    if not condition:
        problems.append(what)


def setup(folder, system, group):
    """What setup.sh says on a system of that os-release, where only `folder` has commands."""
    (folder / "os-release").write_text(system, encoding="utf-8")
    return subprocess.run([shutil.which("bash"), root / "scripts/setup.sh", group],
                          capture_output=True, text=True,
                          env={"PATH": str(folder), "TESSERA_OS_RELEASE": folder / "os-release"})


def fake(folder, name, script):
    (folder / name).write_text(f"#!{shutil.which('bash')}\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


SYSTEMS = (("ID=fedora", "dnf install", "fmt-devel opencl-headers"),
           ('ID="rocky"\nID_LIKE="rhel centos fedora"', "dnf install", "fmt-devel opencl-headers"),
           ("ID=arch", "pacman -S", "fmt opencl-clhpp"),
           ("ID=ubuntu\nID_LIKE=debian", "apt-get install", "libfmt-dev opencl-clhpp-headers"),
           ('ID=linuxmint\nID_LIKE="ubuntu debian"', "apt-get install",
            "libfmt-dev opencl-clhpp-headers"),
           ("ID=alpine", "the like of Debian's", "libfmt-dev opencl-clhpp-headers"))

with tempfile.TemporaryDirectory() as temporary:
    commands = pathlib.Path(temporary)
    for name in ("bash", "dirname", "nproc", "cat"):
        (commands / name).symlink_to(shutil.which(name))
    for name in ("cmake", "make"):
        fake(commands, name, "exit 0")

    # A compiler that finds every header but two, and every library.
    fake(commands, "c++", 'input="$(cat)"\n[[ "$input" != *fmt/format.h* && '
                          '"$input" != *CL/opencl.hpp* ]]')
    for system, install, names in SYSTEMS:
        done = setup(commands, system, "library")
        check(done.returncode == 1 and done.stdout == "" and f"  {install} {names} " in done.stderr
              and ("not tried" in done.stderr) == (install != "apt-get install"),
              f"{system}: {done}")

    fake(commands, "c++", "cat >/dev/null")
    for system, *_ in SYSTEMS:
        done = setup(commands, system, "library")
        check((done.returncode, done.stdout, done.stderr) == (0, "", ""), f"{system}: {done}")

    # What the system is not known to have is named all the same.
    done = setup(commands, "ID=fedora", "demo")
    check(done.returncode == 1 and "Debian calls bible-kjv, " in done.stderr, f"demo: {done}")

listed = set(re.findall(r"[\w+.-]+", " ".join(
    re.findall(r"^packages_\w+=\((.*?)\)", (root / "scripts/common.sh").read_text(encoding="utf-8"),
               re.M | re.S)))) - {"packages_library"}
table = re.search(r"<<'TABLE'\n(.*?)\nTABLE", (root / "scripts/other_systems.sh").read_text(
    encoding="utf-8"), re.S).group(1)
rows = {line.split()[0]: line.split() for line in table.splitlines()}
check(len(listed) > 20, f"scripts/common.sh: only {listed}: read wrongly")
for name in listed ^ rows.keys():
    problems.append(f"{name} is in one of scripts/common.sh and scripts/other_systems.sh alone")
for name, row in rows.items():
    check(len(row) == 4, f"scripts/other_systems.sh: {name} has {len(row)} fields")
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
