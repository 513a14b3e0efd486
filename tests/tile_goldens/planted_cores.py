# SPDX-License-Identifier: Apache-2.0
"""Programs that are wrong: semaphores, cores, devices. Each gives what it computed and what
a right one would have; tests/tile_planted_test.cpp has the same ones by the same names."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from golden_programs import pattern, shape_of
from planted_kernels import DMA, HBM, SIGNALS, VMEM_TILE, bug, run


def two_cores(params, body, *more):
    """body has x, o of 16 rows, a tile, a semaphore; core c should do rows 8 c to 8 c + 7."""
    x = pattern((16, 128))
    return run(params, body, shape_of(x.shape), x, cores=2,
               scratch=[VMEM_TILE, SIGNALS, *more]), x + 1


@bug
def cores_share_an_output(params):
    """Both cores write the first tile."""
    def body(x, o, tile, ready):
        core = lax.axis_index("core")
        pltpu.sync_copy(x.at[pl.ds(8 * core, 8)], tile)
        tile[...] = tile[...] + 1
        pltpu.sync_copy(tile, o.at[0:8])
        pltpu.sync_copy(tile, o.at[pl.ds(8 * core, 8)])
        del ready
    return two_cores(params, body)


def handed_over(params, signal, wait_first, wait=True):
    """Core 0 writes the first tile of o, core 1 copies it to the second."""
    def body(x, o, tile, ready):
        core = lax.axis_index("core")

        @pl.when(core == 0)
        def _():
            pltpu.sync_copy(x.at[0:8], tile)
            tile[...] = tile[...] + 1
            pltpu.sync_copy(tile, o.at[0:8])
            if signal:
                pl.semaphore_signal(ready, signal, core_index=1)

        @pl.when(core == 1)
        def _():
            if wait and wait_first:
                pl.semaphore_wait(ready, 1)
            pltpu.sync_copy(o.at[0:8], tile)
            if wait and not wait_first:
                pl.semaphore_wait(ready, 1)
            pltpu.sync_copy(tile, o.at[8:16])
    o, expected = two_cores(params, body)
    return o, jnp.concatenate([expected[:8], expected[:8]])


@bug
def waits_too_late(params):
    """Core 1 reads what core 0 writes, and waits for its signal afterwards."""
    return handed_over(params, 1, False)


@bug
def dropped_signal(params):
    """Core 0 forgets to signal."""
    return handed_over(params, 0, True)


@bug
def signal_left_over(params):
    """Core 0 signals 2, core 1 takes 1."""
    return handed_over(params, 2, True)


@bug
def no_signal_at_all(params):
    """Core 1 reads what core 0 writes, without a semaphore."""
    return handed_over(params, 0, True, wait=False)


@bug
def each_waits_for_the_other(params):
    """Both cores wait before they signal."""
    def body(x, o, tile, ready):
        core = lax.axis_index("core")
        pl.semaphore_wait(ready, 1)
        for other in range(2):
            @pl.when(core != other)
            def _(other=other):
                pl.semaphore_signal(ready, 1, core_index=other)
        pltpu.sync_copy(x.at[pl.ds(8 * core, 8)], tile)
        pltpu.sync_copy(tile, o.at[pl.ds(8 * core, 8)])
    return two_cores(params, body)


def on_devices(params, devices, body, out, x, scratch):
    def local(x):
        return pl.pallas_call(
            body, out_shape=out, in_specs=[HBM], out_specs=HBM, scratch_shapes=scratch,
            compiler_params=pltpu.CompilerParams(collective_id=0), interpret=params(1))(x[0])[None]
    mesh = jax.make_mesh((devices,), ("x",), devices=jax.devices()[:devices])
    ring = jax.sharding.PartitionSpec("x")
    x = jax.device_put(x, jax.sharding.NamedSharding(mesh, ring))
    return np.asarray(jax.jit(jax.shard_map(local, mesh=mesh, in_specs=ring, out_specs=ring,
                                            check_vma=False))(x))


@bug
def arrival_not_awaited(params):
    """A ring all-gather that passes on what it has not waited for."""
    def body(x, o, local, send, receive):
        me = lax.axis_index("x")
        right = (me + 1) % 4
        own = pltpu.make_async_copy(x, o.at[me], local)
        own.start()
        own.wait()
        barrier = pltpu.get_barrier_semaphore()
        for device in range(4):
            pl.semaphore_signal(barrier, device_id=(device,))
        pl.semaphore_wait(barrier, 4)
        copies = []
        for step in range(3):
            part = o.at[(me - step + 4) % 4]
            copies.append(pltpu.make_async_remote_copy(part, part, send, receive,
                                                       device_id=(right,)))
            copies[-1].start()
            copies[-1].wait_send()
        for copy in copies:
            copy.wait_recv()
    x = pattern((4, 8, 128))
    o = on_devices(params, 4, body, shape_of((4, 8, 128)), x, [DMA, DMA, DMA])
    return o, np.stack([np.asarray(x)] * 4)


@bug
def neighbour_not_ready(params):
    """Two messages to the right neighbour's one buffer, which says nothing of having read it."""
    def body(x, o, send, receive, buffer, tile):
        right = (lax.axis_index("x") + 1) % 2
        barrier = pltpu.get_barrier_semaphore()
        for device in range(2):
            pl.semaphore_signal(barrier, device_id=(device,))
        pl.semaphore_wait(barrier, 2)
        for step in range(2):
            copy = pltpu.make_async_remote_copy(x.at[pl.ds(8 * step, 8)], buffer, send, receive,
                                                device_id=(right,))
            copy.start()
            copy.wait()
            tile[...] = buffer[...] + 1
            pltpu.sync_copy(tile, o.at[pl.ds(8 * step, 8)])
    x = pattern((2, 16, 128))
    o = on_devices(params, 2, body, shape_of((16, 128)), x, [DMA, DMA, VMEM_TILE, VMEM_TILE])
    return o, np.asarray(x)[::-1] + 1
