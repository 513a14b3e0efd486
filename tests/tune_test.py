#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tessera-tune as users call it. Most of it with a program in the place of tessera-bench that says
what is planted, so that who wins is known. usage: tune_test.py TESSERA_TUNE SOURCE_DIR"""
import csv
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time

# In the place of tessera-bench. PLANTED, a JSON object, has by the value of --block-sizes ("": none
# is given) the milliseconds of a call, or what goes wrong. The machine is slower in every second
# call, and so is its peak then, but not while calls take turns.
FAKE = """#!{python}
import json, os, signal, sys, time
options = dict(word.split("=", 1) for word in sys.argv[1:] if "=" in word)
blocks = options.get("--block-sizes", "")
tables = os.environ["TESSERA_TUNED_FILE"] or os.environ["TESSERA_MEASURED_ROWS"] != "0"
with open(os.environ["CALLS"], "a+") as log:
    log.seek(0)
    calls = log.readlines()
    slow = 1 + len(calls) % 2
    log.write(blocks + (" tables" if tables else "") + "\\n")
time.sleep(float(os.environ.get("SLEEP" if calls else "FIRST", "0")))
what = json.loads(os.environ.get("PLANTED", "{{}}")).get(blocks, 10.0)
if what == "crash": os.kill(os.getpid(), signal.SIGSEGV)
if what == "hang": time.sleep(60)
if what == "garbage": sys.exit("words, /some/where/else, no JSON")
seconds = (what if isinstance(what, float) else 0.001) * 1e-3
if "--turns" in sys.argv:
    print("ready", flush=True)
    for line in sys.stdin:
        if what == "crash in turns": os.kill(os.getpid(), signal.SIGSEGV)
        if what == "hang in turns": time.sleep(60)
        print(seconds, flush=True)
    sys.exit()
row = dict(name="row", compile_seconds=0.1, first_call_seconds=0.2, median_seconds=seconds * slow,
           spread=0.01, fraction_of_bracket=1e-4 / seconds, tokens_per_second=8 / seconds,
           max_abs_deviation=1e-7, mean_abs_deviation=1e-8, deviation_in_tolerances=0.1,
           status="ok", error="")
if what == "nan": row["median_seconds"] = float("nan")
if what == "far": row["deviation_in_tolerances"] = 1.5
if what == "wrong": row.update(status="wrong", error="wrong results: loss, \\"here\\"")
print(json.dumps(dict(context=dict(tessera_revision="{revision}", date="2026-01-02T03:04:05"),
                      benchmarks=[row])))
