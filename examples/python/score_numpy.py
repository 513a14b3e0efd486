# SPDX-License-Identifier: Apache-2.0
"""The perplexity of a text, from what a language model left in files.

    python score_numpy.py x.npy w.npy labels.npy [--w-layout vh]

x: the last hidden states [..., H]; w: the output projection, [H, V] or with --w-layout vh [V, H];
labels: the next word of each token [...], -100 where it does not count. The files are mapped, not
read, so that only what a step works on is in memory.
"""

import argparse
import resource

import numpy as np

import tessera


def peak_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("x")
    parser.add_argument("w")
    parser.add_argument("labels")
    parser.add_argument("--w-layout", choices=["hv", "vh"], default="hv")
    parser.add_argument("--implementation", help="opencl, eigen ...; default: what suits")
    given = parser.parse_args()
    x, w, labels = (np.load(name, mmap_mode="r") for name in (given.x, given.w, given.labels))
    call = {"w_layout": given.w_layout, "implementation": given.implementation}

    # Compiles what the call needs, so that the memory below is the call's own.
    plan = tessera.linear_cross_entropy.plan("forward", x, w, labels, **call)
    before = peak_mib()
    result = tessera.linear_cross_entropy.forward(x, w, labels, **call)
    extra = peak_mib() - before

    tokens = int(np.count_nonzero(labels != -100))
    words = w.shape[1] if given.w_layout == "hv" else w.shape[0]
    print(f"perplexity {np.exp(result.loss):.4f} of {tokens} tokens, {words} words")
    print(f"on {plan.dispatch.device} by {result.dispatch.implementation}")
    print(f"memory: {extra:.0f} MiB, the mapped arrays included; "
          f"the logits alone would take {labels.size * words * 4 / 2**20:.0f} MiB")


if __name__ == "__main__":
    main()
