#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/new_operator.sh in a copy of the tree: every file of the template gets its twin and every
list its line, laid out as the style asks, with bugs that can be planted; a bad name, and a disk
that fails, change nothing. usage: new_operator_test.py SOURCE_DIR"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import architecture_test

SKIPPED = 77  # as tests/new_operator.cmake says
TEMPLATE = "rms_norm"
# Of other lengths than the template's name, which moves line ends; one before it and one after it
# in the order of the alphabet.
NAMES = ("made_up", "weighted_sum_of_all_the_inputs")
BAD_NAMES = ("", "Demo", "demo-op", "2d_norm", "_demo", "demo_", "demo__op", "a" * 31, "../demo",
             "class", "xor", "linux", "bf16", "combine", "std", "tile", "view", "common", "call",
             TEMPLATE, "rms_norm_of_rows", "linear_cross_entropy")
root = pathlib.Path(sys.argv[1]).resolve()
problems = []


def check(condition, what):
    if not condition:
        problems.append(what)


def files_of(tree):
    return {f.relative_to(tree).as_posix(): f.read_text(encoding="utf-8", errors="replace")
            for f in tree.rglob("*") if f.is_file() and "__pycache__" not in f.parts}


def new_operator(tree, *arguments, path=""):
    return subprocess.run([tree / "scripts/new_operator.sh", *arguments], capture_output=True,
                          text=True, env=dict(os.environ, PATH=path + os.environ["PATH"]))


def renamed(text, name):
    return re.sub(rf"(?<!\.){TEMPLATE}", name, text)


def check_refused(tree, before, *calls):
    """Each with one line; together they leave the tree as it was."""
    for arguments in calls:
        done = new_operator(tree, *arguments)
        check(done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1 and
              done.stderr.startswith("error: "), f"{arguments}: {done}")
    check(files_of(tree) == before, f"one of {calls} changed the tree")


def check_made(before, after, name):
    """Twins of all files and, where the template's name is in a list, one line more."""
    twins = {renamed(path, name) for path in before if TEMPLATE in path}
    check(after.keys() - before.keys() == twins, f"made {sorted(after.keys() - before.keys())}")
    check(len(twins) > 12, f"only {sorted(twins)}: read wrongly")
    for path in twins:
        check(not re.search(rf"(?<!\.){TEMPLATE}|RmsNorm|RMS_NORM|results/", after[path]),
              f"{path} still names the template or its results")
    changed = {path for path in before if before[path] != after[path]}
    for path in changed:
        was, now = before[path].splitlines(), after[path].splitlines()
        # The comma of a list's last line moves.
        added = [line.rstrip(",") for line in now]
        for line in was:
            added.remove(line.rstrip(","))
        check(added and sorted(added) == sorted(set(added)) and
              all(name in line for line in added), f"{path}: new are {added}")
    # Whatever else names the template where another operator of its kind would be named, too.
    for path, text in before.items():
        if TEMPLATE not in path and re.search(rf"{TEMPLATE}(/traits)?.hpp|{TEMPLATE}::", text):
            check(path in changed, f"{path} has no line of {name}")


def check_layout(tree, after, before):
    new = [path for path in after if before.get(path) != after[path]]
    for path in new:
        # As in scripts/check.sh style.
        limit = {".md": r"[^|].{120}", ".json": "$."}.get(pathlib.Path(path).suffix, ".{101}")
        for line in after[path].splitlines():
            check(not re.match(limit, line), f"{path}: a long line: {line}")
    version = subprocess.run(["clang-format", "--version"], capture_output=True, text=True).stdout
    if " version 14." not in version:
        return
    code = [path for path in new if re.search(r"\.([ch]pp|cl|h)$", path)]
    done = subprocess.run(["clang-format", "--dry-run", "--Werror", *code], cwd=tree,
                          capture_output=True, text=True)
    check(done.returncode == 0, done.stderr)


if not shutil.which("clang-format"):
    print("there is no clang-format, which scripts/new_operator.sh needs")
    sys.exit(SKIPPED)
with tempfile.TemporaryDirectory() as temporary:
    tree = pathlib.Path(temporary) / "tessera"
    shutil.copytree(root, tree, ignore=shutil.ignore_patterns(
        ".git", "build", "shared", "out", "results", "goldens", "tile_goldens", "__pycache__"))
    before = files_of(tree)
    check_refused(tree, before, (), ("made_up", "more"), *((name,) for name in BAD_NAMES))

    # Half way: everything was copied when the disk is said to be full.
    folder = pathlib.Path(temporary) / "bin"
    folder.mkdir()
    (folder / "cp").write_text(f'#!/bin/sh\n{shutil.which("cp")} "$@" || exit 1\n'
                               'for last; do :; done\n'
                               '[ "$last" != . ] || { echo "error: no space" >&2; exit 1; }\n')
    (folder / "cp").chmod(0o755)
    done = new_operator(tree, "made_up", path=f"{folder}:")
    check(done.returncode == 1 and "no space" in done.stderr, f"a full disk: {done}")
    check(files_of(tree) == before, "a full disk: something half-made stayed")

    for name in NAMES:
        done = new_operator(tree, name)
        check(done.returncode == 0 and done.stderr == "" and "docs/adding_an_operator.md" in
              done.stdout, f"{name}: {done}")
        after = files_of(tree)
        check_made(before, after, name)
        check_layout(tree, after, before)
        # The texts that its planted bugs replace are there, whatever moved line ends.
        problems.extend(architecture_test.check_mutations(tree))
        check_refused(tree, after, [name])
        before = after
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
