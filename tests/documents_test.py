#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the pages say beside what is so: docs/errors.md has every error code and the programs' exit
codes, tables of measured figures have those of the committed results, and no committed result holds
an absolute path. usage: documents_test.py SOURCE_DIR [PROGRAM...]"""
import json
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(sys.argv[1])
problems = []


def check(condition, what):
    if not condition:
        problems.append(what)


def read(path):
    return (root / path).read_text(encoding="utf-8")


def table_rows(text, heading):
    """The cells of the rows of the table whose first line is `heading`."""
    lines = text.splitlines()
    if heading not in lines:
        return []
    rows = []
    for line in lines[lines.index(heading) + 2:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


# Not a path: "GFLOP/s", "forward/opencl.cpu", "https://", "time / exact", "~/", "./build".
ABSOLUTE = re.compile(r"(?<![\w.)\]~}/:])/[\w.+-]|(?<=:)/(?!/)[\w.+-]")


def check_results():
    for text in ('"/usr/x"', "a:/b", "--out=/tmp/x", " /work", '\\"/usr/x'):
        check(ABSOLUTE.search(text), f"the pattern does not see the path in {text}")
    for text in ("1 GFLOP/s", "https://a.b/c", "x / y", "./build/x", "median, us/step", "a/b"):
        check(not ABSOLUTE.search(text), f"the pattern sees a path in {text}")
    files = [f for f in (root / "bench/results").rglob("*") if f.suffix in (".json", ".csv", ".md")]
    check(len(files) > 20, f"only {len(files)} results: is this the source tree?")
    for file in files:
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            found = ABSOLUTE.search(line)
            if found:
                problems.append(f"{file.relative_to(root)}:{number}: an absolute path: "
                                f"{line[max(0, found.start() - 30):found.start() + 40]}")


def check_error_codes():
    """The first table of docs/errors.md: every code, with the exit code that programs give it."""
    enum = re.search(r"enum class ErrorCode \{(.*?)\};", read("include/tessera/error.hpp"), re.S)
    codes = re.findall(r"^\s*(\w+),", enum.group(1), re.M)
    values = dict(re.findall(r"constexpr int (exit_\w+) = (\d);", read("programs/cli.hpp")))
    exits, waiting = {}, []
    function = re.search(r"int exit_code\(.*?\n\}", read("programs/cli.cpp"), re.S).group()
    for case, result in re.findall(r"case ErrorCode::(\w+):|return (\w+);", function):
        if case:
            waiting.append(case)
            continue
        exits.update({code: values[result] for code in waiting})
        waiting = []
    rows = table_rows(read("docs/errors.md"), "| code | exit code | when | what to do |")
    said = {row[0].strip("`"): row[1] for row in rows}
    check(len(codes) > 5 and sorted(exits) == sorted(codes), f"{codes}, {exits}: read wrongly")
    for code in codes:
        check(said.get(code) == exits.get(code), f"docs/errors.md: {code}: exit code "
              f"{said.get(code)}, the programs' is {exits.get(code)}")
    for code in said.keys() - set(codes):
        problems.append(f"docs/errors.md: there is no code {code}")


def check_exit_codes(programs):
    """The table of programs: each one's exit codes, of which that of a bad call is tried."""
    said = {}
    for names, *codes in table_rows(read("docs/errors.md"),
                                    "| program | done | failed at run time | bad call |"):
        said.update({name: codes for name in re.findall(r"`([\w-]+)`", names)})
    for program in programs:
        name = pathlib.Path(program).name
        codes = said.get(name)
        check(codes, f"docs/errors.md says nothing of {name}'s exit codes")
        if not codes:
            continue
        for arguments, code in (["--help"], codes[0]), (["--no-such-option"], codes[2]):
            done = subprocess.run([program, *arguments], capture_output=True, text=True)
            check(str(done.returncode) == code, f"{name} {arguments}: exit {done.returncode}, "
                  f"docs/errors.md: {code}")
            bad = arguments != ["--help"]
            check(done.stderr.count("\n") == bad, f"{name} {arguments}: {done.stderr!r}")
    built = {name for file in ("programs", "bench", "bench/latency", "examples/train_text")
             for name in re.findall(r'^\s+"(tessera-\w+)"\);$',
                                    "".join(f.read_text(encoding="utf-8") for f in
                                            (root / file).glob("*.cpp")), re.M)}
    check(len(built) > 3, f"only {built}: read wrongly")
    for name in built - said.keys():
        problems.append(f"docs/errors.md says nothing of {name}'s exit codes")


# Pages with tables of medians, and the results that they are of. Each result is named above its
# table.
SPEEDS = {"README.md": ["epyc-avx512-pocl31-2026-11-25.json"],
          "docs/performance.md": ["epyc-avx512-pocl31-2026-11-25.json",
                                  "epyc-avx2-pocl31-2026-11-22.json"]}


def check_figures():
    for page, files in SPEEDS.items():
        results = {file: json.loads(read(f"bench/results/{file}")) for file in files}
        lines = read(page).splitlines()
        seen = dict.fromkeys(files, 0)
        file = files[0]
        for line in lines:
            file = next((f for f in files if f in line), file)
            cells = [c.strip() for c in line.strip("|").split("|")]
            if len(cells) < 4 or cells[1] not in ("f32", "bf16"):
                continue
            by_name = {row["name"]: row for row in results[file]["benchmarks"]}
            for layout, cell in zip(("vh", "hv"), cells[2:4], strict=True):
                figures = re.fullmatch(r"(\d+)(?: GFLOP/s)?, (\d+)%", cell)
                if not figures:
                    continue
                row = by_name[f"linear_cross_entropy/{cells[0]}/opencl.cpu/{cells[1]}/{layout}/"
                              "B512/H2048/V32768"]
                want = (row["flops_per_second"] * 1e-9, 100 * row["fraction_of_peak"])
                seen[file] += 1
                check(all(abs(float(got) - w) <= 0.501
                          for got, w in zip(figures.groups(), want, strict=True)),
                      f"{page}: {cells[0]} {cells[1]} {layout}: {cell}; {file} has "
                      f"{want[0]:.1f}, {want[1]:.1f}%")
        for file, data in results.items():
            device = data["context"]["device"]
            check(any(file in line for line in lines) and any(device in line for line in lines),
                  f"{page}: names {file} or its device, {device}, nowhere")
            check(seen[file] >= 4, f"{page}: {seen[file]} figures of {file} were found")


check_results()
check_error_codes()
check_exit_codes(sys.argv[2:])
check_figures()
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