sys.exit(what == "wrong")
"""
FAILURES = {"crash": "crashed", "hang": "hung", "garbage": "failed", "nan": "not_finite",
            "far": "wrong", "wrong": "wrong"}
SMALL = ["--shapes", "64x64x512", "--implementations", "eigen", "--passes", "forward"]
TABLE = "# tessera tuned blocks 1\n"
failures = []


def check(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what, flush=True)


def run(*arguments, env=None, **options):
    done = subprocess.run([tune, *map(str, arguments)], capture_output=True, text=True,
                          errors="replace", env={**os.environ, **(env or {})}, **options)
    check(done.returncode in (0, 1, 2), f"{arguments}: ended by {done.returncode}: {done.stderr}")
    return done.returncode, done.stdout, done.stderr


def run_fake(folder, out, *arguments, planted=None, **env):
    (folder / "calls").write_text("")
    code, text, err = run(*SMALL, "--bench", folder / "bench", "--max-seconds", 0.01, "--out", out,
                          *arguments,
                          env={"CALLS": str(folder / "calls"),
                               "PLANTED": json.dumps(planted or {}), **env})
    calls = (folder / "calls").read_text().splitlines()
    check(not [call for call in calls if "tables" in call], "the tables are left out")
    return code, text, err, calls


def records_of(path):
    lines = path.read_text().splitlines()
    check(lines[0] == "# tessera raw tuning 1", f"the first line of {path.name}: {lines[0]}")
    return list(csv.DictReader(lines[1:]))


def blocks_of(record):
    return ",".join(part.split("=")[1] for part in record["block_sizes"].split())


def a_real_run(folder):
    """Two candidates of the real program."""
    out = folder / "real.csv"
    code, text, err = run("--shapes", "8x16x64", *SMALL[2:], "--vary", "h_block_size", "--search",
                          "grid", "--rounds", 1, "--finalists", 1, "--samples", 1,
                          "--max-seconds", 0.05, "--out", out)
    check(code == 0 and "tried and 0 failed" in text, f"a real run: {code}, {text}, {err}")
    records = records_of(out)
    check(len({r["config"] for r in records}) > 1 and "heuristic" in {r["config"] for r in records},
          f"{records}")
    for record in records:
        check(record["status"] in ("ok", "noisy") and record["device"] == "host" and
              record["bucket"] == "tiny" and float(record["median_seconds"]) > 0 and
              float(record["mean_abs_deviation"]) > 0 and record["error"] == "", f"{record}")


def an_operator_of_other_letters(folder):
    """Its regimes and buckets; a real run, whose problem and blocks the bench is told by letter."""
    ask = ("--operators", "attention,rms_norm", "--implementations", "eigen")
    code, text, err = run(*ask, "--regimes", "llama-3-8b", "--tokens", "16,2000", "--dry-run")
    names = [line for line in text.splitlines() if not line.startswith(" ")]
    check(code == 0 and names == [
        "attention/forward/eigen/f32/B1/Q32/S16/D128/K8 (few-queries)",
        "attention/forward/eigen/f32/B1/Q32/S2000/D128/K8 (long-large-head)",
        "rms_norm/forward/eigen/f32/B16/H4096 (few-tokens)",
        "rms_norm/backward/eigen/f32/B16/H4096 (few-tokens)",
        "rms_norm/forward/eigen/f32/B2000/H4096 (large-layer-medium-batch)",
        "rms_norm/backward/eigen/f32/B2000/H4096 (large-layer-medium-batch)"], f"{text} {err}")
    out = folder / "letters.csv"
    code, text, err = run(*ask, "--passes", "forward", "--shapes", "B2/Q4/K2/S20/D8", "--vary",
                          "kv_block_size", "--search", "grid", "--rounds", 1, "--finalists", 1,
                          "--samples", 1, "--max-seconds", 0.05, "--out", out)
    records = records_of(out)
    check(code == 0 and len({r["config"] for r in records}) > 1, f"{code} {text} {err}")
    for record in records:
        check(record["status"] in ("ok", "noisy") and record["bucket"] == "short-small-head" and
              record["shape"] == "B 2 Q 4 S 20 D 8 K 2", f"{record}")
        check(record["block_sizes"].startswith("q_block_size=40 kv_block_size=") or
              record["config"] == "heuristic", f"{record}")


def failures_never_win(folder):
    out, table = folder / "raw.csv", folder / "table.csv"
    vary = ("--vary", "b_block_size,v_block_size", "--search", "grid", "--rounds", 6)
    code, _, err, _ = run_fake(folder, folder / "first.csv", *vary)
    check(code == 0, f"exit {code}: {err}")
    configs = list(dict.fromkeys(blocks_of(r) for r in records_of(folder / "first.csv")))[1:]
    check(len(configs) >= len(FAILURES) + 2, f"{configs}")
    planted = dict(zip(configs, FAILURES, strict=False))
    good, later = configs[len(FAILURES):][:2]
    planted.update({good: 8.0, later: 9.0})
    code, text, err, calls = run_fake(folder, out, *vary, "--timeout", "1s", planted=planted)
    records = records_of(out)
    check(code == 0 and f"{len(FAILURES)} failed" in text, f"exit {code}: {text} {err}")
    for record in records:
        what = planted.get(blocks_of(record))
        status = FAILURES.get(what, "ok")
        check(record["status"] == status, f"{what}: {record}")
        check(status == "ok" or record["error"], f"{what}: no error text")
        check("some/where" not in record["error"], f"a folder: {record['error']}")
    turns = [(r["round"], blocks_of(r)) for r in records if r["stage"] == "final"]
    check(turns == [(str(i), each) for i in range(6) for each in ("", good, later)],
          f"turns: {turns}")
    check(len(calls) == len(records), "a line for each process")
    code, text, err = run("derive", out, "--table", table)
    check(code == 0 and "a new row" in text and "0.800 (0.800 to 0.800, 6 rounds" in text,
          f"{text} {err}")
    (row,) = csv.DictReader(table.read_text().splitlines()[1:])
    check(blocks_of(row) == good and row["provenance"] == "measured" and row["device"] == "host",
          f"{row}")
    # Nothing is faster: a row that leaves the choice to the heuristic, in place of the one before.
    # So it is where all are so much slower that none takes turns.
    for planted in ({}, dict.fromkeys(configs, 20.0)):
        run_fake(folder, folder / "same.csv", *vary, planted=planted)
        code, text, err = run("derive", folder / "same.csv", "--table", table)
        (row,) = csv.DictReader(table.read_text().splitlines()[1:])
        check("the heuristic is right: the row" in text and row["config"] == "heuristic" and
              not row["block_sizes"] and not row["knobs"] and float(row["median_seconds"]) > 0,
              f"{text} {err} {row}")
    # One that fails only as it takes turns has a line for that, and the other one its turns.
    for what, status in (("crash in turns", "crashed"), ("hang in turns", "hung")):
        late = folder / f"{status}.csv"
        code, text, err, _ = run_fake(folder, late, *vary, "--timeout", "2s",
                                      planted={good: 8.0, later: what})
        turns = [(blocks_of(r), r["status"]) for r in records_of(late) if r["stage"] == "final"]
        check(code == 0 and "1 failed; 2 took turns with the heuristic, 6 rounds" in text and
              turns == [(later, status), *[("", "ok"), (good, "ok")] * 6], f"{text} {err} {turns}")
    # Where the heuristic itself fails there is nothing to compare with.
    code, text, err, calls = run_fake(folder, folder / "none.csv", *vary, planted={"": "crash"})
    check(code == 0 and "given up: crashed" in text and len(calls) == 1, f"{text} {err}")


def the_budget_is_used(folder):
    """A first call that compiles does not leave the search with the few candidates for which there
    would be time if all took as long. The best one comes last, and gets its turns."""
    vary = ("--vary", "b_block_size,v_block_size", "--rounds", 6, "--seed", 3)
    run_fake(folder, folder / "all.csv", *vary)
    configs = list(dict.fromkeys(blocks_of(r) for r in records_of(folder / "all.csv")))
    last = configs[-1]
    check(len(configs) > 8, f"{configs}")
    _, text, err, _ = run_fake(folder, folder / "slow.csv", *vary, "--budget", "10s", FIRST="2",
                               planted={last: 8.0})
    records = records_of(folder / "slow.csv")
    check(f"{len(configs)} were tried" in text, f"{text} {err}")
    check(sum(blocks_of(r) == last and r["stage"] == "final" for r in records) == 6, f"{records}")


def killed_and_resumed(folder):
    whole, out = folder / "whole.csv", folder / "killed.csv"
    arguments = ("--vary", "v_block_size", "--rounds", 6)
    planted = {"64,64,256": 7.0}
    run_fake(folder, whole, *arguments, planted=planted)
    program = subprocess.Popen(
        [tune, *SMALL, *map(str, arguments), "--bench", folder / "bench", "--max-seconds", "0.01",
         "--out", out],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**os.environ, "CALLS": str(folder / "calls"), "SLEEP": "0.05",
             "PLANTED": json.dumps(planted)})
    end = time.monotonic() + 20
    while time.monotonic() < end and (not out.exists() or out.read_text().count("\n") < 8):
        time.sleep(0.01)
    program.send_signal(signal.SIGKILL)
    program.wait()
    before = out.read_text()
    check(before.endswith("\n") and before.count("\n") >= 8, "lines are written whole")
    out.write_text(before[:-9])  # as if the last one had been torn
    code, _, err, _ = run_fake(folder, out, *arguments, planted=planted)
    check(code == 2 and "--resume" in err and out.read_text() == before[:-9], f"{code}: {err}")
    code, _, err, calls = run_fake(folder, out, *arguments, "--resume", planted=planted)
    check(code == 0 and f"killed.csv:{before.count(chr(10))}: the line is torn" in err, err)

    def keys(lines):
        return [(r["config"], r["stage"], r["round"]) for r in csv.DictReader(lines)]
    known = keys(before.splitlines()[1:-1])
    every = keys(whole.read_text().splitlines()[1:])
    check(set(keys(out.read_text().splitlines()[1:])) == set(every), out.read_text())
    # A round of which a line is missing is played again, since only its lines belong together.
    of_a_round = sum(key[1:] == ("final", "0") for key in every)
    kept = [key for key in known if key[1] == "search" or
            sum(other[1:] == key[1:] for other in known) == of_a_round]
    check(len(calls) == len(every) - len(kept), f"repeated: {calls}")


def raw_text(ratios, **cells):
    """Raw results of a candidate whose times are these, the heuristic's being 1."""
    header = ("operator,pass,implementation,device,driver,dtype,layout,bucket,regime,shape,config,"
              "block_sizes,knobs,stage,round,status,compile_seconds,first_call_seconds,"
              "median_seconds,spread,share_of_peak,tokens_per_second,max_abs_deviation,"
              "mean_abs_deviation,revision,date,error").split(",")
    lines = ["# tessera raw tuning 1", ",".join(header)]
    for place, ratio in enumerate(ratios):
        for config, time_of in (("heuristic", 1.0), ("item=16", ratio)):
            row = dict(operator="linear_cross_entropy", implementation="opencl.simt",
                       device="a device", driver="1", dtype="f32", layout="vh", bucket="tiny",
                       shape="B 8 H 8 V 8", config=config, stage="final", round=place, status="ok",
                       knobs="" if config == "heuristic" else config, compile_seconds=1,
                       first_call_seconds=1, median_seconds=time_of, spread=0.1,
                       share_of_peak=0.1 / time_of, tokens_per_second=1, max_abs_deviation=0,
                       mean_abs_deviation=0, revision="r", date="2026-01-02", error="")
            row.update(cells, **{"pass": "forward"})
            lines.append(",".join(str(row.get(name, "")) for name in header))
    return "\n".join(lines) + "\n"


