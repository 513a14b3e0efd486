# SPDX-License-Identifier: Apache-2.0
"""A Python that has JAX, for the scripts of this folder and of bench/tile.

They run JAX's TPU interpret mode on the CPU. JAX is no dependency of the library: `enter` makes a
folder of packages (build/tools/jax by default) with Python 3.11, because the goldens are of JAX
0.10.2, and starts the script again in it."""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
JAX = "jax==0.10.2"
JAXLIB = "jaxlib==0.10.2"


def parser(description):
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--venv", type=pathlib.Path, default=ROOT / "build/tools/jax",
                       help="folder of packages with JAX; made if it is not there")
    return found


def enter(arguments, devices=1):
    """Returns in a Python of the folder `arguments.venv`. `devices`: how many CPU devices."""
    python = arguments.venv / "bin/python"
    if os.environ.get("TESSERA_JAX_VENV") != str(arguments.venv):
        if not python.exists():
            maker = shutil.which("python3.11") or sys.exit("python3.11 is needed")
            subprocess.run([maker, "-m", "venv", str(arguments.venv)], check=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:",
                            JAX, JAXLIB], check=True)
        environment = {**os.environ, "TESSERA_JAX_VENV": str(arguments.venv),
                       "JAX_PLATFORMS": "cpu",
                       "XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
        os.execve(python, [str(python), *sys.argv], environment)
