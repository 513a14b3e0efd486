# SPDX-License-Identifier: Apache-2.0
"""The examples, as a user calls them."""

import csv
import importlib.util
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

import tessera

FOLDER = pathlib.Path(__file__).parents[3] / "examples" / "python"
SMALL = ["--steps", "8", "--vocab", "300", "--length", "24", "--hidden", "64", "--layers", "1"]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """Words that follow each other by a rule, which a model may learn."""
    numbers = random.Random(1)
    words = [f"w{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(260)]
    at, chosen = 0, []
    for _ in range(4000):
        at = (3 * at + numbers.randrange(2)) % len(words)
        chosen.append(words[at])
    path = tmp_path_factory.mktemp("text") / "text.txt"
    path.write_text(" ".join(chosen))
    return path


def run(*arguments, folder):
    package = pathlib.Path(tessera.__file__).parents[1]  # PYTHONPATH may be relative
    return subprocess.run([sys.executable, FOLDER / "train_transformer.py", *arguments], cwd=folder,
                          env={**os.environ, "PYTHONPATH": str(package)},
                          capture_output=True, text=True, timeout=150, check=False)


def test_one_loss(tmp_path, text):
    done = run("--model", "qwen3", "--csv", "curve.csv", "--text", text, *SMALL,
               "--learning-rate", "1e-2", "--implementation", "eigen", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with open(tmp_path / "curve.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8 and float(rows[-1]["loss"]) < float(rows[0]["loss"]) - 0.2
    assert all(float(row["seconds"]) > 0 and float(row["peak_mib"]) > 100 for row in rows)


def test_compare(tmp_path, text):
    done = run("--compare", ".", "--model", "gemma2", "--text", text, *SMALL, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^gemma2: loss .* limit \S+: ok$", done.stdout, re.M), done.stdout
    if importlib.util.find_spec("matplotlib"):
        assert (tmp_path / "train_transformer.png").read_bytes().startswith(b"\x89PNG")
    else:
        assert "pip install matplotlib" in done.stdout


def test_refused(tmp_path, text):
    done = run("--text", text, "--length", "5000", folder=tmp_path)
    assert done.returncode == 1 and "give more with --text" in done.stderr