def table_keeps_the_rest(folder):
    raw, table = folder / "r.csv", folder / "t.csv"
    header = ("operator,pass,implementation,device,driver,device_class,dtype,layout,workspace,"
              "gradients,bucket,block_sizes,knobs,median_seconds,spread,heuristic_seconds,config,"
              "revision,date,provenance,source\n")
    kept = ["# A remark.",
            'linear_cross_entropy,forward,opencl.simt,"another, device",,,f32,vh,,,tiny,,item=4,,,,'
            "item=4,,,measured,", "a bad line,",
            "linear_cross_entropy,forward,opencl.simt,a device,,,bf16,vh,,,tiny,,item=4,,,,item=4,"
            ",,measured,"]
    mine = ("linear_cross_entropy,forward,opencl.simt,a device,,,f32,vh,,,tiny,,item=4,,,,item=4,,,"
            "measured,")
    old = TABLE + header + "\n".join([kept[0], mine, *kept[1:]]) + "\n"
    for ratios, wins in (([0.9] * 6, True), ([0.9] * 5, False), ([0.9] * 5 + [1.01], False),
                         ([0.9] * 8 + [1.5], True), ([1.2] * 9, False)):
        table.write_text(old)
        raw.write_text(raw_text(ratios))
        code, text, err = run("derive", raw, "--table", table)
        lines = table.read_text().splitlines()[2:]
        check(code == 0 and [line for line in lines if line in kept] == kept, f"{ratios}: {lines}")
        check("t.csv:6: it has 2 cells" in err, f"the bad line is named: {err}")
        rest = [line for line in lines if line not in kept]
        if len(ratios) < 6:
            check(not rest and "known: the row of item=4 is taken out" in text, text)
            continue
        check(len(rest) == 1 and (",item=16," if wins else ",,,1,0.000,1,heuristic,") in rest[0],
              f"{ratios}: {rest} {text}")
        check("changes from item=4" in text and ("heuristic is right" in text) != wins, text)
    # Of two shapes of the bucket both have to win; a failure anywhere counts; so does the revision.
    for other, wins in ((raw_text([0.8] * 6, shape="B 9 H 8 V 8"), True),
                        (raw_text([1.0] * 6, shape="B 9 H 8 V 8"), False),
                        (raw_text([1.0] * 6, shape="B 7 H 8 V 8"), False),
                        (raw_text([0.6] * 5, shape="B 9 H 8 V 8"), False),
                        (raw_text([0.9], status="crashed"), False),
                        (raw_text([0.9], status="crashed", revision="q"), True),
                        (raw_text([0.9] * 3, revision="s", date="2026-01-03"), False)):
        table.write_text(old)
        raw.write_text(raw_text([0.9] * 6))
        (folder / "o.csv").write_text(other)
        _, text, _ = run("derive", raw, folder / "o.csv", "--table", table)
        check((",item=16," in table.read_text()) == wins, f"{wins}: {other.splitlines()[-1]}")
        # Five rounds say neither.
        check("0.600" not in text or "too little is known" in text, text)


