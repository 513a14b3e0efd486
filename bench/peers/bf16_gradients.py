# SPDX-License-Identifier: Apache-2.0
"""How far gradients in bf16 are from those in double: tessera's by pairs (dz rounded to bf16) and
with dz in f32, and PyTorch's on the same inputs.

    python3 bench/peers/bf16_gradients.py [--build build/release] [--out FILE.json]

Needs numpy, and torch for its rows. For each kind of data: the largest and the root mean square
error of grad_x and grad_w, as parts of the root mean square of the exact gradient. All arrays are
bf16, so that the last rounding alone, the row "rounded", costs what no implementation can go below.
"""
import argparse
import importlib.util
import json
import pathlib
import subprocess
import tempfile

import numpy as np

import inputs


def rounded(array):
    return inputs.from_bf16(inputs.to_bf16(array.astype(np.float32)))


def arrays(kind, b, h, v, generator):
    """x [B, H], w [V, H] and labels, in f32, before they are rounded."""
    x = generator.standard_normal((b, h), dtype=np.float32)
    w = generator.standard_normal((v, h), dtype=np.float32)
    labels = inputs.zipf_labels(generator, b, v)
    if kind == "gaussian":
        return x, w * (inputs.LOGIT_SPREAD / np.sqrt(h)), labels
    if kind == "outliers":
        strong = inputs.OUTLIER**2 / inputs.OUTLIER_EVERY
        x[:, inputs.OUTLIER_EVERY // 2::inputs.OUTLIER_EVERY] *= inputs.OUTLIER
        return x, w * (inputs.LOGIT_SPREAD / np.sqrt(h * (1.0 + strong))), labels
    # As a trained model has it (bench/linear_data.cpp): a token resembles its label, with
    # probability u^2 for a uniform u, and feature 0 of w carries the frequency of words.
    w /= np.sqrt(np.float32(h))
    common = -2.0 * np.log(np.arange(v) + 2.7)
    w[:, 0] = common / 8.0
    p = np.clip(generator.random(b)**2, 1e-6, 1.0 - 1e-6)
    wanted = np.log(np.exp(common).sum()) + 0.5 + np.log(2.0 * p / (1.0 - p))
    x += ((wanted - common[labels])[:, None] * w[labels]).astype(np.float32)
    x[:, 0] = 8.0
    return x, w, labels


def exact(x, w, labels):
    x, w = x.astype(np.float64), w.astype(np.float64)
    z = x @ w.T
    z -= z.max(axis=1, keepdims=True)
    dz = np.exp(z)
    dz /= dz.sum(axis=1, keepdims=True)
    dz[np.arange(len(labels)), labels] -= 1.0
    dz /= len(labels)
    return dz @ w, dz.T @ x


def torch_gradients(x, w, labels, widened):
    import torch
    x = torch.from_numpy(x.copy()).bfloat16().requires_grad_()
    w = torch.from_numpy(w.copy()).bfloat16().requires_grad_()
    logits = torch.nn.functional.linear(x, w)
    if widened:
        logits = logits.float()
    torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels)).backward()
    return x.grad.float().numpy(), w.grad.float().numpy()


def tessera_gradients(program, x, w, labels):
    """By the name of the way, and what the program said."""
    (b, h), v = x.shape, w.shape[0]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        inputs.to_bf16(x).tofile(path / "x.bin")
        inputs.to_bf16(w).tofile(path / "w.bin")
        labels.tofile(path / "labels.bin")
        said = subprocess.run([program, folder, "--b", str(b), "--h", str(h), "--v", str(v)],
                              check=True, capture_output=True, text=True).stdout.splitlines()

        def gradient(name, shape):
            return inputs.from_bf16(np.fromfile(path / name, np.uint16)).reshape(shape)
        return {way: (gradient(f"grad_x_{way}.bin", x.shape),
                      gradient(f"grad_w_{way}.bin", w.shape)) for way in ("pairs", "f32")}, said


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--shape", default="256x512x8192", help="BxHxV")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=pathlib.Path)
    arguments = parser.parse_args()
    b, h, v = map(int, arguments.shape.split("x"))
    program = pathlib.Path(arguments.build) / "tests" / "bf16_gradients"
    report = {"shape": arguments.shape, "seed": arguments.seed, "rows": []}
    print(f"{'data':<10}{'gradients of':<22}{'grad_x worst':>14}{'rms':>10}"
          f"{'grad_w worst':>14}{'rms':>10}")
    for kind in ("gaussian", "outliers", "trained"):
        x, w, labels = arrays(kind, b, h, v, np.random.default_rng(arguments.seed))
        x, w = rounded(x), rounded(w)
        wanted = exact(x, w, labels)
        ways, said = tessera_gradients(program, x, w, labels)
        rows = {
            "rounded": tuple(rounded(gradient) for gradient in wanted),
            "tessera, pairs": ways["pairs"],
            "tessera, dz f32": ways["f32"],
        }
        if importlib.util.find_spec("torch"):
            rows["torch"] = torch_gradients(x, w, labels, widened=False)
            rows["torch, logits.float()"] = torch_gradients(x, w, labels, widened=True)
        else:
            report["left out"] = "torch, which is not installed"
        report["device"], report["notes"] = said[0], said[1:]
        for name, gradients in rows.items():
            row = {"data": kind, "gradients": name}
            for which, got, right in zip(("grad_x", "grad_w"), gradients, wanted, strict=True):
                error = np.abs(got - right) / np.sqrt(np.mean(right**2))
                if not np.isfinite(error).all():
                    raise SystemExit(f"{kind}, {name}: {which} has NaN or infinities")
                row[which] = {"worst": float(error.max()), "rms": float(np.sqrt(np.mean(error**2)))}
            report["rows"].append(row)
            print(f"{kind:<10}{name:<22}" + "".join(
                f"{row[which]['worst']:>14.2e}{row[which]['rms']:>10.2e}"
                for which in ("grad_x", "grad_w")))
    if arguments.out:
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
