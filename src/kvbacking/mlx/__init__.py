"""Hands K/V that Core ML wrote to MLX: imports measured by address, every cache class of mlx-lm, MLX-owned backings.

Pure Python. Importing this package imports neither mlx nor mlx-lm (the `mlx` extra); the first call does.
"""

from kvbacking.mlx.agreement import Agreement, Reference, agreement, reference
from kvbacking.mlx.arrays import AdoptionRefusedError, Imported, MlxUnavailableError, address_of, to_mlx
from kvbacking.mlx.caches import fill
from kvbacking.mlx.cross import CrossRows, cross
from kvbacking.mlx.handoff import HandoffReport, LayerHandoff, handoff
from kvbacking.mlx.owned import OwnedBackings, owned_backings
from kvbacking.mlx.prefill import write_prefill
from kvbacking.mlx.random_decoder import random_decoder

__all__ = [
    "AdoptionRefusedError", "Agreement", "CrossRows", "HandoffReport", "Imported", "LayerHandoff",
    "MlxUnavailableError", "OwnedBackings", "Reference", "address_of", "agreement", "cross", "fill", "handoff",
    "owned_backings", "random_decoder", "reference", "to_mlx", "write_prefill",
]  # fmt: skip
