"""Layouts, names and the check of a job's arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from avdnn.backends._tensors import fits, guess_layout, matched, resized, select, shown
from avdnn.errors import InferenceError, ModelError
from avdnn.frame import Layout, TensorSpec

SPECS = (TensorSpec("x", (1, 3, -1, 4)), TensorSpec("codes", (2,), "uint8"))


@pytest.mark.parametrize(
    ("shape", "layout"),
    [
        ((1, 3, 4, 4), Layout.NCHW),
        ((1, 2, 4, 4), Layout.NCHW),
        ((1, 4, 4, 3), Layout.NHWC),
        ((1, 64, 4, 4), Layout.NHWC),
        ((-1, -1, -1, 1), Layout.NHWC),
        ((-1, -1, -1, -1), Layout.NCHW),
        ((1, 5, -1, -1), Layout.NCHW),
        ((1, 3, 4), None),
        ((), None),
    ],
)
def test_layout_goes_by_the_channels(shape: tuple[int, ...], layout: Layout | None) -> None:
    assert guess_layout(shape) is layout


def test_batch_and_size_go_where_the_layout_says() -> None:
    assert resized((1, 3, 8, 9), Layout.NCHW, 4, (5, 6)) == (4, 3, 5, 6)
    assert resized((1, 8, 9, 3), Layout.NHWC, 4, (5, 6)) == (4, 5, 6, 3)
    assert resized((1, 8, 9, 3), Layout.NHWC, 4, None) == (4, 8, 9, 3)


def test_names_fit_with_and_without_port() -> None:
    def names(tensor: str) -> list[str]:
        return [tensor, f"{tensor}/node:0"]

    def chosen(*wanted: str) -> list[str]:
        return select(
            wanted, ["a", "b"], names, kind="output", model=Path("m.onnx"), backend="onnx"
        )

    assert chosen() == ["a", "b"]
    assert chosen("b:0", "a/node") == ["b", "a"]
    with pytest.raises(ModelError, match=r"m.onnx: no output 'c'; the model has: a, b"):
        chosen("a", "c")


def test_arrays_of_a_job_are_put_in_order_and_made_contiguous() -> None:
    x = np.zeros((1, 3, 5, 8), np.float32)[..., ::2]
    codes = np.zeros(2, np.uint8)
    first, second = matched({"codes": codes, "x": x}, SPECS, "test")
    assert first.flags.c_contiguous
    assert second is codes


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"x": np.zeros((1, 3, 5, 5), np.float32)}, "x takes float32 1x3x?x4, not float32 1x3x5x5"),
        ({"x": np.zeros((3, 5, 4), np.float32)}, "not float32 3x5x4"),
        ({"x": np.zeros((1, 3, 5, 4))}, "not float64 1x3x5x4"),
        ({"y": np.zeros(1)}, "the model takes x, codes, not x, codes, y"),
    ],
)
def test_what_does_not_match_is_named(changed: dict[str, np.ndarray], told: str) -> None:
    right = {"x": np.zeros((1, 3, 5, 4), np.float32), "codes": np.zeros(2, np.uint8)}
    with pytest.raises(InferenceError) as error:
        matched(right | changed, SPECS, "test")
    assert told in str(error.value)


def test_free_dimensions_fit_any_size() -> None:
    assert fits((1, 3, 99, 4), (1, 3, -1, 4))
    assert not fits((1, 3, 99, 4), (1, 3, -1))
    assert shown((1, -1, 3)) == "1x?x3"
    assert shown(()) == "scalar"
