# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong: copies by hand. Each gives what it computed and what
a right one would have; tests/tile_planted_test.cpp has the same ones by the same names."""
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import jax_trace
from golden_programs import pattern, shape_of

BUGS = {}
TILE = (8, 128)
HBM = pl.BlockSpec(memory_space=pltpu.HBM)
VMEM_TILE = pltpu.VMEM(TILE, jnp.float32)
DMA = pltpu.SemaphoreType.DMA
SIGNALS = pltpu.SemaphoreType.REGULAR


def bug(function):
    BUGS[function.__name__] = function
    return function


def run(params, body, out, *arrays, cores=1, scratch=()):
    """body(in refs, out refs, scratch) on cores; refs are in HBM."""
    with jax_trace.tpu():
        return jax.jit(pl.kernel(
            body, out_type=out, scratch_types=scratch, interpret=params(cores),
            mesh=pltpu.create_tensorcore_mesh("core", num_cores=cores)))(*arrays)


def add_one(params, body, *more, rows=8):
    """x + 1; body has x, o, a tile, a semaphore."""
    x = pattern((rows, 128))
    o = run(params, body, shape_of(x.shape), x, scratch=[VMEM_TILE, DMA, *more])
    return o, x + 1


@bug
def missing_wait(params):
    """x is on its way into the tile when it is read, and nobody ever waits."""
    def body(x, o, tile, arrived):
        pltpu.make_async_copy(x, tile, arrived).start()
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile, o)
    return add_one(params, body)


@bug
def wait_after_use(params):
    """Waited for, but after it was read."""
    def body(x, o, tile, arrived):
        copy = pltpu.make_async_copy(x, tile, arrived)
        copy.start()
        value = tile[...]
        copy.wait()
        tile[...] = value + 1
        pltpu.sync_copy(tile, o)
    return add_one(params, body)


@bug
def copy_nobody_waits_for(params):
    """The result is complete; one copy more was started."""
    def body(x, o, tile, arrived, other):
        pltpu.sync_copy(x, tile)
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile, o)
        pltpu.make_async_copy(x, other, arrived).start()
    return add_one(params, body, VMEM_TILE)


@bug
def one_wait_for_two_copies(params):
    """Two copies count on one semaphore; after one wait both tiles are read."""
    def body(x, o, tile, arrived, other):
        first = pltpu.make_async_copy(x.at[0:8], tile, arrived)
        second = pltpu.make_async_copy(x.at[8:16], other, arrived)
        first.start()
        second.start()
        first.wait()
        tile[...] = tile[...] + 1
        other[...] = other[...] + 1
        second.wait()
        pltpu.sync_copy(tile, o.at[0:8])
        pltpu.sync_copy(other, o.at[8:16])
    return add_one(params, body, VMEM_TILE, rows=16)


@bug
def tile_reused_while_it_leaves(params):
    """A tile is written again while its copy out is on its way."""
    def body(x, o, tile, leaving):
        for i in range(2):
            pltpu.sync_copy(x.at[pl.ds(8 * i, 8)], tile)
            tile[...] = tile[...] + 1
            pltpu.make_async_copy(tile, o.at[pl.ds(8 * i, 8)], leaving).start()
        for i in range(2):
            pltpu.make_async_copy(tile, o.at[pl.ds(8 * i, 8)], leaving).wait()
    return add_one(params, body, rows=16)


@bug
def wrong_slot(params):
    """Double buffering by hand that computes on the slot that is being filled."""
    def body(x, o, tile, arrived, slots, arrivals):
        def fetch(i):
            return pltpu.make_async_copy(x.at[pl.ds(8 * i, 8)], slots.at[i % 2],
                                         arrivals.at[i % 2])
        fetch(0).start()
        for i in range(4):
            if i < 3:
                fetch(i + 1).start()
            fetch(i).wait()
            tile[...] = slots[(i + 1) % 2] + 1
            pltpu.sync_copy(tile, o.at[pl.ds(8 * i, 8)])
        del arrived
    return add_one(params, body, pltpu.VMEM((2, 8, 128), jnp.float32), DMA((2,)), rows=32)


@bug
def copy_started_twice(params):
    """One descriptor is started twice and waited for once."""
    def body(x, o, tile, arrived):
        copy = pltpu.make_async_copy(x, tile, arrived)
        copy.start()
        copy.start()
        copy.wait()
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile, o)
    return add_one(params, body)


@bug
def wait_for_more_than_came(params):
    """16 rows are waited for where 8 were copied."""
    def body(x, o, tile, arrived):
        pltpu.make_async_copy(x.at[0:8], tile, arrived).start()
        pltpu.make_async_copy(x, x, arrived).wait()
        pltpu.sync_copy(tile, o.at[0:8])
    return add_one(params, body, rows=16)


@bug
def copy_that_adds(params):
    """o = 10 and a copy that adds x: no bug, but an option that JAX's interpreter ignores."""
    def body(x, o, tile, arrived):
        tile[...] = jnp.full(TILE, 10.0, jnp.float32)
        pltpu.sync_copy(tile, o)
        pltpu.sync_copy(x, tile)
        copy = pltpu.make_async_copy(tile, o, arrived)
        copy.start(add=True)
        copy.wait()
    o, expected = add_one(params, body)
    return o, expected + 9


