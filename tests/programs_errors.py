# SPDX-License-Identifier: Apache-2.0
"""Every bad call of tessera-score: exit code 2, one line that says what, and no file touched."""
import os

import numpy as np

from programs_support import Workplace, bf16_bits, check, run


def snapshot(folder):
    return {name: (os.stat(os.path.join(folder, name)).st_mtime_ns,
                   open(os.path.join(folder, name), "rb").read())
            for name in os.listdir(folder)}


class Bench:
    """A good call, and ways to spoil it."""

    def __init__(self, place, problem):
        # Refusals of arguments are the same for every implementation; this one is always there.
        self.place, self.good = place, problem.arguments + ["--implementation", "reference"]
        self.kept = place.path("kept")
        code, _, err = run("tessera-score", *self.good, "--out", self.kept)
        check(code == 0, f"errors: the good call: {code} {err}")
        self.before = snapshot(self.kept)

    def save(self, array):
        return self.place.save("bad", array)

    def write(self, data):
        path = self.place.path("bad.npy")
        with open(path, "wb") as file:
            file.write(data)
        return path

    def instead(self, name, value):
        result = list(self.good)
        if name in result:
            result[result.index(name) + 1] = value
            return result
        return result + [name, value]

    def without(self, *names):
        result = list(self.good)
        for name in names:
            at = result.index(name)
            del result[at:at + 2]
        return result

    def refused(self, parts, arguments, code_wanted=2):
        """Both into a new folder and over an earlier run's."""
        parts = [parts] if isinstance(parts, str) else parts
        label = "errors: " + parts[0]
        new = self.place.path("new/deeper")
        for out in (new, self.kept):
            code, text, err = run("tessera-score", *arguments, "--out", out)
            check(code == code_wanted, f"{label}: exit {code}: {err!r} {text!r}")
            check(err.count("\n") == 1 and err.startswith("tessera-score: error: "),
                  f"{label}: stderr {err!r}")
            check(not text, f"{label}: stdout {text!r}")
            for part in parts:
                check(part in err, f"{label}: not in {err!r}")
        check(not os.path.exists(self.place.path("new")), f"{label}: --out was created")
        check(snapshot(self.kept) == self.before, f"{label}: files were touched")


def bad_files(t, place):
    x = np.load(t.good[t.good.index("--x") + 1])
    labels = np.load(t.good[t.good.index("--labels") + 1])
    whole = open(t.good[t.good.index("--x") + 1], "rb").read()
    for name in ("--x", "--w", "--labels", "--bias", "--weight", "--class-weight"):
        t.refused([name, "nowhere.npy", "No such file"],
                  t.instead(name, place.path("nowhere.npy")))
    t.refused(["--x", "folder"], t.instead("--x", place.folder))
    t.refused(["--x", "numpy.save"], t.instead("--x", t.write(b"hello, world\n")))
    t.refused("is empty", t.instead("--x", t.write(b"")))
    t.refused("truncated", t.instead("--x", t.write(whole[:-1])))
    t.refused("truncated", t.instead("--x", t.write(whole[:40])))
    t.refused(["--x", "more follow", "one array per file"], t.instead("--x", t.write(whole + b"!")))
    # Without an end: what it begins with says enough.
    t.refused(["--x", "numpy.save"], t.instead("--x", "/dev/zero"))
    t.refused("bad .npy header", t.instead("--x", t.write(whole.replace(b"'shape'", b"'sharp'"))))
    t.refused("version 9.0", t.instead("--x", t.write(whole[:6] + b"\x09" + whole[7:])))
    t.refused(["big-endian", "'<f4'"], t.instead("--x", t.save(x.astype(">f4"))))
    t.refused(["big-endian"], t.instead("--labels", t.save(labels.astype(">i4"))))
    t.refused(["'<f8'", "float32"], t.instead("--x", t.save(x.astype(np.float64))))
    t.refused("'<f8'", t.instead("--w", t.save(np.zeros((33, 129)))))
    t.refused("'<f8'", t.instead("--bias", t.save(np.zeros(129))))
    t.refused(["'<i2'", "int64"], t.instead("--labels", t.save(labels.astype(np.int16))))
    t.refused("'|b1'", t.instead("--labels", t.save(labels > 0)))
    t.refused("'<u4'", t.instead("--labels", t.save(labels.astype(np.uint32))))
    t.refused("'<f4'", t.instead("--labels", t.save(labels.astype(np.float32))))
    t.refused("'<i4'", t.instead("--x", t.save(x.astype(np.int32))))
    t.refused("'<c8'", t.instead("--x", t.save(x.astype(np.complex64))))
    t.refused(["'<u2'", "--bf16-bits"], t.instead("--x", t.save(bf16_bits(x))))
    t.refused("[...]", t.instead("--x", t.save(np.zeros(3, [("a", "<f4"), ("b", "<f4")]))))
    t.refused("9 axes", t.instead("--x", t.save(np.zeros((1,) * 9, np.float32))))


