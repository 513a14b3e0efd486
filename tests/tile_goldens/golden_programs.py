# SPDX-License-Identifier: Apache-2.0
"""What the programs of programs_*.py share: inputs by formula, and small JSON of the results."""
import json

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

import jax_trace

PROGRAMS = {}
MOST_VALUES = 2000  # arrays above are told by sums and samples


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def pattern(shape, salt=0, dtype=jnp.float32):
    """Element number i (row-major) is (37 i + 11 (i / 64) + 5 salt) mod 17 - 8: small integers that
    every type holds exactly, and whose sums f32 holds exactly."""
    i = np.arange(np.prod(shape), dtype=np.int64)
    return jnp.asarray(((37 * i + 11 * (i // 64) + 5 * salt) % 17 - 8).reshape(shape), dtype=dtype)


def params(cores=1, **more):
    return pltpu.InterpretParams(num_cores_or_threads=cores, **more)


def on_cores(body, out, *arrays, cores=1, scratch=(), **more):
    """body(in refs, out refs, scratch) as a pl.kernel on some cores."""
    with jax_trace.tpu():
        return jax.jit(pl.kernel(
            body, out_type=out, scratch_types=scratch, interpret=params(cores, **more),
            mesh=pltpu.create_tensorcore_mesh("core", num_cores=cores)))(*arrays)


def shape_of(shape, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(shape, dtype)


def number(value):
    """NaN is null."""
    value = float(value)
    if np.isnan(value):
        return None
    return int(value) if value == int(value) else value


def digest(array):
    """The values, or of arrays that are large: sums over each dimension of the last two (leading
    ones counted as rows), and every 97th value."""
    values = np.asarray(array)
    found = {"shape": values.shape, "dtype": str(values.dtype)}
    values = values.astype(np.float64)
    if values.size <= MOST_VALUES:
        return {**found, "values": [number(v) for v in values.ravel()]}
    rows = values.reshape(-1, values.shape[-1])
    return {**found, "row_sums": [number(v) for v in rows.sum(1)],
            "column_sums": [number(v) for v in rows.sum(0)],
            "every_97th": [number(v) for v in values.ravel()[::97]]}


def write(folder, name, jax_version):
    function = PROGRAMS[name]
    results = {key: digest(array) for key, array in function().items()}
    text = json.dumps({"program": name, "jax": jax_version,
                       "what": " ".join(function.__doc__.split()), "results": results},
                      separators=(",", ":"))
    text = text.replace('"results":', '\n"results":').replace('},"', '},\n"') + "\n"
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return len(text)
