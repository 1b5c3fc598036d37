"""Propose, predict, prove, fall back: sets of backings over one model and one contract."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Protocol, Self, get_args

import numpy as np

from kvbacking import _native
from kvbacking._arrays import AnyArray, Surfaces, borrowed_names, prepare_inputs
from kvbacking._integers import as_integer
from kvbacking.certificate import Certificate
from kvbacking.contract import KVContract
from kvbacking.errors import BackingIgnoredWarning
from kvbacking.evidence import InputEvidence, OutputEvidence
from kvbacking.model import Model, State, native_state
from kvbacking.surface import Surface

Mechanism = Literal["auto", "framework", "raw", "surface", "pool", "external"]
Reuse = Literal["same", "rewrap", "new"]
Verify = Literal["off", "layout", "scan", "full"]
OnIgnored = Literal["copy", "raise"]
Path = Literal["backing", "copy", "framework"]
Borrow = bool | Literal["auto"] | Sequence[str]

DISABLE_VARIABLE = "KVBACKING_DISABLE_BACKINGS"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStats:
    """Counters since the session was made; bytes are bytes. `degraded_reason` says why the session runs the control
    although a mechanism was asked for (empty while it does not)."""

    predictions: int
    proposed: int
    accepted: int
    ignored: int
    copied: int
    failed: int
    bytes_copied: int
    input_bytes_copied: int
    input_buffers_created: int
    sets_created: int
    quarantined: int
    backing_in_use: int
    degraded_reason: str

    def to_dict(self) -> dict[str, Any]:
        """A JSON document."""
        return asdict(self)


_STATS_FIELDS = tuple(f.name for f in fields(SessionStats))


class Prediction(Mapping[str, np.ndarray]):
    """The outputs of one prediction by name. It keeps its set busy until release() or its end; so does every view."""

    __slots__ = ("__weakref__", "_axis", "_backed", "_evidence", "_names", "_native")

    def __init__(self, native: _native.Prediction, contract: KVContract) -> None:
        self._native = native
        self._names = contract.outputs + contract.unbacked
        self._backed = contract.outputs
        self._axis = contract.axis
        self._evidence: Mapping[str, OutputEvidence] | None = None

    def __getitem__(self, name: str) -> np.ndarray:
        """A read-only view of the output. Never copies. Raises KeyError, and BackingInUseError after release()."""
        if name not in self._names:
            raise KeyError(name)
        return self._native.view(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def live(self, name: str) -> np.ndarray:
        """A read-only view of the live rows only. Never copies. Raises KeyError for an output that is not backed."""
        if name not in self._backed:
            raise KeyError(name)
        view = self[name]
        return view[(slice(None),) * self._axis + (slice(0, self._native.live),)]

    @property
    def path(self) -> Path:
        """`backing`: proposed and accepted; `copy`: proposed, ignored, copied; `framework`: the control."""
        return self._native.path

    @property
    def evidence(self) -> Mapping[str, OutputEvidence]:
        """What is known about each output."""
        if self._evidence is None:
            records = self._native.evidence()
            self._evidence = MappingProxyType({r.name: OutputEvidence._from_native(r) for r in records})
        return self._evidence

    @property
    def inputs(self) -> Mapping[str, InputEvidence]:
        """How each input reached the framework: copied, lent, or as a surface."""
        return MappingProxyType({r.name: InputEvidence._from_native(r) for r in self._native.inputs()})

    @property
    def live_count(self) -> int:
        """Live elements along the contract's axis in this prediction."""
        return self._native.live

    @property
    def predict_ns(self) -> int:
        """Nanoseconds of the framework's call alone."""
        return self._native.predict_ns

    @property
    def verify_ns(self) -> int:
        """Nanoseconds of the checks."""
        return self._native.verify_ns

    @property
    def copy_ns(self) -> int:
        """Nanoseconds of the checked copy (0 on the backing path without unbacked outputs)."""
        return self._native.copy_ns

    def release(self) -> None:
        """Lets go of the set. Views made before stay valid and keep it busy; later access raises. Idempotent."""
        self._native.release()

    @property
    def released(self) -> bool:
        """Whether release() was called."""
        return self._native.released

    def __repr__(self) -> str:
        return f"Prediction({', '.join(self._names)}; path={self.path!r})"


class Lender(Protocol):
    """Memory that somebody else owns and wants to know who may write (`kvbacking.mlx.OwnedBackings`)."""

    def exports(self) -> Sequence[Mapping[str, AnyArray | Surface]]:
        """One mapping from output name to a writable array or a Surface per set."""

    def lent_to(self, session: Session) -> None:
        """Told once the session proposes that memory."""


