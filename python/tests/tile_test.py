# SPDX-License-Identifier: Apache-2.0
"""The tile machine's model of the fused loss."""

import json

import pytest

import tessera

SHAPE = (256, 256, 2048)


def test_model_and_trace(tmp_path):
    assert tessera.tile.chips()[:2] == ["v3", "v4"]
    trace = tmp_path / "timeline.json"
    r = tessera.tile.model("v5p", SHAPE, x_dtype="bf16", trace=str(trace), block_sizes={
        "b_block_size": 256, "h_block_size": 128, "v_block_size": 512})
    assert r["lower_bound_seconds"] <= r["modelled_seconds"] <= r["upper_bound_seconds"]
    assert r["mxu_flops"] >= 2 * 256 * 256 * 2048 and r["block_source"] == "caller"
    assert json.loads(trace.read_text())
    f32 = tessera.tile.model("TPU v5p", SHAPE, f32_passes=6)
    assert f32["busy_seconds"]["mxu"] > 5 * r["busy_seconds"]["mxu"]


def test_sweep_is_a_dict_of_columns():
    columns = tessera.tile.sweep("v6e", SHAPE, "backward", x_dtype="bf16")
    assert len({len(column) for column in columns.values()}) == 1
    times = [seconds for seconds in columns["modelled_seconds"] if seconds is not None]
    assert times == sorted(times) and len(times) > 3
    best = {axis: columns[axis][0] for axis in ("b_block_size", "h_block_size", "v_block_size")}
    alone = tessera.tile.model("v6e", SHAPE, "backward", x_dtype="bf16", block_sizes=best)
    assert alone["modelled_seconds"] == times[0]
    legal = [not rules for rules in columns["refused"]]
    assert legal == [seconds is not None for seconds in columns["modelled_seconds"]]


@pytest.mark.parametrize("change, text", [
    ({"chip": "v99"}, "v99.*v5p"), ({"shape": (1, 2)}, "2 extents"),
    ({"pass_name": "value_and_grad"}, "'forward' or 'backward'"),
    ({"x_dtype": "f64"}, "x_dtype is 'f64'.*'bf16'"), ({"w_layout": "x"}, "w_layout is 'x'"),
    ({"block_sizes": {"b_block_size": 100}}, "R8.*b_block_size"), ({"f32_passes": 2}, "1, 3 or 6"),
])
def test_refused(change, text):
    with pytest.raises(ValueError, match=text):
        tessera.tile.model(**{"chip": "v5p", "shape": SHAPE, **change})
