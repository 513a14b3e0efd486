# SPDX-License-Identifier: Apache-2.0
"""Several devices: copies that push into another device's arrays."""
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from golden_programs import params, pattern, program, shape_of

MESH = pltpu.DeviceIdType.MESH
HBM = pl.BlockSpec(memory_space=pltpu.HBM)


def on_devices(devices, body, out, *arrays, scratch):
    """pallas_call of a whole body on each device of a ring; arrays and outputs are stacked over the
    devices in a leading dimension, of which every device sees its own entry."""
    def local(*arrays):
        kernel = pl.pallas_call(
            body, out_shape=out, in_specs=[HBM] * len(arrays), out_specs=HBM,
            scratch_shapes=scratch, compiler_params=pltpu.CompilerParams(collective_id=0),
            interpret=params())
        return kernel(*[a[0] for a in arrays])[None]
    mesh = jax.make_mesh((devices,), ("x",), devices=jax.devices()[:devices])
    ring = jax.sharding.PartitionSpec("x")
    sharding = jax.sharding.NamedSharding(mesh, ring)
    mapped = jax.jit(jax.shard_map(local, mesh=mesh, in_specs=(ring,) * len(arrays),
                                   out_specs=ring, check_vma=False))
    return np.asarray(mapped(*[jax.device_put(a, sharding) for a in arrays]))


def meet(devices, *neighbours):
    del devices
    semaphore = pltpu.get_barrier_semaphore()
    for device in neighbours:
        pl.semaphore_signal(semaphore, device_id=(device,), device_id_type=MESH)
    pl.semaphore_wait(semaphore, len(neighbours))


@program
def right_permute():
    """Device d's (8, 128) of pattern((4, 8, 128), salt 24) goes to device d + 1 mod 4."""
    def body(x, o, send, receive):
        me = lax.axis_index("x")
        right, left = (me + 1) % 4, (me + 3) % 4
        meet(4, left, right)
        copy = pltpu.make_async_remote_copy(x, o, send, receive, device_id=(right,),
                                            device_id_type=MESH)
        copy.start()
        copy.wait()
    o = on_devices(4, body, shape_of((8, 128)), pattern((4, 8, 128), 24),
                   scratch=[pltpu.SemaphoreType.DMA] * 2)
    return {"o": o}


@program
def ring_all_gather():
    """Every device of four gets all of pattern((4, 8, 128), salt 25); devices 0 and 3 are kept."""
    def body(x, o, local, send, receive):
        me = lax.axis_index("x")
        right, left = (me + 1) % 4, (me + 3) % 4
        meet(4, left, right)
        own = pltpu.make_async_copy(x, o.at[me], local)
        own.start()
        own.wait()
        for step in range(3):
            part = o.at[(me - step + 4) % 4]
            copy = pltpu.make_async_remote_copy(part, part, send, receive.at[step],
                                                device_id=(right,), device_id_type=MESH)
            copy.start()
            copy.wait()
    o = on_devices(4, body, shape_of((4, 8, 128)), pattern((4, 8, 128), 25),
                   scratch=[pltpu.SemaphoreType.DMA] * 2 + [pltpu.SemaphoreType.DMA((3,))])
    return {"device_0": o[0], "device_3": o[3]}


@program
def reduce_scatter():
    """Device d ends with the sum over all four devices of their part d: inputs pattern((4, 4, 8,
    128), salt 26), [device][part]. Partial sums travel to the right, each step adding the own part;
    a device says with a semaphore that its buffer is free again."""
    def body(x, o, send, receive, room, buffer, mine, total):
        me = lax.axis_index("x")
        right, left = (me + 1) % 4, (me + 3) % 4
        meet(4, left, right)
        # Part p starts at device p + 1 and ends at device p.
        pltpu.sync_copy(x.at[(me + 3) % 4], total)
        for step in range(3):
            if step > 0:
                pl.semaphore_wait(room, 1)
            copy = pltpu.make_async_remote_copy(total, buffer, send, receive, device_id=(right,),
                                                device_id_type=MESH)
            copy.start()
            pltpu.sync_copy(x.at[(me + 2 - step + 4) % 4], mine)
            copy.wait()
            total[...] = mine[...] + buffer[...]
            if step < 2:
                pl.semaphore_signal(room, device_id=(left,), device_id_type=MESH)
        pltpu.sync_copy(total, o)
    o = on_devices(4, body, shape_of((8, 128)), pattern((4, 4, 8, 128), 26),
                   scratch=[pltpu.SemaphoreType.DMA] * 2 + [pltpu.SemaphoreType.REGULAR]
                   + [pltpu.VMEM((8, 128), jnp.float32)] * 3)
    return {"o": o}


