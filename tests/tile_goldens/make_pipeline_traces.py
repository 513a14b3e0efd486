#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes pipeline_traces.json: in which order JAX's emit_pipeline starts and awaits its copies.

    python3 tests/tile_goldens/make_pipeline_traces.py [--venv build/tools/jax]

Each vector is a pipeline that runs in JAX's TPU interpret mode; jax_trace.py says what its events
mean. An operand's index has per dimension of the block a number, "g0" (a grid dimension's index) or
a list with one entry per step of the whole grid. The JSON is committed, so that the tests need no
JAX. Left out are two schedules in which JAX 0.10.2 errs (docs/tile_reference.md): lookahead with
one buffer, which hangs, and grids with fewer steps than buffers less one, whose prologue wraps
around."""
import collections
import dataclasses
import json
import math
import pathlib

import jax_environment

HERE = pathlib.Path(__file__).resolve().parent
ARGUMENTS = jax_environment.parser(__doc__).parse_args()
jax_environment.enter(ARGUMENTS)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402

import jax_trace  # noqa: E402

# The index vectors of JAX's own test_block_gather.
GATHERS = {"same": [2] * 10, "runs": [0, 0, 2, 3, 3, 3, 1, 7, 6, 6],
           "late": [3, 3, 3, 3, 3, 3, 3, 7, 6, 6], "distinct": [0, 1, 2, 3, 4, 5, 0, 1, 2, 3]}


@dataclasses.dataclass
class Operand:
    name: str
    array: tuple
    block: tuple  # None: a squeezed dimension
    index: tuple
    buffers: int | None = 2  # None: not said
    lookahead: bool = False
    out: bool = False

    def map(self, grid):
        def entry(what, point):
            if isinstance(what, str):
                return point[int(what[1:])]
            if isinstance(what, int):
                return what
            step = 0
            for extent, i in zip(grid, point, strict=True):
                step = step * extent + i
            found = what[0]
            for place, value in enumerate(what):
                found = jnp.where(step == place, value, found)
            return found
        return lambda *point: tuple(entry(what, point) for what in self.index)

    def spec(self, grid):
        mode = None if self.buffers is None else pl.Buffered(self.buffers, self.lookahead)
        return pl.BlockSpec(self.block, self.map(grid), pipeline_mode=mode)


def run(grid, operands, semantics, cores):
    ins = [o for o in operands if not o.out]
    outs = [o for o in operands if o.out]

    def body(*refs):
        for ref in refs[len(ins):]:
            ref[...] = jnp.ones_like(ref)

    def kernel(*refs):
        pltpu.emit_pipeline(
            body, grid=grid, in_specs=[o.spec(grid) for o in ins],
            out_specs=[o.spec(grid) for o in outs],
            core_axis_name="core" if cores > 1 else None,
            dimension_semantics=tuple(getattr(pltpu, s.upper()) for s in semantics) or None)(*refs)

    with jax_trace.tpu(), jax_trace.recording() as recorder:
        jax.block_until_ready(jax.jit(pl.kernel(
            kernel, out_type=[jax.ShapeDtypeStruct(o.array, jnp.float32) for o in outs],
            mesh=pltpu.create_tensorcore_mesh("core", num_cores=cores),
            interpret=pltpu.InterpretParams(num_cores_or_threads=cores)))(
                *[jnp.zeros(o.array, jnp.float32) for o in ins]))
    return jax_trace.trace(recorder, {o.name: len(o.array) for o in operands}, len(outs))


def gathers():
    for name, blocks in GATHERS.items():
        for buffers in (1, 2, 3, 4):
            for lookahead in (False, True)[:1 if buffers == 1 else 2]:
                for out in (1, 2):
                    yield (f"gather {name}", (10,), [
                        Operand("x", (64, 128), (8, 128), (blocks, 0), buffers, lookahead),
                        Operand("o", (80, 128), (8, 128), ("g0", 0), out, out=True)])


def matmuls():
    def matmul(name, grid, x, y, out):
        m, n, k = grid
        return (name, grid, [
            Operand("x", (8 * m, 128 * k), (8, 128), ("g0", "g2"), *x),
            Operand("y", (128 * k, 128 * n), (128, 128), ("g2", "g1"), *y),
            Operand("o", (8 * m, 128 * n), (8, 128), ("g0", "g1"), out, out=True)])

    for out in (1, 2):
        for x, y in (((1,), (1,)), ((2,), (2,)), ((3,), (2,)), ((2,), (4,)),
                     ((4, True), (4, True)), ((3, True), (1,))):
            yield matmul("matmul", (2, 3, 2), x, y, out)
    yield matmul("matmul, one column", (3, 1, 2), (2,), (3,), 2)
    yield matmul("matmul, one row", (1, 4, 1), (2,), (3, True), 2)


def windows():
    for buffers in (1, 2, 3, 4):
        for lookahead in (False, True)[:1 if buffers == 1 else 2]:
            yield ("1-D", (5,), [
                Operand("x", (4096,), (1024,), ([0, 0, 1, 2, 3],), buffers, lookahead),
                Operand("o", (5120,), (1024,), ("g0",), 1 + buffers % 2, out=True)])
    rows = Operand("y", (32, 128), (8, 128), ("g0", 0))
    out = Operand("o", (32, 128), (8, 128), ("g0", 0), out=True)
    for buffers in (None, 1, 2):
        whole = Operand("x", (16, 128), (16, 128), (0, 0), buffers)
        whole_out = Operand("o", (8, 256), (8, 256), (0, 0), buffers, out=True)
        yield "trivial input", (4,), [whole, rows, out]
        yield "trivial output", (4,), [rows, whole_out]
        yield "trivial both", (4,), [whole, whole_out]
    yield "trivial on a grid of ones", (1, 1), [
        Operand("x", (8, 128), (8, 128), ("g0", "g1")),
        Operand("o", (8, 128), (8, 128), ("g1", 0), out=True)]
    yield "all of the array, but the map moves", (2,), [
        Operand("x", (8, 128), (8, 128), ([0, 0], 0)),
        Operand("o", (16, 128), (8, 128), ("g0", 0), out=True)]
    for buffers in (1, 2, 3):
        yield "squeezed", (3, 2), [
            Operand("x", (3, 16, 128), (None, 8, 128), ("g0", "g1", 0), buffers),
            Operand("o", (3, 8, 128), (None, 8, 128), ("g0", 0, 0), 2, out=True)]


def revisits():
    for out in (1, 2):
        yield "an output stays for some steps", (7,), [
            Operand("x", (56, 128), (8, 128), ("g0", 0), 3),
            Operand("o", (24, 128), (8, 128), ([0, 0, 0, 1, 2, 2, 2], 0), out, out=True)]
        yield "two outputs", (2, 3), [
            Operand("x", (16, 384), (8, 128), ("g0", "g1"), 2),
            Operand("y", (24, 128), (8, 128), ("g1", 0), 4, True),
            Operand("o", (16, 128), (8, 128), ("g0", 0), out, out=True),
            Operand("p", (16, 384), (8, 128), ("g0", "g1"), 2, out=True)]
    yield "backwards", (4,), [
        Operand("x", (32, 128), (8, 128), ([3, 2, 1, 0], 0), 3),
        Operand("o", (32, 128), (8, 128), ([3, 2, 1, 0], 0), 2, out=True)]
    for steps in (1, 2, 3, 4):
        for buffers in range(1, min(4, steps + 1) + 1):
            yield f"{steps} steps", (steps,), [
                Operand("x", (32, 128), (8, 128), ("g0", 0), buffers),
                Operand("o", (32, 128), (8, 128), ("g0", 0), 2, out=True)]
            if buffers > 1:
                yield f"{steps} steps", (steps,), [
                    Operand("x", (32, 128), (8, 128), ("g0", 0), buffers, True),
                    Operand("o", (32, 128), (8, 128), ("g0", 0), 1, out=True)]


def partitions():
    """Grids and semantics (p: parallel) over two cores, those of JAX's test_can_partition_grid
    among them, with fewer steps."""
    for grid, semantics in (((4,), "p"), ((5,), "p"), ((2, 3), "pp"), ((3, 2), "pp"),
                            ((3, 5), "pp"), ((5, 3), "pp"), ((3, 4), "pa"), ((2, 2), "ap"),
                            ((3, 3), "ap"), ((4, 3, 2), "aap"), ((3, 3, 3), "pap"), ((7, 2), "pa")):
        rows = math.prod(grid[:-1])
        places = [i // grid[-1] for i in range(math.prod(grid))]
        for buffers, lookahead in ((2, False), (3, True)):
            last = f"g{len(grid) - 1}"
            yield ("partition", grid, [
                Operand("x", (8 * rows, 128 * grid[-1]), (8, 128), (places, last), buffers,
                        lookahead),
                Operand("o", (8 * rows, 128 * grid[-1]), (8, 128), (places, last), 2, out=True)],
                   [{"p": "parallel", "a": "arbitrary"}[s] for s in semantics], 2)


def main():
    lines = []
    for name, grid, operands, *more in (*gathers(), *matmuls(), *windows(), *revisits(),
                                        *partitions()):
        semantics, cores = more or ((), 1)
        trace = run(grid, operands, semantics, cores)
        copies = collections.Counter(event[1] for event in " ".join(trace).split()
                                     if event[0] in "+-")
        rows = [{key: value for key, value in dataclasses.asdict(o).items()
                 if (key, value) not in (("lookahead", False), ("out", False))} for o in operands]
        lines.append(json.dumps({"name": name, "grid": grid, "semantics": semantics,
                                 "operands": rows, "copies": copies, "trace": trace},
                                separators=(",", ":")))
        print(len(lines), name, flush=True)
    text = f'{{"jax": "{jax.__version__}", "vectors": [\n' + ",\n".join(lines) + "\n]}\n"
    (HERE / "pipeline_traces.json").write_text(text, encoding="utf-8")
    print(f"{len(lines)} vectors, {len(text)} bytes")


if __name__ == "__main__":
    main()