class Session:
    """Owns `depth` sets of backings (2 by default) for one model and one contract.

    A set is busy while a prediction runs into it, or its Prediction, or any view made from it, lives; with no free set
    predict() raises BackingInUseError at once. `reuse` concerns surfaces (None: what the certificate says, else "new").
    `storage` goes with mechanism "external": memory somebody else owns, one mapping from output name to a writable
    array or a Surface per set, whose number is the depth. Its owners are kept until the last wrapper, view and the
    session are gone. A Surface that has been an input is refused, here and in predict, because some report that it
    stays locked; `allow_input_surfaces=True` proposes it all the same.
    Raises ContractError naming every mismatch, AllocationError, CertificateError for a certificate that was changed.
    """

    __slots__ = (
        "__weakref__", "_native", "_reason", "_warned", "contract", "depth", "mechanism", "model", "on_ignored",
        "reuse", "verify",
    )  # fmt: skip

    def __init__(
        self,
        model: Model,
        contract: KVContract,
        *,
        mechanism: Mechanism = "auto",
        depth: int | None = None,
        on_ignored: OnIgnored = "copy",
        verify: Verify = "scan",
        reuse: Reuse | None = None,
        certificate: Certificate | str | os.PathLike[str] | None = None,
        storage: Sequence[Mapping[str, AnyArray | Surface]] | Lender | None = None,
        allow_input_surfaces: bool = False,
    ) -> None:
        _check_choice("mechanism", mechanism, Mechanism)
        if not isinstance(allow_input_surfaces, bool):
            raise TypeError(f"allow_input_surfaces must be a bool, got {type(allow_input_surfaces).__name__}")
        if not isinstance(model, Model):
            raise TypeError(f"model must be a kvbacking.Model, got {type(model).__name__}")
        if not isinstance(contract, KVContract):
            raise TypeError(f"contract must be a kvbacking.KVContract, got {type(contract).__name__}")
        if depth is not None:
            depth = as_integer("depth", depth)
        if (storage is not None) != (mechanism == "external"):
            raise ValueError(f"storage= goes with mechanism 'external' and only with it, got mechanism {mechanism!r}")
        external = _storage_sets(storage, contract, depth) if storage is not None else ()
        depth = len(external) or (2 if depth is None else depth)
        if not 1 <= depth <= 64:
            raise ValueError(f"depth must be 1 to 64, got {depth}")
        _check_choice("on_ignored", on_ignored, OnIgnored)
        _check_choice("verify", verify, Verify)
        if reuse is not None:
            _check_choice("reuse", reuse, Reuse)
        if certificate is not None and not isinstance(certificate, Certificate):
            certificate = Certificate.load(certificate)
        chosen, reuse, self._reason = _resolve(model, contract, mechanism, reuse, certificate)
        self.model = model
        self.contract = contract
        self.mechanism = chosen
        self.depth = depth
        self.on_ignored = on_ignored
        self.verify = verify
        self.reuse = reuse
        self._warned = False
        self._native = _native.Session.create(
            model._native,
            contract._to_native(model),
            mechanism=getattr(_native.Mechanism, chosen),
            depth=depth,
            on_ignored=_native.OnIgnored.error if on_ignored == "raise" else _native.OnIgnored.copy,
            verify=getattr(_native.Verify, verify),
            reuse=getattr(_native.Reuse, reuse),
            external=[_native_set(entry) for entry in external] if chosen == "external" else [],
            allow_input_surfaces=allow_input_surfaces,
        )
        if storage is not None and not isinstance(storage, Sequence):
            storage.lent_to(self)

    def predict(
        self,
        inputs: Mapping[str, AnyArray | Surface],
        *,
        live: int | None = None,
        cast: bool = False,
        state: State | None = None,
        borrow: Borrow = False,
    ) -> Prediction:
        """One prediction into a free set, checked as `verify` says. Copies the inputs, never the accepted outputs.

        `live` overrides the contract's live length for this call. `borrow` lends inputs to the framework where they
        lie: True all of them, names those, "auto" what can be; a Surface is never copied. Lent memory is contiguous, at
        a multiple of 16384 bytes, kept until the framework let go of it (it may hold an input for about a second), and
        must not be written before predict returned: with `verify` from "scan" its digest is taken before and after,
        which is an IntegrityError when they differ. Raises ContractError naming every input that is wrong or cannot be
        lent, BackingInUseError, PredictionError, BackingIgnoredError, IntegrityError.
        """
        return self._predict(inputs, live, cast, state, None, borrow)

    def _predict(
        self,
        inputs: Mapping[str, AnyArray | Surface],
        live: int | None,
        cast: bool,
        state: State | None,
        fill_byte: int | None,
        borrow: Borrow = False,
    ) -> Prediction:
        if live is not None:
            live = as_integer("live", live, "an integer or None")
            if not -(1 << 63) <= live < 1 << 63:
                raise ValueError(f"live must be 0 to the length of axis {self.contract.axis}, got {live}")
        surfaces: Surfaces = {}
        rearranged: set[str] = set()
        prepared = prepare_inputs(self.model.inputs, inputs, cast, surfaces, rearranged)
        names: list[str] = []
        required = True
        if borrow is not False:
            names, required = borrowed_names(prepared, surfaces, rearranged, borrow, cast)
        native = self._native.predict(
            {**prepared, **surfaces},
            live=live,
            fill_byte=fill_byte,
            state=native_state(state),
            borrow=names,
            borrow_required=required,
        )
        prediction = Prediction(native, self.contract)
        if not self._warned and native.path == "copy":
            self._warned = True
            names = [n for n, e in prediction.evidence.items() if e.proposed and not e.accepted]
            warnings.warn(
                f"[Session.predict] the framework ignored the {self.mechanism} backing of {', '.join(names)}; its "
                "bytes were copied instead (said once per session; session.stats counts)",
                BackingIgnoredWarning,
                stacklevel=3,
            )
        return prediction

    @property
    def stats(self) -> SessionStats:
        """Counters so far."""
        native = self._native.stats()
        stats = SessionStats(**{name: getattr(native, name) for name in _STATS_FIELDS})
        if self._reason and not stats.degraded_reason:
            stats = replace(stats, degraded_reason=self._reason)
        return stats

    def close(self) -> None:
        """Idempotent, and safe with live predictions and views: they stay valid. Later predictions raise."""
        self._native.close()

    @property
    def closed(self) -> bool:
        """Whether close() was called."""
        return self._native.closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self.closed else "open"
        return f"Session({self.model.path.name!r}, mechanism={self.mechanism!r}, depth={self.depth}, {state})"


