# SPDX-License-Identifier: Apache-2.0
"""What happens around a call: imports, forks, signals. Each in a process of its own."""

import ast
import json
import pathlib
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import tessera
from conftest import needs_device


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
        print({"linear_cross_entropy", "softmax_cross_entropy", "linear_distillation",
               "rms_norm"} <= set(tessera.operators))
        print(value_and_grad.__doc__.startswith("value_and_grad(x: Any, w: Any, teacher_x: "))
        print(issubclass(LabelOutOfRangeError, (IndexError)) and issubclass(Warning, UserWarning))
    """) == "True\nTrue\nTrue\n"


@needs_device
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
        assert functions["forward"].args.args and functions["forward"].args.kwonlyargs
        if name == "linear_cross_entropy":
            assert "reduction: str='mean'" in ast.unparse(functions["forward"])
    text = (tmp_path / "_core.pyi").read_text()
    ast.parse(text)
    assert "class Context:" in text and "def custom_kernel(" in text


@needs_device
def test_profile(tmp_path):
    x, w = np.ones((8, 16), np.float32), np.ones((16, 64), np.float32)
    labels = np.zeros(8, np.int64)
    trace = tmp_path / "trace.json"
    for implementation, kind in (("opencl", "kernel"), ("eigen", "task")):
        with tessera.Profile(trace=str(trace)) as profile:
            tessera.linear_cross_entropy.forward(x, w, labels, implementation=implementation)
        rows = [row for row in profile.kernels() if row.kind == kind]
        assert rows and all(row.calls > 0 and row.pass_name == "forward" for row in rows)
        assert profile.times().kernels > 0
        assert json.loads(trace.read_text())["traceEvents"]
    with pytest.raises(tessera.ExecutionFailedError, match="no_folder"):
        with tessera.Profile(trace=str(tmp_path / "no_folder" / "trace.json")):
            pass
    with pytest.raises(RuntimeError, match="has ended"):
        profile.write("trace.json")
    with tessera.Profile(), pytest.raises(ValueError, match="[Pp]rofile"):
        tessera.Profile().__enter__()


FORK = """
    import os, signal, warnings
    import numpy as np
    import tessera
    warnings.simplefilter("ignore", tessera.Warning)
    x, w = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)
    labels = np.zeros(4, np.int64)

    def loss(**call):
        return tessera.linear_cross_entropy.forward(x, w, labels, **call)

    def in_child(work):
        child = os.fork()
        if child == 0:
            signal.alarm(30)
            try:
                work()
            except tessera.Error as error:
                print(type(error).__name__, "spawn" in str(error), flush=True)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        print("ended well" if status == 0 else f"status {status}", flush=True)
"""


@needs_device
def test_fork_before_a_context():
    assert run(textwrap.dedent(FORK) + textwrap.dedent("""
        in_child(lambda: print(loss().dispatch.implementation.split(".")[0], flush=True))
    """)) == "opencl\nended well\n"


@needs_device
def test_fork_after_a_context():
    """OpenCL is refused in a child, with a reason; eigen works; nothing hangs."""
    assert run(textwrap.dedent(FORK) + textwrap.dedent("""
        assert loss().dispatch.implementation.startswith("opencl")
        in_child(lambda: print(loss().dispatch.implementation, flush=True))
        in_child(lambda: loss(implementation="opencl"))
        print(loss().dispatch.implementation.split(".")[0])
    """)) == "eigen\nended well\nUnsupportedError True\nended well\nopencl\n"


@needs_device
def test_spawn_after_a_context(tmp_path):
    """A spawned process has a context of its own; shards go there and back by pickles."""
    script = tmp_path / "spawn.py"  # which the child imports
    script.write_text(textwrap.dedent("""
        import multiprocessing
        import numpy as np
        import tessera
        x, w = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)
        def shard(begin, end):
            return tessera.linear_cross_entropy.forward_partial(
                x, w[:, begin:end], np.zeros(4, np.int64), vocab_offset=begin, vocab_size_total=16)
        if __name__ == "__main__":
            here = shard(0, 9)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                there = pool.apply(shard, (9, 16))
            whole = tessera.merge([here, there])
            print(here.dispatch.implementation.split(".")[0], whole.ranges[-1][1], len(whole.rows))
    """))
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    assert done.stdout == "opencl 16 4\n", done.stderr


@needs_device
def test_signal_handlers_survive_a_context():
    assert run("""
        import os, signal
        import numpy as np, tessera
        seen = []
        names = ("SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP")
        for name in names:
            signal.signal(getattr(signal, name), lambda number, frame: seen.append(number))
        x, w = np.ones((4, 8), np.float32), np.ones((8, 16), np.float32)
        tessera.linear_cross_entropy.forward(x, w, np.zeros(4, np.int64))
        for name in names:
            os.kill(os.getpid(), getattr(signal, name))
        print(len(seen))
    """) == "5\n"
