#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the installed headers tessera/tile/*.hpp declare must link against libtessera_tile alone.
usage: tile_symbols.py INCLUDE_DIR LIB_DIR

Functions are found in the headers' text: those marked TESSERA_API, and the members without a body
of the classes marked so. And what libtessera exports of the namespace tessera::tile, whatever
header declares it, the smaller library must export too."""
import pathlib
import re
import subprocess
import sys

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
MARKED = re.compile(r"\bTESSERA_API\b([^;{}()]*\()")
CLASS = re.compile(r"\b(?:class|struct)\s+TESSERA_API\s+(\w+)[^;{]*\{")
NAME = re.compile(r"(~?\w+|operator\W+?)\s*\(")


def body_of(text, start):
    """The text between the brace before `start` and its counterpart, without nested braces."""
    depth, kept = 1, []
    for character in text[start:]:
        if character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                break
            if depth == 1:
                kept.append("}")
        elif depth == 1:
            kept.append(character)
    return "".join(kept)


def declared(text):
    """Names of the functions that a header leaves to a library."""
    text = COMMENT.sub("", text)
    for match in MARKED.finditer(text):
        yield NAME.search(match.group(1)).group(1)
    for match in CLASS.finditer(text):
        body = re.sub(r"\b(public|private|protected):", "", body_of(text, match.end()))
        for member, end in re.findall(r"([^;}]*)([;}])", body):
            member = member.strip()
            if end == "}" or "(" not in member or re.match(r"template|friend|using", member):
                continue
            if re.search(r"=\s*(default|delete)$", member):
                continue
            name = NAME.search(member).group(1)
            yield f"{match.group(1)}::{name}"


def exported(library):
    """The functions of tessera::tile that a library defines, without their arguments."""
    dynamic = ["-D"] if library.suffix == ".so" else []
    out = subprocess.run(["nm", "-C", *dynamic, "--defined-only", library], check=True,
                         capture_output=True, text=True).stdout
    lines = [line.split(" ", 2) for line in out.splitlines() if line.count(" ") >= 2]
    return {re.sub(r"\[abi:\w+\]", "", name).split("(")[0] for _, kind, name in lines
            if kind in "TW" and name.startswith("tessera::tile::") and "(" in name}


def main():
    include, folder = (pathlib.Path(argument) for argument in sys.argv[1:3])
    suffix = ".so" if (folder / "libtessera_tile.so").exists() else ".a"
    alone = exported(folder / f"libtessera_tile{suffix}")
    missing = []
    functions = 0
    for header in sorted((include / "tessera" / "tile").glob("*.hpp")):
        for name in declared(header.read_text(encoding="utf-8")):
            functions += 1
            if not any(symbol.endswith(f"::{name}") for symbol in alone):
                missing.append(f"{header.name} declares {name}, which libtessera_tile does not "
                               "define")
    if functions < 70:
        missing.append(f"only {functions} functions found in the headers: is this parser right?")
    missing += [f"libtessera exports {symbol}, which libtessera_tile does not"
                for symbol in sorted(exported(folder / f"libtessera{suffix}") - alone)
                if suffix == ".so"]
    for line in missing:
        print(line)
    sys.exit(1 if missing else 0)


if __name__ == "__main__":
    main()
