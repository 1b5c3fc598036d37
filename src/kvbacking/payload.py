"""How many bytes of K/V there are: per position, for so many rows, and in the parts that have no rows.

Pure arithmetic: needs no model and no MLX.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal, get_args

from kvbacking._integers import as_integer
from kvbacking.contract import DISTIL, TURBO, KVContract
from kvbacking.errors import ContractError

Item = Literal["float16", "float32", "int8", "int32"]
Kind = Literal["growing", "cross"]
ITEM_BYTES: Mapping[Item, int] = MappingProxyType({"float16": 2, "float32": 4, "int8": 1, "int32": 4})


@dataclass(frozen=True, slots=True, kw_only=True)
class Scales:
    """One scale for every `group` elements of a head's row (None: for the whole row of that head)."""

    dtype: Item = "float16"
    group: int | None = None

    def __post_init__(self) -> None:
        _item("Scales.dtype", self.dtype)
        if self.group is not None:
            object.__setattr__(self, "group", _positive("Scales.group", self.group))

    def byte_count(self, size: int) -> int:
        """Bytes of the scales of one head's row of `size` elements. Raises ValueError when groups do not divide it."""
        group = self.group or size
        if size % group:
            raise ValueError(f"Scales.group {group} does not divide a row of {size} elements")
        return size // group * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedPart:
    """State without rows (recurrent, convolution): one array of `shape` in each of `layers` layers."""

    name: str
    layers: int
    shape: tuple[int, ...]
    dtype: Item = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "layers", _positive("FixedPart.layers", self.layers))
        object.__setattr__(self, "shape", tuple(_positive("FixedPart.shape", size) for size in self.shape))
        _item("FixedPart.dtype", self.dtype)

    @property
    def byte_count(self) -> int:
        """Bytes in all layers."""
        return self.layers * math.prod(self.shape) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """The K/V of one sequence. `growing`: self-attention caches, a row per position. `cross`: `rows` read-only rows.

    K is [layers, kv_heads, rows, head_dim] (or [layers, rows, kv_heads x head_dim], which is as large), V alike with
    `value_dim` where it differs. `capacity` rows are allocated, None where that is open.
    """

    name: str
    layers: int
    kv_heads: int
    head_dim: int
    value_dim: int | None = None
    keys: Item = "float16"
    values: Item = "float16"
    key_scales: Scales | None = None
    value_scales: Scales | None = None
    kind: Kind = "growing"
    rows: int | None = None
    capacity: int | None = None
    fixed: tuple[FixedPart, ...] = ()

    def __post_init__(self) -> None:
        for field in ("layers", "kv_heads", "head_dim", "value_dim", "rows", "capacity"):
            value = getattr(self, field)
            if value is not None or field in ("layers", "kv_heads", "head_dim"):
                object.__setattr__(self, field, _positive(f"Payload.{field}", value))
        _item("Payload.keys", self.keys)
        _item("Payload.values", self.values)
        if self.kind not in get_args(Kind):
            raise ValueError(f"Payload.kind must be one of {', '.join(get_args(Kind))}, got {self.kind!r}")
        if (self.kind == "cross") != (self.rows is not None):
            raise ValueError(f"Payload.rows belongs to kind 'cross' and only to it, got {self.rows} with {self.kind!r}")
        if self.rows is not None and self.capacity is not None and self.rows > self.capacity:
            raise ValueError(f"Payload.rows {self.rows} do not fit into capacity {self.capacity}")
        _ = self.bytes_per_position  # groups of scales must divide the rows

    @property
    def bytes_per_position(self) -> int:
        """Bytes of K, V and their scales for one position, all layers."""
        return (
            self.layers
            * self.kv_heads
            * (
                _row(self.head_dim, self.keys, self.key_scales)
                + _row(self.value_dim or self.head_dim, self.values, self.value_scales)
            )
        )

    @property
    def fixed_bytes(self) -> int:
        """Bytes of the parts that have no rows."""
        return sum(part.byte_count for part in self.fixed)

    def bytes_at(self, rows: int) -> int:
        """Bytes of `rows` rows and of the fixed parts."""
        rows = as_integer("[Payload.bytes_at] rows", rows)
        if rows < 0:
            raise ValueError(f"[Payload.bytes_at] rows must be at least 0, got {rows}")
        return rows * self.bytes_per_position + self.fixed_bytes

    def to_dict(self) -> dict[str, Any]:
        """A JSON document: the fields, `bytes_per_position` and `fixed_bytes`."""
        fixed = [{**asdict(part), "shape": list(part.shape)} for part in self.fixed]
        sizes = {"bytes_per_position": self.bytes_per_position, "fixed_bytes": self.fixed_bytes}
        return {**asdict(self), "fixed": fixed, **sizes}

    @classmethod
    def from_contract(cls, contract: KVContract, name: str = "contract") -> Payload:
        """Of a contract's backed outputs: [layers, heads, capacity, size] with live rows on axis 2, K first, one pair
        or one pair per layer; or [layers, rows, width] with live rows on axis 1, which is cross K/V. Raises
        ContractError for anything else."""
        shapes = [contract.shapes[output] for output in contract.outputs]
        dtypes = [contract.dtypes[output] for output in contract.outputs]
        half = len(shapes) // 2
        forms = {(len(shape), contract.axis) for shape in shapes}
        fits = len(forms) == 1 and forms <= {(4, 2), (3, 1)} and len(shapes) == 2 * half
        fits = fits and len({*shapes[:half]}) == len({*shapes[half:]}) == 1 and len({*dtypes[:half]}) == 1
        fits = fits and len({*dtypes[half:]}) == 1 and shapes[0][:-1] == shapes[half][:-1]
        fits = fits and (half == 1 or shapes[0][0] == 1) and set(dtypes) <= set(get_args(Item))
        if not fits:
            raise ContractError(
                "[Payload.from_contract] expected K and V as [layers, heads, capacity, size] with live rows on axis 2 "
                f"or [layers, rows, width] with live rows on axis 1, all K before all V, got "
                f"{dict(contract.shapes)} {dict(contract.dtypes)} with axis {contract.axis}"
            )
        keys, values = shapes[0], shapes[half]
        cross = len(keys) == 3
        return cls(
            name=name,
            layers=keys[0] * half,
            kv_heads=1 if cross else keys[1],
            head_dim=keys[-1],
            value_dim=None if values[-1] == keys[-1] else values[-1],
            keys=_known(dtypes[0]),
            values=_known(dtypes[half]),
            kind="cross" if cross else "growing",
            rows=contract.live if cross else None,
            capacity=keys[contract.axis],
        )


