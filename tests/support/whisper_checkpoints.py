"""Small random CTranslate2 Whisper checkpoints, and a NumPy float32 encoder independent of the package writer."""

from __future__ import annotations

import json
import math
import os
import struct
from pathlib import Path

import numpy as np
from scipy.special import erf

CODES = {"float32": 0, "int8": 1, "int16": 2, "int32": 3, "float16": 4}
WORDS = ["hello", "world", "good", "day"]
SPECIAL = ["endoftext", "startoftranscript", "en", "de", "translate", "transcribe", "startoflm", "startofprev"]
SPECIAL += ["nocaptions", "notimestamps"]
ENGLISH_ONLY, MULTILINGUAL = 51864, 51865


def real_checkpoint(name: str) -> Path | None:
    """The directory that scripts/fetch-whisper filled for `name`, if it did."""
    root = os.environ.get("KVBACKING_WHISPER_DIR")
    directory = (Path(root) if root else Path(__file__).parents[2] / "build" / "whisper") / name
    return directory if (directory / "model.bin").is_file() else None


def _text(value: str) -> bytes:
    raw = value.encode() + b"\0"
    return struct.pack("<H", len(raw)) + raw


def write_model(path: Path, variables: dict[str, np.ndarray], aliases: dict[str, str] | None = None) -> None:
    parts = [struct.pack("<I", 6), _text("WhisperSpec"), struct.pack("<II", 3, len(variables))]
    for name, value in variables.items():
        raw = np.ascontiguousarray(value).tobytes()
        parts += [_text(name), struct.pack("<B", value.ndim), struct.pack(f"<{value.ndim}I", *value.shape)]
        parts += [struct.pack("<BI", CODES[value.dtype.name], len(raw)), raw]
    parts.append(struct.pack("<I", len(aliases or {})))
    for alias, target in (aliases or {}).items():
        parts += [_text(alias), _text(target)]
    path.write_bytes(b"".join(parts))


def random_variables(
    seed: int = 0, *, width: int = 16, heads: int = 2, layers: int = 2, mels: int = 8, positions: int = 20,
    vocabulary: int = ENGLISH_ONLY,
) -> dict[str, np.ndarray]:  # fmt: skip
    rng = np.random.default_rng(seed)

    def draw(*shape: int, scale: float | None = None) -> np.ndarray:
        spread = scale if scale is not None else 1.0 / math.sqrt(math.prod(shape[1:]) or 1)
        return (rng.standard_normal(shape) * spread).astype(np.float16)

    found: dict[str, np.ndarray] = {}

    def linear(name: str, out: int, fan_in: int) -> None:
        found[f"{name}/weight"] = draw(out, fan_in)
        found[f"{name}/bias"] = draw(out, scale=0.3)

    def norm(name: str) -> None:
        found[f"{name}/gamma"] = (1 + draw(width, scale=0.2)).astype(np.float16)
        found[f"{name}/beta"] = draw(width, scale=0.2)

    for side in ("encoder", "decoder"):
        found[f"{side}/num_heads"] = np.array(heads, np.int16)
        norm(f"{side}/layer_norm")
        for layer in range(layers):
            prefix = f"{side}/layer_{layer}"
            norm(f"{prefix}/self_attention/layer_norm")
            linear(f"{prefix}/self_attention/linear_0", 3 * width, width)
            found[f"{prefix}/self_attention/linear_0/bias"][width : 2 * width] = 0
            linear(f"{prefix}/self_attention/linear_1", width, width)
            norm(f"{prefix}/ffn/layer_norm")
            linear(f"{prefix}/ffn/linear_0", 4 * width, width)
            linear(f"{prefix}/ffn/linear_1", width, 4 * width)
            if side == "decoder":
                norm(f"{prefix}/attention/layer_norm")
                linear(f"{prefix}/attention/linear_0", width, width)
                linear(f"{prefix}/attention/linear_1", 2 * width, width)
                found[f"{prefix}/attention/linear_1/bias"][:width] = 0
                linear(f"{prefix}/attention/linear_2", width, width)
                # Random decoders hardly listen; this one does, so that another K/V is another text.
                found[f"{prefix}/attention/linear_0/weight"] *= np.float16(3)
                found[f"{prefix}/attention/linear_2/weight"] *= np.float16(6)
    for name, fan_in in (("conv1", mels), ("conv2", width)):
        found[f"encoder/{name}/weight"] = draw(width, fan_in, 3)
        found[f"encoder/{name}/bias"] = draw(width, scale=0.3)
    found["encoder/position_encodings/encodings"] = draw(positions, width, scale=0.5)
    found["decoder/position_encodings/encodings"] = draw(32, width, scale=0.5)
    found["decoder/embeddings/weight"] = draw(vocabulary, width, scale=1.0)
    return found