def bad_shapes(t):
    def f32(*shape):
        return t.save(np.zeros(shape, np.float32))

    t.refused(["--x", "no axes"], t.instead("--x", f32()))
    t.refused("labels", t.instead("--x", f32(3, 8, 33)))
    t.refused("labels", t.instead("--labels", t.save(np.zeros(21, np.int32))))
    t.refused(["--w", "has 3 axes"], t.instead("--w", f32(33, 129, 1)))
    t.refused(["--w", "H = 34"], t.instead("--w", f32(34, 129)))
    t.refused(["--w", "pass --w-layout vh"], t.instead("--w", f32(129, 33)))
    t.refused(["--w", "pass --w-layout hv"], t.good + ["--w-layout", "vh"])
    t.refused("bias", t.instead("--bias", f32(128)))
    t.refused("weight", t.instead("--weight", f32(3, 6)))
    t.refused("class_weight", t.instead("--class-weight", f32(130)))
    t.refused("w", t.instead("--w", f32(33, 0)))
    t.refused("dloss", t.good + ["--grad", "--dloss", f32(3, 7)])
    t.refused("dlse", t.good + ["--grad", "--dlse", f32(7, 3)])


def bad_labels(t, labels):
    for value in (129, -1, -101, 2 ** 31 - 1, -2 ** 31):
        bad = labels.copy()
        bad[1, 3] = value
        bad[2, 2] = value
        t.refused(["row 10", "[1, 3]", str(value)], t.instead("--labels", t.save(bad)))
    bad = labels.astype(np.int64)
    bad[0, 0] = 2 ** 33
    t.refused(["row 0", "[0, 0]", str(2 ** 33)], t.instead("--labels", t.save(bad)))
    t.refused(["row 1", "[0, 1]", "-100"], t.good + ["--ignore-index", 5])


