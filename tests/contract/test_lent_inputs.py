"""Inputs that are not copied: memory lent where it lies, and surfaces; what is refused, reported and kept alive."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb
from kvbacking import _arrays, _native, samples

pytestmark = pytest.mark.filterwarnings("always::kvbacking.BackingIgnoredWarning")
Opener = Callable[..., kvb.Session]


class Owner(np.ndarray):
    """An array that can be watched."""


def aligned(array: np.ndarray) -> np.ndarray:
    memory = kvb.page_aligned(array.shape, array.dtype.name)
    memory[...] = array
    return memory


def off_by_one(array: np.ndarray) -> np.ndarray:
    """The same values one element behind a page's beginning."""
    memory = kvb.page_aligned((array.size + 1,), array.dtype.name)
    memory[1:] = array.reshape(-1)
    return memory[1:].reshape(array.shape)


def test_aligned_memory_is_lent_and_the_report_says_where(open_session: Opener, mechanism: str, inputs: Any) -> None:
    session = open_session(mechanism)
    plain = session.predict(inputs)
    assert plain.inputs["features"].path == "copied"
    assert plain.inputs["features"].bytes_copied == inputs["features"].nbytes
    before = session.stats.input_bytes_copied
    memory = aligned(inputs["features"])
    prediction = session.predict({"features": memory}, borrow=True)
    report = prediction.inputs["features"]
    assert (report.path, report.bytes_copied, report.same_storage) == ("memory", 0, True)
    assert report.source_address == report.array_address == memory.ctypes.data
    assert report.unchanged is True
    assert session.stats.input_bytes_copied == before
    for name in plain:
        np.testing.assert_array_equal(prediction[name], plain[name])


def test_read_only_memory_can_be_lent_by_name(open_session: Opener, proposing: str, inputs: Any) -> None:
    memory = aligned(inputs["features"])
    memory.flags.writeable = False
    with open_session(proposing) as session:
        assert session.predict({"features": memory}, borrow=("features",)).inputs["features"].path == "memory"


UNFIT: dict[str, tuple[Callable[[np.ndarray], np.ndarray], str]] = {
    "unaligned": (off_by_one, "no multiple of 16384"),
    "fortran": (lambda a: np.asfortranarray(aligned(a)), "contiguous"),
    "stepped": (lambda a: aligned(np.repeat(a, 2, axis=2))[:, :, ::2], "contiguous"),
}


@pytest.mark.parametrize("form", UNFIT)
def test_what_cannot_be_lent_is_refused_with_the_reason_and_never_copied(
    open_session: Opener, mechanism: str, inputs: Any, form: str
) -> None:
    make, reason = UNFIT[form]
    given = {"features": make(inputs["features"])}
    session = open_session(mechanism)
    for borrow in (True, ("features",)):
        with pytest.raises(kvb.ContractError, match=reason) as caught:
            session.predict(given, borrow=borrow)
        assert [(f.output, f.check) for f in caught.value.failures] == [("features", "borrow")]
    assert session.stats.predictions == 0
    assert session.stats.input_bytes_copied == 0
    report = session.predict(given, borrow="auto").inputs["features"]  # asked for like this, the reason is reported
    assert report.path == "copied"
    assert reason in report.reason
    assert report.bytes_copied == inputs["features"].nbytes


