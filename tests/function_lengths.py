#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Functions that are longer than a reader can follow at once, in C++, OpenCL C and Python; part
of architecture_test.py. usage: function_lengths.py FILE..., which lists every function of the files
with its lines, longest first."""
import ast
import pathlib
import re
import sys

MAX_LINES = 80

# What may be longer, with the reason. An entry that no longer is so is an error too.
EPILOGUE = "an epilogue uses names that its engine declares in the kernel, which no function sees"
ALLOWED = {
    ("cl_kernels/linear/forward.cl", "forward"): EPILOGUE,
    ("cl_kernels/softmax_cross_entropy/slice.cl", "slice_statistics"):
        "two versions of each step, one of which is compiled: a work-item's lanes or a group",
}

# Comments, raw strings, strings, characters and directives: nothing in them is code.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"'
                     r"|'(?:\\.|[^'\\\n])'|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.DOTALL | re.MULTILINE)
ATTRIBUTE = re.compile(r"\b__attribute__\s*\(\(.*?\)\)(?!\))", re.DOTALL)
DEFAULT = re.compile(r"=\s*\{\s*\}")  # of a parameter
# What a block may begin with that is no function.
OTHER_BLOCK = re.compile(r"(?:(?:public|private|protected|case [^:]*|default)\s*:\s*)*"
                         r"(?:template\s*<[^{]*>\s*)?"
                         r"(?:inline\s+)?(?:class|struct|union|enum|namespace|extern|if|for|while|"
                         r"switch|catch|do|else|try|return)\b")


def braces_of(text):
    """Functions and lambdas of C++ and OpenCL C: (name, first line, lines). A function is a block
    behind parentheses that belong to no statement; it begins with its signature."""
    for nothing in (NO_CODE, ATTRIBUTE, DEFAULT):
        text = nothing.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)
    open_blocks = []
    head = 0  # where what is before the next brace begins
    for match in re.finditer(r"[{};]", text):
        if match.group() == "{":
            open_blocks.append((head, match.start()))
        elif match.group() == "}" and open_blocks:
            begin, brace = open_blocks.pop()
            signature = text[begin:brace]
            begin += len(signature) - len(signature.lstrip())
            signature = signature.strip()
            if ")" in signature and not OTHER_BLOCK.match(signature):
                first = text.count("\n", 0, begin) + 1
                last = text.count("\n", 0, match.end()) + 1
                yield name_of(signature), first, last - first + 1
        head = match.end()


def name_of(signature):
    """The name before the first parenthesis; of a lambda, what it is assigned or passed to."""
    lambda_at = re.search(r"\[[^\[\]]*\]\s*\(", signature)
    if lambda_at:
        names = re.findall(r"\w+", signature[:lambda_at.start()])
        return f"lambda {names[-1]}" if names else "lambda"
    name = re.search(r"(~?\w+|operator\W+?)\s*\(", signature)
    return name.group(1) if name else signature[:40]


def definitions_of(text):
    """The functions of Python."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def functions_of(path, text):
    return definitions_of(text) if path.endswith(".py") else braces_of(text)


def check_functions(sources):
    """What is wrong with the functions of `sources`, pairs of path and text."""
    problems = []
    unused = dict(ALLOWED)
    functions = 0
    for path, text in sources:
        for name, line, lines in functions_of(path, text):
            functions += 1
            if lines <= MAX_LINES or unused.pop((path, name), None) or (path, name) in ALLOWED:
                continue
            problems.append(f"{path}:{line}: {name} has {lines} lines, the limit of a function is "
                            f"{MAX_LINES}; split it")
    problems += [f"tests/function_lengths.py: {path}: {name} is not longer than {MAX_LINES} lines; "
                 f"take it off the list" for path, name in unused]
    if functions < 1000:
        problems.append(f"only {functions} functions found: does this parser see the sources?")
    return problems


def check_parser():
    """The parser must see what it is there for."""
    body = "\n".join(f"  int x{i};" for i in range(MAX_LINES)) + "\n}"
    long = {
        "f": f"void f(int a) {{\n{body}",
        "g": f"template <class T>\nauto A::g(const T& t = {{}}) const -> T {{\n{body}",
        "lambda body": f"void h() {{ const auto body = [&](auto x) {{\n{body}; }}",
        "k": f"#define OPEN {{\n/* }} */ __kernel void k(__global float* a) {{ // }}\n{body}",
    }
    short = ["struct S {\n" + body + ";", "void f() {}\nnamespace n {\n" + body,
             'const char* text = R"(void f() {\n' + body + ')";', "int a[] = {\n" + body + ";"]
    problems = []
    for name, text in long.items():
        if (name, True) not in [(found, lines > MAX_LINES) for found, _, lines in braces_of(text)]:
            problems.append(f"function_lengths.py does not see that {name} is long")
    for text in short:
        problems += [f"function_lengths.py takes {name} for a long function"
                     for name, _, lines in braces_of(text) if lines > MAX_LINES]
    return problems


def main():
    rows = [(lines, f"{path}:{line}", name) for path in sys.argv[1:]
            for name, line, lines in
            functions_of(path, pathlib.Path(path).read_text(encoding="utf-8"))]
    for lines, where, name in sorted(rows, reverse=True):
        print(lines, where, name)


if __name__ == "__main__":
    main()