def bad_options(t, place, implementations):
    empty_bias = t.save(np.zeros(129, np.float32))
    t.refused("--nonsense", t.good + ["--nonsense"])
    t.refused("stray", t.good + ["stray"])
    t.refused(["--trace", "its folder is not there"],
              t.good + ["--trace", place.path("nowhere/trace.json")])
    t.refused(["--dump /dev/null/dump", "give another"],
              t.good + ["--dump", "/dev/null/dump"])
    t.refused(["Profile::write", "No space left on device"], t.good + ["--trace", "/dev/full"], 1)
    for name in ("--x", "--w"):
        t.refused(name, t.without(name))
    t.refused("--labels", t.without("--labels"))
    t.refused("--x", t.good + ["--x", empty_bias])
    t.refused("--w-layout", t.good + ["--w-layout", "hw"])
    t.refused("--reduction", t.good + ["--reduction", "avg"])
    t.refused("--grad-dtype", t.good + ["--grad", "--grad-dtype", "f64"])
    t.refused("--grad-dtype", t.good + ["--grad-dtype", "f32"])
    t.refused(["--dloss", "--grad"], t.good + ["--dloss", empty_bias])
    t.refused(["--dlse", "--grad"], t.good + ["--dlse", empty_bias])
    t.refused(["--statistics", "--grad"], t.good + ["--statistics", place.folder])
    t.refused(["--vocab-offset", "--vocab-size-total"], t.good + ["--vocab-offset", 0])
    t.refused(["--vocab-offset", "negative"],
              t.good + ["--vocab-size-total", 200, "--vocab-offset", -1])
    t.refused("vocab", t.good + ["--vocab-size-total", 200, "--vocab-offset", 100])
    t.refused("vocab", t.good + ["--vocab-size-total", 128])
    t.refused("--vocab-size-total", t.good + ["--vocab-size-total", 0])
    t.refused("--vocab-size-total", t.good + ["--vocab-size-total", "many"])
    t.refused(["--grad", "--statistics"], t.good + ["--vocab-size-total", 129, "--grad"])
    for name in ("--logsumexp-weight", "--logit-scale", "--logit-soft-cap", "--label-smoothing"):
        for value in ("nan", "inf", "1e99", "1x", "", " 1"):
            t.refused(name, t.good + [name, value])
    t.refused("label_smoothing", t.good + ["--label-smoothing", "1.5"])
    t.refused("label_smoothing", t.good + ["--label-smoothing", "-0.1"])
    t.refused("logit_soft_cap", t.good + ["--logit-soft-cap", "-1"])
    t.refused("--ignore-index", t.good + ["--ignore-index", "9999999999999999999"])
    t.refused("--ignore-index", t.good + ["--ignore-index", "1.0"])
    t.refused("nothing", t.instead("--implementation", "nothing"))
    t.refused("nothing", t.instead("--implementation", "reference,nothing"))
    t.refused("nothing", t.instead("--implementation", "nothing,reference"))
    t.refused("--implementation", t.instead("--implementation", "reference,"))
    t.refused("--implementation", t.instead("--implementation", ""))
    t.refused("no such device", t.good + ["--device", "no such device"])
    t.refused("77:77", t.good + ["--device", "77:77"])
    t.refused("--block-sizes", t.good + ["--block-sizes", "1,2"])
    t.refused("--block-sizes", t.good + ["--block-sizes", "1,2,3,4"])
    t.refused("--block-sizes", t.good + ["--block-sizes", "1,x,3"])
    t.refused("b_block_size", t.good + ["--block-sizes", "0,64,64"])
    t.refused("v_block_size", t.good + ["--block-sizes", "64,64,-64"])
    t.refused("--workspace-bytes", t.good + ["--workspace-bytes", "-1"])
    t.refused("--workspace-bytes", t.good + ["--workspace-bytes", "1k"])
    for implementation in implementations:
        t.refused("workspace", t.instead("--implementation", implementation)
                  + ["--workspace-bytes", 1])


def bad_logits(t, place):
    z = t.place.save("z", np.zeros((3, 7, 129), np.float32))
    labels = ["--labels", t.good[t.good.index("--labels") + 1]]
    bias = t.save(np.zeros(129, np.float32))
    t.refused("--x", ["--logits", z] + t.good)
    t.refused(["--bias", "--logits"], ["--logits", z, "--bias", bias] + labels)
    t.refused("--w-layout", ["--logits", z, "--w-layout", "hv"] + labels)
    t.refused("--labels", ["--logits", z])
    t.refused("labels", ["--logits", t.save(np.zeros((3, 6, 129), np.float32))] + labels)
    t.refused("0 columns", ["--logits", t.save(np.zeros((3, 7, 0), np.float32))] + labels)


def bad_places(t, place):
    file = t.write(b"x")
    for out in (file, os.path.join(file, "below"), ""):
        code, _, err = run("tessera-score", *t.good, "--out", out)
        check(code == 2 and err.count("\n") == 1 and "--out" in err,
              f"errors: --out {out}: {code} {err!r}")
    # A run that fails while writing leaves the folder as it was.
    out = place.path("blocked")
    os.makedirs(os.path.join(out, "loss.npy"))
    code, _, err = run("tessera-score", *t.good, "--out", out)
    check(code == 1 and err.count("\n") == 1 and "loss.npy" in err,
          f"errors: a folder in the way: {code} {err!r}")
    check(os.listdir(out) == ["loss.npy"], f"errors: {os.listdir(out)} were left")
    code, _, err = run("tessera-score", *t.good)
    check(code == 2 and err.count("\n") == 1 and "--out is missing" in err,
          f"errors: no --out: {code} {err!r}")
    code, _, err = run("tessera-score")
    check(code == 2 and err.count("\n") == 1, f"errors: no arguments: {code} {err!r}")


def run_all(Problem, implementations):
    with Workplace() as place:
        problem = Problem(place)
        t = Bench(place, problem)
        bad_files(t, place)
        bad_shapes(t)
        bad_labels(t, problem.labels.reshape(3, 7).astype(np.int32))
        bad_options(t, place, implementations)
        bad_logits(t, place)
        bad_places(t, place)
