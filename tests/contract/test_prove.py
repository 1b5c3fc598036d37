"""The recipe on this runtime, its document, and certificates: matched field by field, tampering detected."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import samples
from kvbacking.certificate import KEY_FIELDS, MATCHED, content_digest
from kvbacking.prove import vary

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema"
QUESTIONS = ("api_available", "admissible", "used", "correct", "faster")


def validate(document: dict[str, Any], name: str) -> None:
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(document)


@pytest.fixture(scope="module")
def verdict(model: kvb.Model, contract: kvb.KVContract, small: samples.SampleInfo) -> kvb.Verdict:
    return kvb.prove(model, small.inputs(seed=1), contract, other_inputs=small.inputs(seed=2), repeats=6)


@pytest.fixture
def certificate(model: kvb.Model, contract: kvb.KVContract, verdict: kvb.Verdict) -> kvb.Certificate:
    if verdict.outcome != "proven":
        pytest.skip("no mechanism is proven here: there is nothing to certify")
    return kvb.certify(model, contract, verdict)


def summary(certificate: kvb.Certificate, **changes: Any) -> dict[str, Any]:
    facts = {"saving_shown": True, "quality_gates_passed": True, "mechanism": certificate.mechanism}
    return {**facts, "model_fingerprint": certificate.key["model_fingerprint"], **changes}


def test_every_mechanism_has_a_verdict(verdict: kvb.Verdict) -> None:
    assert [m.mechanism for m in verdict.mechanisms] == ["raw", "surface", "pool"]
    for found in verdict.mechanisms:
        assert tuple(found.answers) == QUESTIONS
        assert found.answers["api_available"].value == "yes"
        assert found.answers["faster"].value == "unknown"
        assert found.termination == "completed"
        assert found.rules
    if kvb.runtime_info().kind == "simulator":
        for found in verdict.mechanisms:
            assert found.outcome == "proven", (found.rules, found.checks)
            assert found.answers["correct"].value == "yes"
            assert not found.failures
            assert all(check.passed for check in found.checks)
        assert verdict["raw"].reuse == "same"
        assert verdict["pool"].reuse == "new"


def test_the_recipe_checked_what_it_must(verdict: kvb.Verdict) -> None:
    wanted = {"parity", "in_range", "layout_ok", "finite", "non_zero", "distinct", "digest", "tail_zero", "fresh"}
    wanted |= {"repeatable", "complete", "live_counts"}
    for found in verdict.proven:
        assert wanted <= {check.name for check in found.checks}
        assert found.predictions >= 6 + 4 + 2
        assert ("canaries_intact" in {check.name for check in found.checks}) is (found.mechanism == "raw")


def test_the_document_meets_its_schema_and_promises_nothing(verdict: kvb.Verdict) -> None:
    document = json.loads(verdict.to_json())
    validate(document, "verdict")
    text = json.dumps(document).lower()
    assert "zero-copy" not in text
    assert "zero copy" not in text
    assert document["runtime"]["deployment_target"]
    assert document["runtime"]["build_sdk"]
    if document["runtime"]["kind"] == "simulator":
        assert "simulated" in verdict.sentence
    with pytest.raises(KeyError):
        verdict["framework"]


def test_a_contract_that_does_not_fit_is_not_admissible(model: kvb.Model, small: samples.SampleInfo) -> None:
    contract = kvb.KVContract(("cross_k", "cross_v"), (2, 36, 97), "float16", 30, 1)
    verdict = kvb.prove(model, small.inputs(), contract, mechanisms=("raw",))
    validate(verdict.to_dict(), "verdict")
    assert verdict.outcome == "rejected"
    assert verdict["raw"].answers["admissible"].value == "no"
    assert verdict["raw"].rules[0].name == "reject-api-feasibility"
    assert {f.output for f in verdict["raw"].failures} == {"cross_k", "cross_v"}
    with pytest.raises(ValueError, match="not proven"):
        kvb.certify(model, contract, verdict)


def test_surfaces_are_not_admissible_for_floats(package: Callable[..., samples.SampleInfo]) -> None:
    info = package("fp32io")
    model = kvb.Model.load(info.path)
    contract = kvb.KVContract.from_model(model, **info.contract)
    verdict = kvb.prove(model, info.inputs(), contract, mechanisms=("surface",))
    assert verdict["surface"].answers["admissible"].value == "no"
    assert "loat16" in verdict["surface"].answers["admissible"].evidence


def test_a_contaminated_tail_is_named(package: Callable[..., samples.SampleInfo]) -> None:
    info = package("badtail", layers=2, width=96, rows=30, capacity=36)
    model = kvb.Model.load(info.path)
    contract = kvb.KVContract.from_model(model, **info.contract)
    verdict = kvb.prove(model, info.inputs(), contract, mechanisms=("raw",))
    assert verdict.outcome == "rejected"
    found = verdict["raw"]
    assert found.answers["correct"].value == "no"
    assert found.rules[0].name == "reject-correctness"
    assert {(f.output, f.check) for f in found.failures} == {("cross_v", "tail_zero")}
    first_dirty = 30 * 96
    assert str(first_dirty) in found.failures[0].actual
    assert "cross_v" in verdict.sentence


def test_inputs_that_change_nothing_are_stale(
    model: kvb.Model, contract: kvb.KVContract, small: samples.SampleInfo
) -> None:
    inputs = small.inputs(seed=1)
    verdict = kvb.prove(model, inputs, contract, mechanisms=("raw",), other_inputs=inputs)
    assert verdict.outcome == "rejected"
    assert {f.check for f in verdict["raw"].failures} == {"fresh"}


def test_a_hang_is_a_termination_failure(model: kvb.Model, contract: kvb.KVContract, small: samples.SampleInfo) -> None:
    """A limit that no child can meet once it runs: whatever it does then is too slow."""
    found = None
    for timeout_s in (0.4, 0.7, 1.0, 1.5, 2.2, 3.2):
        try:
            found = kvb.prove(
                model, small.inputs(), contract, mechanisms=("raw",), repeats=20_000, timeout_s=timeout_s
            )["raw"]
            break
        except kvb.UnsupportedPlatformError:  # it did not even start within the limit
            continue
    assert found is not None
    assert found.termination == "timeout"
    assert found.outcome == "rejected"
    assert found.rules[0].name == "reject-correctness"
    assert found.failures[-1].check == "termination"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mechanisms": ("framework",)}, ValueError),
        ({"mechanisms": "raw"}, ValueError),
        ({"mechanisms": ()}, ValueError),
        ({"repeats": 3}, ValueError),
        ({"repeats": 8.0}, TypeError),
        ({"timeout_s": 0}, ValueError),
    ],
)
def test_wrong_arguments(
    model: kvb.Model,
    contract: kvb.KVContract,
    small: samples.SampleInfo,
    options: dict[str, Any],
    error: type[Exception],
) -> None:
    with pytest.raises(error):
        kvb.prove(model, small.inputs(), contract, **options)


def test_wrong_inputs_are_refused_before_any_child(model: kvb.Model, contract: kvb.KVContract) -> None:
    with pytest.raises(kvb.ContractError, match="features"):
        kvb.prove(model, {}, contract)


@pytest.mark.parametrize(
    "array",
    [np.zeros((2, 3), np.float16), np.arange(6, dtype=np.int32), np.ones((1, 1), np.float32), np.zeros(4, np.int8)],
)
def test_varied_inputs_differ_and_keep_shape_and_dtype(array: np.ndarray) -> None:
    varied = vary({"x": array, "y": array}, ("x",))
    assert not np.array_equal(varied["x"], array)
    assert (varied["x"].dtype, varied["x"].shape) == (array.dtype, array.shape)
    assert varied["y"] is array


# --- certificates ---------------------------------------------------------------------------------------------------


def test_a_certificate_round_trips_and_meets_its_schema(certificate: kvb.Certificate, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    certificate.save(path)
    assert kvb.Certificate.load(path) == certificate
    assert certificate.grade == "proven"
    validate(json.loads(path.read_text()), "certificate")
    validate(certificate.promoted(summary(certificate)).to_dict(), "certificate")


def test_auto_follows_only_a_promoted_certificate(
    model: kvb.Model, contract: kvb.KVContract, certificate: kvb.Certificate, tmp_path: Path
) -> None:
    with kvb.Session(model, contract, certificate=certificate) as session:
        assert session.mechanism == "framework"
        assert "proven" in session.stats.degraded_reason
    promoted = certificate.promoted(summary(certificate))
    path = tmp_path / "c.json"
    promoted.save(path)
    with kvb.Session(model, contract, certificate=path) as session:
        assert session.mechanism == certificate.mechanism
        assert session.reuse == certificate.reuse
        assert session.stats.degraded_reason == ""


def test_a_proven_certificate_gives_an_explicit_mechanism_its_reuse_mode(
    model: kvb.Model, contract: kvb.KVContract, certificate: kvb.Certificate
) -> None:
    with kvb.Session(model, contract, mechanism=certificate.mechanism, certificate=certificate) as session:
        assert session.mechanism == certificate.mechanism
        assert session.reuse == certificate.reuse
    other = "pool" if certificate.mechanism != "pool" else "raw"
    with kvb.Session(model, contract, mechanism=other, certificate=certificate) as session:
        assert session.mechanism == "framework"
        assert "mechanism" in session.stats.degraded_reason


def resealed(certificate: kvb.Certificate, field: str, value: Any) -> kvb.Certificate:
    document = certificate.to_dict()
    document["key"][field] = value
    document["digest"] = content_digest(document)
    return kvb.Certificate.from_dict(document)


@pytest.mark.parametrize("field", MATCHED)
def test_any_differing_field_means_the_control_and_is_named(
    model: kvb.Model, contract: kvb.KVContract, certificate: kvb.Certificate, field: str
) -> None:
    other = {"contract": kvb.TURBO.to_dict(), "outputs": [], "runtime_kind": "another"}.get(field, "another")
    changed = resealed(certificate.promoted(summary(certificate)), field, other)
    assert changed.differences(model, contract) == (field,)
    with kvb.Session(model, contract, certificate=changed) as session:
        assert session.mechanism == "framework"
        assert field in session.stats.degraded_reason


def test_the_simulator_never_speaks_for_core_ml(
    model: kvb.Model, contract: kvb.KVContract, certificate: kvb.Certificate
) -> None:
    kinds = {"simulator", "coreml"}
    other = (kinds - {kvb.runtime_info().kind}).pop()
    assert resealed(certificate, "runtime_kind", other).differences(model, contract) == ("runtime_kind",)


def leaves(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(document, dict):
        return [leaf for k, v in document.items() for leaf in leaves(v, (*path, k))] or [path]
    if isinstance(document, list):
        return [leaf for i, v in enumerate(document) for leaf in leaves(v, (*path, i))] or [path]
    return [path]


def test_any_edit_is_detected(certificate: kvb.Certificate, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for leaf in leaves(certificate.to_dict()):
        document = json.loads(json.dumps(certificate.to_dict()))
        at = document
        for step in leaf[:-1]:
            at = at[step]
        at[leaf[-1]] = "changed" if at[leaf[-1]] != "changed" else "changed again"
        path.write_text(json.dumps(document))
        with pytest.raises(kvb.CertificateError):
            kvb.Certificate.load(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "kvbacking-certificate/1"}', "\x00\x01", '{"a": NaN}'])
def test_what_is_no_certificate_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(kvb.CertificateError):
        kvb.Certificate.load(path)


def test_a_missing_or_extra_key_field_is_refused(certificate: kvb.Certificate) -> None:
    for field in KEY_FIELDS:
        document = certificate.to_dict()
        del document["key"][field]
        document["digest"] = content_digest(document)
        with pytest.raises(kvb.CertificateError, match="key"):
            kvb.Certificate.from_dict(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"saving_shown": False},
        {"saving_shown": None},
        {"quality_gates_passed": False},
        {"mechanism": "another"},
        {"model_fingerprint": "sha256:0"},
    ],
)
def test_promotion_needs_a_saving_and_its_gates(certificate: kvb.Certificate, changes: dict[str, Any]) -> None:
    with pytest.raises(kvb.CertificateError, match=next(iter(changes))):
        certificate.promoted(summary(certificate, **changes))
