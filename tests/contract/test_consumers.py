"""What docs/ownership.md says about consumers of a view, row by row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kvbacking as kvb

pytestmark = pytest.mark.filterwarnings("always::kvbacking.BackingIgnoredWarning")


@pytest.fixture
def view(open_session: Callable[..., kvb.Session], mechanism: str, inputs: Any) -> np.ndarray:
    return open_session(mechanism).predict(inputs)["cross_k"]


def test_slices_and_memoryviews_are_read_only(view: np.ndarray) -> None:
    assert not view[0, 1:].flags.writeable
    assert not np.asarray(view).flags.writeable
    assert memoryview(view).readonly
    with pytest.raises(ValueError, match="read-only"):
        np.add(view, 1, out=view)


def test_dlpack_keeps_the_flag(view: np.ndarray) -> None:
    imported = np.from_dlpack(view)
    assert not imported.flags.writeable
    assert imported.__array_interface__["data"][0] == view.__array_interface__["data"][0]
    assert imported.strides == view.strides


def test_dlpack_without_a_version_is_refused(view: np.ndarray) -> None:
    with pytest.raises(BufferError, match=r"readonly|read-only"):
        view.__dlpack__()
    assert view.__dlpack__(max_version=(1, 0)) is not None


def test_a_consumer_keeps_the_set_busy(open_session: Callable[..., kvb.Session], mechanism: str, inputs: Any) -> None:
    session = open_session(mechanism, depth=1)
    imported = np.from_dlpack(session.predict(inputs)["cross_k"])
    with pytest.raises(kvb.BackingInUseError):
        session.predict(inputs)
    assert imported.any()
    del imported
    session.predict(inputs)
