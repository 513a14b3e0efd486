# SPDX-License-Identifier: Apache-2.0
"""Compilers for GPUs that are not here, for scripts/gpu_code.py. Each gives the figures of a
program's kernels by the columns of docs/gpu_code.csv."""
import glob
import os
import re
import subprocess


class Refused(Exception):
    """A compiler does not take a program."""


def run(words, **more):
    """The output of a compiler. A complaint is its first line with an error, without paths."""
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False,
                          **more)
    if done.returncode == 0:
        return done.stdout, done.stderr
    lines = (done.stderr + done.stdout).splitlines()
    line = next((line for line in lines if "error" in line.lower()), (lines or ["no message"])[0])
    raise Refused(re.sub(r"\S*/", "", line).strip())


def number(pattern, text):
    """The sum of what the pattern finds, which a compiler may leave out."""
    return sum(int(found) for found in re.findall(pattern, text))


class Code:
    """A kernel's instructions. `kinds` are patterns of theirs; where a kernel has any of `matrix`,
    its products are those alone."""

    def __init__(self, kinds):
        self.kinds, self.lines, self.labels, self.jumps = kinds, [], {}, []

    def add(self, text, target):
        """`target`: a match of the label to which the instruction jumps, or None."""
        if target:
            self.jumps.append((len(self.lines), target[1]))
        self.lines.append(text)

    def mix(self, begin, end):
        """Counts instructions of each kind. Two halves of one are two."""
        return {name: sum(len(re.findall(kind, line)) for line in self.lines[begin:end])
                for name, kind in self.kinds.items()}

    def figures(self):
        """The main loop multiplies most, densely: a loop around it has its products too. Without
        products it is the loop that moves most."""
        has_matrix = self.mix(0, len(self.lines))["matrix"] > 0
        most, result = 0, {"code": len(self.lines)}
        for at, label in self.jumps:
            begin = self.labels.get(label, at + 1)
            if begin > at:
                continue
            mix = self.mix(begin, at + 1)
            matrix = mix.pop("matrix")
            mix["products"] = matrix if has_matrix else mix["products"]
            moved = mix["local_accesses"] + mix["global_accesses"]
            worth = (mix["products"] or moved / 1000) ** 2 / (at + 1 - begin)
            if worth > most:
                most = worth
                result.update(mix, loop=at + 1 - begin)
        return result


class Compiler:
    def prepared(self, source, _):
        """The input of `compile`, the same for every architecture."""
        return source


class Clang(Compiler):
    """clang's code, by the library of built-in functions that it links."""
    flags = ["clang-19", "-x", "cl", "-cl-std=CL1.2", "-O3", "-S", "-nogpulib", "-Wno-everything",
             "-o", "-"]

    def versions(self):
        os.stat(self.library)
        return ["clang " + re.search(r"version ([\d.]+)", run(["clang-19", "--version"])[0])[1]]

    def clang(self, source, options, *more):
        # NVIDIA's own options mean nothing to it.
        own = [word for word in options.split() if not word.startswith("-cl-nv-")]
        return run([*self.flags, "-Xclang", "-mlink-builtin-bitcode", "-Xclang", self.library,
                    *more, *own, source])


