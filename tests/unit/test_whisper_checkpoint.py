"""The CTranslate2 reader: what it reads, and that a damaged file is an error that says where."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from whisper_checkpoints import random_variables, write_checkpoint, write_model

from kvbacking.whisper.checkpoint import Checkpoint, CheckpointError, read_variables


def test_reads_what_was_written(tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(write_checkpoint(tmp_path))
    written = random_variables(0)
    for name, value in written.items():
        assert checkpoint.variables[name].dtype == value.dtype
        np.testing.assert_array_equal(checkpoint.variables[name], value)
    np.testing.assert_array_equal(
        checkpoint.variables["decoder/projection/weight"], written["decoder/embeddings/weight"]
    )
    d = checkpoint.dimensions
    assert (d.mels, d.width, d.audio_positions, d.audio_layers, d.text_layers) == (8, 16, 20, 2, 2)
    assert (d.audio_heads, d.text_heads, d.text_positions, d.vocabulary) == (2, 2, 32, 51864)
    with pytest.raises(ValueError, match="read-only"):
        checkpoint.variables["encoder/conv1/bias"][0] = 1


def test_cross_attention_is_split_into_key_and_value(tmp_path: Path) -> None:
    checkpoint = Checkpoint.load(write_checkpoint(tmp_path))
    (key, key_bias), (value, value_bias) = checkpoint.cross_key_value(1)
    stored = random_variables(0)["decoder/layer_1/attention/linear_1/weight"].astype(np.float32)
    np.testing.assert_array_equal(np.concatenate([key, value]), stored)
    assert not key_bias.any()
    assert value_bias.all()


def test_every_truncation_is_named(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    write_model(path, {"a": np.zeros(3, np.float16), "b": np.zeros((2, 2), np.int8)}, {"c": "a"})
    whole = path.read_bytes()
    assert set(read_variables(path)) == {"a", "b", "c"}
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        with pytest.raises(CheckpointError, match=r"model\.bin: (truncated|cannot be mapped)"):
            read_variables(path)


def patched(path: Path, at: int, code: str, value: int) -> None:
    data = bytearray(path.read_bytes())
    struct.pack_into("<" + code, data, at, value)
    path.write_bytes(data)


def test_implausible_fields_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    header = 4 + 2 + len("WhisperSpec\0") + 4 + 4
    rank_at = header + 2 + len("a\0")
    cases = [
        (0, "I", 5, "format version 5, expected 6"),
        (rank_at, "B", 200, "a has rank 200"),
        (rank_at + 1, "I", 4_000_000_000, "has 6 bytes, expected 8000000000"),
        (rank_at + 5, "B", 99, "dtype code 99"),
        (header - 4, "I", 4_000_000_000, "truncated|not a terminated string"),
    ]
    for at, code, value, message in cases:
        write_model(path, {"a": np.zeros(3, np.float16)})
        patched(path, at, code, value)
        with pytest.raises(CheckpointError, match=message):
            read_variables(path)
    write_model(path, {"a": np.zeros(3, np.float16)}, {"b": "nowhere"})
    with pytest.raises(CheckpointError, match="alias b names nowhere"):
        read_variables(path)


def test_missing_and_contradicting_parts_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="not a directory"):
        Checkpoint.load(tmp_path / "nowhere")
    write_checkpoint(tmp_path)
    for name, message in (
        ("encoder/num_heads", "encoder/num_heads is missing"),
        ("decoder/layer_0/ffn/linear_0/weight", "no decoder/layer_0"),
    ):
        variables = random_variables(0)
        del variables[name]
        write_model(tmp_path / "model.bin", variables)
        with pytest.raises(CheckpointError, match=message):
            Checkpoint.load(tmp_path)
    write_model(tmp_path / "model.bin", random_variables(0) | {"encoder/num_heads": np.array(3, np.int16)})
    with pytest.raises(CheckpointError, match="width 16 is not a multiple of 3 heads"):
        Checkpoint.load(tmp_path)
    write_checkpoint(tmp_path)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(CheckpointError, match=r"config\.json: expected a JSON object"):
        Checkpoint.load(tmp_path)
