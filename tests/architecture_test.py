#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Enforces the direction of includes between modules, what the two references link, the
links between documents, the tests that these name, and that every planted bug's text is there.
usage: architecture_test.py SOURCE_DIR [--oracle OBJECT... --streaming OBJECT...]"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

# A folder each in host and cl_kernels.
OPERATORS = re.findall(r"^    (\w+)::Operator\b", (pathlib.Path(__file__).resolve().parent.parent /
                       "host/catalog/operators.hpp").read_text(encoding="utf-8"), re.MULTILINE)

# Which modules each module may see besides itself; the arrows of docs/design.md, written out.
BELOW = {
    "include": set(),
    "host/dispatch": {"include"},
    "host/arguments": {"include", "host/dispatch"},
    "host/operators": {"include", "host/dispatch", "host/arguments", "host/opencl", "host/engines",
                       "tuning/lookup", "reference/streaming"},
    "tuning/lookup": {"include"},
    "host/opencl": {"include", "host/dispatch"},
    "host/context": {"include", "host/dispatch", "host/opencl"},
    "host/engines": {"include", "host/dispatch", "host/arguments", "host/opencl"},
    # How a call is cut into launches. It names no operator.
    "host/schedule": {"include", "host/dispatch", "host/opencl", "host/engines"},
    "host/custom": {"include", "host/dispatch", "host/arguments", "host/opencl", "host/engines"},
    # The oracle is also the implementation `reference`, whose loss half the operators share.
    # Likewise the per-token half of the streaming implementations, and of those on OpenCL.
    "host/loss": {"include", "host/dispatch", "host/arguments", "host/operators", "host/opencl",
                  "host/engines", "reference/oracle", "reference/streaming"},
    # What the operators share whose logits are a product.
    "host/linear": {"include", "host/dispatch", "host/arguments", "host/operators", "host/opencl",
                    "host/engines", "host/schedule", "host/loss", "reference/streaming"},
    # Needs neither OpenCL nor the dispatch side; the loops that must be fast are those of the
    # streaming reference.
    "host/tile": {"include", "reference/streaming"},
    "reference/oracle": {"include"},
    "reference/streaming": {"include"},
    "peaks": {"include"},
    "programs": {"include", "peaks"},  # tessera-info --peaks
    "examples": {"include"},
    "python": {"include"},
}
_OPERATOR = {"include", "host/dispatch", "host/arguments", "host/operators", "host/loss",
             "host/linear", "host/opencl", "host/engines", "host/schedule", "tuning/lookup",
             "host/tile", "reference/oracle", "reference/streaming"}
for _name in OPERATORS:
    BELOW[f"host/{_name}"] = _OPERATOR
# The list of all operators.
BELOW["host/catalog"] = _OPERATOR | {f"host/{_name}" for _name in OPERATORS}
_ALL = set(BELOW)
BELOW["bench"] = _ALL - {"examples"}  # shares the command line of programs
BELOW["tuning"] = _ALL - {"examples"} | {"bench"}  # tessera-tune
BELOW["tests"] = _ALL | {"bench", "tuning"}

# Single headers that stand on their own, of modules that are out of sight.
ALSO = {"host/tile": {"host/dispatch/json_text.hpp", "host/dispatch/thread_pool.hpp"},
        "tuning/lookup": {"host/dispatch/files.hpp", "host/arguments/shape.hpp"},
        "programs": {"host/dispatch/files.hpp", "host/operators/call.hpp",
                     "host/operators/matrix_unit.hpp", "host/loss/partial.hpp",
                     "host/catalog/operators.hpp"},
        "python": {"host/operators/call.hpp", "host/loss/partial.hpp",
                   "host/catalog/operators.hpp"}}

# The public headers that hold nothing but views, options and results: all the oracle may know.
OPTION_HEADERS = {"view.hpp", "dtype.hpp", "error.hpp", "loss.hpp", "execution.hpp", "context.hpp",
                  "version.hpp"}
# All that the tile machine may know of tessera: it runs kernels and knows no operator.
TILE_HEADERS = {"view.hpp", "dtype.hpp", "error.hpp", "version.hpp"}
OPENCL_MODULES = {"host/opencl", "host/engines", "host/schedule", "tests", "bench", "peaks"}