class Nvidia(Clang):
    """clang's PTX as NVIDIA's driver would have it, and NVIDIA's assembler."""
    machines = {"a100": "sm_80", "rtx4090": "sm_89", "h100": "sm_90a"}
    library = "/usr/lib/clc/nvptx64--nvidiacl.bc"
    kinds = {"matrix": r"^HG?MMA\b", "products": r"^FFMA\b",
             "local_accesses": r"^(?:LDS|LDSM|STS)\b",
             "global_accesses": r"^(?:LDG|LDGSTS|STG|LD|ST|UBLKCP)\b",
             "barriers": r"^(?:BAR|SYNCS)\b"}

    def __init__(self, tools, gpu_code):
        folder = glob.glob(f"{tools}/nvidia/lib/python*/site-packages/nvidia/*/bin") or [tools]
        self.ptxas, self.nvdisasm = (os.path.join(folder[0], name) for name in
                                     ("ptxas", "nvdisasm"))
        self.gpu_code = gpu_code

    def versions(self):
        text, _ = run([self.ptxas, "--version"])
        return super().versions() + ["ptxas " + re.search(r"V([\d.]+)", text)[1]]

    def prepared(self, source, program):
        # The flags are those of tests/ptx/driver_compile.cpp, which says why the module is dumped.
        # clang unrolls no loop that would have over 16384 instructions, whatever a pragma says.
        ptx, dump = self.clang(
            source, program.options, "-target", "nvptx64-nvidia-nvcl", "-Xclang", "-target-cpu",
            "-Xclang", "sm_90" if program.items else "sm_80", "-Xclang", "-target-feature",
            "-Xclang", "+ptx83", "-mllvm", "-print-module-scope", "-mllvm",
            "-print-before=constmerge", "-mllvm", "-inline-threshold=100000")
        most = re.search(r"-cl-nv-maxrregcount=(\d+)", program.options)
        for kernel in program.kernels:
            size = re.search(rf"spir_kernel .*@{kernel}\(.*!reqd_work_group_size !(\d+)", dump)
            directives = ""
            if size:
                sizes = re.search(rf"^!{size[1]} = !{{(.*)}}", dump, re.MULTILINE)[1]
                directives += "\n.reqntid " + sizes.replace("i32 ", "")
            # The option itself has no effect beside the other directive.
            directives += f"\n.maxnreg {most[1]}" if most else ""
            ptx = re.sub(rf"(\.entry {kernel}\([^)]*\))", rf"\g<1>{directives}", ptx)
        if program.items:
            ptx, _ = run([self.gpu_code, "--patch", str(program.items)], input=ptx)
        return ptx

    def compile(self, ptx, _, arch, folder):
        source, cubin = os.path.join(folder, "ptx"), os.path.join(folder, "cubin")
        with open(source, "w", encoding="utf-8") as stream:
            stream.write(ptx)
        _, log = run([self.ptxas, "-v", f"-arch={arch}", source, "-o", cubin])
        figures = {}
        for part in log.split("Compiling entry function '")[1:]:
            figures[part.split("'")[0]] = {
                "registers": number(r"Used (\d+) registers", part),
                "stack": number(r"(\d+) bytes stack frame", part),
                "spills": number(r"(\d+) bytes spill", part),
                "local": number(r"(\d+) bytes smem", part)}
        code = None
        for line in run([self.nvdisasm, "-c", cubin])[0].splitlines():
            if kernel := re.match(r"\s*\.text\.(\w+):", line):
                code = figures[kernel[1]]["code"] = Code(self.kinds)
            elif label := re.match(r"(\.L_x_\d+):", line):
                code.labels[label[1]] = len(code.lines)
            elif found := re.match(r"\s+/\*\w+\*/\s+(?:@!?U?P\w+\s+)?(?!NOP)(\S.*?)\s*;", line):
                code.add(found[1], re.search(r"BRA.*`\((\.L_x_\d+)\)", found[1]))
        return {kernel: {**row, **row["code"].figures()} for kernel, row in figures.items()}