@bug
def priority_7(params):
    """Priorities are 0 and 1."""
    def body(x, o, tile, arrived):
        copy = pltpu.make_async_copy(x, tile, arrived)
        copy.start(priority=7)
        copy.wait()
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile, o)
    return add_one(params, body)


def copied_from(params, start, rows=16):
    """x + 1 where the second tile is read at `start` instead of row 8."""
    def body(starts, x, o, tile, at):
        pltpu.sync_copy(starts, at)
        for i in range(2):
            pltpu.sync_copy(x.at[pl.ds(at[i], 8)], tile)
            tile[...] = tile[...] + 1
            pltpu.sync_copy(tile, o.at[pl.ds(8 * i, 8)])
    x = pattern((rows, 128))
    o = run(params, body, shape_of(x.shape), jnp.array([0, start], jnp.int32), x,
            scratch=[VMEM_TILE, pltpu.SMEM((2,), jnp.int32)])
    return o, x + 1


@bug
def negative_start(params):
    """A slice that begins at row -16, which numpy takes for row 0."""
    return copied_from(params, -16)


@bug
def read_beyond_the_end(params):
    """Rows 16 to 23 of 16."""
    return copied_from(params, 16)


@bug
def off_by_one(params):
    """Rows 9 to 16 of 16: one row beyond the end."""
    return copied_from(params, 9)


@bug
def unaligned_rows(params):
    """Rows 3 to 10, which are parts of two tiles, and the result is what was asked for."""
    def body(x, o, tile, arrived):
        pltpu.sync_copy(x.at[3:11], tile)
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile, o.at[0:8])
        pltpu.sync_copy(tile, o.at[8:16])
        del arrived
    o, expected = add_one(params, body, rows=16)
    return o, jnp.concatenate([expected[3:11], expected[3:11]])


@bug
def half_of_the_lanes(params):
    """A copy of 64 of 128 columns."""
    def body(x, o, tile, arrived):
        pltpu.sync_copy(x, tile)
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile.at[:, 0:64], o.at[:, 0:64])
        pltpu.sync_copy(tile.at[:, 64:128], o.at[:, 64:128])
        del arrived
    return add_one(params, body)


@bug
def int8_rows(params):
    """8 rows of int8, whose tiles have 32."""
    def body(x, o, tile):
        for i in range(4):
            pltpu.sync_copy(x.at[pl.ds(8 * i, 8)], tile.at[pl.ds(8 * i, 8)])
        pltpu.sync_copy(tile, o)
    x = pattern((32, 128), 0, jnp.int8)
    return run(params, body, shape_of(x.shape, jnp.int8), x,
               scratch=[pltpu.VMEM((32, 128), jnp.int8)]), x


