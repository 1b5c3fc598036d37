"""How far a decoder that was handed Core ML's cache agrees with the same decoder left alone.

    python benchmarks/tokens.py [--quick] [--json] [--model DIR [--prompt FILE]]

Random decoders of mlx-lm in float32, or the model in DIR (an unquantised Llama or Qwen3 as mlx-lm loads it, in its own
dtype) after a text or random tokens. Their prompt pass runs as a Core ML package made from the same weights, the rows
are handed over, and every step is fed the token that mlx-lm alone generated. Nothing is timed. On the simulator both of
its numeric modes stand for two devices; on a Mac the rows are the compute units. Beside them: mlx-lm's own rows rounded
to float16, the least that a float16 cache costs, and rows shifted by one (the first empty, the last lost), which is a
mistake.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

import kvbacking as kvb
import kvbacking.mlx
from kvbacking.model import ComputeUnits

STEPS = 64
ROUNDED, SHIFTED = "mlx-lm, rounded to fp16", "rows shifted by one"


@dataclass(frozen=True, slots=True)
class Case:
    """One decoder and prompts of live + 1 tokens."""

    name: str
    decoder: Any
    live: int
    prompts: list[list[int]]


def drawn(decoder: Any, live: int, count: int, seed: int) -> list[list[int]]:
    rng = np.random.default_rng(1000 + seed)
    return [[int(t) for t in rng.integers(0, decoder.args.vocab_size, live + 1)] for _ in range(count)]


def random_cases(lives: list[int], seeds: list[int], prompts: int) -> Iterator[list[Case]]:
    """Cases whose results go into one line each."""
    for family in ("llama", "qwen3"):
        decoders = [kvb.mlx.random_decoder(family, seed) for seed in seeds]
        for live in lives:
            yield [
                Case(family, decoder, live, drawn(decoder, live, prompts, seed))
                for decoder, seed in zip(decoders, seeds, strict=True)
            ]


def loaded_cases(folder: Path, text: Path | None, lives: list[int], prompts: int) -> Iterator[list[Case]]:
    from mlx_lm.utils import load_model, load_tokenizer

    decoder = load_model(folder)[0]
    words = None if text is None else load_tokenizer(folder).encode(text.read_text())
    for live in lives:
        if words is None:
            yield [Case(folder.name, decoder, live, drawn(decoder, live, prompts, 0))]
            continue
        parts = [words[i : i + live + 1] for i in range(0, len(words) - live, live + 1)][:prompts]
        if parts:
            yield [Case(folder.name, decoder, live, parts)]


@dataclass(frozen=True, slots=True)
class Side:
    """Who computes the prompt pass: a package of `dtype` on `units`, in the simulator with `numerics`."""

    name: str
    dtype: Literal["float16", "float32"]
    units: ComputeUnits
    numerics: str | None

    def load(self, path: Path) -> kvb.Model:
        with contextlib.ExitStack() as stack:
            if self.numerics is not None:
                from kvbacking import simulator

                stack.enter_context(simulator.configured(numerics=self.numerics))
            return kvb.Model.load(path, compute_units=self.units)


def sides() -> list[Side]:
    if kvb.runtime_info().kind == "simulator":
        return [
            Side("fp32 package, fp32", "float32", "cpu_only", "fp32"),
            Side("fp16 package, fp32", "float16", "cpu_only", "fp32"),
            Side("fp16 package, fp16", "float16", "all", "fp16"),
        ]
    units: tuple[ComputeUnits, ...] = ("cpu_only", "cpu_and_gpu", "cpu_and_ne", "all")
    return [
        Side("fp32 package, cpu_only", "float32", "cpu_only", None),
        *(Side(f"fp16 package, {name}", "float16", name, None) for name in units),
    ]


def new_caches(decoder: Any) -> list[Any]:
    from mlx_lm.models.cache import make_prompt_cache

    made: list[Any] = make_prompt_cache(decoder)
    return made


def own_rows(decoder: Any, prompt: list[int], spoil: str) -> list[Any]:
    """mlx-lm's own prefill, then rounded to float16 or shifted."""
    import mlx.core as mx

    filled = new_caches(decoder)
    mx.eval(decoder(mx.array([prompt[:-1]]), cache=filled))
    for cache in filled:
        rows = [cache.keys, cache.values]
        if spoil == ROUNDED:
            rows = [a.astype(mx.float16).astype(a.dtype) for a in rows]
        else:
            # A mere rotation of all rows would change nothing: attention does not see the order of rotated keys.
            rows = [mx.concatenate([mx.zeros_like(a[:, :, :1]), a[:, :, :-1]], axis=2) for a in rows]
        cache.keys, cache.values = rows
    return filled


