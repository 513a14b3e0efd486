# SPDX-License-Identifier: Apache-2.0
"""pl.kernel: refs, copies by hand, emit_pipeline on one and two cores."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import jax_trace
from golden_programs import on_cores, params, pattern, program, shape_of
from programs_calls import blocks


@program
def add_refs():
    """A kernel that takes refs: o = x + y by copies to VMEM, (16, 128) of salt 14, 15."""
    def body(x, y, o, a, b):
        pltpu.sync_copy(x, a)
        pltpu.sync_copy(y, b)
        a[...] = a[...] + b[...]
        pltpu.sync_copy(a, o)

    @jax.jit
    def run(x, y):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(y)
        o_ref = jax.new_ref(jnp.zeros_like(x))
        with jax_trace.tpu():
            pl.kernel(body, mesh=pltpu.create_tensorcore_mesh("core", num_cores=1),
                      scratch_types=[pltpu.VMEM(x.shape, x.dtype)] * 2, interpret=params())(
                          x_ref, y_ref, o_ref)
        return jax.freeze(o_ref)
    return {"o": run(pattern((16, 128), 14), pattern((16, 128), 15))}


@program
def loop_of_kernels():
    """Ten launches of x += y over refs, block by block: (32, 128) of salt 16, 17."""
    def body(x, y):
        def add(y_block, x_in, x_out):
            x_out[...] = x_in[...] + y_block[...]
        spec = blocks(8, 128, at=lambda i: (i, 0))
        pltpu.emit_pipeline(add, grid=(4,), in_specs=[spec, spec], out_specs=[spec])(y, x, x)

    @jax.jit
    def run(x, y):
        x_ref, y_ref = jax.new_ref(x), jax.new_ref(y)
        with jax_trace.tpu():
            kernel = pl.kernel(body, mesh=pltpu.create_tensorcore_mesh("core", num_cores=1),
                               interpret=params())

            def launch(_, none):
                kernel(x_ref, y_ref)
                return none
            lax.fori_loop(0, 10, launch, None)
        return jax.freeze(x_ref)
    return {"x": run(pattern((32, 128), 16), pattern((32, 128), 17))}


def matmul(cores, dtype, buffers=2):
    def body(x, y, o, total):
        def step(x, y, o):
            @pl.when(pl.program_id(2) == 0)
            def _():
                total[...] = jnp.zeros_like(total)
            total[...] += lax.dot(x[...], y[...], preferred_element_type=jnp.float32)

            @pl.when(pl.program_id(2) == 2)
            def _():
                o[...] = total[...].astype(o.dtype)
        mode = pl.Buffered(buffers)
        pltpu.emit_pipeline(
            step, grid=(2, 2, 3),
            in_specs=[blocks(64, 128, at=lambda i, j, k: (i, k), pipeline_mode=mode),
                      blocks(128, 128, at=lambda i, j, k: (k, j), pipeline_mode=mode)],
            out_specs=[blocks(64, 128, at=lambda i, j, k: (i, j))],
            core_axis_name="core" if cores > 1 else None,
            dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL, pltpu.ARBITRARY))(x, y, o)
    return on_cores(body, shape_of((128, 256), dtype), pattern((128, 384), 2, dtype),
                    pattern((384, 256), 3, dtype), cores=cores,
                    scratch=[pltpu.VMEM((64, 128), jnp.float32)])


@program
def matmul_emit_pipeline():
    """matmul_call's problem by emit_pipeline, on one core and on two, f32 and bf16."""
    return {"f32_1": matmul(1, jnp.float32), "f32_2": matmul(2, jnp.float32, 3),
            "bf16_1": matmul(1, jnp.bfloat16), "bf16_2": matmul(2, jnp.bfloat16, 4)}


@program
def dynamic_slice():
    """A pair (row, count) of a table in HBM is copied into SMEM and says which tile row of x, (64,
    128) of salt 18, is copied to o and by how much it is raised, while the count is not zero."""
    def body(table, x, o, steps, tile):
        pltpu.sync_copy(table, steps)

        def step(i):
            pltpu.sync_copy(x.at[pl.ds(pl.multiple_of(8 * steps[i, 0], 8), 8)], tile)
            tile[...] = tile[...] + steps[i, 1].astype(jnp.float32)
            pltpu.sync_copy(tile, o.at[pl.ds(8 * i, 8)])
            return i + 1
        lax.while_loop(lambda i: steps[i, 1] != 0, step, 0)
    table = jnp.array([[5, 1], [0, 2], [7, 3], [2, 4], [0, 0]], jnp.int32)
    o = on_cores(body, shape_of((32, 128)), table, pattern((64, 128), 18),
                 scratch=[pltpu.SMEM((5, 2), jnp.int32), pltpu.VMEM((8, 128), jnp.float32)])
    return {"o": o}