@bug
def write_beyond_the_end(params):
    """The second tile goes to rows 16 to 23 of 16."""
    def body(starts, x, o, tile, at):
        pltpu.sync_copy(starts, at)
        for i in range(2):
            pltpu.sync_copy(x.at[pl.ds(8 * i, 8)], tile)
            pltpu.sync_copy(tile, o.at[pl.ds(at[i], 8)])
    x = pattern((16, 128))
    return run(params, body, shape_of(x.shape), jnp.array([0, 16], jnp.int32), x,
               scratch=[VMEM_TILE, pltpu.SMEM((2,), jnp.int32)]), x


@bug
def element_beyond_the_end(params):
    """An element of SMEM whose index, 4 of 4, comes from data."""
    def body(table, x, o, tile, numbers):
        pltpu.sync_copy(table, numbers)
        pltpu.sync_copy(x, tile)
        tile[...] = tile[...] + numbers[numbers[3]].astype(jnp.float32)
        pltpu.sync_copy(tile, o)
    x = pattern(TILE)
    return run(params, body, shape_of(TILE), jnp.array([1, 1, 1, 4], jnp.int32), x,
               scratch=[VMEM_TILE, pltpu.SMEM((4,), jnp.int32)]), x + 1


@bug
def hbm_dereferenced(params):
    """x + 1 without copies."""
    def body(x, o, tile, arrived):
        o[...] = x[...] + 1
        del tile, arrived
    return add_one(params, body)


@bug
def extents_differ(params):
    """16 rows into a tile of 8."""
    def body(x, o, tile, arrived):
        pltpu.make_async_copy(x, tile, arrived).start()
        pltpu.make_async_copy(x, tile, arrived).wait()
        pltpu.sync_copy(tile, o.at[0:8])
    return add_one(params, body, rows=16)


@bug
def vmem_too_large(params):
    """256 MiB of scratch."""
    def body(x, o, tile, arrived, huge):
        pltpu.sync_copy(x, tile)
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile, o)
        del arrived, huge
    return add_one(params, body, pltpu.VMEM((8192 * 64, 128), jnp.float32))


@bug
def smem_too_large(params):
    """8 MiB of scalars."""
    def body(x, o, tile, arrived, huge):
        pltpu.sync_copy(x, tile)
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile, o)
        del arrived, huge
    return add_one(params, body, pltpu.SMEM((2 << 20,), jnp.int32))


@bug
def scope_ends_before_its_copy(params):
    """The tile's scope is over while a copy out of it is on its way."""
    def body(x, o, tile, leaving):
        def scoped(own):
            pltpu.sync_copy(x, own)
            own[...] = own[...] + 1
            pltpu.make_async_copy(own, o, leaving).start()
        pl.run_scoped(scoped, VMEM_TILE)
        pltpu.make_async_copy(tile, o, leaving).wait()
    return add_one(params, body)


@bug
def written_after_freeze(params):
    """A ref that was frozen is given to a kernel that writes it."""
    def body(x, tile):
        pltpu.sync_copy(x, tile)
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile, x)
    x = jax.new_ref(pattern(TILE))
    with jax_trace.tpu():
        kernel = pl.kernel(body, mesh=pltpu.create_tensorcore_mesh("core", num_cores=1),
                           scratch_types=[VMEM_TILE], interpret=params(1))
        kernel(x)
        frozen = jax.freeze(x)
        kernel(x)
    return frozen, pattern(TILE) + 1


@bug
def scratch_not_initialised(params):
    """Sums into a scratch that nobody set to zero."""
    def body(x, o, tile, arrived, total):
        pltpu.sync_copy(x, tile)
        total[...] = total[...] + tile[...] + 1
        pltpu.sync_copy(total, o)
        del arrived
    return add_one(params, body, VMEM_TILE)
