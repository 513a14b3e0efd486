# SPDX-License-Identifier: Apache-2.0
"""The programs of bench/tile in JAX: schedules that do little, and the fused loss.
tile_programs.cpp has the same ones for the tile machine."""
import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh


def tpu():
    """emit_pipeline asks which TPU it is for."""
    device = AbstractDevice(device_kind="TPU v5p", num_cores=1, platform="tpu")
    return use_abstract_mesh(AbstractMesh((), (), abstract_device=device))


def numbers(shape, salt):
    return jnp.asarray(((37 * np.arange(np.prod(shape)) + 5 * salt) % 17 - 8).reshape(shape) / 8.0,
                       jnp.float32)


def matmul_step(x, y, o):
    @pl.when(pl.program_id(2) == 0)
    def _():
        o[...] = jnp.zeros_like(o)
    o[...] += lax.dot(x[...], y[...], preferred_element_type=jnp.float32)


def matmul(params, m, n, k, pipeline=False, cores=1):
    """512^3 in blocks of m x n x k."""
    x, y = numbers((512, 512), 0), numbers((512, 512), 1)
    grid = (512 // m, 512 // n, 512 // k)
    specs = {"in_specs": [pl.BlockSpec((m, k), lambda i, j, k: (i, k)),
                          pl.BlockSpec((k, n), lambda i, j, k: (k, j))],
             "out_specs": [pl.BlockSpec((m, n), lambda i, j, k: (i, j))]}
    out = [jax.ShapeDtypeStruct((512, 512), jnp.float32)]
    if not pipeline:
        return jax.jit(pl.pallas_call(matmul_step, grid=grid, out_shape=out, interpret=params(1),
                                      **specs)), (x, y)

    def body(x, y, o):
        pltpu.emit_pipeline(matmul_step, grid=grid, **specs,
                            core_axis_name="core" if cores > 1 else None,
                            dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY))(
                                x, y, o)
    kernel = pl.kernel(body, out_type=out, interpret=params(cores),
                       mesh=pltpu.create_tensorcore_mesh("core", num_cores=cores))
    return jax.jit(kernel), (x, y)


def add_one(params):
    """x + 1 by 256 steps of (8, 128)."""
    def body(x, o):
        o[...] = x[...] + 1
    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    x = numbers((2048, 128), 0)
    return jax.jit(pl.pallas_call(body, grid=(256,), in_specs=[spec], out_specs=spec,
                                  out_shape=jax.ShapeDtypeStruct(x.shape, x.dtype),
                                  interpret=params(1))), (x,)


def copies(params):
    """256 tiles of 4 KiB to VMEM and back, one after the other: 512 DMAs."""
    def body(x, o, tile, arrived):
        def step(i, none):
            rows = pl.ds(8 * i, 8)
            for source, target in ((x.at[rows], tile), (tile, o.at[rows])):
                copy = pltpu.make_async_copy(source, target, arrived)
                copy.start()
                copy.wait()
            return none
        lax.fori_loop(0, 256, step, None)
    x = numbers((2048, 128), 0)
    return jax.jit(pl.kernel(
        body, out_type=jax.ShapeDtypeStruct(x.shape, x.dtype), interpret=params(1),
        scratch_types=[pltpu.VMEM((8, 128), jnp.float32), pltpu.SemaphoreType.DMA],
        mesh=pltpu.create_tensorcore_mesh("core", num_cores=1))), (x,)


B, H, V = 1024, 512, 4096


def loss_arrays():
    x, w = numbers((B, H), 0) / 8, numbers((H, V), 1) / 8
    labels = jnp.asarray((np.arange(B) * 31) % V, jnp.int32)
    return x, w, labels


def one_hot(labels, j, v):
    """Whether a column of the v-wide tile j is the row's label."""
    columns = lax.broadcasted_iota(jnp.int32, (labels.shape[0], v), 1) + j * v
    return columns == labels[:, None]


