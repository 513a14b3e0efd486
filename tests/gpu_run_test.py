#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/gpu.sh run with programs that crash, hang or print in place of the library's: what a part
does is told and the others go on, in time. usage: gpu_run_test.py SOURCE_DIR"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

root = pathlib.Path(sys.argv[1])
problems = []

DEVICE = """* 0:0  Fake 9000 (gpu)
      Fake platform, OpenCL 3.0, driver 1
      132 compute units
"""
ENGINES = """+ opencl.cpu   on CPUs
+ opencl.wgmma Hopper's
+ opencl.mma   matrix units
+ opencl.simt  any device
+ eigen        the host
"""
PEAKS = """
Measured peaks of the device (best, median)
  fma_f32             64728.4  64699.6 GFLOP/s   groups
  write_nontemporal   absent: on CPUs only

Measured peaks of the host (best, median)
  fma_f32              1204.3   1187.7 GFLOP/s   threads
"""
ROW = ("linear_cross_entropy/$2/opencl.x/bf16/vh/B1/H2/V3 %s 1.5%% 89000.0 14.0%% - 6.0 1 1 1 1"
       "\\n    label\\n")
INFO = f"""case "$*" in
*--dump*) trap "" TERM; sleep 300 ;;
*--peaks*) cat <<END
{PEAKS}
END
;;
*) cat <<END
tessera 0.1.0 (fake)

{DEVICE}{ENGINES}
END
;;
esac"""
TABLES = """linear_cross_entropy/forward/opencl.x/bf16/vh/B1/H2/V3
    kernel  forward   1   0.101   90.0%
    of 0.2 ms a call: kernels 50.0%
linear_cross_entropy/value_and_grad/opencl.x/bf16/vh/B1/H2/V3
    kernel  forward  1   0.106   30.0%
    kernel  grad_x   32   734.186   34.6%
    of 2124.0 ms a call: kernels 97.2%
"""
JSON = json.dumps({"benchmarks": [
    {"name": "linear_cross_entropy/forward/x", "real_time": 0.77, "extra_bytes_peak": 1 << 20,
     "status": "noisy"},
    {"name": "linear_cross_entropy/value_and_grad/x", "real_time": 2.5, "status": "ok",
     "extra_bytes_peak": 5000 << 20}]})
BENCH = f"""case "$*" in
*opencl.mma*4096x2048x32768*"dtypes bf16"*) kill -SEGV $$ ;;
*opencl.simt*8192*) exit 3 ;;
*"dtypes f16 "*) echo "error: no row can run" >&2; exit 2 ;;
*) ms=0.77
  case "$*" in *"layout hv"*) ms=0.66 ;; *"knobs stages=3"*) ms=0.88 ;; esac
  printf 'row ms spread\\n{ROW}' 0.770; printf '{ROW}' 2.500
  for option in "$@"; do
    case "$option" in --benchmark_out=*) echo '{JSON}' | sed "s/0.77/$ms/" >"${{option#*=}}" ;; esac
    [ "$last" != --profile ] || echo '{{"traceEvents": []}}' >"$option"
    last="$option"
  done
  case "$*" in *--profile*) echo '{TABLES}' ;; esac ;;
esac""".replace("$2", "forward", 1).replace("$2", "value_and_grad", 1)
TESTS = """[ "$TESSERA_TEST_IMPLEMENTATIONS" != opencl.simt ] || kill -KILL $$
echo "[       OK ] one (1 ms)"; echo "[       OK ] another (2 ms)\""""


def check(condition, what):
    if not condition:
        problems.append(what)
        print("FAILED:", what, flush=True)