def test_nonsense_is_refused(open_session: Opener, inputs: Any) -> None:
    session = open_session("raw")
    for wrong, error, text in (
        ("features", TypeError, "sequence of input names"),
        (3, TypeError, "sequence of input names"),
        ((1,), TypeError, "sequence of input names"),
        (("other",), ValueError, "other"),
    ):
        with pytest.raises(error, match=text):
            session.predict(inputs, borrow=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cast"):
        session.predict({"features": inputs["features"].astype(np.float32)}, borrow=True, cast=True)


def test_the_owner_lives_until_the_framework_let_go(
    open_session: Opener, proposing: str, model: kvb.Model, inputs: Any
) -> None:
    memory = aligned(inputs["features"]).view(Owner)
    watched = weakref.ref(memory)
    session = open_session(proposing)
    session.predict({"features": memory}, borrow=True).release()
    del memory
    gc.collect()
    for _ in range(200):  # the framework may hold the wrapper for about a second, and let go of it on its own thread
        _native.live_counts()  # lets go of what native code is done with
        if watched() is None:
            break
        model.predict(inputs)
    assert watched() is None


def test_an_mlx_array_is_lent_where_it_lies_and_its_storage_is_pinned(
    open_session: Opener, proposing: str, inputs: Any
) -> None:
    mx = pytest.importorskip("mlx.core", reason="mlx is not installed (extra mlx)", exc_type=ImportError)
    from kvbacking.mlx import address_of
    from kvbacking.mlx.arrays import aligned_zeros

    features = inputs["features"]
    array = aligned_zeros(features.shape, "float16")
    np.array(array, copy=False)[...] = features
    address = address_of(array)
    assert address % 16384 == 0
    session = open_session(proposing)
    plain = session.predict(inputs)
    prediction = session.predict({"features": array}, borrow=True)
    report = prediction.inputs["features"]
    assert (report.path, report.same_storage, report.bytes_copied) == ("memory", True, 0)
    assert report.source_address == report.array_address == address
    np.testing.assert_array_equal(prediction["cross_k"], plain["cross_k"])
    # The buffer protocol pins the object alone, whose storage an update may free. An import by DLPack pins the storage.
    lent = session.model.inputs["features"]
    given = _arrays.prepare_inputs({"features": lent}, {"features": array}, cast=False)["features"]
    array[...] = mx.zeros(features.shape, mx.float16)
    assert address_of(array) != address
    assert given.ctypes.data == address
    np.testing.assert_array_equal(given, features)
    elsewhere = mx.array(features)  # MLX's own allocations are not aligned on the CPU
    if address_of(elsewhere) % 16384:
        with pytest.raises(kvb.ContractError, match="no multiple of 16384"):
            session.predict({"features": elsewhere}, borrow=True)


def test_an_input_in_the_memory_of_a_backing_is_refused_before_anything_is_written(
    package: Callable[..., samples.SampleInfo],
) -> None:
    info = package("integers")
    model = kvb.Model.load(info.path)
    unbacked = tuple(name for name in model.outputs if name != "next_ids")
    contract = kvb.KVContract.from_model(
        model, outputs=("next_ids",), live=1, axis=0, tail="any", unbacked=unbacked, allow_all_zero=True
    )
    memory = aligned(info.inputs()["ids"])
    before = memory.copy()
    with kvb.Session(model, contract, mechanism="external", storage=[{"next_ids": memory}]) as session:
        with pytest.raises(kvb.ContractError, match="next_ids") as caught:
            session.predict({"ids": memory}, borrow=True)
        assert [(f.output, f.check) for f in caught.value.failures] == [("ids", "distinct")]
        np.testing.assert_array_equal(memory, before)
        other = aligned(before)
        np.testing.assert_array_equal(session.predict({"ids": other}, borrow=True)["next_ids"], before + 1)


@pytest.fixture
def surface(model: kvb.Model) -> kvb.Surface:
    spec = model.inputs["features"]
    return kvb.Surface(spec.shape, str(spec.dtype))


def test_a_surface_is_an_input_without_a_copy(
    open_session: Opener, mechanism: str, model: kvb.Model, inputs: Any, surface: kvb.Surface
) -> None:
    assert not surface.map(writable=False).any()
    surface.write(inputs["features"])
    assert surface.used_as_input is None
    session = open_session(mechanism)
    plain = model.predict(inputs)
    for borrow in (False, True):
        prediction = session.predict({"features": surface}, borrow=borrow)
        report = prediction.inputs["features"]
        assert (report.path, report.surface_id, report.bytes_copied) == ("surface", surface.id, 0)
        assert report.same_storage is True
        assert report.unchanged is True
        for name in plain:
            np.testing.assert_array_equal(prediction[name], plain[name])
    assert surface.used_as_input == "features"
    assert session.stats.input_bytes_copied == 0
    np.testing.assert_array_equal(model.predict({"features": surface})["cross_k"], plain["cross_k"])


def test_a_mapped_surface_is_not_used_by_a_prediction(open_session: Opener, inputs: Any, surface: kvb.Surface) -> None:
    session = open_session("raw")
    view = surface.map()
    view[...] = inputs["features"]
    part = view[:, :1]
    del view
    with pytest.raises(kvb.BackingInUseError, match=r"features.*mapped"):
        session.predict({"features": surface})
    del part
    session.predict({"features": surface})
    frozen = surface.map(writable=False)
    with pytest.raises(ValueError, match="read-only"):
        frozen[0, 0, 0] = 1


def test_a_surface_of_another_shape_or_dtype_is_refused(open_session: Opener, model: kvb.Model) -> None:
    shape = model.inputs["features"].shape
    for wrong, text in ((kvb.Surface((*shape[:-1], shape[-1] + 1)), "shape"), (kvb.Surface(shape, "int8"), "dtype")):
        for call in (open_session("raw").predict, model.predict):
            with pytest.raises(kvb.ContractError, match=text):
                call({"features": wrong})


@pytest.mark.parametrize(
    ("shape", "dtype", "error", "text"),
    [
        ((2, 3), "float32", kvb.ContractError, "float16 or int8"),
        ((0, 3), "float16", kvb.ContractError, "empty"),
        ((1 << 20, 3), "float16", kvb.ContractError, "'surface' surface_limits: .*height"),
        ((2, -3), "float16", ValueError, "sizes"),
        ((2, 3.5), "float16", TypeError, "size"),
        ("23", "float16", TypeError, "sequence"),
    ],
)
def test_what_is_no_surface_says_why(shape: Any, dtype: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        kvb.Surface(shape, dtype)


def owned_surfaces(contract: kvb.KVContract) -> dict[str, kvb.Surface]:
    return {name: kvb.Surface(contract.shapes[name], contract.dtypes[name]) for name in contract.outputs}


def test_surfaces_of_the_caller_s_own_are_backings(model: kvb.Model, contract: kvb.KVContract, inputs: Any) -> None:
    surfaces = owned_surfaces(contract)
    plain = model.predict(inputs)
    with kvb.Session(model, contract, mechanism="external", storage=[surfaces]) as session:
        for _ in range(3):
            prediction = session.predict(inputs)
            if prediction.path != "backing":
                pytest.skip("this framework ignores the backing")
            for name in contract.outputs:
                assert prediction.evidence[name].same_storage is True
                np.testing.assert_array_equal(prediction[name], plain[name])
            prediction.release()
            for name in contract.outputs:
                np.testing.assert_array_equal(surfaces[name].map(writable=False), plain[name])
        kept = surfaces["cross_k"].map()
        with pytest.raises(kvb.BackingInUseError, match=r"cross_k.*mapped"):
            session.predict(inputs)
        del kept
        session.predict(inputs)
    same = dict.fromkeys(contract.outputs, surfaces["cross_k"])
    with pytest.raises(kvb.ContractError, match="shared with cross_k"):
        kvb.Session(model, contract, mechanism="external", storage=[same])


def chain(package: Callable[..., samples.SampleInfo]) -> tuple[kvb.Model, kvb.KVContract, samples.SampleInfo]:
    """A model one of whose inputs has the shape and dtype of one of its outputs."""
    info = package("stateful")
    model = kvb.Model.load(info.path)
    assert model.inputs["hidden"].shape == model.outputs["step"].shape
    unbacked = tuple(name for name in model.outputs if name != "step")
    return (
        model,
        kvb.KVContract.from_model(model, outputs=("step",), live=1, axis=1, tail="any", unbacked=unbacked),
        info,
    )


@pytest.mark.skipif(
    "not __import__('kvbacking').runtime_info().supports_state", reason="the sample needs MLState (macOS 15)"
)
def test_a_surface_that_was_an_input_is_refused_as_a_backing_unless_allowed(
    package: Callable[..., samples.SampleInfo],
) -> None:
    model, contract, info = chain(package)
    given = info.inputs(seed=3)
    surfaces = owned_surfaces(contract)
    with kvb.Session(model, contract, mechanism="external", storage=[surfaces]) as session:
        session.predict(given).release()
        with pytest.raises(kvb.ContractError, match=r"'hidden'.*shared.*'step'"):  # it would overwrite what it reads
            session.predict({**given, "hidden": surfaces["step"]})
        model.predict({**given, "hidden": surfaces["step"]})
        with pytest.raises(kvb.ContractError, match=r"'step'.*never an input.*'hidden'") as caught:
            session.predict(given)
        assert [(f.output, f.check) for f in caught.value.failures] == [("step", "input_surface")]
    with pytest.raises(kvb.ContractError, match="never an input"):
        kvb.Session(model, contract, mechanism="external", storage=[surfaces])
    plain = model.predict(given)
    with kvb.Session(model, contract, mechanism="external", storage=[surfaces], allow_input_surfaces=True) as session:
        prediction = session.predict(given)
        if prediction.path != "backing":
            pytest.skip("this framework ignores such a backing")
        np.testing.assert_array_equal(prediction["step"], plain["step"])
    with pytest.raises(TypeError, match="bool"):
        kvb.Session(model, contract, mechanism="external", storage=[surfaces], allow_input_surfaces=1)  # type: ignore[arg-type]


def test_surfaces_are_counted_and_go_with_their_last_user(
    open_session: Opener, inputs: Any, surface: kvb.Surface, settled: Callable[..., dict[str, int]]
) -> None:
    session = open_session("raw")
    session.predict(inputs).release()
    before = settled()
    other = kvb.Surface(surface.shape, surface.dtype)
    other.write(inputs["features"])
    assert _native.live_counts()["surface"] == before["surface"] + 1
    session.predict({"features": other}).release()
    view = other.map()
    del other
    np.testing.assert_array_equal(view, inputs["features"])
    del view
    assert settled(before) == before


class Once:
    """Gives its memory away a single time, as a DLPack capsule is consumed."""

    def __init__(self, array: np.ndarray) -> None:
        self.array: np.ndarray | None = array

    def __dlpack__(self, **options: Any) -> Any:
        array, self.array = self.array, None
        if array is None:
            raise BufferError("consumed")
        return array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)


@pytest.mark.parametrize("borrow", [True, "auto", ("features",)])
def test_an_exporter_is_asked_for_its_memory_once(open_session: Opener, inputs: Any, borrow: Any) -> None:
    given = Once(aligned(inputs["features"]))
    assert open_session("raw").predict({"features": given}, borrow=borrow).inputs["features"].path == "memory"
    assert given.array is None


def test_a_copy_made_on_the_way_is_never_called_lent(
    open_session: Opener, inputs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(np, "ascontiguousarray", aligned)  # where a copy might lie by chance
    fields = np.zeros(inputs["features"].shape, np.dtype([("value", "<f2"), ("other", "u1")]))
    fields["value"] = inputs["features"]
    session = open_session("raw")
    report = session.predict({"features": fields["value"]}, borrow="auto").inputs["features"]
    assert (report.path, report.bytes_copied) == ("copied", inputs["features"].nbytes)
    with pytest.raises(kvb.ContractError, match="not contiguous"):
        session.predict({"features": fields["value"]}, borrow=True)


def test_a_surface_has_this_machine_s_byte_order() -> None:
    with pytest.raises(ValueError, match="byte order"):
        kvb.Surface((2, 3), np.dtype(np.float16).newbyteorder())  # type: ignore[arg-type]