def custom_kernels_get_no_row(folder):
    raw, table = folder / "c.csv", folder / "ct.csv"
    for ratio, said in ((0.9, "item=16 is faster: write it into the row of the file"),
                        (1.1, "the row's own numbers are right")):
        raw.write_text(raw_text([ratio] * 6, operator="custom/k", bucket="", tokens_per_second=""))
        code, text, err = run("derive", raw)
        check(code == 0 and said in text, f"{code}: {text} {err}")
        code, _, err = run("derive", raw, "--table", table)
        check(code == 2 and "leave --table out" in err and not table.exists(), f"{code}: {err}")
        (folder / "o.csv").write_text(raw_text([0.9] * 6))
        code, _, err = run("derive", raw, folder / "o.csv")
        check(code == 2 and "give --table FILE" in err, f"{code}: {err}")
        code, text, err = run("derive", raw, folder / "o.csv", "--table", table)
        check(code == 0 and said in text and "custom" not in table.read_text(), f"{text} {err}")
        table.unlink()


def damaged_files(folder):
    raw, table = folder / "d.csv", folder / "dt.csv"
    good, lot = raw_text([0.9] * 6), random.Random(7)
    other = "linear_cross_entropy,,eigen,host,,,,,,,,v_block_size=8,,,,,x,,,measured,"

    def damaged(text):
        text = list(text)
        for _ in range(lot.choice((1, 3, 30))):
            at = lot.randrange(len(text) + 1)
            text[at:at + lot.choice((0, 1, 200))] = lot.choice(
                ("", ",", '"', "\n", "\0", "-1", "nan", "9" * 30, "\xff"))
        return "".join(text).encode("latin-1")
    for turn in range(400):
        raw.write_bytes(damaged(good) if turn % 2 else good.encode())
        table.write_bytes(damaged(TABLE + "x\n" + 3 * (other + "\n")) if turn % 3 else
                          f"{TABLE}x\n{other}\n".encode())
        before = table.read_bytes()
        code, _, err = run("derive", raw, "--table", table)
        after = table.read_bytes()
        check(code == 0 or (code == 2 and after == before), f"{code}: {err}")
        check(before.split(b"\n").count(other.encode()) == after.split(b"\n").count(other.encode()),
              f"another row is lost: {before} {after}")
    for text, said in (("# tessera raw tuning 2\n", "d.csv:1: the first line is"),
                       (good.replace(",tiny,", ",tin,"), "bucket is \"tin\"; it is one of tiny"),
                       (good.replace("linear_cross_entropy", "sum"), "operator is \"sum\""),
                       (good.replace("knobs,", "knobs,").replace("item=16", "item=x"),
                        "knobs has \"item=x\"")):
        raw.write_text(text)
        _, _, err = run("derive", raw, "--table", table)
        check(said in err, f"{said}: {err}")
        raw.write_text(text + good.split("\n", 2)[2])  # right lines are used all the same
        code, out, err = run("derive", raw, "--table", folder / "new.csv")
        check(code == (2 if "tuning 2" in text else 0), f"{code}: {out} {err}")
    raw.write_text("# tessera raw tuning 2\nx\n")
    code, _, err, _ = run_fake(folder, raw, "--resume")
    check(code == 2 and raw.read_text() == "# tessera raw tuning 2\nx\n", f"{code}: {err}")
    raw.write_text(good)
    table.write_text("# tessera tuned blocks 2\nx\n")
    code, _, err = run("derive", raw, "--table", table)
    check(code == 2 and str(table) in err and table.read_text() == "# tessera tuned blocks 2\nx\n",
          f"{code}: {err}")


