#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes block_legality.json: which block shapes JAX's own TPU lowering accepts.

    python3.11 -m venv build/tools/jax && build/tools/jax/bin/pip install jax==0.10.2 jaxlib==0.10.2
    build/tools/jax/bin/python tests/tile_goldens/make_block_legality.py

`jax.export(..., platforms=["tpu"])` lowers a pallas_call for a TPU without having one; an abstract
device says which chip it is. Each vector is a pallas_call with an empty body whose single input
carries the block; the output is a whole array left in HBM, so the verdict is the input's alone. A
rejection counts only when its message is one of the lowering's block-shape messages, which name the
rule; anything else stops this script. The JSON is committed, so that the tests need no JAX.
"""
import functools
import json
import os
import pathlib

os.environ["JAX_PLATFORMS"] = "cpu"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
CHIPS = {"v3": "TPU v3", "v4": "TPU v4", "v5e": "TPU v5 lite", "v5p": "TPU v5p",
         "v6e": "TPU v6 lite", "v7": "TPU7x"}
TYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "i8": jnp.int8}
SPACES = {"vmem": pltpu.MemorySpace.VMEM, "hbm": pltpu.MemorySpace.HBM}

# What a message must begin with to be a verdict, and the rule it stands for.
RULES = {
    "Block shape for": "R1",
    "The Pallas TPU lowering currently supports only blocks of rank >= 1": "R1",
    "The Pallas TPU lowering currently requires that the last two dimensions": "R2",
    "The Pallas TPU lowering currently requires that rank 1 block shapes": "R3",
    "The Pallas TPU lowering currently supports in memory space ANY only": "R4",
}

# None in a block is a squeezed dimension. "index" is what the map gives in every dimension: the
# grid position ("walk") or zero.
RANK_1 = [(shape, block)
          for shape in (100, 128, 1000, 4096)
          for block in (shape, 64, 100, 128, 192, 256, 384, 512, 1024, 1536, 2048, 3072)]
RANK_2 = [((shape, shape_minor), (block, minor))
          for shape, shape_minor in ((64, 512), (601, 600), (5, 7))
          for block, minor in (
              (8, 128), (16, 256), (32, 128), (4, 128), (12, 128), (8, 64), (8, 100), (1, 128),
              (shape, 128), (8, shape_minor), (shape, shape_minor), (shape, 100), (3, shape_minor),
              (None, 128), (8, None), (256, 256), (64, 384))]
RANK_3 = [((6, 64, 256), block) for block in (
    (1, 8, 128), (3, 8, 128), (6, 64, 256), (None, 8, 128), (None, 64, 256), (1, 4, 128),
    (5, 12, 128), (1, 8, 192), (None, None, 128), (None, None, 256), (1, 1, 128), (2, 64, 100))]
RANKS_DIFFER = [((64, 512), (128,)), ((64, 512), (1, 8, 128)), ((512,), (8, 128))]
IN_HBM = [((64, 512), (64, 512), "walk"), ((64, 512), (64, 512), "zero"),
          ((64, 512), (8, 128), "walk"), ((64, 512), (8, 128), "zero"),
          ((4096,), (4096,), "zero"), ((4096,), (1024,), "walk"),
          ((601, 600), (601, 600), "zero"), ((601, 600), (256, 256), "walk")]


def vectors():
    for shape, block in RANK_1:
        yield (shape,), (block,), "vmem", "walk"
    for shape, block in RANK_2 + RANK_3 + RANKS_DIFFER:
        yield shape, block, "vmem", "walk"
    for shape, block, index in IN_HBM:
        yield shape, block, "hbm", index


def verdict(chip, dtype, shape, block, space, index):
    """None when JAX accepts, else the rule its message stands for."""
    # A grid of 2 in each dimension: the map then differs from zero wherever it walks.
    def index_map(*grid):
        return tuple(g if index == "walk" else 0 for g in grid[:len(block)])

    @functools.partial(
        pl.pallas_call, out_shape=jax.ShapeDtypeStruct((8, 128), jnp.float32),
        grid=(2,) * len(block),
        in_specs=[pl.BlockSpec(block, index_map, memory_space=SPACES[space])],
        out_specs=pl.BlockSpec(memory_space=pltpu.MemorySpace.HBM))
    def kernel(x_ref, o_ref):
        del x_ref, o_ref

    device = AbstractDevice(device_kind=CHIPS[chip], num_cores=1, platform="tpu")
    with use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
        try:
            jax.export.export(jax.jit(kernel), platforms=["tpu"])(
                jax.ShapeDtypeStruct(shape, TYPES[dtype]))
        except ValueError as error:
            text = " ".join(str(error).split())
            for beginning, rule in RULES.items():
                if text.startswith(beginning):
                    return rule
            raise
    return None


def main():
    rows = []
    for shape, block, space, index in vectors():
        for dtype in TYPES:
            for chip in CHIPS:
                rows.append({"chip": chip, "dtype": dtype, "shape": shape, "block": block,
                             "space": space, "index": index,
                             "refused": verdict(chip, dtype, shape, block, space, index)})
    # One line for all chips that agree.
    merged = {}
    for row in rows:
        key = json.dumps({k: v for k, v in row.items() if k != "chip"})
        merged.setdefault(key, []).append(row["chip"])
    lines = [json.dumps({**json.loads(key), "chips": chips}) for key, chips in merged.items()]
    text = (f'{{"jax": "{jax.__version__}", "count": {len(rows)}, "vectors": [\n'
            + ",\n".join(lines) + "\n]}\n")
    (HERE / "block_legality.json").write_text(text, encoding="utf-8")
    refused = sum(row["refused"] is not None for row in rows)
    print(f"{len(rows)} vectors, {refused} refused, {len(lines)} lines")


if __name__ == "__main__":
    main()
