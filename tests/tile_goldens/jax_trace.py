# SPDX-License-Identifier: Apache-2.0
"""What JAX's interpret mode did: every DMA started and waited for, and every run of a body.

The interpreter is a set of Python callbacks; they are wrapped here, so that a trace has what was
really executed and not what the source seems to say. Events are strings:
    +x8,0:1   a copy of the block of x that starts at element (8, 0) into slot 1 was started
    ?x1       and waited for (its semaphore's place: slot 1)
    !         the body ran
    -o8,0:1   a copy out of slot 1 of o's window into o at (8, 0) was started
    =o1       and waited for
Names are those of the arrays in the order in which their DMAs are known to the kernel. A copy that
is started and waited for on a semaphore of its own (sync_copy) has slot 0."""
import collections
import contextlib
import functools

import jax
import numpy as np
from jax._src.pallas.mosaic.interpret import interpret_pallas_call as interpreter
from jax.sharding import AbstractDevice, AbstractMesh, use_abstract_mesh

HBM = {4, 5}  # of the interpreter's memory space numbers: any and hbm


def tpu(kind="TPU v5p"):
    """emit_pipeline asks which TPU it is for; an abstract device answers."""
    device = AbstractDevice(device_kind=kind, num_cores=1, platform="tpu")
    return use_abstract_mesh(AbstractMesh((), (), abstract_device=device))


class Recorder:
    """Events of all cores, raw: what was called with which numbers."""

    def __init__(self):
        self.events = []  # (core, what, ...)
        self.places = {}  # of a semaphore in its array of semaphores

    def dma_start(self, arguments):
        (_, core, source_space, source, source_part, target_space, target, target_part,
         semaphore) = arguments[1:10]
        out = int(target_space) in HBM
        array, part = (target, target_part) if out else (source, source_part)
        self.events.append((int(core), "start", out, int(array), starts(part), int(semaphore)))

    def dma_wait(self, arguments):
        self.events.append((int(arguments[2]), "wait", int(arguments[3])))

    def swap(self, arguments):
        self.events.append((int(arguments[2]), "write", int(arguments[4])))


def starts(transforms):
    """First element; () for a whole array."""
    return tuple(int(getattr(i, "start", i)) for t in transforms for i in t.indices)


@contextlib.contextmanager
def recording():
    recorder = Recorder()
    names = ("dma_start", "dma_wait", "swap")
    originals = {name: getattr(interpreter, name) for name in names}
    allocate = interpreter._allocate_semaphores  # pylint: disable=protected-access

    def wrapped(name):
        @functools.wraps(originals[name])
        def call(*arguments, **keywords):
            getattr(recorder, name)(arguments)
            return originals[name](*arguments, **keywords)
        return call

    def wrapped_allocate(*arguments, **keywords):
        result = allocate(*arguments, **keywords)
        ids = [int(i) for leaf in jax.tree.leaves(result[1]) for i in np.ravel(leaf)]
        recorder.places.update({semaphore: place for place, semaphore in enumerate(ids)})
        return result

    for name in names:
        setattr(interpreter, name, wrapped(name))
    interpreter._allocate_semaphores = wrapped_allocate  # pylint: disable=protected-access
    try:
        yield recorder
    finally:
        for name in names:
            setattr(interpreter, name, originals[name])
        interpreter._allocate_semaphores = allocate  # pylint: disable=protected-access


def trace(recorder, ranks, body_writes):
    """The events per core as strings. `ranks`: name and rank of the arrays that have DMAs, in the
    order of their buffers; `body_writes`: how many writes one run of the body makes."""
    arrays = sorted({event[3] for event in recorder.events if event[1] == "start"})
    assert len(arrays) == len(ranks), (arrays, ranks)
    name_of = dict(zip(arrays, ranks.items(), strict=True))
    result = collections.defaultdict(list)
    latest = {}  # (core, semaphore) -> its latest copy
    writes = collections.Counter()
    for core, what, *rest in recorder.events:
        if what == "start":
            out, array, start, semaphore = rest
            name, rank = name_of[array]
            slot = recorder.places.get(semaphore, 0)  # a semaphore for every slot
            latest[core, semaphore] = (out, name, slot)
            place = ",".join(map(str, start or (0,) * rank))
            result[core].append(f"{'-' if out else '+'}{name}{place}:{slot}")
        elif what == "wait":
            out, name, slot = latest[core, rest[0]]
            result[core].append(f"{'=' if out else '?'}{name}{slot}")
        else:
            if writes[core] % body_writes == 0:
                result[core].append("!")
            writes[core] += 1
    return [" ".join(result[core]) for core in sorted(result)]