class Amd(Clang):
    """clang's code for AMD's GPUs, whose drivers have other versions of it."""
    machines = {"mi250": "gfx90a", "mi300x": "gfx942", "rx7900": "gfx1100"}
    library = "/usr/lib/clc/amdgcn--amdhsa.bc"
    kinds = {"matrix": r"^v_(?:mfma|wmma)_",
             "products": r"\bv_(?:pk_|dual_)?(?:fma|fmac|dot\d\w*)_f32",
             "local_accesses": r"^ds_(?:read|write|load|store)",
             "global_accesses": r"^(?:global|flat|buffer)_(?:load|store)",
             "barriers": r"^s_barrier"}

    def __init__(self, *_):
        pass

    def compile(self, source, program, arch, _):
        text, _ = self.clang(source, program.options, "-target", "amdgcn-amd-amdhsa",
                             f"-mcpu={arch}")
        figures = {}
        for kernel, body in re.findall(r"\n(\w+):\s+; @\1\n(.*?)\n\.Lfunc_end", text, re.DOTALL):
            code = Code(self.kinds)
            for line in body.splitlines():
                if label := re.match(r"(\.LBB\d+_\d+):", line):
                    code.labels[label[1]] = len(code.lines)
                elif found := re.match(r"\t(\w.*?)\s*(?:;.*)?$", line):
                    code.add(found[1], re.match(r"s_c?branch\w*\s+(\.LBB\d+_\d+)", found[1]))
            figures[kernel] = code.figures()
        for part in re.split(r"\n  - (?=\.agpr_count|\.args)", text)[1:]:
            figures[re.search(r"\n    \.name: +(\w+)", part)[1]].update({
                "registers": number(r"\.vgpr_count: +(\d+)", part),
                "stack": number(r"\.private_segment_fixed_size: +(\d+)", part),
                "spills": 4 * number(r"\.vgpr_spill_count: +(\d+)", part),
                "local": number(r"\.group_segment_fixed_size: +(\d+)", part)})
        return figures


class Intel(Compiler):
    """Intel's offline compiler."""
    machines = {"a770": "dg2", "max1550": "pvc"}
    # Surface 254 is local memory. What private memory holds is read and written as global memory.
    local = r"(?:\.slm\.d|0x\w{6}FE\b)"
    kinds = {"matrix": r"^dpas", "products": r"^mad\b", "local_accesses": rf"^send.*{local}",
             "global_accesses": rf"^send\.(?!gtwy)(?!.*(?:{local}|fence))",
             "barriers": r"^sync\.bar"}

    def __init__(self, tools, _):
        self.folder = f"{tools}/intel"
        self.libraries = dict(os.environ,
                              LD_LIBRARY_PATH=f"{self.folder}/usr/lib/x86_64-linux-gnu")

    def ocloc(self, command, device, folder, *more):
        run([f"{self.folder}/usr/bin/ocloc", command, "-device", device, *more], cwd=folder,
            env=self.libraries)

    def versions(self):
        with open(f"{self.folder}/versions", encoding="utf-8") as stream:
            return stream.read().splitlines()

    def compile(self, source, program, arch, folder):
        self.ocloc("compile", arch, folder, "-file", source, "--format", "zebin", "-options",
                   program.options, "-output", "program", "-output_no_suffix")
        self.ocloc("disasm", arch, folder, "-file", "program", "-dump", folder)
        figures = {}
        with open(f"{folder}/.ze_info", encoding="utf-8", errors="replace") as stream:
            kernels = stream.read().split("\nkernels_misc_info:")[0]
        described = re.split(r"\n  - name: +(\w+)", kernels)
        for kernel, part in zip(described[1::2], described[2::2], strict=True):
            code = Code(self.kinds)
            with open(f"{folder}/.text.{kernel}.asm", encoding="utf-8", errors="replace") as stream:
                for line in stream:
                    if label := re.match(r"(L\d+):", line):
                        code.labels[label[1]] = len(code.lines)
                    elif found := re.match(r"(?:\([^)]*\))?\s+(?!illegal)(\w.*?)\s*$", line):
                        code.add(found[1], re.match(r"(?:jmpi|while|goto)\S*\s.*?(L\d+)", found[1]))
            figures[kernel] = {
                "registers": number(r"grf_count: +(\d+)", part),
                "stack": number(r"usage: +(?:private|single)_space\n +size: +(\d+)", part),
                "spills": number(r"usage: +spill_fill_space\n +size: +(\d+)", part),
                "local": number(r"slm_size: +(\d+)", part), **code.figures()}
        return figures
