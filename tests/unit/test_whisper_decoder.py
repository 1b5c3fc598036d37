"""mlx-whisper's decoder on K/V from outside: which rows take part, which weights do not, and the decoding rules."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from whisper_checkpoints import MULTILINGUAL, encode, random_variables, write_checkpoint, write_model

import kvbacking as kvb
from kvbacking.mlx import address_of
from kvbacking.whisper.checkpoint import Checkpoint, CheckpointError
from kvbacking.whisper.decoder import Decoder
from kvbacking.whisper.tokens import Tokenizer

pytest.importorskip("mlx.core", reason="the whisper extra is not installed")
pytest.importorskip("tokenizers", reason="the whisper extra is not installed")
pytest.importorskip("mlx_whisper", reason="mlx-whisper is not installed (scripts/fetch-whisper --runtime)")

LIVE, CAPACITY = 20, 24


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


def make_decoder(directory: Path, **options: str) -> Decoder:
    checkpoint = Checkpoint.load(directory)
    return Decoder(checkpoint, Tokenizer(checkpoint).rules, **options)


def key_value(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    mel = np.random.default_rng(seed).standard_normal((1, 8, 2 * LIVE)).astype(np.float32)
    pair = encode(random_variables(0), mel)
    padded = [np.pad(x, ((0, 0), (0, CAPACITY - LIVE), (0, 0))).astype(np.float16) for x in pair]
    return padded[0], padded[1]


def test_rows_beyond_the_live_ones_take_no_part(directory: Path) -> None:
    decoder = make_decoder(directory)
    k, v = key_value()
    clean = decoder.decode(decoder.import_cache(k, v, LIVE), "en")
    k[:, LIVE:], v[:, LIVE:] = np.nan, np.inf
    assert decoder.decode(decoder.import_cache(k, v, LIVE), "en") == clean
    assert len(clean.tokens) > 3
    with pytest.raises(kvb.IntegrityError, match=r"logits.*finite"):
        decoder.decode(decoder.import_cache(k, v, CAPACITY), "en")


def test_the_live_rows_decide(directory: Path) -> None:
    decoder = make_decoder(directory)
    (k, v), (k2, v2) = key_value(1), key_value(2)
    first = decoder.decode(decoder.import_cache(k, v, LIVE), "en")
    assert decoder.decode(decoder.import_cache(k2, v, LIVE), "en") != first
    assert decoder.decode(decoder.import_cache(k, v2, LIVE), "en") != first
    assert decoder.decode(decoder.import_cache(k, v, LIVE), "en") == first


def test_the_decoder_does_not_project_key_and_value_itself(directory: Path, tmp_path: Path) -> None:
    k, v = key_value()
    decoder = make_decoder(directory)
    expected = decoder.decode(decoder.import_cache(k, v, LIVE), "en")
    write_checkpoint(tmp_path)
    variables = random_variables(0)
    for name, value in variables.items():
        if name.endswith("/attention/linear_1/weight") and name.startswith("decoder"):
            variables[name] = np.full_like(value, np.nan)
    write_model(tmp_path / "model.bin", variables)
    other = make_decoder(tmp_path)
    assert other.decode(other.import_cache(k, v, LIVE), "en") == expected


def test_imported_rows_are_the_bytes_that_were_given(directory: Path) -> None:
    decoder = make_decoder(directory)
    k, v = key_value()
    cache = decoder.import_cache(k, v, LIVE)
    for layer, (key, value) in enumerate(cache.source.arrays):
        assert np.array(key).tobytes() == k[layer, :LIVE].tobytes()
        assert np.array(value).tobytes() == v[layer, :LIVE].tobytes()


def test_suppressed_tokens_never_appear(directory: Path) -> None:
    checkpoint = Checkpoint.load(directory)
    rules = Tokenizer(checkpoint).rules
    assert {7, 8, rules.start, rules.no_timestamps, 51863} <= set(rules.suppressed)
    assert rules.end not in rules.suppressed
    decoder = Decoder(checkpoint, rules)
    k, v = key_value()
    free = decoder.decode(decoder.import_cache(k, v, LIVE), "en").tokens
    config = f'{{"suppress_ids": [{free[1]}], "suppress_ids_begin": [{free[0]}]}}'
    (directory / "config.json").write_text(config)
    narrowed = make_decoder(directory)
    tokens = narrowed.decode(narrowed.import_cache(k, v, LIVE), "en").tokens
    assert tokens[0] != free[0]
    assert free[1] not in tokens


def test_prompts_and_languages(tmp_path: Path) -> None:
    english = Tokenizer(Checkpoint.load(write_checkpoint(tmp_path / "en"))).rules
    assert english.prompt("en") == (50257, 50265)
    assert english.end == 50256
    with pytest.raises(ValueError, match="English-only checkpoint cannot transcribe 'de'"):
        english.prompt("de")
    checkpoint = Checkpoint.load(write_checkpoint(tmp_path / "multi", vocabulary=MULTILINGUAL))
    rules = Tokenizer(checkpoint).rules
    assert rules.prompt("de") == (50258, 50260, 50262, 50266)
    with pytest.raises(ValueError, match="'xx' is not one of de, en"):
        rules.prompt("xx")
    decoder = Decoder(checkpoint, rules)
    assert decoder.detect_language(decoder.import_cache(*key_value(), LIVE)) in ("de", "en")


def test_length_limit(directory: Path) -> None:
    decoder = make_decoder(directory)
    cache = decoder.import_cache(*key_value(), LIVE)
    assert len(decoder.decode(cache, "en", max_tokens=2).tokens) == 2
    assert len(decoder.decode(cache, "en").tokens) <= 16


def test_wrong_shapes_and_options_are_refused(directory: Path) -> None:
    decoder = make_decoder(directory)
    k, v = key_value()
    with pytest.raises(ValueError, match=r"cross_v has shape \[1, 24, 16\], expected \[2, rows, 16\]"):
        decoder.import_cache(k, v[:1], LIVE)
    with pytest.raises(ValueError, match="cross_k has 24 rows, 25 live ones are wanted"):
        decoder.import_cache(k, v, 25)
    with pytest.raises(ValueError, match="precision 'int8'"):
        make_decoder(directory, precision="int8")


def test_text_leaves_special_tokens_out(directory: Path) -> None:
    tokenizer = Tokenizer(Checkpoint.load(directory))
    assert tokenizer.text([0, 1, tokenizer.rules.end]) == "hello world"
    assert tokenizer.text([]) == ""


def test_a_tokenizer_without_whispers_tokens_is_refused(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path)
    text = (directory / "tokenizer.json").read_text().replace("<|notimestamps|>", "<|other|>")
    (directory / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"has no token <\|notimestamps\|>"):
        Tokenizer(Checkpoint.load(directory))


def test_rows_are_copied_once_where_mlx_refuses_to_adopt(directory: Path) -> None:
    decoder = make_decoder(directory)
    source = decoder.import_cache(*key_value(), LIVE).source
    assert {layer.method for layer in source.layers} == {"copied"}
    assert source.bytes_copied == 2 * 2 * LIVE * 16 * 2  # K and V of two layers, 16 halves wide


def test_adopted_rows_stay_where_they_are_through_a_whole_decode(directory: Path, adopting: None) -> None:
    rows = 512  # of 16 halves: 16 KiB a layer
    memory = [np.zeros(2 * rows * 16 + 8192, np.float16) for _ in range(2)]
    pair = []
    for flat, given in zip(memory, key_value(), strict=True):
        start = -flat.ctypes.data % 16384 // 2
        whole = flat[start : start + 2 * rows * 16].reshape(2, rows, 16)
        whole[:] = np.nan
        whole[:, :LIVE] = given[:, :LIVE]
        pair.append(whole)
    decoder = make_decoder(directory, precision="float16")
    wanted = decoder.decode(decoder.import_cache(*key_value(), LIVE), "en")
    cache = decoder.import_cache(pair[0], pair[1], LIVE)
    assert {layer.method for layer in cache.source.layers} == {"adopted"}
    assert cache.source.bytes_copied == 0
    assert decoder.decode(cache, "en") == wanted
    for layer, arrays in enumerate(cache.arrays):
        assert [address_of(a) for a in arrays] == [whole[layer].ctypes.data for whole in pair]