def _native_set(entry: Mapping[str, AnyArray | Surface]) -> list[tuple[str, Any]]:
    return [(name, value._native if isinstance(value, Surface) else value) for name, value in entry.items()]


def _check_choice(name: str, value: object, choices: Any) -> None:
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {get_args(choices)}, got {value!r}")


def _storage_sets(
    storage: object, contract: KVContract, depth: int | None
) -> Sequence[Mapping[str, AnyArray | Surface]]:
    exports = getattr(storage, "exports", None)
    if callable(exports) and not callable(getattr(storage, "lent_to", None)):
        raise TypeError(f"storage of type {type(storage).__name__} has exports() and no lent_to()")
    sets = exports() if callable(exports) else storage
    if isinstance(sets, (str, bytes)) or not isinstance(sets, Sequence):
        raise TypeError(f"storage must be a sequence of mappings or lend them, got {type(storage).__name__}")
    if not sets:
        raise ValueError("storage must hold at least one mapping from output name to array: their number is the depth")
    if depth not in (None, len(sets)):
        raise ValueError(f"storage holds {len(sets)} sets, depth is {depth}: leave depth out")
    for index, entry in enumerate(sets):
        if not isinstance(entry, Mapping) or not all(isinstance(name, str) for name in entry):
            raise TypeError(f"storage[{index}] must be a mapping from output name to array, got {type(entry).__name__}")
        if unknown := sorted(set(entry) - set(contract.outputs)):
            raise ValueError(f"storage[{index}] names {unknown}, the contract backs {list(contract.outputs)}")
    return sets


def _resolve(
    model: Model, contract: KVContract, mechanism: str, reuse: Reuse | None, certificate: Certificate | None
) -> tuple[str, Reuse, str]:
    """(mechanism, reuse mode, why the control is used although something else was asked for)."""
    wanted = mechanism
    if os.environ.get(DISABLE_VARIABLE) == "1":
        return "framework", "new", f"{DISABLE_VARIABLE}=1" if wanted != "framework" else ""
    if wanted == "framework":
        return "framework", "new", ""
    if certificate is None:
        if wanted == "auto":
            return "framework", "new", "mechanism auto without a certificate"
        return wanted, reuse or "new", ""
    differing = certificate.differences(model, contract)
    if wanted not in ("auto", certificate.mechanism):
        differing = (*differing, "mechanism")
    if differing:
        return "framework", "new", f"the certificate does not match: {', '.join(differing)}"
    if wanted == "auto" and certificate.grade != "promoted":
        return "framework", "new", f"the certificate is {certificate.grade}, auto follows only promoted ones"
    return certificate.mechanism, reuse or certificate.reuse, ""
