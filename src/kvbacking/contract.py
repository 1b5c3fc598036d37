"""What a caller expects of a model's outputs: names, shapes, dtypes, live length, tail rule, tolerance."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from kvbacking import _native
from kvbacking._arrays import is_plain_text
from kvbacking._integers import as_integer
from kvbacking.errors import CheckFailure, ContractError

if TYPE_CHECKING:
    from kvbacking.model import Model

Tail = Literal["zero", "any"]
_DTYPES = ("float16", "float32", "float64", "int32", "int8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Parity against the control: an element is over when `|a - b| > max_abs + max_rel * |b|`."""

    max_abs: float = 0.0
    max_rel: float = 0.0

    def __post_init__(self) -> None:
        for name in _LIMITS:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise TypeError(f"Tolerance.{name} must be a number, got {type(value).__name__}")
            if not 0 <= value <= sys.float_info.max:
                raise ValueError(f"Tolerance.{name} must be finite and not negative, got {value}")


_LIMITS = ("max_abs", "max_rel")


def _names(what: str, value: object) -> tuple[str, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise TypeError(f"KVContract.{what} must be a sequence of names, got {value!r}")
    names = tuple(value)
    if not all(isinstance(n, str) and n for n in names):
        raise TypeError(f"KVContract.{what} must hold non-empty strings, got {names!r}")
    if len(set(names)) != len(names):
        raise ValueError(f"KVContract.{what} names an entry twice: {names!r}")
    for name in names:
        if not is_plain_text(name):
            raise ValueError(f"KVContract.{what}: {name!a} cannot be a name: it holds a NUL or half a character")
    return names


def _per_output(what: str, value: object, outputs: tuple[str, ...], single: type) -> dict[str, Any]:
    """A mapping by output name; one value for all of them is spread."""
    if isinstance(value, Mapping):
        if set(value) != set(outputs):
            raise ValueError(f"KVContract.{what} names {sorted(value)}, outputs are {sorted(outputs)}")
        return {name: value[name] for name in outputs}
    if single is str and isinstance(value, (list, tuple)):
        raise TypeError(f"KVContract.{what} must be one value or a mapping by output name, got {value!r}")
    return dict.fromkeys(outputs, value)


def _shape(output: str, value: object) -> tuple[int, ...]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise TypeError(f"KVContract.shapes[{output!r}] must be a sequence of integers, got {value!r}")
    shape = tuple(as_integer(f"KVContract.shapes[{output!r}]", n) for n in value)
    if not shape or not all(0 < n < 1 << 63 for n in shape):
        raise ValueError(f"KVContract.shapes[{output!r}] must hold positive sizes of at most 63 bits, got {shape}")
    return shape


@dataclass(frozen=True, slots=True, init=False)
class KVContract:
    """Which outputs get backings and what is expected of them.

    `shapes` and `dtypes` hold one value for every output or a mapping by name. `live` counts the payload elements
    along `axis` (which may be negative); what lies beyond is the tail: bitwise zero (`tail="zero"`) or anything
    (`"any"`). `unbacked` outputs are expected, copied and returned but not proposed; with `outputs` they are the
    model's exact output-name set. `sensitive_to` names the inputs a change of which must change the outputs (None:
    all of them).
    """

    outputs: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    dtypes: Mapping[str, str]
    live: int
    axis: int
    tail: Tail
    tolerance: Tolerance
    unbacked: tuple[str, ...]
    sensitive_to: tuple[str, ...] | None
    allow_all_zero: bool

    def __init__(
        self,
        outputs: Sequence[str],
        shapes: Sequence[int] | Mapping[str, Sequence[int]],
        dtypes: str | Mapping[str, str],
        live: int,
        axis: int,
        *,
        tail: Tail = "zero",
        tolerance: Tolerance | None = None,
        unbacked: Sequence[str] = (),
        sensitive_to: Sequence[str] | None = None,
        allow_all_zero: bool = False,
    ) -> None:
        names = _names("outputs", outputs)
        if not names:
            raise ValueError("KVContract.outputs must name at least one output")
        others = _names("unbacked", unbacked)
        if both := sorted(set(names) & set(others)):
            raise ValueError(f"KVContract: {both} are in outputs and in unbacked")
        shape_of = {n: _shape(n, s) for n, s in _per_output("shapes", shapes, names, tuple).items()}
        dtype_of = _per_output("dtypes", dtypes, names, str)
        for name, dtype in dtype_of.items():
            if not isinstance(dtype, str):
                raise TypeError(f"KVContract.dtypes[{name!r}] must be a NumPy dtype name, got {dtype!r}")
            if dtype not in _DTYPES:
                raise ValueError(
                    f"KVContract.dtypes[{name!r}]: unknown dtype {dtype!a}, expected one of {', '.join(_DTYPES)}"
                )
        axis = as_integer("KVContract.axis", axis)
        live = as_integer("KVContract.live", live)
        ranks = {len(s) for s in shape_of.values()}
        if axis < 0 and len(ranks) != 1:
            raise ValueError(f"KVContract.axis {axis} is another one in each of the ranks of {dict(shape_of)}")
        if not -min(ranks) <= axis < min(ranks):
            raise ValueError(f"KVContract.axis {axis} is outside a shape of {min(ranks)} dimensions")
        axis %= min(ranks)
        for name, shape in shape_of.items():
            if not 0 < live <= shape[axis]:
                raise ValueError(f"KVContract.live must be 1 to {shape[axis]} (axis {axis} of {name!r}), got {live}")
        if tail not in ("zero", "any"):
            raise ValueError(f"KVContract.tail must be 'zero' or 'any', got {tail!r}")
        if tolerance is not None and not isinstance(tolerance, Tolerance):
            raise TypeError(f"KVContract.tolerance must be a Tolerance, got {tolerance!r}")
        if not isinstance(allow_all_zero, bool):
            raise TypeError(f"KVContract.allow_all_zero must be a bool, got {allow_all_zero!r}")
        put = object.__setattr__
        put(self, "outputs", names)
        put(self, "shapes", MappingProxyType(shape_of))
        put(self, "dtypes", MappingProxyType(dtype_of))
        put(self, "live", live)
        put(self, "axis", axis)
        put(self, "tail", tail)
        put(self, "tolerance", tolerance or Tolerance())
        put(self, "unbacked", others)
        put(self, "sensitive_to", None if sensitive_to is None else _names("sensitive_to", sensitive_to))
        put(self, "allow_all_zero", allow_all_zero)

    def __hash__(self) -> int:
        return hash((self.outputs, self.live, self.axis, self.tail, self.unbacked))

    def __reduce__(self) -> tuple[Any, ...]:
        return KVContract.from_dict, (self.to_dict(),)

    @classmethod
    def from_model(
        cls,
        model: Model,
        outputs: Sequence[str] | None = None,
        live: int | None = None,
        axis: int = 1,
        *,
        tail: Tail = "zero",
        tolerance: Tolerance | None = None,
        unbacked: Sequence[str] | None = None,
        sensitive_to: Sequence[str] | None = None,
        allow_all_zero: bool = False,
    ) -> KVContract:
        """Shapes and dtypes from the model. Default outputs: every array output of a fixed shape; `live`: the whole
        axis; `unbacked`: every other output. Raises ContractError naming every output that cannot be backed."""
        _require_model("KVContract.from_model", model)
        axis = as_integer("KVContract.axis", axis)
        if outputs is None:  # with none that can be backed, say why of each
            names = tuple(n for n, s in model.outputs.items() if s.backable) or tuple(model.outputs)
        else:
            names = _names("outputs", outputs)
        failures = []
        for name in names:
            spec = model.outputs.get(name)
            if spec is None:
                failures.append(
                    CheckFailure(
                        output=name, check="name", expected=f"one of {sorted(model.outputs)}", actual="no such output"
                    )
                )
            elif not spec.backable:
                failures.append(
                    CheckFailure(
                        output=name,
                        check="shape",
                        expected="an array output of a fixed shape and known dtype",
                        actual=spec.describe(),
                    )
                )
        if not names:
            failures.append(CheckFailure(output="*", check="name", expected="at least one output", actual="none"))
        if failures:
            raise ContractError(_summary("[KVContract.from_model]", failures), failures=failures)
        specs = {n: model.outputs[n] for n in names}
        first = specs[names[0]].shape
        if live is None:
            if axis == 1 == len(first):  # the default, and there is no such axis
                axis = 0
            live = first[axis] if -len(first) <= axis < len(first) else 1  # the constructor refuses the axis
        return cls(
            names,
            {n: s.shape for n, s in specs.items()},
            {n: str(s.dtype) for n, s in specs.items()},
            live,
            axis,
            tail=tail,
            tolerance=tolerance,
            unbacked=tuple(n for n in model.outputs if n not in specs) if unbacked is None else unbacked,
            sensitive_to=sensitive_to,
            allow_all_zero=allow_all_zero,
        )

    def mismatches(self, model: Model) -> tuple[CheckFailure, ...]:
        """Every mismatch with `model`; empty when they agree."""
        _require_model("KVContract.mismatches", model)
        found = _native.check_contract(model._native, self._to_native(model))
        return tuple(CheckFailure(output=f.output, check=f.check, expected=f.expected, actual=f.actual) for f in found)

    def check(self, model: Model) -> None:
        """Raises ContractError naming every mismatch at once."""
        if failures := self.mismatches(model):
            raise ContractError(_summary("[KVContract.check]", failures), failures=failures)

    def to_dict(self) -> dict[str, Any]:
        """A JSON document; `from_dict` reads it back."""
        return {
            "outputs": list(self.outputs),
            "shapes": {n: list(s) for n, s in self.shapes.items()},
            "dtypes": dict(self.dtypes),
            "live": self.live,
            "axis": self.axis,
            "tail": self.tail,
            "tolerance": {"max_abs": self.tolerance.max_abs, "max_rel": self.tolerance.max_rel},
            "unbacked": list(self.unbacked),
            "sensitive_to": None if self.sensitive_to is None else list(self.sensitive_to),
            "allow_all_zero": self.allow_all_zero,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> KVContract:
        """What `to_dict` wrote. Raises ValueError naming the fields that are missing or unknown, TypeError."""
        fields = ("outputs", "shapes", "dtypes", "live", "axis", "tail", "tolerance", "unbacked", "sensitive_to",
                  "allow_all_zero")  # fmt: skip
        for what, part, wanted in (
            ("KVContract", document, fields),
            ("KVContract.tolerance", document.get("tolerance", {}) if isinstance(document, Mapping) else {}, _LIMITS),
        ):
            if not isinstance(part, Mapping):
                raise TypeError(f"[KVContract.from_dict] {what} must be a mapping, got {type(part).__name__}")
            if wrong := {str(name) for name in part} ^ set(wanted):
                raise ValueError(
                    f"[KVContract.from_dict] {what}: missing or unknown fields: {', '.join(sorted(wrong))}"
                )
        return cls(**{**document, "tolerance": Tolerance(**document["tolerance"])})

    def _to_native(self, model: Model) -> _native.Contract:
        sensitive = tuple(model.inputs) if self.sensitive_to is None else self.sensitive_to
        return _native.Contract(
            outputs=[(n, self.dtypes[n], list(self.shapes[n])) for n in self.outputs],
            live=self.live,
            axis=self.axis,
            tail_zero=self.tail == "zero",
            max_abs=self.tolerance.max_abs,
            max_rel=self.tolerance.max_rel,
            unbacked=list(self.unbacked),
            sensitive_to=list(sensitive),
            allow_all_zero=self.allow_all_zero,
        )


def _require_model(place: str, model: object) -> None:
    from kvbacking.model import Model

    if not isinstance(model, Model):
        raise TypeError(f"[{place}] model must be a kvbacking.Model, got {type(model).__name__}")


def _summary(place: str, failures: Sequence[CheckFailure]) -> str:
    return f"{place} {len(failures)} mismatch{'es' if len(failures) > 1 else ''}: " + "; ".join(map(str, failures))


def _whisper(layers: int) -> KVContract:
    # fp16 accumulation over 1280 products: two correct devices differ by a few units in the last place.
    return KVContract(
        ("cross_k", "cross_v"),
        (layers, 1536, 1280),
        "float16",
        1500,
        1,
        tolerance=Tolerance(max_abs=0.02, max_rel=0.01),
    )


TURBO = _whisper(4)
DISTIL = _whisper(2)
FAMILIES: Mapping[str, KVContract] = MappingProxyType({"turbo": TURBO, "distil": DISTIL})


def family_of(model: Model) -> str | None:
    """The family whose contract `model` meets, or None."""
    return next((name for name, contract in FAMILIES.items() if not contract.mismatches(model)), None)
