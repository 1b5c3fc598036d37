"""Placement is named only when exactly one control gives the same bits."""

from __future__ import annotations

from kvbacking.measure.placement import infer

CPU = {"k": "aa", "v": "ab"}
GPU = {"k": "ba", "v": "bb"}
NE = {"k": "ca", "v": "cb"}


def test_all_arms_on_one_unit() -> None:
    result = infer({"cpu_only": CPU, "cpu_and_gpu": GPU, "cpu_and_ne": NE}, {"framework": NE, "raw": dict(NE)})
    assert result["result"] == "cpu_and_ne"


def test_a_shift_between_arms() -> None:
    result = infer({"cpu_only": CPU, "cpu_and_gpu": GPU}, {"framework": GPU, "raw": CPU})
    assert (result["result"], result["arms"]) == ("shifted", {"framework": "cpu_and_gpu", "raw": "cpu_only"})


def test_equal_controls_tell_nothing() -> None:
    result = infer({"cpu_only": CPU, "cpu_and_gpu": dict(CPU)}, {"framework": CPU, "raw": CPU})
    assert result["result"] == "unknown"
    assert "same bits" in result["why"]


def test_a_match_of_one_output_is_no_match() -> None:
    mixed = {"k": "aa", "v": "bb"}
    assert infer({"cpu_only": CPU, "cpu_and_gpu": GPU}, {"raw": mixed})["result"] == "unknown"


def test_two_controls_that_agree_make_their_arms_unknown() -> None:
    result = infer({"cpu_only": CPU, "cpu_and_gpu": dict(CPU), "cpu_and_ne": NE}, {"framework": NE, "raw": CPU})
    assert result["arms"] == {"framework": "cpu_and_ne", "raw": "unknown"}
    assert result["result"] == "unknown"


def test_without_digests_or_controls_nothing_is_known() -> None:
    assert "no digest" in infer({"cpu_only": CPU, "cpu_and_gpu": GPU}, {"raw": {"k": None, "v": None}})["why"]
    assert infer({}, {"raw": CPU})["result"] == "unknown"
    assert infer({"cpu_only": CPU}, {})["result"] == "unknown"
