#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles the kernels that multiply pairs of bf16 for a processor with vdpbf16ps, which need not
be this one, and looks at the inner loops. usage: dot_bf16_code_test.py KERNELS_ALONE CLANG OBJDUMP
"""
import os
import re
import subprocess
import sys
import tempfile

# What a driver's library inlines is a call to plain clang, which would spill every register.
LIBRARY = """
#define INLINE static inline __attribute__((always_inline, overloadable))
#define VECTOR(type, n)                                                                  \\
  typedef type##n __attribute__((aligned(sizeof(type)))) loose_##type##n;                \\
  INLINE type##n load##n(size_t at, global const type* p) {                              \\
    return *(global const loose_##type##n*)(p + at * n);                                 \\
  }                                                                                      \\
  INLINE type##n load##n(size_t at, private const type* p) {                             \\
    return *(private const loose_##type##n*)(p + at * n);                                \\
  }                                                                                      \\
  INLINE void store##n(type##n value, size_t at, global type* p) {                       \\
    *(global loose_##type##n*)(p + at * n) = value;                                      \\
  }
VECTOR(ushort, 2) VECTOR(ushort, 8) VECTOR(int, 8) VECTOR(float, 8)
VECTOR(ushort, 16) VECTOR(int, 16) VECTOR(float, 16)
#define vload2 load2
#define vload8 load8
#define vstore8 store8
#define vload16 load16
#define vstore16 store16
"""
# As host/engines/cpu.cpp gives them, for 16 lanes.
ENGINE = "-DLANES=16 -DMICRO_M=6 -DPACK_STEP=64"
WIDE, NARROW = "-DNV=4 -DPHASES=1 -DTILE_N=64", "-DNV=1 -DPHASES=4 -DTILE_N=16"
PAIRS = ("-DPACK_DOT_BF16=1 -DPROBE_DOT_BF16=1 -DLOGITS_DOT_BF16=1 -DDX_DOT_BF16=1 "
         "-DDW_DOT_BF16=1 -DW_TYPE=1")
SKELETON = ("-DSOFT_CAP=0 -DHAS_BIAS=0 -DHAS_CLASS_WEIGHT=0 -DKEEP_LOGITS=0 -DSTATISTICS=1 "
            "-DCLASS_GRADIENT=0")
DOT = "vdpbf16ps"


def compile_kernel(clang, folder, file, options, target="x86_64"):
    """The object file of a kernel, or None with the compiler's messages."""
    library = os.path.join(folder, "library.h")
    with open(library, "w", encoding="utf-8") as stream:
        stream.write(LIBRARY)
    output = os.path.join(folder, "kernel.o")
    result = subprocess.run(
        [clang, "-x", "cl", "-cl-std=CL1.2", "-target", target, "-O3", "-Xclang",
         "-finclude-default-header", "-include", library, "-Wno-unused-function",
         *options.split(), "-c", os.path.join(folder, "cpu", file), "-o", output],
        capture_output=True, text=True, check=False)
    return (output, result.stderr) if result.returncode == 0 else (None, result.stderr)


def loops(objdump, output):
    """The instructions of each innermost loop: from the target of a backward jump to the jump."""
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", output], check=True,
                          capture_output=True, text=True).stdout
    code = re.findall(r"^\s*([0-9a-f]+):\s+(.*)$", text, re.MULTILINE)
    at = {int(address, 16): index for index, (address, _) in enumerate(code)}
    found = []
    for index, (_, instruction) in enumerate(code):
        jump = re.match(r"j\w+\s+(?:0x)?([0-9a-f]+)", instruction)
        begin = at.get(int(jump.group(1), 16)) if jump else None
        if begin is not None and begin <= index:
            body = [i for _, i in code[begin:index + 1]]
            if not any(re.match(r"j", i) for i in body[:-1]):
                found.append(body)
    return found


def check(kernels_alone, clang, objdump):
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([kernels_alone, folder], check=True, capture_output=True)
        cases = [("engines/probe.cl", "", 24)]
        for shape, sums in ((WIDE, 24), (NARROW, 6)):
            for layout in (0, 1, 2):
                for file in ("linear/forward.cl", "linear_cross_entropy/gradient.cl"):
                    cases.append((file,
                                  f"{shape} -DW_LAYOUT={layout} {SKELETON}", sums))
                for stored in (1, 2):
                    cases += [(file, f"{shape} -DSTORED_PAIRS={stored} {of}={layout}", sums)
                              for file, of in (("linear/grad_x.cl", "-DW_LAYOUT"),
                                               ("linear/grad_w.cl", "-DOUT_TYPE=1 -DOUT_LAYOUT"))]
        # Few tokens meet w along H: eight products that do not wait for each other, whatever their
        # number; half of the lanes meet two rows of w.
        cases += [("linear/forward.cl",
                   f"{NARROW} -DLOGITS_ALONG_K={few} -DW_LAYOUT=0 {SKELETON}", rows)
                  for few, rows in ((1, 1), (2, 1), (4, 1), (8, 2))]
        for file, options, sums in cases:
            what = f"{file} {options}"
            options = f"{ENGINE} {options if 'NV=' in options else WIDE} {PAIRS} -march=cooperlake"
            output, log = compile_kernel(clang, folder, file, options)
            if output is None:
                problems.append(f"{what}: {log}")
                continue
            bodies = [b for b in loops(objdump, output) if any(DOT in i for i in b)]
            # Eight words a turn, all sums in registers.
            whole = [b for b in bodies if sum(DOT in i for i in b) == 8 * sums]
            if not whole:
                problems.append(f"{what}: no loop with {8 * sums} {DOT}, but with "
                                f"{[sum(DOT in i for i in b) for b in bodies]}")
            for body in bodies:
                spills = [i for i in body if re.search(r"v?mov\w*\s+%[xyz]mm\d+,.*\(%r[sb]p", i)]
                if spills:
                    problems.append(f"{what}: sums are spilled: {spills}")
                if any("vfmadd" in i for i in body):
                    problems.append(f"{what}: {DOT} and vfmadd in one loop")
        # A compiler for less builds the portable code instead: with the instruction its back end
        # would end the process, and a build that fails is reported on stderr by some drivers.
        for options in ("-march=haswell -DLANES=16 -DTILE_N=64",
                        "-march=cooperlake -DLANES=8 -DTILE_N=32"):
            output, log = compile_kernel(
                clang, folder, "engines/probe.cl",
                f"-DMICRO_M=6 -DNV=4 -DPHASES=1 -DPACK_STEP=64 {PAIRS} {options} -Wno-psabi")
            if output is None or any(DOT in i for b in loops(objdump, output) for i in b):
                problems.append(f"{options}: not the portable code: {log or DOT}")
        # Other types and devices have none of it.
        output, log = compile_kernel(clang, folder, "linear/forward.cl",
                                     f"{ENGINE} {WIDE} -DW_TYPE=1 -DW_LAYOUT=0 {SKELETON} "
                                     "-march=cooperlake")
        if output is None or any(DOT in i for b in loops(objdump, output) for i in b):
            problems.append(f"the portable build: {log or DOT}")
    return problems


def main():
    problems = check(*sys.argv[1:4])
    for problem in problems:
        print(problem)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
