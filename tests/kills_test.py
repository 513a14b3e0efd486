#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that are killed while they write, and disks that are full: every file is the old one or
the new one, whole; the next start works, whatever the last one left.

usage: kills_test.py BIN_FOLDER [--times N] [--seed N] [--only PROGRAM...]
"""
import argparse
import glob
import json
import os
import random
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import time

failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def npy_is_whole(data):
    """Version 1 headers: magic, length, a dictionary; then as many elements as it says."""
    if data[:6] != b"\x93NUMPY":
        return False
    header_end = 10 + int.from_bytes(data[8:10], "little")
    header = eval(data[10:header_end], {"__builtins__": {}})  # noqa: S307, our own file
    count = 1
    for extent in header["shape"]:
        count *= extent
    return len(data) == header_end + count * int(header["descr"][2:])


def json_is_whole(data):
    try:
        return bool(json.loads(data))
    except ValueError:
        return False


def write_npy(path, descr, shape, data):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data)


class Writer:
    """A program that writes files into a folder: `command(inputs, folder)`; `files`: their names
    with a test of each. `one(file)`: arguments with which a single file of any name is written.
    What uses a driver is not run where files may not grow: drivers have caches."""

    def __init__(self, program, command, files, one=None, uses_driver=False):
        self.program, self.command, self.files, self.one = program, command, files, one
        self.uses_driver = uses_driver


SCORE_SHAPE = (8, 256, 4096)  # grad_w has 4 MiB: long enough to be killed in


def make_inputs(folder):
    b, h, v = SCORE_SHAPE
    write_npy(os.path.join(folder, "x.npy"), "<f4", (b, h), bytes(4 * b * h))
    write_npy(os.path.join(folder, "w.npy"), "<f4", (h, v), bytes(4 * h * v))
    write_npy(os.path.join(folder, "labels.npy"), "<i4", (b,), bytes(4 * b))


def score(inputs, out):
    return [*(part for name in ("x", "w", "labels")
              for part in (f"--{name}", os.path.join(inputs, f"{name}.npy"))),
            "--implementation", "eigen", "--grad", "--out", out]


def bench(_, out):
    return ["--implementations", "eigen", "--shapes", "4x8x16", "--operators",
            "linear_cross_entropy", "--passes", "forward",
            f"--benchmark_out={os.path.join(out, 'bench.json')}"]


# A new program that writes files goes here.
WRITERS = [
    Writer("tessera-score", score,
           {"loss.npy": npy_is_whole, "grad_w.npy": npy_is_whole, "report.json": json_is_whole}),
    Writer("tessera-tile",
           lambda _, out: ["--shape", "2048x1024x16384", "--trace",
                           os.path.join(out, "trace.json")],
           {"trace.json": json_is_whole},
           one=lambda file: ["--shape", "256x256x1024", "--trace", file]),
    Writer("tessera-bench", bench, {"bench.json": json_is_whole},
           one=lambda file: [*bench("", "")[:-1], f"--benchmark_out={file}"]),
    Writer("tessera-latency",
           lambda _, out: ["--repeat", "2", "--rounds", "1", "--b", "1", "--operators", "softmax",
                           "--json", os.path.join(out, "latency.json")],
           {"latency.json": json_is_whole},
           one=lambda file: ["--repeat", "2", "--rounds", "1", "--b", "1", "--operators",
                             "softmax", "--memory", "host", "--json", file],
           uses_driver=True),
]


def state(folder):
    """What changes while somebody writes."""
    found = {}
    for entry in os.scandir(folder):
        try:
            about = entry.stat()
            found[entry.name] = (about.st_size, about.st_mtime_ns, about.st_ino)
        except FileNotFoundError:
            pass
    return found


def read(folder, name):
    with open(os.path.join(folder, name), "rb") as file:
        return file.read()


class Kills:
    def __init__(self, bin_folder, inputs, writer, rng):
        self.inputs, self.writer, self.rng = inputs, writer, rng
        self.program = os.path.join(bin_folder, writer.program)

    def run(self, folder):
        return subprocess.run([self.program, *self.writer.command(self.inputs, folder)],
                              capture_output=True, text=True)

    def check_whole(self, folder, when, old):
        for name, is_whole in self.writer.files.items():
            path = os.path.join(folder, name)
            there = os.path.exists(path)
            if name not in old and not there:
                continue
            check(there, f"{self.writer.program}, {when}: {name} is gone")
            if not there:
                continue
            data = read(folder, name)
            check(data == old.get(name) or is_whole(data),
                  f"{self.writer.program}, {when}: {name} is neither the old file nor a whole one")

    def kill_once(self, folder, seconds):
        """True where something was being written."""
        before = state(folder)
        child = subprocess.Popen([self.program, *self.writer.command(self.inputs, folder)],
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        # Most kills: soon after the first change in the folder. The others: at any time.
        watches = self.rng.random() < 0.8
        deadline = time.monotonic() + (10 * seconds if watches else self.rng.uniform(0, seconds))
        wrote = False
        while child.poll() is None and time.monotonic() < deadline:
            if state(folder) != before:
                wrote = True
                if watches:
                    time.sleep(self.rng.choice((0.0, 0.0, 0.001, 0.01)))
                    break
            elif not watches:
                time.sleep(0.0005)
        child.send_signal(signal.SIGKILL)
        child.wait()
        return wrote

    def go(self, times):
        with tempfile.TemporaryDirectory(prefix="tessera_kills_") as folder:
            start = time.monotonic()
            done = self.run(folder)
            seconds = time.monotonic() - start
            check(done.returncode == 0, f"{self.writer.program}: {done.stderr}")
            writing = 0
            for turn in range(times):
                # Every fourth time there is no older file.
                old = {name: read(folder, name) for name in self.writer.files
                       if os.path.exists(os.path.join(folder, name))}
                if turn % 4 == 3:
                    for name in old:
                        os.remove(os.path.join(folder, name))
                    old = {}
                writing += self.kill_once(folder, seconds)
                self.check_whole(folder, f"kill {turn}", old)
            left = [name for name in os.listdir(folder) if name not in self.writer.files]
            done = self.run(folder)
            check(done.returncode == 0, f"{self.writer.program}, after kills: {done.stderr}")
            self.check_whole(folder, "after kills", {})
            for name in self.writer.files:
                check(os.path.exists(os.path.join(folder, name)), f"{name} was not written")
            print(f"{self.writer.program}: killed {times} times, {writing} of them in a write; "
                  f"{len(left)} temporary files left, harmless", flush=True)

    def full_disk(self):
        """No file may be larger than some bytes: what was there stays."""
        if self.writer.uses_driver:
            return
        with tempfile.TemporaryDirectory(prefix="tessera_kills_") as folder:
            for name in self.writer.files:
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write("old")

            def limit():
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (40, 40))

            command = [self.program, *self.writer.command(self.inputs, folder)]
            done = subprocess.run(command, capture_output=True, text=True, preexec_fn=limit,
                                  restore_signals=False)
            label = f"{self.writer.program}, full disk"
            check(done.returncode == 1, f"{label}: exit {done.returncode} {done.stderr!r}")
            check("cannot be written: File too large" in done.stderr, f"{label}: {done.stderr!r}")
            for name in self.writer.files:
                check(read(folder, name) == b"old", f"{label}: {name} was touched")
            check(sorted(os.listdir(folder)) == sorted(self.writer.files),
                  f"{label}: left {os.listdir(folder)}")

    def bad_places(self):
        """A device that is full, stays a device, and a folder below a file."""
        if self.writer.one is None:
            return
        with tempfile.TemporaryDirectory(prefix="tessera_kills_") as folder:
            device = os.path.join(folder, "full")
            try:
                os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
                with open(device, "rb"):
                    pass
            except OSError:
                device = None
            file = os.path.join(folder, "file")
            with open(file, "w", encoding="utf-8") as out:
                out.write("x")
            places = [(os.path.join(file, "below.json"), "")]
            if device is not None:
                places.append((device, "No space left on device"))
            for place, words in places:
                done = subprocess.run([self.program, *self.writer.one(place)],
                                      capture_output=True, text=True)
                label = f"{self.writer.program} to {os.path.basename(place)}"
                check(done.returncode in (1, 2), f"{label}: exit {done.returncode}")
                check(os.path.dirname(place) in done.stderr and words in done.stderr and
                      "error: " in done.stderr, f"{label}: {done.stderr!r}")
            if device is not None:
                check(stat.S_ISCHR(os.stat(device).st_mode), "the device was replaced by a file")


def growing_logs(bin_folder):
    """The examples' curves grow line by line; a full disk ends the run with a message."""
    text = [file for name in ("GPL-*", "GFDL-*", "MPL-*", "LGPL-*", "Apache-2.0", "Artistic")
            for file in glob.glob(f"/usr/share/common-licenses/{name}")]
    small = ["--batch", "16", "--hidden", "8", "--embedding", "8", "--max-vocab", "200",
             "--eval-tokens", "32", "--steps", "3", "--text", *text]
    for program, more in (("train_text", ["--implementation", "eigen"]),
                          ("distill", ["--teacher-steps", "3"])):
        if not os.path.exists(os.path.join(bin_folder, program)) or not text:
            continue
        with tempfile.TemporaryDirectory(prefix="tessera_kills_") as folder:
            try:
                os.symlink("/dev/full", os.path.join(folder, "curve.csv"))
                with open("/dev/full", "wb", buffering=0):
                    pass
            except OSError:
                return
            done = subprocess.run([os.path.join(bin_folder, program), *more, "--out",
                                   folder, *small], capture_output=True, text=True)
            check(done.returncode == 1 and "cannot write" in done.stderr,
                  f"{program}, full disk: exit {done.returncode} {done.stderr!r}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_folder")
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="tessera_kills_inputs_") as inputs:
        make_inputs(inputs)
        for writer in WRITERS:
            if arguments.only and writer.program not in arguments.only:
                continue
            if not os.path.exists(os.path.join(arguments.bin_folder, writer.program)):
                print(f"{writer.program} is not built")
                continue
            kills = Kills(arguments.bin_folder, inputs, writer, rng)
            kills.full_disk()
            kills.bad_places()
            kills.go(arguments.times)
    growing_logs(arguments.bin_folder)
    print(f"{len(failures)} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