def _row(size: int, dtype: Item, scales: Scales | None) -> int:
    return size * ITEM_BYTES[dtype] + (scales.byte_count(size) if scales else 0)


def _known(dtype: str) -> Item:
    return next(item for item in get_args(Item) if item == dtype)


def _item(what: str, value: object) -> None:
    if value not in get_args(Item):
        raise ValueError(f"{what} must be one of {', '.join(get_args(Item))}, got {value!r}")


def _positive(what: str, value: object) -> int:
    number = as_integer(what, value)
    if number < 1:
        raise ValueError(f"{what} must be at least 1, got {number}")
    return number


# The kv_heads x head_dim of the 16-layer example are 1024, which its 64 KiB per position imply; 4 x 256 are those for
# which one float16 scale per head and row gives the 48.125 KiB of its INT8 V.
PRESETS: Mapping[str, Payload] = MappingProxyType(
    {
        "0.6b": Payload(name="0.6b", layers=28, kv_heads=8, head_dim=128),
        "16-layer": Payload(name="16-layer", layers=16, kv_heads=4, head_dim=256),
        "16-layer-v8": Payload(
            name="16-layer-v8", layers=16, kv_heads=4, head_dim=256, values="int8", value_scales=Scales()
        ),
        "turbo": Payload.from_contract(TURBO, "turbo"),
        "distil": Payload.from_contract(DISTIL, "distil"),
    }
)
