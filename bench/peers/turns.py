# SPDX-License-Identifier: Apache-2.0
"""Peers take turns, each in its own process, between samples of the machine's peak."""
import json
import os
import queue
import subprocess
import threading
import time

BRACKET = 0.03  # a sample counts when both its peaks are within this of the best of the run
MUST_COUNT = 7  # fewer such samples, and a row is noisy
SETTLE = 0.3    # seconds in which the threads of the last peer stop spinning: OpenMP's wait 0.2


class Failed(Exception):
    """This peer gives no figures; the message is the reason its row shows."""


def limits(threads):
    """The processors and the environment of a process that may use so many threads."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POCL_MAX_PTHREAD_COUNT")
    return sorted(os.sched_getaffinity(0))[:threads], dict.fromkeys(names, str(threads))


def timed(call, count=1):
    """Seconds of a call, the mean of so many."""
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


class Process:
    """One worker. Its log has all it printed."""

    def __init__(self, command, log, threads, environment=None):
        cpus, env = limits(threads)
        env = dict(os.environ, **env, **(environment or {}))
        with open(log, "w", encoding="utf-8") as file:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
                env=env, preexec_fn=lambda: os.sched_setaffinity(0, cpus))
        self.log = log
        self.lines = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line)
        self.lines.put(None)

    def ask(self, op, timeout, **request):
        try:
            self.process.stdin.write(json.dumps({"op": op, **request}) + "\n")
            self.process.stdin.flush()
            line = self.lines.get(timeout=timeout)
        except queue.Empty:
            self.close()
            raise Failed(f"{op}: no answer in {timeout:.0f} s") from None
        except OSError:
            line = None
        if line is None:
            code = self.process.wait()
            raise Failed(f"{op}: the process ended with {code}, see {self.log}")
        reply = json.loads(line)
        for kind in ("unsupported", "error"):
            if kind in reply:
                text = " ".join(reply[kind].split())
                raise Failed(text if kind == "unsupported" else f"{op}: {text[:300]}")
        return reply

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Row:
    """One peer on one problem."""

    def __init__(self, peer, which, dtype, layout):
        self.peer, self.which, self.dtype, self.layout = peer, which, dtype, layout
        self.process = None
        self.reason = ""   # why there are no figures; empty: there are
        self.samples = []  # dicts of round, seconds, before, after
        self.facts = {}

    def fail(self, reason):
        self.reason = str(reason)
        if self.process:
            self.process.close()
        self.process = None

    def asked(self, op, timeout, **request):
        """The answer, or None after which the row has failed."""
        if self.reason or self.process is None:
            return None
        try:
            return self.process.ask(op, timeout, **request)
        except Failed as error:
            self.fail(error)
            return None


def take_turns(rows, peak, rounds, max_seconds, timeout, say, settle=SETTLE):
    """Fills the rows' samples: A B C A B C ..., a peak sample between any two calls. A peer leaves
    when it has taken max_seconds and three samples, or three times as long; one that has a sample
    of its memory's call, which alone took as long, does not begin."""
    def done(row):
        return (spent[row.peer] > max_seconds * (1 if len(row.samples) >= 3 else 3) or
                row in slow)
    spent = {row.peer: sum(s["seconds"] for s in row.samples) for row in rows}
    slow = [row for row in rows if row.samples]
    before = peak()
    for number in range(rounds):
        for row in rows:
            if row.reason or done(row):
                continue
            reply = row.asked("run", timeout)
            time.sleep(settle)
            after = peak()
            if reply:
                row.samples.append({"round": number, "seconds": reply["seconds"],
                                    "before": before, "after": after})
                spent[row.peer] += reply["seconds"]
                say(f"  {number + 1}/{rounds} {row.peer}: {reply['seconds']:.3f} s")
            before = after


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else 0.5 * (ordered[middle - 1] + ordered[middle])


def quantile(values, share):
    ordered = sorted(values)
    at = share * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def summary(row, flops, best_peak, baseline):
    """The figures of a row that has samples. `baseline` is the row that others are compared with;
    both calls of a ratio belong to the same round."""
    def counts(s):
        return best_peak and min(s["before"], s["after"]) >= (1.0 - BRACKET) * best_peak
    counted = [s for s in row.samples if counts(s)]
    used = counted if len(counted) >= MUST_COUNT else row.samples
    seconds = [s["seconds"] for s in used]
    quartiles = [quantile(seconds, share) for share in (0.25, 0.75)]
    figures = {
        "samples": len(row.samples), "samples_counted": len(counted),
        "noisy": int(len(counted) < MUST_COUNT),
        "median_seconds": median(seconds),
        "quartiles": quartiles, "spread": (quartiles[1] - quartiles[0]) / median(seconds),
        "flops_per_second": flops / median(seconds),
    }
    if best_peak:
        figures.update(peak_flops_per_second=best_peak,
                       fraction_of_peak=flops / median(seconds) / best_peak)
    if baseline and baseline.samples:
        # Calls of one round are seconds apart, so the machine's drift divides out. The peaks beside
        # them do not enter: one is taken while another process may still hold a core.
        own, other = ({s["round"]: s["seconds"] for s in r.samples} for r in (row, baseline))
        ratios = [own[n] / other[n] for n in own if n in other]
        if ratios:
            figures["times_of_baseline"] = median(ratios)
    return figures
