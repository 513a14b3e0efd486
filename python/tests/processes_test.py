# SPDX-License-Identifier: Apache-2.0
"""What happens around a call: imports, forks, signals. Each in a process of its own."""

import ast
import pathlib
import subprocess
import sys
import textwrap

import tessera


def run(program, seconds=60):
    """What the program prints; it must end well and in time."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True,
                          text=True, timeout=seconds)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "", done.stderr
    return done.stdout


def test_import_touches_nothing():
    assert run("""
        import sys, tessera
        print([name for name in ("numpy", "torch", "jax", "ml_dtypes") if name in sys.modules])
        maps = open("/proc/self/maps").read()
        print([name for name in ("libpocl", "libLLVM", "libnvidia-opencl") if name in maps])
        print(len([name for name in dir(tessera.linear_cross_entropy) if name[0] != "_"]) > 8)
    """) == "[]\n[]\nTrue\n"


def test_modules_and_names():
    assert run("""
        import tessera.rms_norm
        from tessera.linear_distillation import value_and_grad
        from tessera import *
        print(sorted(tessera.operators) == sorted(
            ["linear_cross_entropy", "softmax_cross_entropy", "linear_distillation", "rms_norm"]))
        print(value_and_grad.__doc__.startswith("value_and_grad(x: Any, w: Any, teacher_x: "))
        print(issubclass(LabelOutOfRangeError, (IndexError)) and issubclass(Warning, UserWarning))
    """) == "True\nTrue\nTrue\n"


def test_threads_that_import_and_call():
    assert run("""
        import threading
        import numpy as np
        x, w = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)
        losses = []
        def work():
            import tessera
            losses.append(float(tessera.linear_cross_entropy.forward(
                x, w, np.zeros(4, np.int64)).loss))
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(len(losses), abs(losses[0] - np.log(16)) < 1e-5, len(set(losses)))
    """) == "8 True 1\n"


def test_stubs(tmp_path):
    """Every function and class is in the stubs, which are Python."""
    script = pathlib.Path(__file__).parents[1] / "src" / "stubs.py"
    subprocess.run([sys.executable, script, tmp_path], check=True, timeout=60)
    for name in tessera.operators:
        tree = ast.parse((tmp_path / f"{name}.pyi").read_text())
        functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
        module = getattr(tessera, name)
        assert set(functions) == {each for each in dir(module) if not each.startswith("_")}
        assert functions["forward"].args.args[0].arg in ("x", "logits")
        assert "epsilon" in ast.unparse(functions["forward"]) or "reduction: str='mean'" in (
            ast.unparse(functions["forward"]))
    text = (tmp_path / "_core.pyi").read_text()
    ast.parse(text)
    assert "class Context:" in text and "def custom_kernel(" in text
