"""How far a decoder that was handed Core ML's cache agrees with the same decoder left alone.

    python benchmarks/tokens.py [--quick]

Random decoders of mlx-lm in float32; their prompt pass runs as a Core ML package made from the same weights, the rows
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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import kvbacking as kvb
import kvbacking.mlx

STEPS = 64
# Name, dtype of the package, numerics of the simulator, compute units of a Mac.
SIDES = (
    ("fp32 package, fp32", "float32", "fp32", "cpu_only"),
    ("fp16 package, fp32", "float16", "fp32", "cpu_only"),
    ("fp16 package, fp16", "float16", "fp16", "all"),
)
ROUNDED, SHIFTED = "mlx-lm, rounded to fp16", "rows shifted by one"


@dataclass(frozen=True, slots=True)
class Case:
    family: str
    seed: int
    live: int
    prompts: int

    def draw(self, vocab: int) -> list[list[int]]:
        rng = np.random.default_rng(1000 + self.seed)
        return [[int(t) for t in rng.integers(0, vocab, self.live + 1)] for _ in range(self.prompts)]


@contextlib.contextmanager
def numerics(mode: str) -> Iterator[None]:
    """The simulator's numeric mode for models loaded inside; on a Mac nothing."""
    if kvb.runtime_info().kind != "simulator":
        yield
        return
    from kvbacking import simulator

    with simulator.configured(numerics=mode):
        yield


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
    import mlx.core as mx

    live = len(prompt) - 1
    inputs = {"input_ids": np.array([prompt[:-1]], np.int32)}
    filled = new_caches(decoder)
    with kvb.Session(model, contract, mechanism="raw") as session:
        kvb.mlx.handoff(session.predict(inputs, live=live), filled, contract, dtype=mx.float32)
    return filled


def run(case: Case, folder: Path) -> dict[str, list[kvb.mlx.Agreement]]:
    """Per side, one agreement for each prompt."""
    decoder = kvb.mlx.random_decoder(case.family, case.seed)
    prompts = case.draw(decoder.args.vocab_size)
    wanted = [kvb.mlx.reference(decoder, prompt, STEPS) for prompt in prompts]
    found: dict[str, list[kvb.mlx.Agreement]] = {}
    packages: dict[str, Any] = {}
    for name, dtype, mode, units in SIDES:
        if dtype not in packages:
            packages[dtype] = kvb.mlx.write_prefill(
                decoder, folder / f"{case.family}-{case.seed}-{case.live}-{dtype}.mlpackage", tokens=case.live,
                capacity=case.live + STEPS, dtype=dtype,
            )  # fmt: skip
        with numerics(mode):
            model = kvb.Model.load(packages[dtype].path, compute_units=units)
        contract = kvb.KVContract.from_model(model, **packages[dtype].contract)
        found[name] = [
            kvb.mlx.agreement(decoder, handed(decoder, model, contract, prompt), reference)
            for prompt, reference in zip(prompts, wanted, strict=True)
        ]
    for name in (ROUNDED, SHIFTED):
        found[name] = [
            kvb.mlx.agreement(decoder, own_rows(decoder, prompt, name), reference)
            for prompt, reference in zip(prompts, wanted, strict=True)
        ]
    return found


def summarise(family: str, live: int, side: str, results: Iterable[kvb.mlx.Agreement]) -> dict[str, Any]:
    all_of = list(results)
    apart = [a.max_logprob_difference for a in all_of]
    return {
        "family": family,
        "live": live,
        "prefill": side,
        "prompts": len(all_of),
        "steps": sum(a.steps for a in all_of),
        "equal": sum(a.equal for a in all_of),
        "rate": sum(a.equal for a in all_of) / sum(a.steps for a in all_of),
        "prompts_without_difference": sum(a.equal == a.steps for a in all_of),
        "median_max_logprob_difference": float(np.median(apart)),
        "max_logprob_difference": max(apart),
        "max_chosen_difference": max(a.max_chosen_difference for a in all_of),
        "runtime": kvb.runtime_info().kind,
        "samples": [a.to_dict() for a in all_of],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    try:
        kvb.mlx.random_decoder("llama")
    except kvb.mlx.MlxUnavailableError as error:
        print(f"tokens.py: nothing measured: {error}", file=sys.stderr)
        return 0 if quick else 1  # the quick form only keeps this script from rotting
    lives, seeds, prompts = ([24], [4], 1) if quick else ([48, 256, 1024], [4, 5], 8)
    print(
        f"{'decoder':8} {'live':>5} {'prefill':24} {'equal tokens':>14} {'whole prompts':>13} {'median':>8} "
        f"{'max':>8} {'chosen':>8}",
        file=sys.stderr,
    )
    with tempfile.TemporaryDirectory() as scratch:
        for family in ("llama", "qwen3"):
            for live in lives:
                gathered: dict[str, list[kvb.mlx.Agreement]] = {}
                for seed in seeds:
                    for side, results in run(Case(family, seed, live, prompts), Path(scratch)).items():
                        gathered.setdefault(side, []).extend(results)
                for side, results in gathered.items():
                    row = summarise(family, live, side, results)
                    print(json.dumps(row), flush=True)
                    print(
                        f"{family:8} {live:5} {side:24} {row['equal']:6} of {row['steps']:4} "
                        f"{row['prompts_without_difference']:7} of {row['prompts']:2} "
                        f"{row['median_max_logprob_difference']:8.2g} {row['max_logprob_difference']:8.2g} "
                        f"{row['max_chosen_difference']:8.2g}",
                        file=sys.stderr,
                    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
