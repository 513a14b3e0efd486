#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names the lines of the tree that are too long. usage: scripts/line_lengths.py [FILE...]

Code, CMake and shell: 100 columns. Markdown: 120, but for what cannot be broken: tables, blocks of
code, links alone on their lines. JSON and other data have no limit: nobody lays them out."""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CODE, MARKDOWN = 100, 120
SUFFIXES = {".cpp": CODE, ".hpp": CODE, ".h": CODE, ".inc": CODE, ".cl": CODE, ".py": CODE,
            ".sh": CODE, ".cmake": CODE, ".map": CODE, ".toml": CODE, ".md": MARKDOWN}
NAMES = {"CMakeLists.txt": CODE, "run": CODE, ".clang-format": CODE}  # run: .ci/run, a shell script
# Folder -> why its lines are as they are.
WRITTEN_BY_PROGRAMS = {"bench/results/": "results with the commands that made them, as made"}
# A list's mark or a comment's may stand before a link.
LINK = re.compile(r"[\s>*#/-]*(\[[^\]]*\]:?\s*\(?|<)?https?://\S+")


def files():
    """The tree's, in git or about to be."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [name for name in sorted(listed.split("\0"))
            if name and (ROOT / name).is_file() and not name.startswith(tuple(WRITTEN_BY_PROGRAMS))]


def limit_of(name):
    path = pathlib.PurePath(name)
    return NAMES.get(path.name) or SUFFIXES.get(path.suffix)


def too_long(text, limit):
    """(number, length) of the lines beyond `limit`."""
    in_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if limit == MARKDOWN:
            if line.lstrip().startswith("```"):
                in_code = not in_code
            if in_code or line.lstrip().startswith("|"):
                continue
        if len(line) > limit and not LINK.fullmatch(line):
            yield number, len(line)


def main():
    checked = [name for name in sys.argv[1:] or files() if limit_of(name)]
    found = 0
    for name in checked:
        limit = limit_of(name)
        for number, length in too_long((ROOT / name).read_text(encoding="utf-8"), limit):
            print(f"{name}:{number}: {length} columns, {limit} is the limit")
            found += 1
    print(f"{len(checked)} files, {found} lines are too long")
    return 1 if found or not checked else 0


if __name__ == "__main__":
    sys.exit(main())
