"""From a report to a promoted certificate: only with an end-to-end saving and every quality gate passed."""

from __future__ import annotations

from typing import Any

from kvbacking.certificate import Certificate
from kvbacking.errors import CertificateError

from .report import Report
from .sample import END_TO_END


def promote(certificate: Certificate, report: Report) -> Certificate:
    """A "promoted" copy of `certificate`. Raises CertificateError with the reason when the report does not allow it."""
    arm = certificate.mechanism
    document = report.document
    key = certificate.key
    # The report must be about what the certificate is about, on the same machine and system.
    measured = {
        "kvbacking_version": document["kvbacking_version"],
        "runtime_kind": document["runtime"]["kind"],
        "os_build": document["runtime"].get("os_build"),
        "chip": document["runtime"].get("chip"),
        "model_fingerprint": document["model"]["fingerprint"],
        "function": document["model"]["function"],
        "compute_units": document["model"]["compute_units"],
        "contract": document["contract"],
    }
    if differing := [name for name, value in measured.items() if key[name] != value]:
        raise CertificateError(f"[promote] the report is about something else: {', '.join(differing)} differ")
    if not report.promotable(arm):
        raise CertificateError(f"[promote] {_why_not(report, arm)}")
    return certificate.promoted(summary(report, arm))


def summary(report: Report, arm: str) -> dict[str, Any]:
    """What a certificate keeps of the report it rests on."""
    document = report.document
    difference = next(d for d in document["differences"] if (d["arm"], d["interval"]) == (arm, END_TO_END))
    return {
        "saving_shown": True,
        "quality_gates_passed": True,
        "mechanism": arm,
        "model_fingerprint": document["model"]["fingerprint"],
        "created": document["created"],
        "rounds": difference["rounds"],
        "median_ns": difference["median_ns"],
        "interval_ns": [difference["low_ns"], difference["high_ns"]],
        "gates": dict(document["end_to_end"]["gates"][arm]),
    }


def _why_not(report: Report, arm: str) -> str:
    end = report.document["end_to_end"]
    if end is None:
        return "the report has no end-to-end task: a saving in one stage promotes nothing"
    if not end["gates"].get(arm):
        return f"the report has no quality gates of {arm}"
    failed = [gate for gate, passed in end["gates"][arm].items() if not passed]
    if failed:
        return f"quality gates not passed by {arm}: {', '.join(failed)}"
    word = next(
        (d["decision"] for d in report.document["decisions"] if (d["arm"], d["interval"]) == (arm, END_TO_END)), None
    )
    return f"end to end, {arm} is {word or 'not measured'!r}, not 'saving shown'"
