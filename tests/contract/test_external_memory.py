"""Backings over memory that somebody else owns: used, kept alive, let go of."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import _native

pytestmark = pytest.mark.filterwarnings("always::kvbacking.BackingIgnoredWarning")


class Owner(np.ndarray):
    """An array that can be watched."""


def owned_set(contract: kvb.KVContract) -> dict[str, np.ndarray]:
    return {name: np.zeros(contract.shapes[name], contract.dtypes[name]).view(Owner) for name in contract.outputs}


def test_predictions_land_in_it(model: kvb.Model, contract: kvb.KVContract, inputs: Any) -> None:
    sets = [owned_set(contract), owned_set(contract)]
    plain = model.predict(inputs)
    with kvb.Session(model, contract, mechanism="external", storage=sets) as session:
        assert (session.mechanism, session.depth) == ("external", 2)
        prediction = session.predict(inputs)
        if prediction.path != "backing":
            pytest.skip("this framework ignores the backing")
        for name in contract.outputs:
            np.testing.assert_array_equal(prediction[name], plain[name])
            np.testing.assert_array_equal(sets[0][name], plain[name])
            assert np.shares_memory(prediction[name], sets[0][name])
            assert prediction.evidence[name].accepted is True
            assert prediction.evidence[name].mechanism == "external"


def test_the_owner_lives_as_long_as_somebody_looks(model: kvb.Model, contract: kvb.KVContract, inputs: Any) -> None:
    memory = owned_set(contract)
    watched = weakref.ref(memory["cross_k"])
    session = kvb.Session(model, contract, mechanism="external", storage=[memory])
    view = session.predict(inputs)["cross_k"]
    copy = view.copy()
    del memory
    session.close()
    del session
    gc.collect()
    np.testing.assert_array_equal(view, copy)
    assert watched() is not None
    del view
    deadline = 200
    while watched() is not None and deadline:  # the framework may hold the wrapper for about a second
        _native.live_counts()  # lets go of what native code is done with
        model.predict(inputs)
        deadline -= 1
    assert watched() is None


def test_wrong_memory_is_refused(model: kvb.Model, contract: kvb.KVContract) -> None:
    right = owned_set(contract)
    frozen = np.zeros(contract.shapes["cross_k"], np.float16)
    frozen.flags.writeable = False
    for wrong in (np.zeros((2, 36, 95), np.float16), np.zeros((2, 36, 96), np.float32), frozen, None):
        with pytest.raises((kvb.ContractError, ValueError, TypeError)):
            kvb.Session(model, contract, mechanism="external", storage=[{**right, "cross_k": wrong}])
    with pytest.raises((kvb.ContractError, ValueError), match="cross_v"):
        kvb.Session(model, contract, mechanism="external", storage=[{"cross_k": right["cross_k"]}])
    with pytest.raises(ValueError, match="depth"):
        kvb.Session(model, contract, mechanism="external", storage=[])


@pytest.mark.parametrize("memory", ["raw", "surface"])
def test_a_growable_cache_is_such_memory(
    model: kvb.Model, contract: kvb.KVContract, inputs: Any, memory: Any, settled: Callable[..., dict[str, int]]
) -> None:
    before = settled()
    cache = kvb.GrowableCache(contract, memory=memory)
    session = cache.binding(lambda storage: kvb.Session(model, contract, mechanism="external", storage=[storage]))
    prediction = session.predict(inputs)
    if prediction.path != "backing":
        pytest.skip("this framework ignores the backing")
    cache.live = contract.live
    view = prediction.live("cross_k")
    expected = view.copy()
    cache.grow(2 * cache.capacity)
    session.close()
    del session, prediction
    assert not np.shares_memory(view, cache.arrays["cross_k"])
    np.testing.assert_array_equal(view, expected)
    np.testing.assert_array_equal(cache.arrays["cross_k"][:, : contract.live], expected)
    with pytest.raises((kvb.ContractError, ValueError), match="cross_k"):  # another capacity is another contract
        kvb.Session(model, contract, mechanism="external", storage=[cache.storage])
    assert settled()["view"] == before["view"] + 1  # the old memory lives as long as somebody looks
    del view
    after = settled()
    assert after["surface"] == before["surface"] + (len(contract.outputs) if memory == "surface" else 0)
    assert {**after, "surface": 0} == {**before, "surface": 0}


@pytest.mark.parametrize("memory", ["raw", "surface"])
@pytest.mark.parametrize("verify", ["off", "scan"])
@pytest.mark.parametrize("held", ["prediction", "view"])
def test_another_session_over_the_same_memory_never_writes_what_is_still_seen(
    model: kvb.Model, contract: kvb.KVContract, inputs: Any, other_inputs: Any, memory: Any, verify: Any, held: str
) -> None:
    storage = [kvb.GrowableCache(contract, memory=memory).storage]
    with (
        kvb.Session(model, contract, mechanism="external", storage=storage, verify=verify) as first,
        kvb.Session(model, contract, mechanism="external", storage=storage, verify=verify) as second,
    ):
        prediction = first.predict(inputs)
        if prediction.path != "backing":
            pytest.skip("this framework ignores the backing")
        view = prediction["cross_v"]
        before = view.copy()
        if held == "view":
            del prediction
        else:
            del view
        with pytest.raises(kvb.BackingInUseError, match="cross_"):
            second.predict(other_inputs)
        np.testing.assert_array_equal(view if held == "view" else prediction["cross_v"], before)
        if held == "view":
            del view
        else:
            del prediction
        assert second.predict(other_inputs).path == "backing"
        assert second.stats.quarantined == 0


def test_sessions_that_write_the_same_memory_at_once_keep_out_of_each_other_s_way(
    model: kvb.Model, contract: kvb.KVContract, inputs: Any, other_inputs: Any
) -> None:
    storage = [owned_set(contract)]
    given = {"first": inputs, "second": other_inputs}
    wanted = {name: model.predict(one) for name, one in given.items()}
    failures: list[str] = []
    barrier = threading.Barrier(2)

    def work(name: str) -> None:
        with kvb.Session(model, contract, mechanism="external", storage=storage, verify="layout") as session:
            barrier.wait()
            for _ in range(50):
                try:
                    prediction = session.predict(given[name])
                except kvb.BackingInUseError:
                    continue
                except BaseException as error:
                    failures.append(f"{name}: {error!r}")
                    return
                if any(not np.array_equal(prediction[n], wanted[name][n]) for n in contract.outputs):
                    failures.append(f"{name}: another prediction's bytes")

    threads = [threading.Thread(target=work, args=(name,)) for name in given]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_lender_that_cannot_be_told_is_refused(model: kvb.Model, contract: kvb.KVContract) -> None:
    class Lender:
        def exports(self) -> list[dict[str, np.ndarray]]:
            raise AssertionError("asked for memory")

    with pytest.raises(TypeError, match="lent_to"):
        kvb.Session(model, contract, mechanism="external", storage=Lender())  # type: ignore[arg-type]