def module_of(path):
    """The module a file of the tree belongs to, or None."""
    best = None
    for module in BELOW:
        if path.startswith(module + "/") and (best is None or len(module) > len(best)):
            best = module
    return best


def may_use_opencl(path):
    """Files that are compiled only where OpenCL is."""
    return (module_of(path) in OPENCL_MODULES or path.startswith("examples/device_memory/") or any(
        part.startswith("opencl") for part in pathlib.PurePosixPath(path).parts[2:]))


def check_include(path, name, quoted):
    """What is wrong with `path` including `name`, or None."""
    module = module_of(path)
    if name.startswith("CL/"):
        return None if may_use_opencl(path) else "includes OpenCL's headers"
    if name.startswith("Eigen/") and module == "include" and not path.endswith("/eigen.hpp"):
        return "a public header other than eigen.hpp includes Eigen"
    if name.startswith("tessera/"):
        header = name.split("/", 1)[1]
        if module == "reference/oracle" and header not in OPTION_HEADERS:
            return f"the oracle may see views, options and results only, not {name}"
        if (path.startswith(("include/tessera/tile/", "host/tile/")) and
                header not in TILE_HEADERS and not header.startswith("tile/")):
            return f"the tile machine knows no operator and may not see {name}"
        return None
    if not quoted:
        return None
    target = module_of(name)
    if target is None or target == module:  # beside the file, or in its own module
        return None
    if target not in BELOW[module] and name not in ALSO.get(module, ()):
        return f"{module} may not see {target}"
    if target in ("host/opencl", "host/engines", "host/schedule") and not may_use_opencl(path):
        return f"is compiled without OpenCL too and may not see {target}"
    return None


def check_kernel_include(path, name, quoted=True):
    """Kernels: common <- engines <- linear <- operators."""
    if not quoted:  # what the host's compiler sees of a header that both read
        allowed = ("cl_kernels/common/arguments.h", "host/opencl/kernel_arguments.hpp")
        return None if (path, name) == allowed else f"kernels may not include <{name}>"
    rank = {"common": 0, "engines": 1, "linear": 2}
    own = path.split("/")[1]
    target = name.split("/")[0]
    if rank.get(target, 3) > rank.get(own, 3):
        return f"cl_kernels/{own} may not see cl_kernels/{target}"
    if rank.get(own, 3) == 3 and rank.get(target, 3) == 3 and own != target:
        return f"one operator's kernels may not see another's: {target}"
    return None


INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
VARIADIC = re.compile(r"^\s*#\s*define\s+\w+\([^)]*\.\.\.\s*\)", re.MULTILINE)


def check_tree(root):
    problems = []
    folders = sorted({module.split("/")[0] for module in BELOW} | {"cl_kernels", "scripts"})
    files = 0
    for folder in folders:
        for file in sorted((root / folder).rglob("*")):
            if file.suffix not in (".cpp", ".hpp", ".inc", ".cl", ".h", ".py"):
                continue
            files += 1
            path = file.relative_to(root).as_posix()
            text = file.read_text(encoding="utf-8")
            if "SPDX-License-Identifier: Apache-2.0" not in text[:200]:
                problems.append(f"{path}: no SPDX-License-Identifier in its first lines")
            if file.suffix == ".cl" and VARIADIC.search(text):
                problems.append(f"{path}: NVIDIA's compiler takes no variadic macros")
            for match in INCLUDE.finditer(text):
                name, quoted = match.group(2), match.group(1) == '"'
                if file.suffix in (".cl", ".h") and folder == "cl_kernels":
                    problem = check_kernel_include(path, name, quoted)
                else:
                    problem = check_include(path, name, quoted) if module_of(path) else None
                if problem:
                    problems.append(f"{path}: {problem}")
    if files < 20:
        problems.append(f"only {files} sources below {root}: is this the source tree?")
    return problems


LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)[^)]*\)")
# What is in them is code: a lambda looks like a link.
CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def check_documents(root):
    """Links between documents must lead somewhere."""
    problems = []
    for file in [*root.glob("*.md"), *(root / "docs").rglob("*.md")]:
        for target in LINK.findall(CODE_BLOCK.sub("", file.read_text(encoding="utf-8"))):
            if not (file.parent / target).exists():
                problems.append(f"{file.relative_to(root)}: the link to {target} leads nowhere")
    return problems


