"""Hands K/V that Core ML wrote to MLX: imports measured by address, every cache class of mlx-lm, MLX-owned backings.

Pure Python. Importing this package imports neither mlx nor mlx-lm (the `mlx` extra); the first call does.
"""

from kvbacking.mlx.arrays import AdoptionRefusedError, Imported, MlxUnavailableError, address_of, to_mlx
from kvbacking.mlx.caches import fill
from kvbacking.mlx.handoff import HandoffReport, LayerHandoff, handoff
from kvbacking.mlx.owned import OwnedBackings, owned_backings

__all__ = [
    "AdoptionRefusedError", "HandoffReport", "Imported", "LayerHandoff", "MlxUnavailableError", "OwnedBackings",
    "address_of", "fill", "handoff", "owned_backings", "to_mlx",
]  # fmt: skip
