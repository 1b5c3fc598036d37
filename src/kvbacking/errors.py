"""Every exception of the package, one root, and the failed checks that some of them carry.

Native code raises these classes through one translator (`src/native/bind/errors.cpp`): the message names the place, the
output, what was expected and what came; everything a program may want to read is an attribute as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFailure:
    """One failed check. `check` is the name of the evidence field, or of what a contract compares."""

    output: str
    check: str
    expected: str
    actual: str

    def __str__(self) -> str:
        return f"{self.output}: {self.check}: expected {self.expected}, got {self.actual}"

    def to_dict(self) -> dict[str, str]:
        """The four fields as strings."""
        return asdict(self)


class KVBackingError(Exception):
    """Root of every error of this package.

    `failures` holds every failed check (contract and integrity errors), `details` everything else as name -> value.
    """

    def __init__(
        self, message: str, *, failures: Iterable[CheckFailure] = (), details: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(message)
        self.failures: tuple[CheckFailure, ...] = tuple(failures)
        self._details: dict[str, object] = dict(details or {})

    @property
    def message(self) -> str:
        """The text, as `str(error)` gives it."""
        return str(self)

    @property
    def details(self) -> Mapping[str, object]:
        """What the native side said beyond the message."""
        return MappingProxyType(self._details)

    def __getattr__(self, name: str) -> object:
        # Only reached for names that are not attributes: each detail reads as one.
        details = self.__dict__.get("_details", {})
        if name in details:
            return details[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class UnsupportedPlatformError(KVBackingError):
    """This system, or this process (a child after fork), cannot do what was asked."""


class ModelError(KVBackingError):
    """A package cannot be found, read, compiled or loaded."""


class ContractError(KVBackingError, ValueError):
    """Model, contract, inputs or backings do not fit each other; `failures` names every mismatch at once."""


class AllocationError(KVBackingError, MemoryError):
    """The system gave no memory, surface or pool buffer."""


class BackingInUseError(KVBackingError, BufferError):
    """No set is free: something still holds one (a prediction, or a view made from it); or it was let go of already."""


class BackingIgnoredError(KVBackingError):
    """A prediction succeeded but did not use a proposed backing, and the session was told to raise."""


class IntegrityError(KVBackingError):
    """The bytes that came back failed a check; `failures` names every failed check. The set is quarantined."""


class PredictionError(KVBackingError):
    """The framework refused or failed a prediction; `domain`, `code` and `description` are its NSError's, verbatim."""

    @property
    def domain(self) -> str | None:
        """Domain of the NSError, or None when there was none."""
        value = self._details.get("domain")
        return value if isinstance(value, str) else None

    @property
    def code(self) -> int | None:
        """Code of the NSError, or None when there was none."""
        value = self._details.get("code")
        return value if isinstance(value, int) else None

    @property
    def description(self) -> str | None:
        """Text of the NSError, or None when there was none."""
        value = self._details.get("description")
        return value if isinstance(value, str) else None


class CertificateError(KVBackingError):
    """A certificate is malformed, was changed after it was written, or may not be given the grade asked for."""


class BackingIgnoredWarning(UserWarning):
    """A prediction ignored a proposed backing and its bytes were copied; said once per session."""