TEST_CASE = re.compile(r"^(?:TYPED_)?TEST(?:_F|_P)?\((\w+), (\w+)\)", re.MULTILINE)


def check_named_tests(root):
    """The tests that the pages of the tile machine name must exist. A table may leave out the suite
    that the name before it has, or that its heading has ("Suite.*")."""
    cases = {pair for file in (root / "tests").glob("tile_*.cpp")
             for pair in TEST_CASE.findall(file.read_text(encoding="utf-8"))}
    suites = {suite for suite, _ in cases}
    planted = "".join(file.read_text(encoding="utf-8")
                      for file in (root / "tests" / "tile_planted").glob("*.cpp"))
    problems = []
    names = 0
    for file in (root / "docs").glob("tile_*.md"):
        of_table = None
        # An item of a list is one line.
        text = re.sub(r"\n +(?=\S)", " ", file.read_text(encoding="utf-8"))
        for line in text.splitlines():
            table = line.startswith("|")
            if not table:
                of_table = None
            last = line.rstrip("| ").rfind("|") if table else len(line)
            suite = of_table
            # "planted `a`, `b`": programs of tests/tile_planted up to the end of the line.
            is_planted = False
            for word in re.finditer(r"(planted )?`([\w.*]+)`", line):
                name = word.group(2)
                is_planted = is_planted or word.group(1) is not None
                if is_planted:
                    known = f'{{"{name}"' in planted
                elif (name.split(".")[0] in suites or
                      re.match(r"(Tile[A-Z]\w+|DmaSlice\w*)\.", name)):
                    suite, case = name.split(".", 1) if "." in name else (name, "*")
                    known = suite in suites if case == "*" else (suite, case) in cases
                    if case == "*" and table and word.start() > last:
                        of_table = suite
                elif table and word.start() > last and suite and name[0].isupper():
                    known = (suite, name) in cases
                else:
                    continue
                names += 1
                if not known:
                    problems.append(f"{file.relative_to(root)}: there is no test {name}")
    if names < 100:
        problems.append(f"only {names} tests are named in docs/tile_*.md: is this check right?")
    return problems


def check_mutations(root):
    """The text that a mutation replaces must be in its file exactly once (scripts/mutate.py)."""
    problems = []
    count = 0
    for table in sorted((root / "tests" / "mutations").glob("*.json")):
        for mutation in json.loads(table.read_text(encoding="utf-8")):
            count += 1
            file = root / mutation["file"]
            found = file.read_text(encoding="utf-8").count(mutation["old"]) if file.exists() else 0
            if found != 1:
                problems.append(f"{table.relative_to(root)}: '{mutation['name']}': its text is "
                                f"{found} times in {mutation['file']}, not once")
    if count < 100:
        problems.append(f"only {count} mutations found: is this check right?")
    return problems


def undefined_symbols(objects):
    """What the objects need from elsewhere in tessera, demangled."""
    def nm(kind):
        out = subprocess.run(["nm", "-C", kind, *objects], check=True, capture_output=True,
                             text=True).stdout
        return {" ".join(line.split()[1:] if kind == "--undefined-only" else line.split()[2:])
                for line in out.splitlines() if len(line.split()) > 1}
    return {s for s in nm("--undefined-only") - nm("--defined-only") if "tessera::" in s}


# Error is caught by type across the library; the rest of what lies below all modules is its names.
FREE = re.compile(r"^(vtable for |typeinfo for )?tessera::(Error\b|to_string\(|View|Dims)")


def check_links(oracle, streaming):
    problems = []
    for symbol in undefined_symbols(oracle):
        if not FREE.match(symbol):
            problems.append(f"the oracle links {symbol}")
    for symbol in undefined_symbols(streaming):
        if "tessera::oracle" in symbol:
            problems.append(f"the streaming reference links the oracle: {symbol}")
    return problems


