# SPDX-License-Identifier: Apache-2.0
"""A peer in a process of its own: a JSON object a line on stdin, one a line on stdout.

op        answer
prepare   loads libraries and arrays, and runs a tiny problem, which starts thread pools
run       seconds of one call, and its loss
memory    resident memory before a call and at its peak, all results of earlier calls freed
save      writes sampled rows of grad_x and columns of grad_w, f32, as .npy
describe  what ran, and versions"""
import ctypes
import gc
import importlib
import json
import os
import sys
import time

import numpy as np

MODULES = {"torch": "peer_torch", "jax": "peer_jax", "tokamax": "peer_jax",
           "openblas": "peer_openblas"}


class Unsupported(Exception):
    """This peer has no such thing; the message says what is missing."""


def status_bytes(key):
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(key + ":"):
                return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")


def reset_peak_memory():
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")


class Worker:
    def __init__(self):
        self.peer = None
        self.results = None

    def prepare(self, request):
        family = request["peer"].split(".")[0]
        module = importlib.import_module(MODULES[family])
        arrays = [np.load(request[name]) for name in ("x", "w", "labels")]
        self.peer = module.make(request["peer"], request["pass"], request["dtype"],
                                request["layout"], request["threads"])
        # Tiny, in the same types, so that code and threads are there before anything counts.
        tiny = arrays[0][:8], (arrays[1][:64] if request["layout"] == "vh"
                               else arrays[1][:, :64]), arrays[2][:8] % 64
        if self.peer.warm_on_tiny:
            self.peer.load(*(np.ascontiguousarray(a) for a in tiny))
            self.peer.call()
        self.peer.load(*arrays)
        return {}

    def run(self, request):
        self.results = None  # a training step drops the last step's gradients first
        start = time.perf_counter()
        self.results = self.peer.call()
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "loss": self.peer.loss(self.results)}

    def drop(self):
        self.results = None
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)

    def memory(self, request):
        if self.results is None:
            self.run(request)  # the call that compiles
        self.drop()
        before = status_bytes("VmRSS")
        reset_peak_memory()
        seconds = self.run(request)["seconds"]
        peak = status_bytes("VmHWM")
        self.drop()
        return {"before_bytes": before, "peak_bytes": peak, "seconds": seconds}

    def save(self, request):
        grad_x, grad_w = self.peer.sample(self.results, request["rows"], request["columns"])
        np.save(request["prefix"] + ".grad_x.npy", np.asarray(grad_x, np.float32))
        np.save(request["prefix"] + ".grad_w.npy", np.asarray(grad_w, np.float32))
        return {}

    def describe(self, request):
        return {"what": self.peer.what, "version": self.peer.version}


def main():
    # Libraries may print: the answers have a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    worker = Worker()
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = getattr(worker, request["op"])(request)
        except Unsupported as error:
            reply = {"unsupported": str(error)}
        except Exception as error:  # whatever a library throws is this row's reason
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=answers, flush=True)


if __name__ == "__main__":
    sys.modules["worker"] = sys.modules["__main__"]  # one Unsupported for the peers' modules
    main()