def write_checkpoint(directory: Path, seed: int = 0, **sizes: int) -> Path:
    """model.bin, config.json and a tokenizer.json with a word per low id and Whisper's special tokens."""
    directory.mkdir(parents=True, exist_ok=True)
    variables = random_variables(seed, **sizes)
    write_model(directory / "model.bin", variables, {"decoder/projection/weight": "decoder/embeddings/weight"})
    special = [f"<|{name}|>" for name in SPECIAL]
    first = 50256 if len(variables["decoder/embeddings/weight"]) == ENGLISH_ONLY else 50257
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    vocabulary |= {f"w{index}": index for index in range(len(WORDS), first)}
    added = [
        {"id": first + i, "content": name, "special": True, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False}
        for i, name in enumerate(special)
    ]  # fmt: skip
    vocabulary |= {token["content"]: token["id"] for token in added}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "w4"},
    }  # fmt: skip
    (directory / "tokenizer.json").write_text(json.dumps(tokenizer))
    (directory / "config.json").write_text(json.dumps({"suppress_ids": [7, 8], "suppress_ids_begin": [2, first]}))
    return directory


def encode(variables: dict[str, np.ndarray], mel: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """cross K and V [layers, positions, width] in float32 of mel [1, mels, frames]; written from the paper."""
    v = {name: value.astype(np.float32) for name, value in variables.items()}
    width = v["encoder/conv1/weight"].shape[0]
    heads = int(v["encoder/num_heads"])

    def gelu(x: np.ndarray) -> np.ndarray:
        return x * 0.5 * (1 + erf(x / np.float32(math.sqrt(2))))

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ v[f"{name}/weight"].T + v[f"{name}/bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * v[f"{name}/gamma"] + v[f"{name}/beta"]

    def layer_count(side: str) -> int:
        return sum(name.startswith(side) and name.endswith("ffn/linear_0/bias") for name in v)

    x = mel[0].astype(np.float32)
    for name, stride in (("conv1", 1), ("conv2", 2)):
        frames = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1))), 3, axis=1)[:, ::stride]
        x = gelu(np.einsum("ock,ctk->ot", v[f"encoder/{name}/weight"], frames) + v[f"encoder/{name}/bias"][:, None])
    x = x.T + v["encoder/position_encodings/encodings"]
    for layer in range(layer_count("encoder")):
        prefix = f"encoder/layer_{layer}"
        projected = linear(norm(x, f"{prefix}/self_attention/layer_norm"), f"{prefix}/self_attention/linear_0")
        query, key, value = (
            part.reshape(-1, heads, width // heads).transpose(1, 0, 2) for part in np.split(projected, 3, axis=1)
        )
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(width // heads)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ value
        x = x + linear(mixed.transpose(1, 0, 2).reshape(x.shape), f"{prefix}/self_attention/linear_1")
        inner = gelu(linear(norm(x, f"{prefix}/ffn/layer_norm"), f"{prefix}/ffn/linear_0"))
        x = x + linear(inner, f"{prefix}/ffn/linear_1")
    x = norm(x, "encoder/layer_norm")
    both = [linear(x, f"decoder/layer_{layer}/attention/linear_1") for layer in range(layer_count("decoder"))]
    return np.stack([b[:, :width] for b in both]), np.stack([b[:, width:] for b in both])