# TIMES additions of next to nothing leave the results as they are. HOW says what goes wrong.
KERNEL = """kernel void add(global const float* x, global float* y, global int* whole) {
  const int i = get_global_id(0);
  float sum = 0.0f;
  for (int j = 0; j < TIMES; ++j) sum += 1e-30f * x[(i + j) % 1024];
#if HOW == 2
  no C;
#endif
  whole[i] = i + (HOW == 3 && i == 7);
  if (HOW == 4 && i == 9) return;
  if (HOW == 5) sum += *(volatile global float*)(ulong)8;
  y[i] = x[i] + sum;
}"""


def custom_kernels(folder):
    """Each candidate by the real program: a faster one, and some that fail."""
    file, out = folder / "kernel.json", folder / "custom.csv"
    (folder / "kernel.cl").write_text(KERNEL)
    row = {"inputs": [{"dtype": "f32", "shape": [1024]}],
           "outputs": [{"dtype": "f32", "shape": [1024]}, {"dtype": "i32", "shape": [1024]}],
           "block_sizes": {"TIMES": 5000}, "knobs": {"HOW": 1}, "global": [1024], "local": [64]}

    def write(*rows, **changes):
        file.write_text(json.dumps({"source": "kernel.cl", "entry": "add", "rows": rows,
                                    **changes}))

    def tune_file(*arguments):
        return run("--custom", file, "--out", out, *arguments, "--search", "grid", "--rounds", 1,
                   "--finalists", 1, "--samples", 1, "--max-seconds", 0.02)
    for rows, said in (
            ([row], "kernel.json has no candidates; give a row \"tune\""),
            ([row, {**row, "tune": []}], "kernel.json, row 1: --custom: tune is []; give a list"),
            ([{**row, "tune": [{}, {"knobs": {"WIDTH": 1}}]}],
             "row 0, tune[1]: --custom: knobs has \"WIDTH\", which the row does not have; give"),
            ([{**row, "tune": [{"knobs": {"HOW": 1.5}}]}], "HOW is 1.5; it has to be an integer"),
            ([{**row, "tune": [{"knobs": 4}]}], "knobs is 4; give names and numbers"),
            ([{**row, "tune": [4]}], "row 0, tune[0]: --custom: it is 4; give what differs"),
            ([{**row, "tune": [{"scalars": []}]}], "it has \"scalars\"; a candidate may have"),
            ([{**row, "tune": [{"local": [0]}]}], "local is [0]; give a list of up to three"),
            ([{**row, "tune": [{"global": []}]}], "local is given without global")):
        write(*rows)
        code, _, err = tune_file()
        check(code == 2 and said in err and err.count("\n") == 1, f"{said}: {code}: {err}")
    code, _, err = tune_file("--shapes", "8x8x8")
    check(code == 2 and "--shapes excludes --custom" in err and not out.exists(), f"{code}: {err}")
    write(row, row, tune=[{"knobs": {"HOW": how}} for how in (2, 3, 4, 5)] + [
        {"block_sizes": {"TIMES": 100}, "local": [128]}, {"knobs": {"HOW": 1}}])
    code, text, err = run("--custom", file, "--dry-run")
    if "there is no OpenCL device" in text:
        check(code == 2 and "can be tuned here" in err, f"{code}: {err}")
        return
    check(code == 0 and text.count("6 candidates, the heuristic among them") == 2 and
          text.count("1 excluded: it would run as the row") == 2, f"{code}: {text} {err}")
    # One row is enough from here on.
    write(row, tune=json.loads(file.read_text())["tune"])
    code, text, err = tune_file()
    check(code == 0 and "6 were tried and 4 failed; 1 took turns with the heuristic, 1 rounds" in
          text, f"{code}: {text} {err}")
    records = records_of(out)
    faster = "TIMES=100 local=128"
    failed = {r["config"]: (r["status"], r["error"]) for r in records if r["error"]}
    for config, status, error in (
            ("HOW=2", "failed", "clBuildProgram"),
            ("HOW=3", "wrong", "outputs[1], element 7, 8 where the row has 7"),
            ("HOW=4", "wrong", "outputs[0], element 9, "),
            # A GPU's driver reports the access; a CPU's process ends.
            ("HOW=5", "crashed failed", "")):
        got = failed.pop(config, ("none", ""))
        check(got[0] in status.split() and error in got[1], f"{config}: {got}")
    check(not failed, f"{failed}")
    turns = {r["config"]: float(r["median_seconds"]) for r in records if r["stage"] == "final"}
    check(set(turns) == {"heuristic", faster} and turns[faster] < turns["heuristic"], f"{turns}")
    for r in records:
        check(r["operator"] == "custom/add" and r["implementation"] == "opencl" and
              r["shape"] == "row 0: f32[1024] -> f32[1024] i32[1024]", f"{r}")
    # All is known, until the kernel is another one.
    for text, more in ((KERNEL, 0), (KERNEL.replace("if (HOW == 5)", "if (HOW < 9)"), 1)):
        (folder / "kernel.cl").write_text(text)
        code, text, err = tune_file("--resume")
        check(code == 0 and len(records_of(out)) == len(records) + more and
              ("given up: " in text) == bool(more), f"{code}: {text} {err}")


