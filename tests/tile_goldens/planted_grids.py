# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong: grids, blocks, index maps, aliases, pipelines."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from golden_programs import pattern, shape_of
from planted_kernels import bug, run
from programs_calls import blocks


def call(params, body, out, *arrays, cores=1, **more):
    return jax.jit(pl.pallas_call(body, out_shape=out, interpret=params(cores), **more))(*arrays)


def add_one(x, o):
    o[...] = x[...] + 1


ROWS = blocks(8, 128, at=lambda i: (i, 0))


@bug
def hbm_spec_with_blocks(params):
    """Blocks of an array that stays in HBM; the body copies its block."""
    def body(x, o, tile):
        pltpu.sync_copy(x, tile)
        o[...] = tile[...] + 1
    x = pattern((32, 128))
    return call(params, body, shape_of(x.shape), x, grid=(4,),
                in_specs=[blocks(8, 128, at=lambda i: (i, 0), memory_space=pltpu.HBM)],
                out_specs=ROWS, scratch_shapes=[pltpu.VMEM((8, 128), jnp.float32)]), x + 1


@bug
def block_beyond_the_end(params):
    """An index map that is one block too far."""
    x = pattern((32, 128))
    return call(params, add_one, shape_of(x.shape), x, grid=(4,),
                in_specs=[blocks(8, 128, at=lambda i: (i + 1, 0))], out_specs=ROWS), x + 1


@bug
def transposed_index_map(params):
    """(j, i) for (i, j), 3 x 2 blocks."""
    x = pattern((24, 256))
    return call(params, add_one, shape_of(x.shape), x, grid=(3, 2),
                in_specs=[blocks(8, 128, at=lambda i, j: (j, i))],
                out_specs=blocks(8, 128)), x + 1


@bug
def output_beyond_the_end(params):
    """The same of an output."""
    x = pattern((32, 128))
    return call(params, add_one, shape_of(x.shape), x, grid=(4,), in_specs=[ROWS],
                out_specs=blocks(8, 128, at=lambda i: (i + 1, 0))), x + 1


@bug
def output_revisited(params):
    """Sums over the first grid dimension: the output's block comes back after another one."""
    def body(x, o):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o[...] = jnp.zeros_like(o)
        o[...] += x[...]
    x = pattern((16, 256))
    return call(params, body, shape_of((8, 256)), x, grid=(2, 2), in_specs=[blocks(8, 128)],
                out_specs=blocks(8, 128, at=lambda i, j: (0, j))), x[:8] + x[8:]


@bug
def output_revisited_in_a_pipeline(params):
    """The same by emit_pipeline."""
    def body(x, o):
        def step(x, o):
            @pl.when(pl.program_id(0) == 0)
            def _():
                o[...] = jnp.zeros_like(o)
            o[...] += x[...]
        pltpu.emit_pipeline(step, grid=(2, 2), in_specs=[blocks(8, 128)],
                            out_specs=[blocks(8, 128, at=lambda i, j: (0, j))])(x, o)
    x = pattern((16, 256))
    return run(params, body, shape_of((8, 256)), x), x[:8] + x[8:]


@bug
def aliased_input_read_later(params):
    """Step i reads the block that step i - 1 wrote to the same array."""
    x = pattern((32, 128))
    read = blocks(8, 128, at=lambda i: (jnp.maximum(i - 1, 0), 0))
    o = call(params, add_one, shape_of(x.shape), x, grid=(4,), in_specs=[read], out_specs=ROWS,
             input_output_aliases={0: 0})
    # Were the steps one after the other.
    return o, jnp.concatenate([x[:8] + i for i in (1, 2, 3, 4)])


@bug
def aliased_input_read_later_in_a_pipeline(params):
    """The same by emit_pipeline."""
    def body(x, o):
        pltpu.sync_copy(x, o)

        def step(x, o):
            o[...] = x[...] + 1
        read = blocks(8, 128, at=lambda i: (jnp.maximum(i - 1, 0), 0))
        pltpu.emit_pipeline(step, grid=(4,), in_specs=[read], out_specs=[ROWS])(o, o)
    x = pattern((32, 128))
    return run(params, body, shape_of(x.shape), x), \
        jnp.concatenate([x[:8] + i for i in (1, 2, 3, 4)])


