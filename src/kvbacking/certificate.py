"""A proof written down: what was proven, on what, and a digest over it.

The digest detects a document that was edited or damaged; it is no signature and keeps nobody from writing another one.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from kvbacking.errors import CertificateError

if TYPE_CHECKING:
    from kvbacking.contract import KVContract
    from kvbacking.model import Model

Grade = Literal["proven", "promoted"]
FORMAT = "kvbacking-certificate/1"
# Mechanism and reuse mode are part of the key too, but they are what it decides, not what it is matched by.
MATCHED = (
    "kvbacking_version", "runtime_kind", "os_build", "chip", "python_sdk", "model_fingerprint", "function",
    "compute_units", "contract", "outputs",
)  # fmt: skip
KEY_FIELDS = (*MATCHED, "mechanism", "reuse")


def current_key(model: Model, contract: KVContract) -> dict[str, Any]:
    """The matched fields as they are now."""
    from kvbacking.runtime import runtime_info

    runtime = runtime_info()
    return {
        "kvbacking_version": runtime.kvbacking_version,
        "runtime_kind": runtime.kind,
        "os_build": runtime.os_build,
        "chip": runtime.chip,
        "python_sdk": runtime.python_sdk,
        "model_fingerprint": model.fingerprint,
        "function": model.function,
        "compute_units": model.compute_units,
        "contract": contract.to_dict(),
        "outputs": json.loads(json.dumps([spec.to_dict() for spec in model.outputs.values()])),
    }


def content_digest(document: Mapping[str, Any]) -> str:
    """`sha256:...` over the document without its own digest, keys sorted."""
    content = {name: value for name, value in document.items() if name != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """`grade` "proven" comes from prove(); only a bench report with a saving shown and its quality gates passed makes
    "promoted" of it. `key` says what it is valid for, `proof` and `bench` what it rests on."""

    grade: Grade
    key: Mapping[str, Any]
    issued_at: str
    proof: Mapping[str, Any]
    bench: Mapping[str, Any] | None
    digest: str

    @classmethod
    def issue(
        cls, model: Model, contract: KVContract, *, mechanism: str, reuse: str, proof: Mapping[str, Any]
    ) -> Certificate:
        """A "proven" certificate for this model, contract, machine and mechanism."""
        key = {**current_key(model, contract), "mechanism": mechanism, "reuse": reuse}
        return cls._sealed("proven", key, proof, None)

    @classmethod
    def _sealed(
        cls, grade: Grade, key: Mapping[str, Any], proof: Mapping[str, Any], bench: Mapping[str, Any] | None
    ) -> Certificate:
        document: dict[str, Any] = {
            "format": FORMAT,
            "grade": grade,
            "key": dict(key),
            "issued_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "proof": dict(proof),
            "bench": None if bench is None else dict(bench),
        }
        document["digest"] = content_digest(document)
        return cls.from_dict(document)

    def promoted(self, bench: Mapping[str, Any]) -> Certificate:
        """A "promoted" copy. `bench` is the summary of a bench report and must say `saving_shown` and
        `quality_gates_passed` true for this mechanism and model; CertificateError otherwise."""
        wanted = {
            "saving_shown": True,
            "quality_gates_passed": True,
            "mechanism": self.mechanism,
            "model_fingerprint": self.key["model_fingerprint"],
        }
        if wrong := [name for name, value in wanted.items() if bench.get(name) != value]:
            raise CertificateError(f"[Certificate.promoted] the bench summary does not allow it: {', '.join(wrong)}")
        return self._sealed("promoted", self.key, self.proof, bench)

    @property
    def mechanism(self) -> str:
        """The mechanism it speaks about."""
        return str(self.key["mechanism"])

    @property
    def reuse(self) -> Literal["same", "rewrap", "new"]:
        """The reuse mode that was found to hold."""
        value: Literal["same", "rewrap", "new"] = self.key["reuse"]
        return value

    def differences(self, model: Model, contract: KVContract) -> tuple[str, ...]:
        """Names of the key fields that are not what they were; empty when the certificate applies here. A certificate
        from the simulator never applies on Core ML: `runtime_kind` differs."""
        now = current_key(model, contract)
        return tuple(name for name in MATCHED if self.key[name] != now[name])

    def to_dict(self) -> dict[str, Any]:
        """A JSON document with its digest."""
        return {
            "format": FORMAT,
            "grade": self.grade,
            "key": dict(self.key),
            "issued_at": self.issued_at,
            "proof": dict(self.proof),
            "bench": None if self.bench is None else dict(self.bench),
            "digest": self.digest,
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it, atomically."""
        target = Path(path)
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}-")
        try:
            with os.fdopen(handle, "w") as file:
                file.write(json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n")
            os.replace(name, target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Reads it. Raises CertificateError when it is malformed or was changed after it was written."""
        try:
            document = json.loads(Path(path).read_text())
        except (OSError, ValueError, RecursionError) as error:
            raise CertificateError(f"[Certificate.load] {path}: {error}") from error
        return cls.from_dict(document)

    @classmethod
    def from_dict(cls, document: object) -> Certificate:
        """What `to_dict` wrote. Raises CertificateError."""
        if not isinstance(document, dict) or document.get("format") != FORMAT:
            raise CertificateError(f"[Certificate] not a document of format {FORMAT}")
        fields = {"format", "grade", "key", "issued_at", "proof", "bench", "digest"}
        if set(document) != fields:
            raise CertificateError(f"[Certificate] wrong fields: {sorted(set(document) ^ fields)}")
        try:
            actual = content_digest(document)
        except (TypeError, ValueError, RecursionError) as error:
            raise CertificateError(f"[Certificate] not JSON: {error}") from error
        if document["digest"] != actual:
            raise CertificateError(
                f"[Certificate] changed after it was written: digest {document['digest']}, content has {actual}",
                details={"expected": document["digest"], "actual": actual},
            )
        key = document["key"]
        if not isinstance(key, dict) or set(key) != set(KEY_FIELDS):
            raise CertificateError(f"[Certificate] the key must have exactly the fields {', '.join(KEY_FIELDS)}")
        if key["mechanism"] not in ("raw", "surface", "pool") or key["reuse"] not in ("same", "rewrap", "new"):
            raise CertificateError(
                f"[Certificate] unknown mechanism or reuse mode: {key['mechanism']!r}, {key['reuse']!r}"
            )
        if not isinstance(document["issued_at"], str) or not isinstance(document["proof"], dict):
            raise CertificateError("[Certificate] issued_at must be a string and proof an object")
        if document["bench"] is not None and not isinstance(document["bench"], dict):
            raise CertificateError("[Certificate] bench must be an object or null")
        if document["grade"] not in ("proven", "promoted"):
            raise CertificateError(f"[Certificate] unknown grade {document['grade']!r}")
        if document["grade"] == "promoted" and not document["bench"]:
            raise CertificateError("[Certificate] a promoted certificate names the bench report it rests on")
        return cls(
            grade=document["grade"],
            key=MappingProxyType(key),
            issued_at=document["issued_at"],
            proof=MappingProxyType(document["proof"]),
            bench=None if document["bench"] is None else MappingProxyType(document["bench"]),
            digest=document["digest"],
        )
