# SPDX-License-Identifier: Apache-2.0
"""Trains a small transformer of Hugging Face's on English text, with its own loss or tessera's.

    python train_transformer.py [--loss plain|tessera] [--model llama] [--csv curve.csv]
    python train_transformer.py --compare FOLDER [--model llama,qwen3,gemma2,gpt2]

The model is made from a configuration, so nothing is downloaded. --compare trains with both losses
in turn, and plain with one thread, too; it prints how far the curves differ, how long a step takes
and how much memory, and draws them. `patch` is all that a model needs to train with tessera's loss.
"""

import argparse
import collections
import contextlib
import csv
import pathlib
import re
import sys
import time

import torch
import transformers

import tessera.torch.transformers
from compare_losses import compare

MODELS = {"llama": transformers.LlamaConfig, "qwen3": transformers.Qwen3Config,
          "gemma2": transformers.Gemma2Config, "gpt2": transformers.GPT2Config}


def read_tokens(files, words):
    """The text as numbers of its most frequent words, 0 for the others (as train_text has them)."""
    if not files:
        folders = map(pathlib.Path, ("/usr/share/games/fortunes", "/usr/share/common-licenses"))
        files = sorted(each for folder in folders if folder.is_dir() for each in folder.iterdir()
                       if each.is_file() and not each.is_symlink() and each.suffix != ".dat")
    text = "\n".join(pathlib.Path(each).read_text("latin-1") for each in files)
    text = re.findall(r"[a-z]+(?:'[a-z]+)*|[0-9]+|[^\sa-z0-9]", text.lower(), re.ASCII)
    frequent = collections.Counter(text).most_common(words - 1)
    numbers = {word: number for number, (word, _) in enumerate(frequent, 1)}
    return torch.tensor([numbers.get(word, 0) for word in text])


def make_model(name, given):
    size = {"vocab_size": given.vocab, "hidden_size": given.hidden,
            "num_hidden_layers": given.layers, "num_attention_heads": given.hidden // 64,
            "max_position_embeddings": given.length}
    if name == "gpt2":
        size |= {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    else:
        size |= {"intermediate_size": 3 * given.hidden, "head_dim": 64,
                 "num_key_value_heads": given.hidden // 64}
    config = MODELS[name](**size, bos_token_id=None, eos_token_id=None, pad_token_id=None)
    torch.manual_seed(given.seed)
    return transformers.AutoModelForCausalLM.from_config(config)


def restart_peak():
    with contextlib.suppress(OSError):  # then the peak is that of the whole run
        pathlib.Path("/proc/self/clear_refs").write_text("5")


def memory_mib(kind):
    """What is resident ("VmRSS"), or the most since `restart_peak` ("VmHWM")."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"{kind}:\s*(\d+) kB", status)[1]) / 1024


def train(given, rows):
    """Writes a row for each step. `extra_mib` is how far the peak of memory lies above what was
    resident before: the model, the optimiser's moments, and the gradients of the step before."""
    tokens = read_tokens(given.text, given.vocab)
    if len(tokens) < 2 * given.length:
        sys.exit(f"the text has {len(tokens)} words; give more with --text")
    model = make_model(given.model, given).train()
    if given.loss == "tessera":
        tessera.torch.transformers.patch(model, implementation=given.implementation)
    optimiser = torch.optim.AdamW(model.parameters(), lr=given.learning_rate)
    random = torch.Generator().manual_seed(given.seed)
    rows.writerow(["step", "loss", "seconds", "peak_mib", "extra_mib"])
    for step in range(given.steps):
        at = torch.randint(len(tokens) - given.length, (given.batch, 1), generator=random)
        batch = tokens[at + torch.arange(given.length)]
        if given.wait:  # another process has the machine
            print(step, flush=True)
            if not sys.stdin.readline():
                sys.exit("nobody says when to go on")
        restart_peak()
        before = memory_mib("VmRSS")
        start = time.perf_counter()
        loss = model(input_ids=batch, labels=batch, use_cache=False).loss
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # without a warm-up steps may leap
        optimiser.step()
        seconds, peak = time.perf_counter() - start, memory_mib("VmHWM")
        rows.writerow([step, f"{loss.item():.8g}", f"{seconds:.5f}", f"{peak:.1f}",
                       f"{peak - before:.1f}"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="llama", help=", ".join(MODELS))
    parser.add_argument("--loss", choices=["plain", "tessera"], default="tessera")
    parser.add_argument("--implementation", help="opencl, eigen ...; default: what suits")
    parser.add_argument("--compare", metavar="FOLDER", help="train with both losses, and draw")
    parser.add_argument("--text", nargs="+", help="default: Debian's licence texts and fortunes")
    parser.add_argument("--csv", help="file for the curve; default: printed")
    for name, value, what in (
            ("steps", 50, "of training"), ("batch", 4, "sequences in a step"),
            ("length", 256, "words of a sequence"), ("vocab", 16384, "words that are told apart"),
            ("hidden", 256, "width, a multiple of 64"), ("layers", 2, "of the model"),
            ("threads", 2, "of PyTorch and tessera"), ("seed", 1, "of weights and batches")):
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{what} ({value})")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--wait", action="store_true", help="for a line of input before each step")
    given = parser.parse_args()
    unknown = set(given.model.split(",") if given.compare else [given.model]) - set(MODELS)
    if unknown:
        parser.error(f"--model {', '.join(sorted(unknown))}: there are {', '.join(MODELS)}")
    if given.compare:
        sys.exit(compare(__file__, given))
    torch.set_num_threads(given.threads)
    if given.csv:
        with open(given.csv, "w", newline="") as file:
            train(given, csv.writer(file))
    else:
        train(given, csv.writer(sys.stdout))


if __name__ == "__main__":
    main()