@bug
def prefetched_operand_aliased(params):
    """The prefetched table is said to be the output's array, whose type and shape it has."""
    def body(table, x, o):
        o[...] = x[...] + table[0, 0]
    x = pattern((8, 128), 0, jnp.int32)
    table = pattern((8, 128), 1, jnp.int32)

    def whole(*grid):
        del grid
        return (0, 0)
    return call(params, body, shape_of(x.shape, jnp.int32), table, x,
                grid_spec=pltpu.PrefetchScalarGridSpec(
                    num_scalar_prefetch=1, grid=(1,), in_specs=[blocks(8, 128, at=whole)],
                    out_specs=blocks(8, 128, at=whole)),
                input_output_aliases={0: 0}), x + table[0, 0]


@bug
def illegal_block(params):
    """Blocks of (8, 100) of (32, 400)."""
    x = pattern((32, 400))
    return call(params, add_one, shape_of(x.shape), x, grid=(4, 4), in_specs=[blocks(8, 100)],
                out_specs=blocks(8, 100)), x + 1


@bug
def illegal_rows(params):
    """Blocks of (4, 128) of (32, 128)."""
    x = pattern((32, 128))
    spec = blocks(4, 128, at=lambda i: (i, 0))
    return call(params, add_one, shape_of(x.shape), x, grid=(8,), in_specs=[spec],
                out_specs=spec), x + 1


@bug
def rank_differs(params):
    """A block of one dimension of an array of two."""
    x = pattern((32, 128))
    return call(params, add_one, shape_of(x.shape), x, grid=(4,),
                in_specs=[blocks(128, at=lambda i: (i,))], out_specs=ROWS), x + 1


@bug
def parallel_behind_arbitrary(params):
    """Semantics (arbitrary, parallel) of a call."""
    x = pattern((16, 256))
    return call(params, add_one, shape_of(x.shape), x, grid=(2, 2), in_specs=[blocks(8, 128)],
                out_specs=blocks(8, 128), compiler_params=pltpu.CompilerParams(
                    dimension_semantics=("arbitrary", "parallel"))), x + 1


