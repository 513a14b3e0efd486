#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the pages say beside what is so: docs/errors.md has every error code and the programs' exit
codes, tables of measured figures are those of the committed results, each of these is of a clean
commit and holds no absolute path, and files that a page links or names are there.
usage: documents_test.py SOURCE_DIR [PROGRAM...]"""
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
    files = [f for folder in ("bench/results", "tuning/raw") for f in (root / folder).rglob("*")
             if f.suffix in (".json", ".csv", ".md")]
    check(len(files) > 20, f"only {len(files)} results: is this the source tree?")
    for file in files:
        # `git describe` says "-dirty" of a build whose sources no commit has.
        check("-dirty" not in file.read_text(encoding="utf-8"),
              f"{file.relative_to(root)} is not of a clean commit")
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
    built = {name for file in ("programs", "bench", "bench/latency", "tuning/tune",
                                  "examples/train_text")
             for name in re.findall(r'^\s+"(tessera-\w+)"\);$',
                                    "".join(f.read_text(encoding="utf-8") for f in
                                            (root / file).glob("*.cpp")), re.M)}
    check(len(built) > 3, f"only {built}: read wrongly")
    for name in built - said.keys():
        problems.append(f"docs/errors.md says nothing of {name}'s exit codes")


# Pages with the table that bench/report.py --speeds makes of a result.
SPEEDS = {"README.md": ["epyc-avx512-pocl31-2026-11-27.json"],
          "docs/performance.md": ["epyc-avx512-pocl31-2026-11-27.json",
                                  "epyc-avx2-pocl31-2026-11-22.json"]}


def check_figures():
    for page, files in SPEEDS.items():
        text = read(page)
        for file in files:
            done = subprocess.run([sys.executable, root / "bench/report.py",
                                   root / "bench/results" / file, "--speeds"],
                                  capture_output=True, text=True, check=True)
            check(done.stdout.count("\n") > 8 and done.stdout in text,
                  f"{page} has not what this prints: python3 bench/report.py bench/results/{file} "
                  f"--speeds\n{done.stdout}")
            check(f"bench/results/{file}" in text, f"{page} does not name {file}")


def check_paths():
    tops = "|".join(sorted(f.name for f in root.iterdir()
                           if f.is_dir() and f.name != "build" and not f.name.startswith(".")))
    named = re.compile(rf"`((?:{tops})/[\w./-]+\.\w+)`")
    linked = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
    pages = [*root.glob("*.md"), *(root / "docs").rglob("*.md"), *(root / "examples").rglob("*.md")]
    check(len(pages) > 20, f"only {len(pages)} pages: is this the source tree?")
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for start, pattern in ((root, named), (page.parent, linked)):
            for path in pattern.findall(text):
                check("NAME" in path or (start / path).exists(),
                      f"{page.relative_to(root)} names {path}, which is no file")


check_results()
check_error_codes()
check_paths()
check_exit_codes(sys.argv[2:])
check_figures()
for problem in problems:
    print(problem)
sys.exit(1 if problems else 0)
