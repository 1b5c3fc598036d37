"""Who runs when: randomised blocks from a recorded seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np


def randomised_blocks(names: Sequence[str], rounds: int, seed: int) -> Iterator[tuple[str, ...]]:
    """`rounds` tuples, each one permutation of `names`: every round runs every arm once, in an order nobody chose.

    Slow changes of the host fall on all arms of a round alike; effects of the position average out over rounds.
    """
    if rounds < 1:
        raise ValueError(f"rounds must be at least 1, not {rounds}")
    if len(set(names)) != len(names):
        raise ValueError(f"arm names must differ: {', '.join(names)}")
    rng = np.random.default_rng(seed)
    return (tuple(names[i] for i in rng.permutation(len(names))) for _ in range(rounds))