class Bundle:
    def __init__(self, folder):
        self.folder = folder
        for name in ("bin", "lib", "path"):
            (folder / name).mkdir()
        for name in ("gpu.sh", "gpu_parts.sh", "gpu_goals.py"):
            shutil.copy(root / "scripts" / name, folder)
        (folder / "needs").write_text("tessera 0.1.0 (fake)\nx86_64, glibc 2.34\n")
        (folder / "driver.so").touch()
        self.fake("tessera-info", INFO)
        self.fake("tessera-bench", BENCH)
        self.fake("tessera-tune", "echo '  tuned'")
        self.fake("matrix_test", TESTS)
        for name in ("python3", "python", "nvidia-smi", "rocminfo"):
            self.fake(name, "exit 1", "path")

    def fake(self, name, script, folder="bin"):
        path = self.folder / folder / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)

    def start(self, *arguments, before=()):
        environment = dict(os.environ, PATH=f"{self.folder / 'path'}:{os.environ['PATH']}")
        return subprocess.Popen([*before, self.folder / "gpu.sh", *arguments], env=environment,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def run(self, *arguments, before=()):
        """Exit code, all that was printed, and its summary."""
        child = self.start(*arguments, before=before)
        text = child.communicate()[0]
        return child.returncode, text, text[text.rfind("\n== "):]


def has(summary, *lines):
    for line in lines:
        check(line in summary, f"{line!r} is not in:\n{summary}")


def test_parts(bundle, folder):
    """A hang that ignores SIGTERM, a crash, a kill and an exit code, each of another part."""
    out = folder / "out"
    began = time.monotonic()
    code, text, summary = bundle.run("run", "--minutes", "1", "--out", out, "--driver",
                                     bundle.folder / "driver.so")
    check(code == 1 and time.monotonic() - began < 20, f"exit {code} after "
          f"{time.monotonic() - began} s")
    has(summary, " failures, all files in ", f"driver: {bundle.folder}/driver.so",
        "facts: Fake 9000 (gpu)\n", "facts: peaks: fma_f32 64728.4 GFLOP/s\n", "nvidia-smi",
        "probe: probe: ended after its 2 s", "correct: opencl.mma: 2 right, 0 wrong",
        "correct: correct.opencl.simt: ended by signal 9",
        "speed: 512x2048x32768 opencl.x bf16: forward 0.770 ms, 89 TFLOP/s, 14.0% of the "
        "peak, spread 1.5%; value_and_grad 2.500 ms",
        "speed: speed.4096x2048x32768.bf16.mma: ended by signal 11",
        "speed: speed.8192x4096x128256.bf16.simt: exit code 3",
        "types: 4096x2048x32768 opencl.x bf16: forward",  # f32, by the fake
        "types: speed.4096x2048x32768.f16.simt: exit code 2: error: no row can run",
        "torch: not run: no python3",
        "kernels: 4096x2048x32768 opencl.simt of 2124.0 ms a call: kernels 97.2%, forward 0.106 ms",
        "rows: ", "tune:   tuned")
    check("opencl.simt: 0 right" not in summary, f"nothing ran, and is counted: {summary}")
    for absent in ("opencl.cpu", "wgmma", "goals: ", "f32.mma"):
        check(absent not in summary, f"this GPU has no {absent}: {summary}")
    check(len(summary.strip().splitlines()) <= 60, "the summary is longer than 60 lines")
    icd = (out / "icd/driver.icd").read_text()
    check(icd == f"{bundle.folder}/driver.so\n", f"the .icd: {icd!r}")
    check(not (out / "cache").exists(), "the caches of the run are still there")
    written = (out / "summary.txt").read_text().splitlines()
    check(all(line in summary for line in written), "summary.txt is another one")


def test_hopper(bundle, folder):
    """Goals beside what was measured; a python3 that has torch."""
    bundle.fake("tessera-info", INFO.replace("sleep 300", "true")
                .replace(ENGINES, "wgmma: open\n" + ENGINES))
    rows = [{"shape": "8192x4096x128256", "peer": "torch", "dtype": "bf16", "forward_ms": 1.0,
             "matmul_ms": 12.0},
            {"shape": "8192x4096x128256", "peer": "torch.compile", "dtype": "bf16",
             "forward_ms": 1.1},
            {"shape": "512x2048x32768", "peer": "torch", "dtype": "bf16", "forward_ms": 0.5}]
    (bundle.folder / "gpu_torch.py").write_text(
        f"import sys; open(sys.argv[sys.argv.index('--out') + 1], 'w').write({json.dumps(rows)!r})")
    bundle.fake("python3", f'[ "$1" = -c ] || exec {sys.executable} "$@"', "path")
    code, text, summary = bundle.run("run", "--out", folder / "hopper", "--driver",
                                     bundle.folder / "driver.so")
    bundle.fake("python3", "exit 1", "path")
    has(summary, "correct: opencl.wgmma: 2 right, 0 wrong", "correct: opencl.mma: 2 right",
        "speed: 4096x2048x32768 hv opencl.x bf16: forward",
        "goals: 8192x4096x128256 forward 0.770 ms, 0.770 of torch's 1.000 (at most 0.95: reached), "
        "0.700 of torch.compile's 1.100, 1.000 of opencl.mma's 0.770",
        "goals: 8192x4096x128256 value_and_grad 2.500 ms, torch not measured, torch.compile not "
        "measured, 1.000 of opencl.mma's 2.500, 5000 MiB (at most 4300: MISSED)",
        "goals: 512x2048x32768 forward 0.770 ms, 1.540 of torch's 0.500 (at most 1.5: MISSED)",
        "goals: 512x2048x32768 products: forward 680 TFLOP/s, 1.00 of 683 (at least 0.95: reached);"
        " forward keeping logits 648 TFLOP/s, 1.00 of 651 (at least 0.95: reached); grad_x 0 "
        "TFLOP/s, 0.00 of 217 (at least 0.95: MISSED)",
        "; torch's product 717", "goals: 4096x2048x32768 hv: forward 0.660 ms, 0.857 of the usual",
        "goals: 4096x2048x32768 stages=3: forward 0.880 ms, 1.143 of the usual",
        "kernels: 512x2048x32768 opencl.wgmma of 2124.0 ms a call: kernels 97.2%, forward 0.106 ms")
    check(" trace: " not in summary, f"a trace was taken for a row: {summary}")
    check(not (folder / "hopper/speed.512x2048x32768.bf16.simt.txt").exists(),
          "opencl.simt multiplied bf16 on a Hopper")


def test_again(bundle, folder):
    """Into the same folder, with two devices, and ended from outside."""
    bundle.fake("tessera-info", INFO.replace(ENGINES, "  0:1  Fake 8000 (gpu)\n" + ENGINES))
    child = bundle.start("run", "--out", folder / "out", "--driver", bundle.folder / "driver.so")
    for line in child.stdout:
        if "nvidia-smi" in line:
            break
    time.sleep(0.5)  # until the probe hangs
    child.send_signal(signal.SIGTERM)
    text = child.communicate()[0]
    check(child.returncode == 1, f"ended from outside: exit {child.returncode}")
    has(text, "/out/run2\n", "Fake 9000 (gpu), and not 0:1 Fake 8000 (gpu): TESSERA_DEVICE=P:D",
        "probe: the run was ended here")
    check((folder / "out/run2/summary.txt").exists(), "run2 has no summary.txt")


def test_no_device(bundle, folder):
    bundle.fake("tessera-info", "echo 'tessera 0.1.0'")
    code, text, summary = bundle.run("run", "--out", folder / "none", "--driver", "/nonexistent.so")
    check(code == 1, f"no device: exit {code}")
    has(summary, "driver: there is no /nonexistent.so", "--driver",
        "facts: no OpenCL device", "speed: not run: no OpenCL device", "tune: not run",
        "torch: not run: no python3")


def test_no_space(bundle, folder):
    """Where a file system of a megabyte can be made."""
    place = folder / "small"
    place.mkdir()
    mounted = ["unshare", "-rm", "sh", "-c", f'mount -t tmpfs -o size=1m none {place} && "$@"', "-"]
    if subprocess.run([*mounted, "true"], capture_output=True).returncode != 0:
        print("no file system can be mounted here: not tried without space")
        return
    code, text, summary = bundle.run("run", "--out", place, "--driver", "/nonexistent.so",
                                     before=mounted)
    has(summary, "has less than 200 MiB free: results are in ", "tune: not run")
    other = pathlib.Path(summary.split("results are in ")[1].split()[0])
    check((other / "summary.txt").exists(), f"{other} has no summary.txt")
    shutil.rmtree(other, ignore_errors=True)


def test_bad_calls(bundle, folder):
    link = folder / "link"
    (folder / "target").mkdir()
    link.symlink_to(folder / "target")
    for arguments, words in (
            (["run", "--out", link], "is a link: name the folder itself"),
            (["run", "--out", f"{link}/"], "is a link: name the folder itself"),
            (["run", "--out", folder / "x", "--minutes", "0"], "no number from 1"),
            (["run", "--out", folder / "x", "--minutes"], "needs a value"),
            (["run"], "--out FOLDER is missing"), (["run", "--fast", "1"], "unknown option --fast"),
            (["walk"], "usage: ")):
        code, text, _ = bundle.run(*arguments)
        check(code == 2 and text.startswith("error: ") and words in text,
              f"{arguments}: {code} {text}")
    check(not list((folder / "target").iterdir()), "it was written through a link")
    check(not (folder / "x").exists(), "a bad call made a folder")


with tempfile.TemporaryDirectory(prefix="tessera_gpu_") as temporary:
    place = pathlib.Path(temporary)
    (place / "bundle").mkdir()
    fakes = Bundle(place / "bundle")
    for test in (test_parts, test_hopper, test_again, test_no_device, test_no_space,
                 test_bad_calls):
        test(fakes, place)
sys.exit(1 if problems else 0)
