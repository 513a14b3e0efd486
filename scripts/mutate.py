#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one bug at a time (tests/mutations/*.json) and runs the tests that should find it.

usage: scripts/mutate.py [--lot N:SEED] [--fuzz CASES] BUILD_FOLDER [part of a mutation's name...]
       scripts/mutate.py --files FILE... -- BUILD_FOLDER

--files: those in these files, which need not have any.
--lot 20:1: twenty of the list, by a seed.
--fuzz 1500: not the mutation's own test looks for it, but tests/fuzz, in so many problems; of bugs
  in an operator only, for the tile machine's own mistakes are no wrong results of a loss.

A mutation replaces one exact text, which must be in its file once. A kernel's file is overridden
at run time (TESSERA_TEST_KERNEL_DIR, see tests/support/main.cpp), so nothing is rebuilt; a host
file is compiled alone and linked in front of the archive of the modules, one of python/src in the
place of the original; one of python/tessera takes the place of its copy. Those of tessera.torch
need PyTorch (scripts/torch_tools.sh), and are counted apart where it is not. Fields of a mutation:

  name, file, old, new   what is planted
  compiled_in            of a header: the source whose templates it changes
  test, filter           the executable, and which of its tests (GoogleTest's syntax; without: all);
                         of python/: a file of python/tests, and a part of names (pytest -k)
  cases                  optional: TESSERA_TEST_CASES, parts of names of cases of the tables
  implementation         optional: TESSERA_TEST_IMPLEMENTATIONS
  engines                optional: TESSERA_TEST_ENGINES
  bf16_pairs             optional: TESSERA_TEST_BF16_PAIRS=1
  ptx                    optional: run on the interpreted device of NVIDIA's (tests/ptx); without
                         clang-19 it is not planted, and counted apart
  oclgrind               optional: run in Oclgrind at tiny shapes; a report there kills the mutant
  product                optional: true where only the whole product of calls finds it, which
                         scripts/test.sh does not run (tests/support/pairs.hpp)
  allocation             optional: bytes that the device must allocate at once for the bug to show;
                         elsewhere it is not planted, and counted apart

What finds a bug must not depend on the processor: opencl.cpu runs with vectors of 8 lanes on two
cores (the test layer reports them), whatever the device has.

Exit code 1 when a mutation survives, 2 when one cannot be planted or the unmutated run fails.
"""
import argparse
import concurrent.futures
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# A mutant may loop forever; the slowest unmutated run takes about ten seconds alone.
TIMEOUT_SECONDS = 120
FUZZ_TIMEOUT_SECONDS = 1800


class Invalid(Exception):
    """The mutation cannot be planted or says nothing."""


def load():
    """Every mutation, with unique names."""
    folder = os.path.join(ROOT, "tests", "mutations")
    mutations = []
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), encoding="utf-8") as stream:
            mutations += json.load(stream)
    names = [m["name"] for m in mutations]
    if len(set(names)) != len(names):
        raise Invalid("two mutations have the same name")
    return mutations


def mutated_text(mutation):
    with open(os.path.join(ROOT, mutation["file"]), encoding="utf-8") as stream:
        text = stream.read()
    found = text.count(mutation["old"])
    if found != 1:
        raise Invalid(f"{mutation['file']} has the text {mutation['old']!r} {found} times, "
                      "not once")
    if mutation["old"] == mutation["new"]:
        raise Invalid("old and new are the same")
    return text.replace(mutation["old"], mutation["new"])


def write(folder, path, text):
    target = os.path.join(folder, path)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as stream:
        stream.write(text)
    return target


def run(arguments, **options):
    return subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", check=False, **options)


def run_shell(command, build):
    result = run(command, cwd=build, shell=True)
    if result.returncode != 0:
        raise Invalid(result.stdout[-3000:])


def compile_mutated(build, mutation, folder):
    """The object of the mutated file, and the path of the original's."""
    source = write(folder, mutation["file"], mutated_text(mutation))
    original = os.path.join(ROOT, mutation.get("compiled_in", mutation["file"]))
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
        entries = [e for e in json.load(stream) if e["file"] == original]
    if not entries:
        raise Invalid(f"{original} is not compiled in {build}")
    words = shlex.split(entries[0]["command"])
    object_file = os.path.join(folder, "mutated.o")
    original_object = words[words.index("-o") + 1]
    words[words.index("-o") + 1] = object_file
    if "compiled_in" in mutation:
        if "-include" in words:  # the precompiled headers have the original
            del words[words.index("-include"):words.index("-include") + 2]
        words.insert(1, "-I" + folder)  # before the tree's own
        if words[0].endswith("ccache"):  # which the compiler's name follows
            words[1], words[2] = words[2], words[1]
    else:
        words[words.index(original)] = source
    # The mutated text may leave something unused.
    run_shell(shlex.join([w for w in words if w != "-Werror"]), build)
    return object_file, original_object


def link_command(build, target, result):
    """How `target` is linked, but with the result at another place."""
    commands = run(["ninja", "-t", "commands", target], cwd=build).stdout.splitlines()
    link = [c for c in commands if f"-o {target} " in c]
    if len(link) != 1:
        raise Invalid(f"no link command for {target}")
    return link[0].replace(f"-o {target} ", f"-o {result} ")


def with_mutated_host(build, mutation, folder):
    """Compiles the mutated file and links the test against it; the path of the executable."""
    object_file, _ = compile_mutated(build, mutation, folder)
    executable = os.path.join(folder, mutation["test"])
    # An archive member whose symbols are all defined already is not taken, and of a template that
    # several objects have the first is.
    words = link_command(build, "tests/" + mutation["test"], executable).split(" ")
    first = next(i for i, word in enumerate(words) if word.endswith(".o"))
    words.insert(first, object_file)
    run_shell(" ".join(words), build)
    return executable


def with_mutated_module(build, mutation, folder):
    """Puts the mutated file into a copy of the Python package; the folder that has it."""
    package = os.path.join(folder, "tessera")
    shutil.copytree(os.path.join(build, "python", "tessera"), package)
    if mutation["file"].startswith("python/tessera/"):
        write(folder, mutation["file"].removeprefix("python/"), mutated_text(mutation))
        return folder
    object_file, original_object = compile_mutated(build, mutation, folder)
    name = "libtessera_torch.so" if needs_torch(mutation) else "_core.abi3.so"
    command = link_command(build, "python/tessera/" + name, os.path.join(package, name))
    run_shell(command.replace(f" {original_object} ", f" {object_file} "), build)
    return folder


def needs_torch(mutation):
    return mutation["file"].startswith(("python/src/torch/", "python/tessera/torch/"))


def has_torch(build):
    return os.path.exists(os.path.join(build, "python", "tessera", "libtessera_torch.so"))


def run_pytest(packages, mutation):
    """None when the tests pass with the package in that folder, else what found the bug."""
    test = os.path.join(ROOT, "python", "tests", mutation["test"] + ".py")
    tools = "torch" if needs_torch(mutation) else "python"
    command = [os.path.join(ROOT, "build", "tools", tools, "bin", "python"), "-B", "-m",
               "pytest", "-q", "-x", "-p", "no:cacheprovider", "--tb=no", "-rf",
               "-k", mutation.get("filter", ""), test]
    try:
        result = run(command, env={**os.environ, "PYTHONPATH": packages}, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return "a hang"
    failed = re.search(r"^FAILED \S+::(\S+)", result.stdout, re.MULTILINE)
    if failed:
        return failed[1]
    if result.returncode != 0:
        raise Invalid(f"exit code {result.returncode}:\n" + result.stdout[-1500:])
    return None


def ptx_driver(build):
    return os.path.join(build, "lib", "libtessera_ptx_driver.so")


def environment(build, mutation, folder):
    env = {k: v for k, v in os.environ.items() if not k.startswith("TESSERA_TEST_")}
    layer = os.path.join(build, "lib", "libtessera_test_layer.so")
    if mutation.get("ptx"):
        env["OPENCL_LAYERS"] = ptx_driver(build)
    elif os.path.exists(layer) and not mutation.get("oclgrind"):
        # Oclgrind is no driver of the loader's.
        env["OPENCL_LAYERS"] = layer
        env["TESSERA_LAYER_LIMITS"] = "native_float_vector=8,compute_units=2"
    # The calls that scripts/test.sh makes: what finds the bug must be among them. (Of bf16 by pairs
    # and on the interpreted device it makes all.)
    if not mutation.get("bf16_pairs") and not mutation.get("ptx"):
        env["TESSERA_TEST_PRODUCT"] = "1" if mutation.get("product") else "0"
    if "cases" in mutation:
        env["TESSERA_TEST_CASES"] = mutation["cases"]
    if "implementation" in mutation:
        env["TESSERA_TEST_IMPLEMENTATIONS"] = mutation["implementation"]
    if "engines" in mutation:
        env["TESSERA_TEST_ENGINES"] = mutation["engines"]
    if mutation.get("bf16_pairs"):
        env["TESSERA_TEST_BF16_PAIRS"] = "1"
    if mutation.get("oclgrind"):
        env["TESSERA_TEST_TINY"] = "1"
    if folder:
        env["TESSERA_TEST_KERNEL_DIR"] = folder
    return env


def run_fuzz(executable, cases, env):
    """None when every problem is right, else the first that is not."""
    env = {k: v for k, v in env.items()
           if k not in ("TESSERA_TEST_CASES", "TESSERA_TEST_IMPLEMENTATIONS")}
    command = [executable, "--cases", str(cases), "--no-shrinking", "--first-failure"]
    try:
        result = run(command, env=env, timeout=FUZZ_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return "a hang"
    if result.returncode == 0:
        return None
    found = re.search(r"^== (problem .*):$", result.stdout, re.MULTILINE)
    return found[1] if found else f"exit code {result.returncode}"


def run_test(executable, mutation, env, folder):
    """None when the tests pass, else what found the bug."""
    if mutation.get("fuzz"):
        return run_fuzz(executable, mutation["fuzz"], env)
    command = [executable, "--gtest_filter=" + mutation.get("filter", "*"), "--gtest_fail_fast"]
    log = os.path.join(folder, "oclgrind.log")
    if mutation.get("oclgrind"):
        # As in scripts/oclgrind.sh, which says why.
        command = ["oclgrind", "--log", log, "--max-errors", "5", "--data-races", "--uninitialized",
                   "--build-options", "-cl-opt-disable"] + command
    try:
        result = run(command, env=env, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        return "a hang"
    text = result.stdout
    if "clBuildProgram" in text:
        raise Invalid("the mutated kernel does not compile:\n" + text[:3000])
    if mutation.get("oclgrind"):
        with open(log, encoding="utf-8", errors="replace") as stream:
            report = stream.read().split("\n\t")[0].strip()
        if report:
            return "Oclgrind: " + re.sub(r" at .*| address 0x.*", "", report.splitlines()[0])
    if result.returncode == 0:
        if not re.search(r"^\[  PASSED  \] [1-9]", text, re.MULTILINE):
            raise Invalid("its tests did not run:\n" + text[-1500:])
        return None
    failed = re.findall(r"^\[  FAILED  \] (\S+?),? ", text, re.MULTILINE)
    if failed:
        return failed[0]
    running = re.findall(r"^\[ RUN      \] (\S+)", text, re.MULTILINE)
    if running and result.returncode < 0:
        return f"{running[-1]} (signal {-result.returncode})"
    raise Invalid(f"exit code {result.returncode}:\n" + text[-1500:])


def run_mutation(build, mutation):
    with tempfile.TemporaryDirectory(prefix="tessera-mutation-") as folder:
        if mutation["file"].startswith("python/"):
            return run_pytest(with_mutated_module(build, mutation, folder), mutation)
        prefix = "cl_kernels/"
        if mutation["file"].startswith(prefix):
            executable = os.path.join(build, "tests", mutation["test"])
            kernels = os.path.join(folder, "kernels")
            write(kernels, mutation["file"][len(prefix):], mutated_text(mutation))
        else:
            executable = with_mutated_host(build, mutation, folder)
            kernels = None
        return run_test(executable, mutation, environment(build, mutation, kernels), folder)


def run_unmutated(build, mutation):
    if mutation["file"].startswith("python/"):
        if found := run_pytest(os.path.join(build, "python"), mutation):
            raise Invalid("fails without a mutation: " + found)
        return
    with tempfile.TemporaryDirectory(prefix="tessera-mutation-") as folder:
        found = run_test(os.path.join(build, "tests", mutation["test"]), mutation,
                         environment(build, mutation, None), folder)
        if found:
            raise Invalid("fails without a mutation: " + found)


def largest_allocation(build):
    """Of the default device, in bytes; 0 without one."""
    info = run([os.path.join(build, "bin", "tessera-info"), "--json"])
    device = json.loads(info.stdout).get("device") if info.returncode == 0 else None
    return device["max_allocation_bytes"] if device else 0


def in_parallel(function, items):
    """(item, result or exception) as each ends."""
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        futures = {pool.submit(function, item): item for item in items}
        for future in concurrent.futures.as_completed(futures):
            error = future.exception()
            if error and not isinstance(error, (Invalid, OSError)):
                raise error
            yield futures[future], error if error else future.result()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", nargs="+", metavar="FILE")
    parser.add_argument("--lot", metavar="N:SEED")
    parser.add_argument("--fuzz", type=int, metavar="CASES")
    parser.add_argument("build")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    build = os.path.abspath(arguments.build)
    wanted = arguments.names
    start = time.monotonic()
    mutations = [m for m in load() if not wanted or any(w in m["name"] for w in wanted)]
    if not mutations:
        print("no mutation has such a name", file=sys.stderr)
        return 2
    if arguments.files:
        mutations = [m for m in mutations if m["file"] in arguments.files]
    if arguments.fuzz:
        mutations = [{**m, "test": "fuzz", "fuzz": arguments.fuzz, "filter": ""} for m in mutations
                     if not m["test"].startswith("tile_") and not m.get("oclgrind")]
    if arguments.lot:
        count, seed = (int(number) for number in arguments.lot.split(":"))
        mutations = random.Random(seed).sample(mutations, min(count, len(mutations)))
    largest = largest_allocation(build)
    apart = [m for m in mutations if m.get("allocation", 0) > largest]
    mutations = [m for m in mutations if m not in apart]
    for mutation in apart:
        print(f"not here  {mutation['name']}: needs an allocation of {mutation['allocation']} "
              f"bytes, the device allows {largest}", flush=True)
    if not os.path.exists(ptx_driver(build)):
        without = [m for m in mutations if m.get("ptx")]
        mutations = [m for m in mutations if m not in without]
        apart += without
        if without:
            print(f"not here  {len(without)} of the interpreted device, which {build} lacks",
                  flush=True)
    if not has_torch(build):
        without = [m for m in mutations if needs_torch(m)]
        mutations = [m for m in mutations if m not in without]
        apart += without
        if without:
            print(f"not here  {len(without)} of tessera.torch, which {build} does not have",
                  flush=True)
    distinct = {}
    for mutation in mutations:
        key = tuple(str(mutation.get(k)) for k in ("test", "filter", "cases", "implementation",
                                                    "engines", "bf16_pairs", "product",
                                                    "oclgrind", "ptx"))
        distinct.setdefault(key, mutation)
    broken = 0
    for mutation, result in in_parallel(lambda m: run_unmutated(build, m), distinct.values()):
        if result is not None:
            broken += 1
            print(f"INVALID   the tests of {mutation['name']}: {result}", flush=True)
    if broken:
        return 2
    print(f"{len(distinct)} selections of tests pass without a mutation", flush=True)
    survived = 0
    for mutation, result in in_parallel(lambda m: run_mutation(build, m), mutations):
        if isinstance(result, Exception):
            broken += 1
            print(f"INVALID   {mutation['name']}: {result}", flush=True)
        elif result is None:
            survived += 1
            print(f"SURVIVED  {mutation['name']} ({mutation['file']})", flush=True)
        else:
            print(f"killed    {mutation['name']}: {result}", flush=True)
    print(f"{len(mutations)} planted, {len(mutations) - survived - broken} killed, {survived} "
          f"survived, {broken} invalid, {len(apart)} not here, {time.monotonic() - start:.0f} s")
    return 2 if broken else 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