def check_rules():
    """The rules must reject what they are there for."""
    forbidden = [
        ("include/tessera/view.hpp", "host/dispatch/table.hpp", True),
        ("include/tessera/context.hpp", "CL/cl.h", False),
        ("include/tessera/loss.hpp", "Eigen/Core", False),
        ("host/dispatch/table.hpp", "host/opencl/runtime.hpp", True),
        ("host/dispatch/table.cpp", "CL/opencl.hpp", False),
        ("host/opencl/call.hpp", "host/engines/engine.hpp", True),
        ("host/engines/simt/engine.cpp", "host/linear_cross_entropy/request.hpp", True),
        ("host/linear_cross_entropy/eigen.cpp", "host/opencl/call.hpp", True),
        ("host/linear_cross_entropy/opencl/run.cpp", "host/softmax_cross_entropy/request.hpp",
         True),
        ("host/loss/results.cpp", "host/opencl/call.hpp", True),
        ("host/arguments/bytes.cpp", "host/loss/request.hpp", True),
        ("host/operators/symbols.cpp", "host/loss/request.hpp", True),
        ("host/engines/segments.cpp", "host/loss/request.hpp", True),
        ("host/engines/shares.cpp", "host/schedule/schedule.hpp", True),
        ("host/schedule/search.cpp", "host/linear/request.hpp", True),
        ("host/schedule/search.cpp", "host/operators/call.hpp", True),
        ("host/linear/walk.cpp", "host/schedule/walk.hpp", True),
        ("reference/oracle/oracle.cpp", "host/arguments/offsets.hpp", True),
        ("reference/oracle/oracle.cpp", "tessera/linear_cross_entropy.hpp", True),
        ("reference/streaming/forward.cpp", "reference/oracle/oracle.hpp", True),
        ("host/tile/grid.cpp", "host/dispatch/table.hpp", True),
        ("include/tessera/tile/machine.hpp", "tessera/linear_cross_entropy.hpp", True),
        ("host/tile/grid.cpp", "tessera/linear_cross_entropy_tile.hpp", True),
        ("programs/tessera_score.cpp", "host/arguments/offsets.hpp", True),
        ("examples/train_text/model.cpp", "host/arguments/offsets.hpp", True),
        ("examples/train_text/model.cpp", "CL/cl.h", False),
        ("bench/bench.cpp", "tests/support/golden.hpp", True),
        ("programs/info.cpp", "bench/measure.hpp", True),
        ("peaks/peaks.cpp", "bench/measure.hpp", True),
    ]
    allowed = [
        ("host/linear_cross_entropy/opencl_forward.cpp", "host/engines/engine.hpp", True),
        ("host/linear_distillation/opencl/steps.cpp", "host/schedule/search.hpp", True),
        ("host/tile/grid.cpp", "tessera/tile/grid.hpp", True),
        ("host/linear_cross_entropy/reference.cpp", "reference/oracle/oracle.hpp", True),
        ("host/context/opencl_context.cpp", "host/opencl/runtime.hpp", True),
        ("include/tessera/eigen.hpp", "Eigen/Core", False),
        ("reference/oracle/oracle.hpp", "tessera/loss.hpp", True),
    ]
    problems = [f"the rules let {p} include {n}" for p, n, q in forbidden
                if not check_include(p, n, q)]
    problems += [f"the rules forbid {p} to include {n}" for p, n, q in allowed
                 if check_include(p, n, q)]
    if not VARIADIC.search("#define EACH(v, ...) __VA_ARGS__"):
        problems.append("the rules let kernels have variadic macros")
    if not check_kernel_include("cl_kernels/common/types.cl", "engines/simt/tile.cl"):
        problems.append("the rules let common kernels include an engine")
    if not check_kernel_include("cl_kernels/loss/merge.cl", "host/arguments/offsets.hpp", False):
        problems.append("the rules let kernels include the host's headers")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("--oracle", nargs="*", default=[])
    parser.add_argument("--streaming", nargs="*", default=[])
    arguments = parser.parse_args()
    problems = check_rules() + check_tree(arguments.source)
    problems += check_documents(arguments.source) + check_named_tests(arguments.source)
    problems += check_mutations(arguments.source)
    if arguments.oracle:
        problems += check_links(arguments.oracle, arguments.streaming)
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
