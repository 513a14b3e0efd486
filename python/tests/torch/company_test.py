# SPDX-License-Identifier: Apache-2.0
"""tessera in a process with PyTorch, JAX, Triton's compiler and other OpenCL drivers."""

import importlib.util
import os
import pathlib
import statistics
import subprocess
import sys
import textwrap
import time

import pytest
import torch

import tessera.torch
from conftest import needs_device

INTEL = pathlib.Path(__file__).parents[3] / "build" / "tools" / "intel"

# Each compiles something: OpenCL's drivers a kernel, PyTorch by g++, JAX by its own LLVM.
PARTS = {
    "tessera": """
        import tessera.torch
        for device in tessera.devices():
            tessera.torch.set_context(tessera.Context(
                device=f"{device.platform_index}:{device.device_index}"))
            x = torch.randn(8, 64, requires_grad=True)
            loss = tessera.torch.linear_cross_entropy(
                x, torch.randn(256, 64), torch.arange(8), implementation="opencl")
            loss.backward()
            assert x.grad.isfinite().all()
        print(*sorted({device.platform for device in tessera.devices()}), sep=", ")
    """,
    "torch": """
        assert torch.compile(lambda a: (a.sin() * 2).sum())(torch.zeros(64)).item() == 0
    """,
    "jax": """
        import jax
        assert float(jax.jit(lambda a: (jax.numpy.sin(a) * 2).sum())(jax.numpy.zeros(64))) == 0
    """,
    "triton": """
        import triton
        import triton.language
        from triton._C import libtriton
        assert libtriton.llvm  # its own LLVM is loaded
    """,
}


def run(program, environment=(), seconds=120):
    done = subprocess.run([sys.executable, "-B", "-c", textwrap.dedent(program)],
                          capture_output=True, text=True, timeout=seconds, check=False,
                          env={**os.environ, **dict(environment)})
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def drivers(tmp_path_factory):
    """The environment that shows the system's OpenCL drivers and Intel's, where that is here."""
    intel = INTEL / "vendors" / "intel.icd"
    if not intel.exists():
        return {}
    vendors = tmp_path_factory.mktemp("vendors")
    for icd in (*pathlib.Path("/etc/OpenCL/vendors").glob("*.icd"), intel):
        (vendors / icd.name).write_text(icd.read_text())
    return {"OCL_ICD_VENDORS": str(vendors), "LD_LIBRARY_PATH": str(INTEL / "venv" / "lib")}


@needs_device
@pytest.mark.parametrize("order", [
    ("tessera", "torch", "jax", "triton"), ("torch", "jax", "tessera"),
    ("triton", "jax", "tessera", "torch")], ids="-".join)
def test_orders(order, drivers, tmp_path):
    """Nothing is cached, so that each compiles in the process that has the others' LLVM."""
    for part in order:
        if part != "tessera" and not importlib.util.find_spec(part):
            pytest.skip(f"{part} is not installed")
    cold = {name: str(tmp_path / name) for name in (
        "POCL_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "XDG_CACHE_HOME")}
    program = "import torch\n" + "".join(textwrap.dedent(PARTS[part]) for part in order)
    print(run(program, {**cold, **drivers, "JAX_PLATFORMS": "cpu"}))


@needs_device
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers(method, tmp_path):
    """Workers of a DataLoader call tessera after the parent has: eigen by fork, else OpenCL."""
    script = tmp_path / "workers.py"  # which spawned workers import
    script.write_text(textwrap.dedent(f"""
        import warnings
        import torch
        import tessera.torch
        warnings.simplefilter("ignore", tessera.Warning)
        w = torch.randn(256, 32, generator=torch.Generator().manual_seed(1))

        class Losses(torch.utils.data.Dataset):
            def __len__(self):
                return 6
            def __getitem__(self, at):
                x = torch.full((4, 32), float(at))
                return tessera.torch.linear_cross_entropy(x, w, torch.arange(4))

        if __name__ == "__main__":
            here = torch.stack([Losses()[at] for at in range(6)])
            loader = torch.utils.data.DataLoader(
                Losses(), batch_size=2, num_workers=2, multiprocessing_context="{method}",
                timeout=90)
            there = torch.cat(list(loader))
            assert torch.allclose(here, there, rtol=1e-5), (here, there)
            print("well")
    """))
    done = subprocess.run([sys.executable, "-B", script], capture_output=True, text=True,
                          timeout=120, check=False)
    assert done.stdout == "well\n", done.stderr


@needs_device
def test_after_a_parallel_region():
    """PyTorch's threads spin for a while after torch.mm; a call of 30 ms must not share with them.

    The time is printed, and judged generously: other processes take more than that.
    """
    x, w = torch.randn(96, 1024), torch.randn(32768, 1024)
    labels, a = torch.arange(96), torch.randn(512, 512)

    def call():
        start = time.perf_counter()
        tessera.torch.linear_cross_entropy(x, w, labels)
        return time.perf_counter() - start

    call()
    alone, after, spent = [], [], time.perf_counter()
    while len(alone) < 9 or (len(alone) < 40 and time.perf_counter() - spent < 5):
        time.sleep(0.02)  # the team of the last torch.mm is asleep
        alone.append(call())
        torch.mm(a, a)
        after.append(call())
    alone, after = statistics.median(alone), statistics.median(after)
    print(f"alone {1e3 * alone:.1f} ms, after torch.mm {1e3 * after:.1f} ms: "
          f"{100 * (after / alone - 1):+.1f}%")
    assert after < 1.5 * alone
