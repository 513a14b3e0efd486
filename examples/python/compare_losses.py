# SPDX-License-Identifier: Apache-2.0
"""`train_transformer.py --compare`: a loss beside the other, in processes that take turns.

Steps alternate, so that whatever else the machine does falls on both alike.
"""

import contextlib
import csv
import pathlib
import statistics
import subprocess
import sys

RUNS = {"plain": ("plain", None), "tessera": ("tessera", None), "plain, 1 thread": ("plain", 1)}
SKIPPED = 3  # steps that allocate and compile


class Run:
    """A child that trains a step when it is told to."""

    def __init__(self, script, given, model, name, folder):
        loss, threads = RUNS[name]
        self.csv = folder / f"{model}_{name.replace(', ', '_').replace(' ', '_')}.csv"
        command = [sys.executable, script, "--wait", "--model", model, "--loss", loss,
                   "--threads", str(threads or given.threads), "--csv", str(self.csv)]
        for option in ("steps", "batch", "length", "vocab", "hidden", "layers", "seed",
                       "learning_rate"):
            command += [f"--{option.replace('_', '-')}", str(getattr(given, option))]
        if given.text:
            command += ["--text", *given.text]
        if given.implementation:
            command += ["--implementation", given.implementation]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                      text=True)
        self.wait()

    def wait(self):
        """Until the child stands before a step, or has ended."""
        while not (line := self.child.stdout.readline()).strip().isdigit():
            if not line:
                self.child.wait()
                return

    def step(self):
        with contextlib.suppress(BrokenPipeError):  # its exit code says it
            self.child.stdin.write("\n")
            self.child.stdin.flush()
        self.wait()

    def columns(self):
        if self.child.wait() != 0:
            sys.exit(f"the child that writes {self.csv} failed")
        with open(self.csv, newline="") as file:
            rows = list(csv.DictReader(file))
        return {name: [float(row[name]) for row in rows] for name in rows[0]}


def interval(values):
    """The median and a 95% interval of it, by the ranks of the values."""
    ordered, half = sorted(values), 0.98 * len(values) ** 0.5
    low = max(0, int(len(ordered) / 2 - half))
    return statistics.median(ordered), ordered[low], ordered[-1 - low]


def difference(curves, one, other):
    return max(abs(a - b) for a, b in zip(curves[one]["loss"], curves[other]["loss"], strict=True))


def judge(model, curves):
    """Prints a model's figures; whether the losses agree."""
    off = difference(curves, "plain", "tessera")
    noise = difference(curves, "plain", "plain, 1 thread")
    limit = max(1e-5, 2 * noise)
    losses = curves["tessera"]["loss"]
    print(f"{model}: loss {losses[0]:.4f} -> {losses[-1]:.4f}; largest difference {off:.2g}, plain "
          f"with one thread {noise:.2g}, limit {limit:.2g}: {'ok' if off <= limit else 'FAILED'}")
    for column, scale, unit in (("seconds", 1e3, "ms a step"), ("peak_mib", 1, "MiB"),
                                ("extra_mib", 1, "MiB above what lay there before the step")):
        texts = [f"{name} {middle * scale:.0f} [{low * scale:.0f}, {high * scale:.0f}]"
                 for name in ("plain", "tessera")
                 for middle, low, high in [interval(curves[name][column][SKIPPED:])]]
        print(f"  {', '.join(texts)} {unit}")
    pairs = zip(curves["plain"]["seconds"], curves["tessera"]["seconds"], strict=True)
    middle, low, high = interval([a / b for a, b in pairs][SKIPPED:])
    print(f"  {middle:.2f} [{low:.2f}, {high:.2f}] times as fast, step by step", flush=True)
    return off <= limit


def draw(results, path):
    try:
        import matplotlib
    except ImportError as error:
        print(f"no picture: {error}; pip install matplotlib")
        return
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    columns = max(2, -(-(len(results) + 2) // 2))
    figure, panels = plt.subplots(2, columns, figsize=(4.2 * columns, 7))
    panels = list(panels.flat)
    for axes, (model, curves) in zip(panels, results.items(), strict=False):
        axes.plot(curves["plain"]["loss"], linewidth=5, color="tab:orange", alpha=0.5,
                  label="plain")
        axes.plot(curves["tessera"]["loss"], linewidth=1.2, color="tab:blue", label="tessera")
        axes.set(title=model, xlabel="step", ylabel="loss")
        axes.grid(alpha=0.25)
        axes.legend(title=f"differ by {difference(curves, 'plain', 'tessera'):.1g} at most")
    for axes, column, scale, title in ((panels[-2], "seconds", 1e3, "time of a step, ms"),
                                       (panels[-1], "extra_mib", 1,
                                        "memory beside model and optimiser, MiB")):
        for at, (name, colour) in enumerate((("plain", "tab:orange"), ("tessera", "tab:blue"))):
            found = [interval(curves[name][column][SKIPPED:]) for curves in results.values()]
            middles = [each[0] * scale for each in found]
            errors = [[(each[0] - each[1]) * scale for each in found],
                      [(each[2] - each[0]) * scale for each in found]]
            axes.bar([place + 0.4 * at for place in range(len(results))], middles, 0.38,
                     yerr=errors, capsize=3, color=colour, alpha=0.8, label=name)
        axes.set_xticks([place + 0.2 for place in range(len(results))], list(results))
        axes.set_title(f"{title}\n(median, 95% interval)")
        axes.legend()
    for axes in panels[len(results):-2]:
        axes.set_axis_off()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    print(f"drawn: {path}")


def compare(script, given):
    """Exit code 1 where curves differ by more than plain ones do."""
    folder = pathlib.Path(given.compare)
    folder.mkdir(parents=True, exist_ok=True)
    results, good = {}, True
    for model in given.model.split(","):
        runs = {name: Run(script, given, model, name, folder) for name in RUNS}
        for _ in range(given.steps):
            for run in runs.values():
                run.step()
        results[model] = {name: run.columns() for name, run in runs.items()}
        good &= judge(model, results[model])
    draw(results, folder / "train_transformer.png")
    return 0 if good else 1