@program
def pipeline_edges():
    """2 x by emit_pipeline, (203, 300) of salt 19 in blocks of 128: DMAs are cut to 80 rows and the
    last one to 128 columns."""
    def body(x, o):
        def step(x, o):
            o[...] = 2 * x[...]
        spec = blocks(128, 128)
        pltpu.emit_pipeline(step, grid=(2, 3), in_specs=[spec], out_specs=[spec])(x, o)
    return {"o": on_cores(body, shape_of((203, 300)), pattern((203, 300), 19),
                          buffer_bounds="padded")}


@program
def bounded_slices():
    """JAX's test_block_spec_bounded_slice_ragged, smaller: planes of x, (20, 8, 128) of salt 20, by
    slices of up to 8 of them, plus 1. And slices of rows (start, size): (0, 16), (16, 8), (24, 32)
    of (64, 128), salt 21, into the same rows of o, where the other rows stay 0."""
    def planes(x, o):
        def step(x, o):
            o[...] = x[...] + 1
        spec = pl.BlockSpec((pl.BoundedSlice(8), 8, 128),
                            lambda i: (pl.ds(8 * i, jnp.minimum(8, 20 - 8 * i)), 0, 0))
        pltpu.emit_pipeline(step, grid=(3,), in_specs=[spec], out_specs=[spec])(x, o)

    def rows(x, zeros, o):
        pltpu.sync_copy(zeros, o)

        def step(x, o):
            o[...] = x[...] + 1

        def at(i):
            start = jnp.where(i == 0, 0, jnp.where(i == 1, 16, 24))
            return (pl.ds(start, jnp.where(i == 0, 16, jnp.where(i == 1, 8, 32))), 0)
        spec = pl.BlockSpec((pl.BoundedSlice(32), 128), at)
        pltpu.emit_pipeline(step, grid=(3,), in_specs=[spec], out_specs=[spec])(x, o)
    return {"planes": on_cores(planes, shape_of((20, 8, 128)), pattern((20, 8, 128), 20)),
            "rows": on_cores(rows, shape_of((64, 128)), pattern((64, 128), 21),
                             jnp.zeros((64, 128)))}


@program
def element_windows():
    """Windows of 16 rows that overlap: step i has rows 8 i to 8 i + 15 of x, (40, 128) of salt 22;
    block i of o is their first 8 plus their last 8. By emit_pipeline and by pallas_call."""
    def step(x, o):
        o[...] = x[0:8, :] + x[8:16, :]
    window = pl.BlockSpec((pl.Element(16), pl.Element(128)), lambda i: (8 * i, 0))
    out = blocks(8, 128, at=lambda i: (i, 0))

    def body(x, o):
        pltpu.emit_pipeline(step, grid=(4,), in_specs=[window], out_specs=[out])(x, o)
    x = pattern((40, 128), 22)
    return {"pipeline": on_cores(body, shape_of((32, 128)), x),
            "call": jax.jit(pl.pallas_call(step, grid=(4,), in_specs=[window], out_specs=out,
                                           out_shape=shape_of((32, 128)), interpret=params()))(x)}


@program
def gather_buffers():
    """x's blocks [0, 0, 2, 3, 3, 3, 1, 7, 6, 6], (64, 128) of salt 23, by a table in SMEM, with 1
    to 4 buffers and with lookahead (from 2 on): all give the same."""
    indices = [0, 0, 2, 3, 3, 3, 1, 7, 6, 6]

    def run(buffers, lookahead):
        def body(table, x, o, numbers):
            pltpu.sync_copy(table, numbers)

            def step(x, o):
                o[...] = x[...]
            pltpu.emit_pipeline(
                step, grid=(10,),
                in_specs=[blocks(8, 128, at=lambda i: (numbers[i], 0),
                                 pipeline_mode=pl.Buffered(buffers, lookahead))],
                out_specs=[blocks(8, 128, at=lambda i: (i, 0))])(x, o)
        return on_cores(body, shape_of((80, 128)), jnp.array(indices, jnp.int32),
                        pattern((64, 128), 23), scratch=[pltpu.SMEM((10,), jnp.int32)])
    runs = [run(b, False) for b in (1, 2, 3, 4)] + [run(b, True) for b in (2, 3, 4)]
    assert all((other == runs[0]).all() for other in runs)
    return {"o": runs[0]}


@program
def program_ids():
    """What a body of a pipeline over (3, 4), both parallel, on two cores, has for program_id and
    the core's index: o[i, j] = 100 i + 10 j + core, in a tile of its own."""
    def body(o):
        core = lax.axis_index("core")

        def step(o):
            value = 100 * pl.program_id(0) + 10 * pl.program_id(1) + core
            o[...] = jnp.full(o.shape, value, jnp.float32)
        pltpu.emit_pipeline(step, grid=(3, 4), out_specs=[blocks(8, 128)], core_axis_name="core",
                            dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL))(o)
    o = on_cores(body, shape_of((24, 512)), cores=2)
    return {"o": o[::8, ::128]}