def pictures(folder):
    """Where this python has matplotlib."""
    raw, out = folder / "raw.csv", folder / "raw.png"
    for path, code, said in ((raw, 0, ""), (folder / "bench", 1, "does not begin with")):
        done = subprocess.run([sys.executable, f"{source}/scripts/plot_tune.py", path, out],
                              capture_output=True, text=True)
        if "need matplotlib" in done.stderr:
            return
        check(done.returncode == code and said in done.stderr, f"{path}: {done.stderr}")
    check(out.read_bytes()[1:4] == b"PNG", "no picture")


def limited():
    """A full disk, as a program sees it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))


def bad_calls(folder):
    raw, table = folder / "b.csv", folder / "bt.csv"
    raw.write_text(raw_text([0.9] * 6))
    table.write_text(TABLE)
    for arguments, code, said in (
            (("--regimes", "gpt-3"), 2, "'gpt-3' is not one of gpt-2, gemma-2-2b"),
            ((*SMALL, "--buckets", "huge"), 2, "'huge' is not one of tiny, small-vocab"),
            ((*SMALL, "--vary", "item"), 2, "'item' is not one of b_block_size, h_block_size"),
            ((*SMALL, "--operators", "sum"), 2, "is not one of attention, linear_cross_entropy"),
            ((*SMALL[:2], "--implementations", "cuda"), 2, "is not one of opencl"),
            ((*SMALL[:2], "--implementations", "tpu_tile"), 2, "tessera-tile --sweep"),
            ((*SMALL, "--search", "luck"), 2, "grid, random, halving"),
            ((*SMALL, "--budget", "soon"), 2, "give seconds, or 90s, 10m, 2h"),
            ((*SMALL, "--bench", "/nowhere"), 2, "--bench: '/nowhere'"),
            ((), 2, "--regimes")):
        got, _, err = run(*arguments, *(("--out", folder / "no.csv") if arguments else ()))
        check(got == code and said in err and err.count("\n") == 1, f"{arguments}: {got}: {err}")
    check(not (folder / "no.csv").exists(), "a bad call leaves no file")
    code, _, err, calls = run_fake(folder, "/dev/full")
    check(code == 1 and "/dev/full" in err and not calls, f"{code}: {err}")
    code, _, err, _ = run_fake(folder, folder / "no/where.csv")
    check(code == 2 and "no/where.csv" in err, f"{code}: {err}")
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    for path in (folder / "no/table.csv", folder, pipe):
        code, _, err = run("derive", raw, "--table", path)
        check(code == 2 and str(path) in err, f"{code}: {err}")
    for path, why in ((folder, "it is a folder"), (pipe, "it is no regular file")):
        code, _, err = run("derive", path, "--table", table)
        check(code == 2 and why in err, f"{code}: {err}")
    code, _, err = run("derive", raw, "--table", table, preexec_fn=limited)
    check(code == 1 and "bt.csv" in err and table.read_text() == TABLE, f"{code}: {err}")
    code, _, err = run("derive", raw, "--table", table)
    check(code == 0 and table.read_text().splitlines()[1].startswith("operator,"), err)
    code, out, _ = run(*SMALL, "--dry-run")
    check(code == 0 and "candidates, the heuristic among them" in out, out)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        revision = subprocess.run([tune, "--version"], capture_output=True, text=True).stdout
        (folder / "bench").write_text(FAKE.format(
            python=sys.executable, revision=revision.split("(")[1].split(";")[0]))
        (folder / "bench").chmod(0o755)
        for case in (a_real_run, an_operator_of_other_letters, failures_never_win,
                     the_budget_is_used, killed_and_resumed, table_keeps_the_rest, custom_kernels,
                     custom_kernels_get_no_row, damaged_files, bad_calls, pictures):
            start = time.monotonic()
            case(folder)
            print(f"{case.__name__}: {time.monotonic() - start:.1f} s", flush=True)
    sys.exit(f"{len(failures)} failed" if failures else 0)


tune, source = sys.argv[1:]
main()
