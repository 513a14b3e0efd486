#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must not compile does not, and the compiler says why.

usage: tests/compile_fail_test.py ROOT EIGEN_INCLUDE COMPILER...
"""
import subprocess
import sys

PREAMBLE = """
#include "tessera/eigen.hpp"
#include "tessera/tessera.hpp"
using namespace tessera;
namespace lce = linear_cross_entropy;
[[maybe_unused]] static Eigen::MatrixXf e(4, 5);
[[maybe_unused]] static Eigen::MatrixXf make() { return e; }
[[maybe_unused]] static std::vector<float> numbers() { return {1.0f}; }
[[maybe_unused]] static lce::Result result() { return {}; }
"""

# A statement, and a part of what the compiler must say; None: it compiles.
CASES = [
    ("View v = view(e);", None),
    ("MutableView v = mutable_view(e.block(0, 0, 2, 3));", None),
    ("lce::Gradients g{.accumulate = true};", None),
    ("Eigen::MatrixXd d; View v = view(d);", "tessera has views of float, Eigen::bfloat16"),
    ("Eigen::Matrix<short, 2, 2> d; MutableView v = mutable_view(d);",
     "cast the matrix to one of these"),
    ("View v = view(make());", "outlives_the_view"),
    ("View v = view(Eigen::Ref<const Eigen::MatrixXf>(e));", "outlives_the_view"),
    ("View v = view(e + e);", "lies_in_memory"),
    ("View v = view(e.cast<Eigen::half>());", "lies_in_memory"),
    ("MutableView v = mutable_view(make());", "outlives_the_view"),
    ("const auto& c = e; MutableView v = mutable_view(c.block(0, 0, 2, 3));", "writable"),
    ("View v = numbers();", "deleted"),
    ("lce::Inputs in{.bias = numbers()};", "deleted"),
    ("View v = result().grad_w.view();", "deleted"),
    ("MutableView v = result().grad_w.mutable_view();", "deleted"),
    ("lce::Gradients g{.accumulate = 1};", "Accumulate"),
]


def diagnosed(compiler, root, eigen, statements):
    """What the compiler says of statements, each of them in a file name of its own."""
    source = PREAMBLE
    for number, statement in statements:
        source += f'#line 1 "case_{number}"\nvoid case_{number}() {{ {statement} }}\n'
    command = [compiler, "-std=c++20", "-fsyntax-only", "-I", f"{root}/include", "-isystem", eigen,
               "-x", "c++", "-"]
    result = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    return result.stderr


def main():
    root, eigen, *compilers = sys.argv[1:]
    failures = []
    numbered = list(enumerate(statement for statement, _ in CASES))
    for compiler in compilers:
        # Apart, so that what is right is compiled without errors beside it.
        right = [n for n in numbered if CASES[n[0]][1] is None]
        text = diagnosed(compiler, root, eigen, right)
        if text:
            failures.append(f"{compiler}: what should compile does not\n{text[-2000:]}")
        text = diagnosed(compiler, root, eigen, [n for n in numbered if n not in right])
        for number, statement in numbered:
            says = CASES[number][1]
            if says is None:
                continue
            if f"case_{number}:" not in text:
                failures.append(f"{compiler}: compiles: {statement}")
            elif says not in text:
                failures.append(f"{compiler}: nothing says '{says}': {statement}")
    print("\n".join(failures))
    print(f"{len(CASES)} statements, {len(compilers)} compilers, {len(failures)} failures")
    return 1 if failures or not compilers else 0


if __name__ == "__main__":
    sys.exit(main())
