#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants what makes kernels slower and not wrong, so that no other test sees it, and looks whether
scripts/gpu_code.py does. usage: planted_test.py GPU_CODE TOOLS"""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# A name, the file, a text of it and its replacement, a program that has it, and the figure by which
# it must be found.
PLANTED = [
    ("scalar loads in the place of 16 bytes", "engines/simt/product.cl",
     "vstore4(*(local const float4*)(b + k * TILE_N + product_n(n)), 0, b_row + n);",
     "for (int i = 0; i < 4; ++i) b_row[n + i] = "
     "((volatile local const float*)b)[k * TILE_N + product_n(n) + i];",
     "sm_80 simt 64x64 linear/forward.cl", " products "),
    ("loops that are not unrolled, whose array has no registers then", "common/row_pass.cl",
     '#define GROUP_UNROLLED _Pragma("unroll")', "#define GROUP_UNROLLED",
     "sm_80 softmax_cross_entropy/forward.cl", " stack "),
]


def compared(arguments, only, folder):
    words = [sys.executable, ROOT / "scripts" / "gpu_code.py", *arguments, "--kernels", folder,
             "--only", only]
    return subprocess.run(words, capture_output=True, text=True, check=False)


def main():
    problems = []
    for what, file, old, new, only, sign in PLANTED:
        text = (ROOT / "cl_kernels" / file).read_text(encoding="utf-8")
        if text.count(old) != 1:
            problems.append(f"{what}: {file} has the text {text.count(old)} times, not once")
            continue
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder) / file
            target.parent.mkdir(parents=True)
            target.write_text(text.replace(old, new), encoding="utf-8")
            done = compared(sys.argv[1:], only, folder)
        if done.returncode == 77:
            print(done.stdout)
            sys.exit(77)
        found = [line for line in done.stdout.splitlines() if sign in line]
        print(f"{what}: {found[0] if found else 'not found'}")
        if done.returncode != 1 or not found:
            problems.append(f"{what}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    print("\n".join(problems))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
