# SPDX-License-Identifier: Apache-2.0
"""pallas_call: grids, tables, aliases, edges, types."""
import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from golden_programs import params, pattern, program, shape_of


def call(body, out, *arrays, **more):
    return jax.jit(pl.pallas_call(body, out_shape=out, interpret=params(), **more))(*arrays)


def blocks(*sizes, at=lambda *grid: grid, **more):
    return pl.BlockSpec(sizes, at, **more)


@program
def add_vectors():
    """o = x + y, f32[4096] in four blocks of 1024; x, y: salt 0, 1."""
    def body(x, y, o):
        o[...] = x[...] + y[...]
    spec = blocks(1024)
    return {"o": call(body, shape_of((4096,)), pattern((4096,)), pattern((4096,), 1), grid=(4,),
                      in_specs=[spec, spec], out_specs=spec)}


def matmul(dtype, out_dtype, accumulator=jnp.float32):
    def body(x, y, o, total):
        @pl.when(pl.program_id(2) == 0)
        def _():
            total[...] = jnp.zeros_like(total)
        total[...] += lax.dot(x[...], y[...], preferred_element_type=accumulator)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o[...] = total[...].astype(o.dtype)
    return call(body, shape_of((128, 256), out_dtype), pattern((128, 384), 2, dtype),
                pattern((384, 256), 3, dtype), grid=(2, 2, 3),
                in_specs=[blocks(64, 128, at=lambda i, j, k: (i, k)),
                          blocks(128, 128, at=lambda i, j, k: (k, j))],
                out_specs=blocks(64, 128, at=lambda i, j, k: (i, j)),
                scratch_shapes=[pltpu.VMEM((64, 128), accumulator)])


@program
def matmul_call():
    """x @ y, (128, 384) by (384, 256), blocks 64, 128, 128 (m, n, k), a scratch of the sums; x, y:
    salt 2, 3. Of f32, bf16 (to f32 and to bf16, which rounds) and int8 (to int32)."""
    return {"f32": matmul(jnp.float32, jnp.float32), "bf16_f32": matmul(jnp.bfloat16, jnp.float32),
            "bf16_bf16": matmul(jnp.bfloat16, jnp.bfloat16),
            "i8_i32": matmul(jnp.int8, jnp.int32, jnp.int32)}


@program
def gather_blocks():
    """Blocks of x, (64, 128) f32 of salt 4, by number from a prefetched table: o block i = x block
    table[i]. And from a table of two dimensions: o block (i, j) = x block (rows[i, j], j) of x of
    (32, 256), salt 5."""
    def body(table, x, o):
        del table
        o[...] = x[...]
    table = jnp.array([3, 3, 0, 7, 1, 1], jnp.int32)
    one = call(body, shape_of((48, 128)), table, pattern((64, 128), 4),
               grid_spec=pltpu.PrefetchScalarGridSpec(
                   num_scalar_prefetch=1, grid=(6,),
                   in_specs=[blocks(8, 128, at=lambda i, t: (t[i], 0))],
                   out_specs=blocks(8, 128, at=lambda i, t: (i, 0))))
    rows = jnp.array([[0, 3], [2, 2], [1, 0]], jnp.int32)
    two = call(body, shape_of((24, 256)), rows, pattern((32, 256), 5),
               grid_spec=pltpu.PrefetchScalarGridSpec(
                   num_scalar_prefetch=1, grid=(3, 2),
                   in_specs=[blocks(8, 128, at=lambda i, j, t: (t[i, j], j))],
                   out_specs=blocks(8, 128, at=lambda i, j, t: (i, j))))
    return {"one": one, "two": two}


@program
def block_sparse_matmul():
    """y = W x by the blocks of W that are not zero: W has 4 x 3 blocks of (8, 128), of which number
    n is packed[n] (salt 6) at (row[n], column[n]), rows ascending; x (384, 128), salt 7. Tables row
    and column are prefetched."""
    row = jnp.array([0, 0, 1, 2, 2, 2, 3], jnp.int32)
    column = jnp.array([0, 2, 1, 0, 1, 2, 2], jnp.int32)

    def body(row, column, w, x, o):
        del column
        n = pl.program_id(0)

        @pl.when((n == 0) | (row[n] != row[jnp.maximum(n - 1, 0)]))
        def _():
            o[...] = jnp.zeros_like(o)
        o[...] += lax.dot(w[0], x[...], preferred_element_type=jnp.float32)
    return {"o": call(
        body, shape_of((32, 128)), row, column, pattern((7, 8, 128), 6), pattern((384, 128), 7),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=2, grid=(7,),
            in_specs=[blocks(1, 8, 128, at=lambda n, r, c: (n, 0, 0)),
                      blocks(128, 128, at=lambda n, r, c: (c[n], 0))],
            out_specs=blocks(8, 128, at=lambda n, r, c: (r[n], 0))))}


