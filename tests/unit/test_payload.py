"""The payload model: the figures that the sources give, and what it refuses."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking.payload import PRESETS, FixedPart, Payload, Scales

KIB, MIB = 1024, 1 << 20


def test_the_figures_of_the_16_layer_example() -> None:
    whole, packed = PRESETS["16-layer"], PRESETS["16-layer-v8"]
    assert whole.bytes_per_position == 64 * KIB
    assert packed.bytes_per_position == 48.125 * KIB
    assert whole.bytes_at(8192) == 512 * MIB
    assert whole.bytes_at(65536) == 4096 * MIB
    # K stays float16, V is half of it, and 16 x 4 scales of two bytes come on top.
    assert packed.bytes_per_position == 32 * KIB + 16 * KIB + 16 * 4 * 2


def test_the_figure_of_the_small_model_is_that_of_its_arrays() -> None:
    payload = PRESETS["0.6b"]
    array = np.zeros((payload.layers, payload.kv_heads, 3, payload.head_dim), np.float16)
    assert payload.bytes_at(3) == 2 * array.nbytes
    assert payload.bytes_per_position == 112 * KIB


@pytest.mark.parametrize(("name", "allocated"), [("turbo", 30 * MIB), ("distil", 15 * MIB)])
def test_whisper_allocates_what_its_contract_says(name: str, allocated: int) -> None:
    payload = PRESETS[name]
    assert payload.kind == "cross"
    assert (payload.rows, payload.capacity) == (1500, 1536)
    assert payload.bytes_at(1536) == allocated
    assert payload.bytes_at(1500) == allocated // 1536 * 1500


def test_parts_without_rows_cost_the_same_at_every_length() -> None:
    state = FixedPart(name="recurrent", layers=48, shape=(48, 128, 128))
    window = FixedPart(name="convolution", layers=48, shape=(3, 10240), dtype="float16")
    hybrid = dataclasses.replace(PRESETS["16-layer"], fixed=(state, window))
    assert state.byte_count == 48 * 48 * 128 * 128 * 4
    assert window.byte_count == 48 * 3 * 10240 * 2
    assert hybrid.fixed_bytes == hybrid.bytes_at(0) == state.byte_count + window.byte_count
    assert hybrid.bytes_at(100) - hybrid.bytes_at(99) == hybrid.bytes_per_position == 64 * KIB


def test_scales_by_group() -> None:
    def with_scales(scales: Scales | None) -> int:
        return Payload(
            name="x", layers=1, kv_heads=2, head_dim=128, values="int8", value_scales=scales
        ).bytes_per_position

    plain = with_scales(None)
    assert with_scales(Scales()) - plain == 2 * 2
    assert with_scales(Scales(group=32)) - plain == 2 * 4 * 2
    assert with_scales(Scales(group=32, dtype="float32")) - plain == 2 * 4 * 4
    with pytest.raises(ValueError, match="48 does not divide"):
        with_scales(Scales(group=48))


def contract(shapes: dict[str, tuple[int, ...]], axis: int, dtypes: dict[str, str] | str = "float16") -> kvb.KVContract:
    return kvb.KVContract(tuple(shapes), shapes, dtypes, 2, axis, tail="any")


def test_a_contract_gives_its_own_bytes() -> None:
    stacked = contract({"k": (3, 2, 8, 64), "v": (3, 2, 8, 32)}, 2)
    layered = contract({f"{s}_{i}": (1, 2, 8, 64) for s in "kv" for i in range(3)}, 2)
    cross = contract({"k": (3, 8, 96), "v": (3, 8, 96)}, 1)
    for given, wanted in ((stacked, (3, 2, 64, 32)), (layered, (3, 2, 64, None)), (cross, (3, 1, 96, None))):
        payload = Payload.from_contract(given)
        assert (payload.layers, payload.kv_heads, payload.head_dim, payload.value_dim) == wanted
        assert payload.capacity == 8
        whole = sum(np.zeros(given.shapes[n], given.dtypes[n]).nbytes for n in given.outputs)
        assert payload.bytes_at(8) == whole
    assert Payload.from_contract(cross).rows == 2


@pytest.mark.parametrize(
    "given",
    [
        contract({"k": (3, 2, 8, 64)}, 2),
        contract({"k": (3, 2, 8, 64), "v": (3, 2, 8, 64)}, 1),
        contract({"k": (3, 2, 8, 64), "v": (2, 2, 8, 64)}, 2),
        contract({"k": (3, 8, 96), "v": (3, 2, 8, 48)}, 1),
        contract({"k_0": (2, 2, 8, 64), "k_1": (2, 2, 8, 64), "v_0": (2, 2, 8, 64), "v_1": (2, 2, 8, 64)}, 2),
        contract({"k": (3, 8, 96), "v": (3, 8, 96)}, 1, "float64"),
    ],
)
def test_a_contract_that_is_no_pair_of_caches_is_refused(given: kvb.KVContract) -> None:
    with pytest.raises(kvb.ContractError, match="expected K and V"):
        Payload.from_contract(given)


def test_values_that_mean_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match="head_dim must be at least 1"):
        Payload(name="x", layers=1, kv_heads=1, head_dim=0)
    with pytest.raises(TypeError, match="layers must be an integer"):
        Payload(name="x", layers=True, kv_heads=1, head_dim=1)
    with pytest.raises(ValueError, match="keys must be one of"):
        Payload(name="x", layers=1, kv_heads=1, head_dim=1, keys="float8")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="rows belongs to kind 'cross'"):
        Payload(name="x", layers=1, kv_heads=1, head_dim=1, rows=3)
    with pytest.raises(ValueError, match="do not fit into capacity"):
        Payload(name="x", layers=1, kv_heads=1, head_dim=1, kind="cross", rows=3, capacity=2)
    with pytest.raises(TypeError, match="rows must be an integer"):
        PRESETS["0.6b"].bytes_at(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 0"):
        PRESETS["0.6b"].bytes_at(-1)


def test_integers_of_numpy_are_integers() -> None:
    given = Payload(name="x", layers=np.int64(2), kv_heads=np.int32(1), head_dim=np.uint8(64))  # type: ignore[arg-type]
    assert given.bytes_at(np.int64(10)) == 10 * 2 * 2 * 64 * 2  # type: ignore[arg-type]
    assert json.loads(json.dumps(given.to_dict()))["head_dim"] == 64


def test_the_document_is_json() -> None:
    found = json.loads(json.dumps(PRESETS["16-layer-v8"].to_dict()))
    assert found["bytes_per_position"] == 49280
    assert found["value_scales"] == {"dtype": "float16", "group": None}
