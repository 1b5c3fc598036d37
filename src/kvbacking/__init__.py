"""Proposes, proves and checks preallocated Core ML output memory, and shows it to Python without a copy."""

from kvbacking._version import __version__
from kvbacking.certificate import Certificate
from kvbacking.contract import DISTIL, TURBO, KVContract, Tolerance
from kvbacking.errors import (
    AllocationError,
    BackingIgnoredError,
    BackingIgnoredWarning,
    BackingInUseError,
    CertificateError,
    CheckFailure,
    ContractError,
    IntegrityError,
    KVBackingError,
    ModelError,
    PredictionError,
    UnsupportedPlatformError,
)
from kvbacking.evidence import InputEvidence, OutputEvidence
from kvbacking.growth import GrowableCache
from kvbacking.measure.bench import bench
from kvbacking.measure.compare import ComparisonRefusedError, ReportComparison, compare
from kvbacking.measure.promotion import promote
from kvbacking.measure.report import Report
from kvbacking.model import Model, State, TensorSpec
from kvbacking.prove import certify, prove
from kvbacking.runtime import RuntimeInfo, live_counts, runtime_info
from kvbacking.scan import ScanResult, scan
from kvbacking.session import Prediction, Session, SessionStats
from kvbacking.surface import Surface, page_aligned
from kvbacking.verdict import Verdict

__all__ = [
    "DISTIL", "TURBO", "AllocationError", "BackingIgnoredError", "BackingIgnoredWarning", "BackingInUseError",
    "Certificate", "CertificateError", "CheckFailure", "ComparisonRefusedError", "ContractError", "GrowableCache",
    "InputEvidence", "IntegrityError", "KVBackingError", "KVContract", "Model", "ModelError", "OutputEvidence",
    "Prediction", "PredictionError", "Report", "ReportComparison", "RuntimeInfo", "ScanResult", "Session",
    "SessionStats", "State", "Surface", "TensorSpec", "Tolerance", "UnsupportedPlatformError", "Verdict",
    "__version__", "bench", "certify", "compare", "live_counts", "page_aligned", "promote", "prove", "runtime_info",
    "scan",
]  # fmt: skip