@program
def aliased_update():
    """x (32, 128) of salt 8 is its own output: blocks 1 and 3 (of 8 rows) become 2 x + 1, by a grid
    of two; the others stay."""
    def body(x, o):
        o[...] = 2 * x[...] + 1
    spec = blocks(8, 128, at=lambda i: (2 * i + 1, 0))
    return {"x": call(body, shape_of((32, 128)), pattern((32, 128), 8), grid=(2,),
                      in_specs=[spec], out_specs=spec, input_output_aliases={0: 0})}


@program
def edge_blocks():
    """(601, 600) of salt 9 in blocks of 256: 2 x, and what is not in the array: rows_nan and
    columns_nan[i, j]: how many rows (columns) of block (i, j) begin with NaN in its first column
    (row)."""
    def body(x, o, rows, columns):
        i, j = pl.program_id(0), pl.program_id(1)
        o[...] = 2 * x[...]
        rows[i, j] = jnp.sum(jnp.isnan(x[...][:, 0]).astype(jnp.int32))
        columns[i, j] = jnp.sum(jnp.isnan(x[...][0, :]).astype(jnp.int32))
    spec = blocks(256, 256)
    smem = pl.BlockSpec(memory_space=pltpu.SMEM)
    o, rows, columns = call(
        body, (shape_of((601, 600)), shape_of((3, 3), jnp.int32), shape_of((3, 3), jnp.int32)),
        pattern((601, 600), 9), grid=(3, 3), in_specs=[spec], out_specs=[spec, smem, smem])
    return {"o": o, "rows_nan": rows, "columns_nan": columns}


@program
def mutated_window():
    """The body adds 1 to its input window, (8, 128) of salt 10, which stays for three steps, and
    writes it to block i of o: the second step sees what the first wrote. x itself stays."""
    def body(x, o):
        x[...] = x[...] + 1
        o[...] = x[...]
    x = pattern((8, 128), 10)
    o = call(body, shape_of((24, 128)), x, grid=(3,),
             in_specs=[blocks(8, 128, at=lambda i: (0, 0))],
             out_specs=blocks(8, 128, at=lambda i: (i, 0)))
    return {"o": o, "x": x}


@program
def types():
    """Of f32, bf16, int32 and int8, x, y (32, 256) of salt 11, 12, blocks (32, 128): 3 x - y, the
    larger of both, where x > y (x, else -y), and x's sums over rows and over columns as f32 or
    int32."""
    def body(x, y, combined, larger, chosen, rows, columns):
        combined[...] = 3 * x[...] - y[...]
        larger[...] = jnp.maximum(x[...], y[...])
        chosen[...] = jnp.where(x[...] > y[...], x[...], -y[...])
        wide = x[...].astype(rows.dtype)
        rows[...] = jnp.broadcast_to(jnp.sum(wide, axis=1, keepdims=True), rows.shape)
        columns[...] = jnp.broadcast_to(jnp.sum(wide, axis=0, keepdims=True), columns.shape)
    results = {}
    for name, dtype in (("f32", jnp.float32), ("bf16", jnp.bfloat16), ("i32", jnp.int32),
                        ("i8", jnp.int8)):
        wide = jnp.float32 if name in ("f32", "bf16") else jnp.int32
        spec = blocks(32, 128, at=lambda j: (0, j))
        # Sums of each block of 128 columns; a row's stands in all lanes, a column's in 8 rows.
        out = call(body, [shape_of((32, 256), dtype)] * 3
                   + [shape_of((32, 256), wide), shape_of((8, 256), wide)],
                   pattern((32, 256), 11, dtype), pattern((32, 256), 12, dtype), grid=(2,),
                   in_specs=[spec, spec],
                   out_specs=[spec] * 4 + [blocks(8, 128, at=lambda j: (0, j))])
        for key, array in zip(("combined", "larger", "chosen", "rows", "columns"), out,
                              strict=True):
            # Small enough to keep all of: a corner.
            results[f"{name}_{key}"] = array[:8, 120:136]
    return results


@program
def reductions_with_nan():
    """x (8, 128) of salt 13 with NaN at (2, 3): max, min and sum over the columns of each row, then
    where(x > 0, 1, 0); rows of the result are max, min, sum, count, each in the first 8 places."""
    def body(x, o):
        value = x[...]
        for place, row in enumerate((jnp.max(value, axis=1), jnp.min(value, axis=1),
                                     jnp.sum(value, axis=1),
                                     jnp.sum(jnp.where(value > 0, 1.0, 0.0), axis=1))):
            o[place, 0:8] = row
    x = pattern((8, 128), 13).at[2, 3].set(jnp.nan)
    o = call(body, shape_of((8, 128)), x)
    return {"o": o[:4, :8]}