def loss_forward(params, b, h, v):
    """lse and the label's logit of every token: grid (nb, nv, nh), logits of a tile summed over h
    in a scratch, log-sum-exp kept up to date tile by tile."""
    nv, nh = V // v, H // h

    def body(x, w, labels, lse, picked, logits, top, total, chosen):
        j, k = pl.program_id(1), pl.program_id(2)

        @pl.when(k == 0)
        def _():
            logits[...] = jnp.zeros_like(logits)
        logits[...] += lax.dot(x[...], w[...], preferred_element_type=jnp.float32)

        @pl.when((j == 0) & (k == nh - 1))
        def _():
            top[...] = jnp.full_like(top, -jnp.inf)
            total[...] = jnp.zeros_like(total)
            chosen[...] = jnp.zeros_like(chosen)

        @pl.when(k == nh - 1)
        def _():
            tile = logits[...]
            highest = jnp.maximum(top[...], jnp.max(tile, axis=1))
            total[...] = (total[...] * jnp.exp(top[...] - highest)
                          + jnp.sum(jnp.exp(tile - highest[:, None]), axis=1))
            top[...] = highest
            chosen[...] += jnp.sum(jnp.where(one_hot(labels[...], j, v), tile, 0.0), axis=1)

        @pl.when((j == nv - 1) & (k == nh - 1))
        def _():
            lse[...] = top[...] + jnp.log(total[...])
            picked[...] = chosen[...]
    row = pl.BlockSpec((b,), lambda i, j, k: (i,))
    arrays = loss_arrays()
    return jax.jit(pl.pallas_call(
        body, grid=(B // b, nv, nh), interpret=params(1), out_specs=[row, row],
        in_specs=[pl.BlockSpec((b, h), lambda i, j, k: (i, k)),
                  pl.BlockSpec((h, v), lambda i, j, k: (k, j)), row],
        out_shape=[jax.ShapeDtypeStruct((B,), jnp.float32)] * 2,
        scratch_shapes=[pltpu.VMEM((b, v), jnp.float32)]
        + [pltpu.VMEM((b,), jnp.float32)] * 3)), arrays


def loss_backward(params, b, h, v):
    """dx and dw of the mean loss: grid (nb, nv, 2, nh). Stage 0 makes the logits of the tile again,
    stage 1 forms (p - one_hot) / B once and adds to dx and dw in HBM, whose old values are fetched
    meanwhile."""
    nh = H // h

    def body(x, w, labels, lse, dx, dw, tile, dx_old, dw_old, sems):
        i, j, stage, k = (pl.program_id(d) for d in range(4))
        dx_part = dx.at[pl.ds(i * b, b), pl.ds(k * h, h)]
        dw_part = dw.at[pl.ds(k * h, h), pl.ds(j * v, v)]
        read_dx = pltpu.make_async_copy(dx_part, dx_old, sems.at[0])
        read_dw = pltpu.make_async_copy(dw_part, dw_old, sems.at[1])

        @pl.when(stage == 0)
        def _():
            @pl.when(k == 0)
            def _():
                tile[...] = jnp.zeros_like(tile)
            tile[...] += lax.dot(x[...], w[...], preferred_element_type=jnp.float32)

        @pl.when(stage == 1)
        def _():
            for first, copy in ((j == 0, read_dx), (i == 0, read_dw)):
                pl.when(~first)(copy.start)

            @pl.when(k == 0)
            def _():
                p = jnp.exp(tile[...] - lse[...][:, None])
                tile[...] = (p - one_hot(labels[...], j, v).astype(jnp.float32)) * (1.0 / B)
            s = tile[...]
            for first, read, old, new, part in (
                    (j == 0, read_dx, dx_old,
                     lambda: lax.dot_general(s, w[...], (((1,), (1,)), ((), ())),
                                             preferred_element_type=jnp.float32), dx_part),
                    (i == 0, read_dw, dw_old,
                     lambda: lax.dot_general(x[...], s, (((0,), (0,)), ((), ())),
                                             preferred_element_type=jnp.float32), dw_part)):
                added = new()

                @pl.when(first)
                def _(old=old, added=added):
                    old[...] = added

                @pl.when(~first)
                def _(old=old, added=added, read=read):
                    read.wait()
                    old[...] = old[...] + added
                place = 2 if old is dx_old else 3
                pltpu.make_async_copy(old, part, sems.at[place]).start()
            pltpu.make_async_copy(dx_old, dx_part, sems.at[2]).wait()
            pltpu.make_async_copy(dw_old, dw_part, sems.at[3]).wait()
    row = pl.BlockSpec((b,), lambda i, j, s, k: (i,))
    x, w, labels = loss_arrays()
    lse = jax.nn.logsumexp(x @ w, axis=1)
    hbm = pl.BlockSpec(memory_space=pltpu.HBM)
    return jax.jit(pl.pallas_call(
        body, grid=(B // b, V // v, 2, nh), interpret=params(1), out_specs=[hbm, hbm],
        in_specs=[pl.BlockSpec((b, h), lambda i, j, s, k: (i, k)),
                  pl.BlockSpec((h, v), lambda i, j, s, k: (k, j)), row, row],
        out_shape=[jax.ShapeDtypeStruct((B, H), jnp.float32),
                   jax.ShapeDtypeStruct((H, V), jnp.float32)],
        scratch_shapes=[pltpu.VMEM((b, v), jnp.float32), pltpu.VMEM((b, h), jnp.float32),
                        pltpu.VMEM((h, v), jnp.float32), pltpu.SemaphoreType.DMA((4,))])), \
        (x, w, labels, lse)


def expected(name):
    """What a program has to give, or None."""
    if name.startswith("matmul"):
        return [numbers((512, 512), 0) @ numbers((512, 512), 1)]
    if name.startswith("add"):
        return [numbers((2048, 128), 0) + 1]
    if name.startswith("copies"):
        return [numbers((2048, 128), 0)]
    x, w, labels = loss_arrays()
    logits = x @ w
    if "forward" in name:
        return [jax.nn.logsumexp(logits, axis=1), logits[jnp.arange(B), labels]]
    return jax.grad(lambda x, w: jnp.mean(
        jax.nn.logsumexp(x @ w, axis=1) - (x @ w)[jnp.arange(B), labels]), (0, 1))(x, w)


# Name -> (what makes it, how many steps or DMAs it has).
PROGRAMS = {
    "matmul_call": (functools.partial(matmul, m=64, n=64, k=64), 512),
    "matmul_pipeline_1": (functools.partial(matmul, m=64, n=64, k=64, pipeline=True), 512),
    "matmul_pipeline_2": (functools.partial(matmul, m=64, n=64, k=64, pipeline=True, cores=2), 512),
    "matmul_call_16": (functools.partial(matmul, m=16, n=128, k=128), 512),
    "add": (add_one, 256),
    "copies": (copies, 512),
}
for _blocks in ((1024, 512, 2048), (1024, 128, 256)):
    _b, _h, _v = _blocks
    _steps = (B // _b) * (V // _v) * (H // _h)
    for _name, _make, _per in (("forward", loss_forward, 1), ("backward", loss_backward, 2)):
        PROGRAMS[f"loss_{_name}_{_b}_{_h}_{_v}"] = (
            functools.partial(_make, b=_b, h=_h, v=_v), _per * _steps)
