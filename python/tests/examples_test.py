# SPDX-License-Identifier: Apache-2.0
"""The examples, as a user calls them."""

import pathlib
import re
import subprocess
import sys

import numpy as np

import textbook

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def test_score_numpy(tmp_path):
    rng = np.random.default_rng(1)
    tokens, hidden, words = 400, 32, 20000
    arrays = {"x": rng.standard_normal((tokens, hidden)).astype(np.float32),
              "w": (0.3 * rng.standard_normal((words, hidden))).astype(np.float32),
              "labels": rng.integers(0, words, tokens)}
    arrays["labels"][::10] = -100
    for name, array in arrays.items():
        np.save(tmp_path / name, array)
    done = subprocess.run(
        [sys.executable, EXAMPLES / "score_numpy.py", "x.npy", "w.npy", "labels.npy",
         "--w-layout", "vh", "--implementation", "eigen"],
        cwd=tmp_path, capture_output=True, text=True, check=True, timeout=120)
    outputs, _ = textbook.cross_entropy(
        arrays["x"].astype(float) @ arrays["w"].T.astype(float), arrays["labels"])
    perplexity = float(re.search(r"perplexity ([\d.]+) of 360 tokens, 20000", done.stdout)[1])
    assert abs(perplexity / np.exp(outputs["loss"]) - 1) < 1e-5
    memory, logits = re.search(r"memory: (\d+) MiB.* take (\d+) MiB", done.stdout).groups()
    assert int(logits) == 31 and int(memory) < 15, done.stdout