@bug
def sum_over_a_parallel_dimension(params):
    """All points of a parallel dimension add to one block, on two cores."""
    def body(x, o):
        @pl.when(pl.program_id(0) == 0)
        def _():
            o[...] = jnp.zeros_like(o)
        o[...] += x[...]
    x = pattern((32, 128))
    return call(params, body, shape_of((8, 128)), x, cores=2, grid=(4,), in_specs=[ROWS],
                out_specs=blocks(8, 128, at=lambda i: (0, 0)),
                compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",))), \
        x.reshape(4, 8, 128).sum(0)


@bug
def four_buffers_in_a_call(params):
    """pallas_call takes 1 or 2."""
    x = pattern((32, 128))
    return call(params, add_one, shape_of(x.shape), x, grid=(4,),
                in_specs=[blocks(8, 128, at=lambda i: (i, 0), pipeline_mode=pl.Buffered(4))],
                out_specs=ROWS), x + 1


@bug
def three_buffers_of_an_output(params):
    """emit_pipeline takes at most 2."""
    def body(x, o):
        pltpu.emit_pipeline(add_one, grid=(4,), in_specs=[ROWS], out_specs=[
            blocks(8, 128, at=lambda i: (i, 0), pipeline_mode=pl.Buffered(3))])(x, o)
    x = pattern((32, 128))
    return run(params, body, shape_of(x.shape), x), x + 1


@bug
def lookahead_with_one_buffer(params):
    """There is no room to look ahead."""
    def body(x, o):
        pltpu.emit_pipeline(add_one, grid=(4,), in_specs=[
            blocks(8, 128, at=lambda i: (i, 0), pipeline_mode=pl.Buffered(1, True))],
                            out_specs=[ROWS])(x, o)
    x = pattern((32, 128))
    return run(params, body, shape_of(x.shape), x), x + 1


@bug
def tail_of_an_edge_block(params):
    """Column sums of (200, 128) in blocks of 64 rows: the last block has 8 rows of the array, and
    the sum takes all 64."""
    def body(x, o, total):
        def step(x, o):
            @pl.when(pl.program_id(0) == 0)
            def _():
                total[...] = jnp.zeros_like(total)
            total[...] += jnp.broadcast_to(jnp.sum(x[...], axis=0, keepdims=True), (8, 128))
            o[...] = total[...]
        pltpu.emit_pipeline(step, grid=(4,), in_specs=[blocks(64, 128, at=lambda i: (i, 0))],
                            out_specs=[blocks(8, 128, at=lambda i: (0, 0))])(x, o)
    x = pattern((200, 128))
    return run(lambda cores: params(cores, buffer_bounds="padded"), body, shape_of((8, 128)), x,
               scratch=[pltpu.VMEM((8, 128), jnp.float32)]), \
        jnp.broadcast_to(x.sum(0, keepdims=True), (8, 128))


@bug
def output_not_written(params):
    """Every second step writes nothing; its block leaves all the same."""
    def body(x, o):
        @pl.when(pl.program_id(0) % 2 == 0)
        def _():
            o[...] = x[...] + 1
    x = pattern((32, 128))
    return call(params, body, shape_of(x.shape), x, grid=(4,), in_specs=[ROWS],
                out_specs=ROWS), x + 1


@bug
def sums_not_set_to_zero(params):
    """A matmul whose output window is added to from the start."""
    def body(x, y, o):
        o[...] += lax.dot(x[...], y[...], preferred_element_type=jnp.float32)
    x, y = pattern((8, 256)), pattern((256, 128), 1)
    return call(params, body, shape_of((8, 128)), x, y, grid=(2,),
                in_specs=[blocks(8, 128, at=lambda k: (0, k)),
                          blocks(128, 128, at=lambda k: (k, 0))],
                out_specs=blocks(8, 128, at=lambda k: (0, 0))), x @ y


@bug
def windows_of_an_output_overlap(params):
    """Element windows of 16 rows at steps of 8, as output: each half is written twice."""
    x = pattern((40, 128))
    window = pl.BlockSpec((pl.Element(16), pl.Element(128)), lambda i: (8 * i, 0))
    return call(params, lambda x, o: o.__setitem__(..., x[...] + pl.program_id(0)),
                shape_of(x.shape), x, grid=(4,), in_specs=[window], out_specs=window), \
        x + jnp.minimum(jnp.arange(40)[:, None] // 8, 3)


@bug
def slice_longer_than_its_bound(params):
    """A bounded slice of at most 8 rows whose map asks for 16."""
    def body(x, o):
        spec = pl.BlockSpec((pl.BoundedSlice(8), 128), lambda i: (pl.ds(8 * i, 16), 0))
        pltpu.emit_pipeline(lambda x, o: o.__setitem__(..., x[...] + 1), grid=(2,),
                            in_specs=[spec], out_specs=[ROWS])(x, o)
    x = pattern((32, 128))
    return run(params, body, shape_of((16, 128)), x), x[:16] + 1


@bug
def no_parallel_dimension_for_two_cores(params):
    """emit_pipeline over two cores whose dimensions are all arbitrary."""
    def body(x, o):
        pltpu.emit_pipeline(add_one, grid=(4,), in_specs=[ROWS], out_specs=[ROWS],
                            core_axis_name="core")(x, o)
    x = pattern((32, 128))
    return run(params, body, shape_of(x.shape), x, cores=2), x + 1


@bug
def fewer_steps_than_buffers(params):
    """Two steps with four buffers: no bug, but JAX's prologue fetches a block too many."""
    def body(x, o):
        pltpu.emit_pipeline(add_one, grid=(2,), in_specs=[
            blocks(8, 128, at=lambda i: (i, 0), pipeline_mode=pl.Buffered(4))],
                            out_specs=[ROWS])(x, o)
    x = pattern((16, 128))
    return run(params, body, shape_of(x.shape), x), x + 1
