#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles what GPUs that are not here can be asked to run, and compares what compilers make of it
with docs/gpu_code.csv. scripts/gpu_code.sh installs the compilers and calls this.

usage: gpu_code.py GPU_CODE TOOLS [--write] [--only PART...] [--kernels FOLDER]

GPU_CODE lists the programs (tests/gpu_code), TOOLS is the folder of the compilers. Of a vendor's
programs those are compiled that together have every value of every option in each kernel file and
tile. A row of the CSV is a kernel of such a program on one architecture:

  registers      of a work-item; on Intel's GPUs of a thread
  stack, spills  bytes of a work-item: memory for what has no register, and its stores and loads;
                 on Intel's GPUs as its compiler counts them
  local          bytes of a work-group
  code           instructions
  loop           instructions of the main loop; of these products (multiplications that are added
                 up), accesses to local and to global memory, barriers
  refused        the first line of a compiler that does not take the program

--write: writes the CSV, where rows stay as long as there are such programs; without the file all
are chosen anew. --only: programs whose names have all these parts. --kernels: files that
stand for those of cl_kernels. Exit code 1: a row is worse than in the CSV, or not in both; 77: no
compiler.
"""
import argparse
import collections
import concurrent.futures
import csv
import hashlib
import json
import os
import sys
import tempfile

import gpu_compilers
from gpu_compilers import Amd, Intel, Nvidia, Refused

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
TABLE = os.path.join(ROOT, "docs", "gpu_code.csv")
WORK = os.path.join(ROOT, "build", "gpu_code")
NAMES = ["arch", "engine", "tile", "file", "kernel", "variant"]
FIGURES = ["registers", "stack", "spills", "local", "code", "loop", "products", "local_accesses",
           "global_accesses", "barriers"]
TYPES = ["f32", "bf16", "f16", "i32", "i64"]

Program = collections.namedtuple("Program", "engine file kernels items options")


def macros(program):
    return dict(word[2:].split("=") for word in program.options.split() if word.startswith("-D"))


def tile_of(program):
    own = macros(program)
    return f"{own['TILE_M']}x{own['TILE_N']}" if "TILE_M" in own else ""


def programs_of(vendor, arguments):
    """{program: the architectures that are asked for it}, grouped by engine, tile and file."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for machine, arch in vendor.machines.items():
        more = [arguments.kernels] if arguments.kernels else []
        listed, _ = gpu_compilers.run([arguments.gpu_code, machine, arguments.sources, *more])
        for line in listed.splitlines():
            engine, file, kernels, items, options = line.split("\t")
            program = Program(engine, file, tuple(kernels.split()), int(items), options)
            groups[engine, tile_of(program), file][program].append(arch)
    return groups


def covering(programs, known):
    """Chooses of a group's programs those with known rows, then each time the one that has most
    values of options on architectures that none has yet. {program: what tells it from others}"""
    values = {program: macros(program) for program in programs}
    items = {program: {(arch, *item) for arch in archs for item in values[program].items()}
             for program, archs in programs.items()}
    seen = {name: {own.get(name) for own in values.values()}
            for name in {name for own in values.values() for name in own}}

    def text(name, value):
        """Nothing of what all have, or of a 0 where all have a number."""
        if len(seen[name]) == 1 or value == "0" and None not in seen[name]:
            return None
        if name.endswith("_TYPE"):
            value = TYPES[int(value)]
        return name if value == "1" else f"{name}={value}"

    variants = {program: " ".join(filter(None, (text(*item) for item in own.items())))
                for program, own in values.items()}
    chosen = [program for program in programs if variants[program] in known]
    missing = set().union(*items.values()).difference(*(items[program] for program in chosen))
    while missing:
        chosen.append(max(sorted(programs), key=lambda one: (len(items[one] & missing),
                                                             -len(variants[one]))))
        missing -= items[chosen[-1]]
    return {program: variants[program] for program in chosen}


def compile_program(vendor, versions, sources, program, archs):
    """{arch: {kernel: figures}}, kept until something of them changes."""
    source = os.path.join(sources, program.engine, program.file)
    made_of = repr((program, versions))
    for path in (source, gpu_compilers.__file__):
        with open(path, encoding="utf-8") as stream:
            made_of += stream.read()
    result, prepared = {}, None
    for arch in archs:
        kept = os.path.join(WORK, hashlib.sha256((made_of + arch).encode()).hexdigest())
        if not os.path.exists(kept):
            with tempfile.TemporaryDirectory(dir=WORK) as folder:  # where `kept` is
                try:
                    prepared = prepared or vendor.prepared(source, program)
                    figures = vendor.compile(prepared, program, arch, folder)
                except Refused as refused:
                    figures = {kernel: {"refused": str(refused)} for kernel in program.kernels}
                with open(folder + "/figures", "w", encoding="utf-8") as stream:
                    json.dump(figures, stream)
                os.rename(folder + "/figures", kept)
        with open(kept, encoding="utf-8") as stream:
            result[arch] = json.load(stream)
    return result


