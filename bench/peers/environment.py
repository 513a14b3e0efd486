# SPDX-License-Identifier: Apache-2.0
"""The folder of Python packages, tessera's own peer, and what the machine is."""
import datetime
import os
import pathlib
import platform
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


def say(text):
    print(text, file=sys.stderr, flush=True)


def venv_python(venv):
    return pathlib.Path(venv) / "bin/python"


def install(venv):
    """Makes the folder where there is none, and installs what is missing. What cannot be installed
    is told and left out: its rows will say that they cannot run."""
    python = venv_python(venv)
    if not python.exists():
        say(f"making {venv}")
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    lines = (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines()
    for package in (line.strip() for line in lines if line.strip() and not line.startswith("#")):
        name, _, version = package.partition("==")
        probe = f"import importlib.metadata as m; v = m.version({name!r}); " \
                f"raise SystemExit({version!r} not in ('', v.split('+')[0]))"
        if subprocess.run([python, "-c", probe], stderr=subprocess.DEVNULL).returncode == 0:
            continue
        say(f"installing {package}")
        done = subprocess.run([python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:",
                               package])
        if done.returncode != 0:
            say(f"{package} could not be installed; its rows will say so")


def build_tessera(build, target="tessera-peer", made="bin/tessera-peer"):
    """The path of what the target makes, or None where it cannot be built."""
    build = pathlib.Path(build)
    if not (build / "CMakeCache.txt").exists():
        say(f"{build} is no configured build: cmake --preset release, or for another folder "
            f"cmake -S . -B {build} -DTESSERA_BUILD_BENCH=ON")
        return None
    done = subprocess.run(["cmake", "--build", str(build), "--target", target],
                          stdout=sys.stderr)
    found = build / made
    return found if done.returncode == 0 and found.exists() else None


def first_line(path, key):
    try:
        for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines():
            if line.startswith(key):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return "unknown"


def revision():
    git = subprocess.run(["git", "-C", str(ROOT), "describe", "--always", "--dirty"],
                         capture_output=True, text=True)
    return git.stdout.strip() or "unknown"


def caches():
    parts = []
    for index in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        def text(name, index=index):
            return (index / name).read_text(encoding="ascii").strip()
        if text("type") != "Instruction":
            parts.append(f"L{text('level')} {text('size')}")
    return ", ".join(parts)


def machine(threads):
    flags = first_line("/proc/cpuinfo", "flags").split()
    kinds = [f for f in ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16") if f in flags]
    return {
        "processor": first_line("/proc/cpuinfo", "model name"),
        "family, model": f"{first_line('/proc/cpuinfo', 'cpu family')}, "
                         f"{first_line('/proc/cpuinfo', 'model')}",
        "cores": f"{os.cpu_count()}, of them used: {threads}",
        "instructions": " ".join(kinds),
        "caches": caches(),
        "memory": f"{int(first_line('/proc/meminfo', 'MemTotal').split()[0]) >> 20} GiB",
        "system": f"{platform.platform()}, Python {platform.python_version()}",
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="minutes"),
        "revision": revision(),
    }