def handed(decoder: Any, model: kvb.Model, contract: kvb.KVContract, prompt: list[int]) -> list[Any]:
    live = len(prompt) - 1
    inputs = {"input_ids": np.array([prompt[:-1]], np.int32)}
    filled = new_caches(decoder)
    with kvb.Session(model, contract, mechanism="raw") as session:
        dtype = decoder.model.norm.weight.dtype
        kvb.mlx.handoff(session.predict(inputs, live=live), filled, contract, dtype=dtype)
    return filled


def run(case: Case, folder: Path) -> dict[str, list[kvb.mlx.Agreement]]:
    """Per side, one agreement for each prompt."""
    decoder, prompts = case.decoder, case.prompts
    wanted = [kvb.mlx.reference(decoder, prompt, STEPS) for prompt in prompts]
    found: dict[str, list[kvb.mlx.Agreement]] = {}
    packages: dict[str, Any] = {}
    for side in sides():
        if side.dtype not in packages:
            packages[side.dtype] = kvb.mlx.write_prefill(
                decoder, folder / f"{side.dtype}.mlpackage", tokens=case.live, capacity=case.live + STEPS,
                dtype=side.dtype,
            )  # fmt: skip
        model = side.load(packages[side.dtype].path)
        contract = kvb.KVContract.from_model(model, **packages[side.dtype].contract)
        found[side.name] = [
            kvb.mlx.agreement(decoder, handed(decoder, model, contract, prompt), reference)
            for prompt, reference in zip(prompts, wanted, strict=True)
        ]
    for name in (ROUNDED, SHIFTED):
        found[name] = [
            kvb.mlx.agreement(decoder, own_rows(decoder, prompt, name), reference)
            for prompt, reference in zip(prompts, wanted, strict=True)
        ]
    return found


def summarise(case: Case, side: str, results: list[kvb.mlx.Agreement]) -> dict[str, Any]:
    apart = [a.max_logprob_difference for a in results]
    return {
        "decoder": case.name,
        "live": case.live,
        "prefill": side,
        "prompts": len(results),
        "steps": sum(a.steps for a in results),
        "equal": sum(a.equal for a in results),
        "rate": sum(a.equal for a in results) / sum(a.steps for a in results),
        "prompts_without_difference": sum(a.equal == a.steps for a in results),
        "median_max_logprob_difference": float(np.median(apart)),
        "max_logprob_difference": max(apart),
        "max_chosen_difference": max(a.max_chosen_difference for a in results),
        "runtime": kvb.runtime_info().kind,
        "samples": [a.to_dict() for a in results],
    }


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['decoder']:8} {row['live']:5} {row['prefill']:24} {row['equal']:6} of {row['steps']:4} "
        f"{row['prompts_without_difference']:7} of {row['prompts']:2} {row['median_max_logprob_difference']:8.2g} "
        f"{row['max_logprob_difference']:8.2g} {row['max_chosen_difference']:8.2g}",
        file=sys.stderr,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true", help="one document instead of a line each")
    parser.add_argument("--model", type=Path, metavar="DIR", help="a model that mlx-lm loads, instead of random ones")
    parser.add_argument("--prompt", type=Path, metavar="FILE", help="with --model: a text, cut into prompts")
    options = parser.parse_args()
    if options.prompt and not options.model:
        parser.error("--prompt goes with --model")
    try:
        kvb.mlx.random_decoder("llama")
    except kvb.mlx.MlxUnavailableError as error:
        print(f"tokens.py: nothing measured: {error}", file=sys.stderr)
        return 4 if options.json or not options.quick else 0  # the quick form only keeps this script from rotting
    lives, seeds, prompts = ([24], [4], 1) if options.quick else ([48, 256, 1024], [4, 5], 8)
    if options.model:
        cases = loaded_cases(options.model, options.prompt, lives, prompts)
    else:
        cases = random_cases(lives, seeds, prompts)
    print(
        f"{'decoder':8} {'live':>5} {'prefill':24} {'equal tokens':>14} {'whole prompts':>13} {'median':>8} "
        f"{'max':>8} {'chosen':>8}",
        file=sys.stderr,
    )
    rows = []
    for together in cases:
        gathered: dict[str, list[kvb.mlx.Agreement]] = {}
        for case in together:
            with tempfile.TemporaryDirectory() as scratch:
                for side, results in run(case, Path(scratch)).items():
                    gathered.setdefault(side, []).extend(results)
        for side, results in gathered.items():
            rows.append(summarise(together[0], side, results))
            show(rows[-1])
            if not options.json:
                print(json.dumps(rows[-1]), flush=True)
    if options.json:
        print(json.dumps({"steps_per_prompt": STEPS, "rows": rows}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