def rows_of(vendor, versions, committed, arguments):
    jobs, names = [], []
    for group, programs in programs_of(vendor, arguments).items():
        known = {key[5] for key in committed if (key[1], key[2], key[3]) == group}
        for program, variant in covering(programs, known).items():
            text = " ".join([*filter(None, group), variant])
            archs = [arch for arch in programs[program]
                     if all(part in f"{arch} {text}" for part in arguments.only)]
            jobs.append((vendor, versions, arguments.sources, program, archs))
            names.append((group, variant))
    rows = {}
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda job: compile_program(*job), jobs)
        for job, (group, variant), by_arch in zip(jobs, names, made, strict=True):
            for arch, figures in by_arch.items():
                for kernel in job[3].kernels:
                    key = (arch, *group, kernel, variant)
                    assert key not in rows, f"two programs have the name {key}"
                    rows[key] = {what: str(figures[kernel].get(what, ""))
                                 for what in [*FIGURES, "refused"]}
    return rows


def worse(old, new):
    """The figures of a row that are worse than they were."""
    if old["refused"] != new["refused"]:
        return [f"refused: {new['refused'] or 'no longer'}"]
    was, now = ({name: int(row[name] or 0) for name in FIGURES} for row in (old, new))
    # Another choice of the assembler's is up to 8 registers.
    found = [f"{name} {was[name]} -> {now[name]}" for name in ("stack", "spills", "local",
                                                               "registers")
             if now[name] > was[name] + (8 if name == "registers" else 0)]
    if was["loop"] and not now["loop"]:
        found.append("the loop is gone")
    elif now["products"] * was["loop"] < 0.97 * was["products"] * now["loop"]:
        found.append(f"products {was['products']} of {was['loop']} instructions -> "
                     f"{now['products']} of {now['loop']}")
    return found


def read_table():
    """The rows by their names, and the compilers' versions by vendor."""
    with open(TABLE, encoding="utf-8", newline="") as stream:
        lines = stream.read().splitlines()
    versions = dict(line[2:].split(": ", 1) for line in lines if line.startswith("# "))
    rows = csv.DictReader(line for line in lines if not line.startswith("# "))
    return {tuple(row[name] for name in NAMES): row for row in rows}, versions


def write_table(rows, versions):
    with open(TABLE, "w", encoding="utf-8", newline="") as stream:
        stream.writelines(f"# {vendor}: {names}\n" for vendor, names in sorted(versions.items()))
        table = csv.writer(stream, lineterminator="\n")
        table.writerow([*NAMES, *FIGURES, "refused"])
        for key, row in sorted(rows.items()):
            table.writerow([*key, *(row[name] for name in [*FIGURES, "refused"])])


def compare(rows, committed, is_whole):
    """Prints the rows that are worse than committed, or not in both, or spill on NVIDIA's GPUs.
    Their number."""
    found = {key: worse(committed[key], row) if key in committed else ["a new row"]
             for key, row in rows.items()}
    for key, row in rows.items():
        if key[0] in Nvidia.machines.values() and (row["stack"], row["spills"]) != ("0", "0"):
            found[key].append("spills on NVIDIA: 0")
    if is_whole:
        found.update({key: ["the row is gone"] for key in committed if key not in rows})
    for key, problems in sorted(found.items()):
        if problems:
            print(f"{' '.join(filter(None, key[:5]))} [{key[5]}]: {', '.join(problems)}")
    return sum(bool(problems) for problems in found.values())


def arguments_given():
    parser = argparse.ArgumentParser()
    parser.add_argument("gpu_code")
    parser.add_argument("tools")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="+", default=[])
    parser.add_argument("--kernels")
    arguments = parser.parse_args()
    if arguments.write and (arguments.only or arguments.kernels):
        parser.error("--write: writes all rows; goes with neither --only nor --kernels")
    return arguments


def check(arguments):
    """The exit code."""
    committed, recorded = read_table() if os.path.exists(TABLE) else ({}, {})
    rows, versions, compared, compiled, problems = dict(committed), dict(recorded), 0, 0, 0
    for kind in (Nvidia, Amd, Intel):
        vendor, name = kind(arguments.tools, arguments.gpu_code), kind.__name__
        try:
            found = ", ".join(vendor.versions())
        except (OSError, Refused) as missing:
            print(f"{name}: skipped: {missing}")
            continue
        if found != recorded.get(name) and not arguments.write:
            print(f"{name}: skipped: the CSV is of {recorded.get(name)}, here is {found}")
            continue
        old = {key: row for key, row in committed.items() if key[0] in kind.machines.values()}
        own = rows_of(vendor, found, old, arguments)
        compared += 1
        compiled += len(own)
        print(f"{name}: {len(own)} kernels, {sum(bool(row['refused']) for row in own.values())} "
              f"of them refused, by {found}", flush=True)
        if arguments.write:
            rows = {key: row for key, row in rows.items() if key not in old}
            rows.update(own)
            versions[name] = found
        else:
            problems += compare(own, old, not arguments.only)
    if arguments.write:
        write_table(rows, versions)
    elif compared and not compiled:
        print(f"--only: no program has all of {' '.join(arguments.only)} in its names")
        problems = 1
    elif problems:
        print(f"{problems} kernels are not as in docs/gpu_code.csv (scripts/gpu_code.sh --write)")
    return 77 if compared == 0 else 1 if problems else 0


def main():
    arguments = arguments_given()
    os.makedirs(WORK, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=WORK) as arguments.sources:
        return check(arguments)


if __name__ == "__main__":
    sys.exit(main())
