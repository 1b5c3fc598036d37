"""Heavy libraries, imported where they are used and named when they are missing."""

from __future__ import annotations

import importlib
from typing import Any


def require(module: str) -> Any:
    """The module, or ImportError that says how to get it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"benches need {module.partition('.')[0]}: pip install 'kvbacking[bench]'", name=module
        ) from error