def ragged(values, sizes, capacity):
    """values[d]: elements of device d; sizes[d][e]: how many of them go to device e. Elements are
    tiles of (8, 128). Where they land is by the sender's number. The output has zeros elsewhere."""
    devices = len(values)
    sizes = np.array(sizes)
    offsets = np.cumsum(sizes, axis=1) - sizes
    landing = np.cumsum(sizes, axis=0) - sizes
    length = max(len(v) for v in values)
    x = np.zeros((devices, length, 8, 128), np.float32)
    for device, elements in enumerate(values):
        x[device, :len(elements)] = np.array(elements, np.float32)[:, None, None]
    # Row 0: offsets, 1: sizes, 2: where they land, 3: how many come from each device.
    table = np.stack([np.stack([offsets[d], sizes[d], landing[d], sizes[:, d]])
                      for d in range(devices)]).astype(np.int32)

    def body(x, zeros, table, o, send, receive, numbers):
        pltpu.sync_copy(table, numbers)
        pltpu.sync_copy(zeros, o)
        me = lax.axis_index("x")
        barrier = pltpu.get_barrier_semaphore()
        for device in range(devices):
            pl.semaphore_signal(barrier, device_id=(device,), device_id_type=MESH)
        pl.semaphore_wait(barrier, devices)
        del me

        def part(ref, start, size):
            return ref.at[pl.ds(start, size)]
        for device in range(devices):
            @pl.when(numbers[1, device] > 0)
            def _(device=device):
                size = numbers[1, device]
                pltpu.make_async_remote_copy(
                    part(x, numbers[0, device], size), part(o, numbers[2, device], size), send,
                    receive, device_id=(device,), device_id_type=MESH).start()
        for device in range(devices):
            for row, wait in ((1, "wait_send"), (3, "wait_recv")):
                @pl.when(numbers[row, device] > 0)
                def _(device=device, row=row, wait=wait):
                    size = numbers[row, device]
                    getattr(pltpu.make_async_remote_copy(
                        part(o, 0, size), part(o, 0, size), send, receive, device_id=(device,),
                        device_id_type=MESH), wait)()
    zeros = np.zeros((devices, capacity, 8, 128), np.float32)
    o = on_devices(devices, body, shape_of((capacity, 8, 128)), x, zeros, table,
                   scratch=[pltpu.SemaphoreType.DMA] * 2 + [pltpu.SMEM((4, devices), jnp.int32)])
    assert (np.asarray(o) == np.asarray(o)[:, :, :1, :1]).all()
    return o[:, :, 0, 0]


@program
def ragged_all_to_all():
    """The example in the documentation of jax.lax.ragged_all_to_all (two devices; 1 | 2 2 and
    3 | 4), and four devices of which d sends (3 d + 2 e) mod 4 elements to e: values 100 d + 1, 2,
    3, ... An element is a tile of (8, 128) with one value; one value of each is kept."""
    four = [[(3 * d + 2 * e) % 4 for e in range(4)] for d in range(4)]
    values = [[100 * d + i + 1 for i in range(max(1, sum(four[d])))] for d in range(4)]
    return {"two": ragged([[1, 2, 2], [3, 4, 0]], [[1, 2], [1, 1]], 4),
            "four": ragged(values, four, 8)}
