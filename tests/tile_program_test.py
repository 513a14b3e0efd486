#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs tessera-tile and scripts/plot_tile.py as users do.

tile_program_test.py BIN_FOLDER
"""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import programs_support as support
from programs_support import Workplace, check, run

SCRIPT = pathlib.Path(__file__).resolve().parent.parent / "scripts" / "plot_tile.py"
DRAWS = importlib.util.find_spec("matplotlib") is not None
contract_fields = ["modelled_seconds", "bound", "dma_bytes", "vmem_high_water_bytes", "flops",
                   "mxu_utilisation", "refused"]
# Small, with several blocks in every direction, on one core.
SMALL = ["--chip", "v6e", "--shape", "256x256x384", "--x-dtype", "f32", "--w-dtype", "bf16"]
BLOCKS = ["--block-sizes", "128,128,128"]
LARGE = ["--shape", "8192x4096x128256", "--x-dtype", "f32", "--w-dtype", "bf16", "--dry-run"]


def tile(*arguments, expected=0):
    """The JSON of one call, and its stderr."""
    code, out, err = run("tessera-tile", *arguments, "--json")
    check(code == expected, f"tessera-tile {' '.join(arguments)}: exit code {code}, {err}")
    try:
        return json.loads(out), err
    except ValueError:
        check(False, f"tessera-tile {' '.join(arguments)}: no JSON: {out[:200]}")
        return {}, err


def rules(refused):
    return [one["rule"] for one in refused]


def help_and_version():
    code, out, _ = run("tessera-tile", "--help")
    check(code == 0, "--help")
    for option in ("--chip", "--kernel", "--pass", "--shape", "--x-dtype", "--w-dtype",
                   "--w-layout", "--block-sizes", "--f32-passes", "--vmem-limit-kib", "--dry-run",
                   "--trace", "--sweep", "--json"):
        check(option in out, f"--help has no {option}")
    code, out, _ = run("tessera-tile", "--version")
    check(code == 0 and out.startswith("tessera-tile "), f"--version: {out}")


def counted_by_hand():
    """256 x 256 x 384 in blocks of 128: 2 x 3 x 2 (rows, columns, depth), x f32, w bf16."""
    x, w, f32_tile, vector = 128 * 128 * 4, 128 * 128 * 2, 128 * 128 * 4, 128 * 4
    steps = 2 * 3 * 2
    # The depth moves in every step, and with it the blocks of x and of w. Vectors move with the
    # rows.
    forward = {"x": (steps * x, 0), "w": (steps * w, 0), "labels": (2 * vector, 0),
               "max": (0, 2 * vector), "sum": (0, 2 * vector), "label_logit": (0, 2 * vector)}
    # Both stages walk over the depth. In the second every step writes its tiles of both gradients,
    # and reads them unless it is the first there: of grad_x for the first columns, of grad_w for
    # the first rows.
    backward = {"x": (2 * steps * x, 0), "w": (2 * steps * w, 0), "labels": (2 * vector, 0),
                "max": (2 * vector, 0), "gain": (2 * vector, 0), "hit": (2 * vector, 0),
                "grad_x": ((steps - 2 * 2) * f32_tile, steps * f32_tile),
                "grad_w": ((steps - 3 * 2) * f32_tile, steps * f32_tile)}
    for which, expected, factor in (("forward", forward, 2), ("backward", backward, 6)):
        report, _ = tile("--pass", which, *SMALL, *BLOCKS)
        got = {b["name"]: (b["bytes_read"], b["bytes_written"])
               for b in report["dma_bytes_by_buffer"]}
        check(got == expected, f"{which}: bytes {got}, by hand {expected}")
        total = sum(read + written for read, written in expected.values())
        check(report["dma_bytes"] == total,
              f"{which}: {report['dma_bytes']} bytes, by hand {total}")
        check(report["flops"] == factor * 256 * 256 * 384, f"{which}: {report['flops']} flops")
        # The MXU of v6e has sides of 256: of each 128 x 128 a quarter is used.
        check(report["padding_waste"] == 4, f"{which}: padding {report['padding_waste']}")


def reports():
    for which in ("forward", "backward"):
        real, _ = tile("--pass", which, *SMALL, *BLOCKS)
        dry, _ = tile("--pass", which, *SMALL, *BLOCKS, "--dry-run")
        for field in contract_fields:
            check(field in real, f"{which}: no {field}")
        check(real.pop("dry_run") is False and dry.pop("dry_run") is True, f"{which}: dry_run")
        check(real == dry, f"{which}: a dry run reports something else")
        check(real["refused"] == [] and real["calibrated"] is False, f"{which}: {real}")
        check(real["lower_bound_seconds"] <= real["modelled_seconds"] <=
              real["upper_bound_seconds"], f"{which}: the time is outside of its bounds")
        check(0 < real["mxu_utilisation"] <= 1, f"{which}: {real['mxu_utilisation']}")
        check(0 < real["vmem_high_water_bytes"] <= real["vmem_limit_bytes"], f"{which}: VMEM")
    code, out, _ = run("tessera-tile", *SMALL, *BLOCKS)
    check(code == 0 and "calibrated: false" in out and "bound by" in out and "VMEM" in out, out)
    named, _ = tile("--chip", "TPU7x", *LARGE)
    check(named["chip"] == "v7" and named["calibrated"] is True, "TPU7x is v7, which is calibrated")
    chosen, _ = tile(*SMALL)
    check(chosen["block_source"] != "caller" and chosen["modelled_seconds"] > 0, f"{chosen}")


def large():
    """What people ask: is in the report as fast as they ask it (a dry run)."""
    for which, factor in (("forward", 2), ("backward", 6)):
        report, _ = tile("--pass", which, *LARGE, "--block-sizes", "1024,512,2048")
        flops = factor * 8192 * 4096 * 128256
        check(abs(report["flops"] / flops - 1) < 0.01, f"{which}: {report['flops']} flops")
        peak = 4.59e14  # of v5p, bf16
        check(report["modelled_seconds"] > flops / peak, f"{which}: faster than the peak")
        check(report["modelled_seconds"] < 2 * flops / peak, f"{which}: slower than half the peak")
        check(report["bound"] in ("mxu", "hbm"), f"{which}: bound by {report['bound']}")


def refusals():
    with Workplace() as place:
        trace = place.path("trace.json")
        # R7: no multiple of 128; R9: v5p wants 1024 rows; R10: 64 MiB of logits; R13: VMEM.
        for arguments, expected in (
                (["--chip", "v5p", "--shape", "2048x256x384", "--block-sizes", "512,128,100"],
                 ["R7", "R9"]),
                (["--chip", "v6e", "--shape", "200x256x384", "--block-sizes", "128,256,128"],
                 ["R8"]),
                (["--chip", "v5p", "--shape", "8192x128x4096", "--block-sizes", "8192,128,2176"],
                 ["R10"]),
                (["--chip", "v6e", *SMALL[2:], *BLOCKS, "--vmem-limit-kib", "100"], ["R13"])):
            report, err = tile(*arguments, "--trace", trace, expected=2)
            label = f"{' '.join(arguments)}"
            check(rules(report["refused"]) == expected, f"{label}: {report['refused']}")
            check(report["modelled_seconds"] is None, f"{label}: a time in spite of it")
            check(all(rule in err for rule in expected) and err.count("\n") == 1,
                  f"{label}: stderr {err!r}")
            check(not os.path.exists(trace), f"{label}: a trace was written")
            code, out, _ = run("tessera-tile", *arguments)
            check(code == 2 and all(one["reason"] in out for one in report["refused"]),
                  f"{label}: {out}")
        # Where nobody gives blocks and none fit: the same.
        report, err = tile("--shape", "2048x4000x384", "--dry-run", "--trace", trace, expected=2)
        check(rules(report["refused"]) == ["R8"] and report["block_sizes"] is None, f"{report}")
        check("R8" in err and err.count("\n") == 1 and not os.path.exists(trace),
              f"no blocks: {err}")
        code, out, _ = run("tessera-tile", "--shape", "2048x4000x384", "--dry-run")
        check(code == 2 and "no block sizes are legal" in out and "4000" in out,
              f"no blocks: {out}")
        for arguments, said in (
                (["--chip", "v9", "--shape", "256x256x384"], "'v9'"),
                (["--kernel", "attention", "--shape", "256x256x384"], "'attention'"),
                (["--pass", "sideways", "--shape", "256x256x384"], "'sideways'"),
                ([], "--shape"),
                (["--shape", "256x256"], "--shape"),
                (["--shape", "256x256x384x2"], "--shape"),
                (["--shape", "256xtwox384"], "--shape"),
                (["--shape", "0x256x384"], "--shape"),
                (["--shape", "256x256x-384"], "--shape"),
                (["--shape", "99999999999999999999x256x384"], "--shape"),
                (["--shape", "256x256x384", "--x-dtype", "f16"], "--x-dtype"),
                (["--shape", "256x256x384", "--block-sizes", "128,128"], "--block-sizes"),
                (["--shape", "256x256x384", "--block-sizes", "0,128,128"], "--block-sizes"),
                (["--shape", "256x256x384", "--vmem-limit-kib", "0"], "--vmem-limit-kib"),
                (["--shape", "256x256x384", "--vmem-limit-kib", str(2 ** 54)],
                 "is not from 1 to 1073741824"),
                (["--shape", "256x256x384", "--sweep", *BLOCKS], "--sweep"),
                (["--shape", "256x256x384", "--wrong"], "--wrong")):
            code, out, err = run("tessera-tile", *arguments, "--trace", trace)
            label = f"{' '.join(arguments)}"
            check(code == 2 and out == "", f"{label}: exit code {code}, {out}")
            check(said in err and err.startswith("tessera-tile: error: ") and err.count("\n") == 1,
                  f"{label}: stderr {err!r}")
            check(not os.path.exists(trace), f"{label}: a trace was written")
        nowhere = place.path("no/such/folder")
        pathlib.Path(place.path("no")).write_text("a file", encoding="utf-8")
        code, _, err = run("tessera-tile", *SMALL, *BLOCKS, "--trace", nowhere + "/trace.json")
        check(code == 2 and err.count("\n") == 1 and "--trace" in err,
              f"a trace into a file's folder: {code} {err!r}")
        # Nobody may make a file there, not even root.
        code, _, err = run("tessera-tile", *SMALL, *BLOCKS, "--trace", "/proc/trace.json")
        check(code == 1 and err.count("\n") == 1 and "--trace" in err and "/proc/trace.json" in err,
              f"a trace into a folder that cannot be written: {code} {err!r}")


def patience():
    """What would take an hour says so on stderr while it works."""
    arguments = ["--shape", "1048576x8192x1048576", "--block-sizes", "1024,128,128", "--dry-run"]
    program = subprocess.Popen([support.bin_folder + "/tessera-tile", *arguments],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    said = program.stderr.readline()
    program.kill()
    program.communicate()
    check("still modelling" in said and "--block-sizes" in said, f"patience: {said!r}")


def draw(*arguments, expected=0):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True,
                          text=True)
    check(done.returncode == expected, f"plot_tile.py: {done.returncode} {done.stderr}")
    return done.stderr


def colours_differ(trace):
    """Every array of a timeline has a colour of its own; those of a backward pass are many."""
    spec = importlib.util.spec_from_file_location("plot_tile", SCRIPT)
    plot_tile = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(plot_tile)
    kinds = {plot_tile.kind_of(name, box) for name, boxes in plot_tile.lanes_of(trace)[1]
             for box in boxes} - {"steps", "waits"}
    check({"work", "x", "w", "grad_x", "grad_w"} <= kinds, f"kinds {kinds}")
    colours = [plot_tile.colour_of(i) for i in range(max(len(kinds), 40))]
    check(len(set(colours)) == len(colours), f"{len(kinds)} kinds have colours {colours}")


def drawn(path):
    check(os.path.getsize(path) > 10000, f"{path} is no picture")


def traces():
    with Workplace() as place:
        path = place.path("trace.json")
        report, _ = tile("--pass", "backward", *SMALL, *BLOCKS, "--trace", path)
        with open(path, encoding="utf-8") as file:
            trace = json.load(file)
        boxes = [e for e in trace["traceEvents"] if e["ph"] == "X"]
        last = max(e["ts"] + e["dur"] for e in boxes)
        # Microseconds, of whole picoseconds.
        check(abs(last - 1e6 * report["modelled_seconds"]) < 1e-5, f"the trace ends at {last} us")
        names = {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
        check({"core 0 steps", "core 0 work", "core 0 copies in"} <= names, f"tracks {names}")
        copies = [e for e in boxes if "bytes" in e["args"] and e["name"] == "x"
                  and e["args"]["from"] == "x"]
        check(len({(e["tid"], e["ts"]) for e in copies}) >= 24, f"{len(copies)} copies of x")
        colours_differ(trace)
        if not DRAWS:
            return
        draw("timeline", path, place.path("all.png"))
        draw("timeline", path, place.path("part.png"), "--from", 2, "--to", 8, "--title",
             "some of it")
        drawn(place.path("all.png"))
        drawn(place.path("part.png"))
        check("no window" in draw("timeline", path, place.path("x.png"), "--from", 3, "--to", 3,
                                  expected=1), "an empty window")
        check("--sweep" in draw("sweep", path, place.path("x.png"), expected=1),
              "a trace is no sweep")
        check(not os.path.exists(place.path("x.png")), "a picture in spite of it")


def sweeps():
    question = ["--chip", "v5p", "--shape", "2048x512x2048", "--x-dtype", "bf16"]
    sweep, _ = tile(*question, "--sweep")
    candidates = sweep["candidates"]
    legal = [c for c in candidates if not c["refused"]]
    check(legal and candidates[:len(legal)] == legal, "legal ones come first")
    times = [c["modelled_seconds"] for c in legal]
    check(times == sorted(times) and times[0] > 0, "by modelled time")
    for c in candidates[len(legal):]:
        check("modelled_seconds" not in c and all(r["rule"] and r["reason"] for r in c["refused"]),
              f"neither a time nor a rule: {c}")
    # v5p lays out labels in tiles of 1024.
    check(all(c["block_sizes"]["b_block_size"] % 1024 == 0 for c in legal), "R9")
    check({"R8", "R9"} <= {r for c in candidates for r in rules(c["refused"])},
          "rules of the others")
    check(sweep["calibrated"] is False, "a sweep says whether its chip is calibrated")
    for c in (legal[0], legal[-1]):
        blocks = ",".join(str(c["block_sizes"][f"{axis}_block_size"]) for axis in "bhv")
        alone, _ = tile(*question, "--block-sizes", blocks, "--dry-run")
        for field in ("modelled_seconds", "bound", "dma_bytes", "vmem_declared_bytes"):
            check(alone[field] == c[field], f"{blocks}: {field} {c[field]}, alone {alone[field]}")
    code, out, _ = run("tessera-tile", *question, "--sweep")
    check(code == 0 and "h_block_size" in out and "refused by R9" in out, "the table of a sweep")
    counts = {r: sum(r in rules(c["refused"]) for c in candidates)
              for r in ("R8", "R9", "R10", "R13")}
    for rule, count in counts.items():
        check(not count or f"refused by {rule}: {count}, for example: {rule}: " in out,
              f"{count} candidates break {rule}: {out}")
    if DRAWS:
        with Workplace() as place:
            with open(place.path("sweep.json"), "w", encoding="utf-8") as file:
                json.dump(sweep, file)
            draw("sweep", place.path("sweep.json"), place.path("sweep.png"))
            drawn(place.path("sweep.png"))
            for h in ("128", "128,512"):
                draw("sweep", place.path("sweep.json"), place.path("h.png"), "--h", h)
            check("no candidate" in draw("sweep", place.path("sweep.json"), place.path("x.png"),
                                         "--h", "100", expected=1), "an h that is none")


def main():
    support.bin_folder = sys.argv[1]
    for part in (help_and_version, counted_by_hand, reports, large, refusals, patience, traces,
                 sweeps):
        part()
    print(f"{support.checks} checks, {len(support.failures)} failed")
    sys.exit(1 if support.failures else 0)


if __name__ == "__main__":
    main()
