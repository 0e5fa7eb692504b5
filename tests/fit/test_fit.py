"""Models of fixed size on frames of other sizes: padded, tiled, scaled, or refused."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends, models
from avdnn.backends import Options
from avdnn.backends import _native_model as nm
from avdnn.backends._native_file import write
from avdnn.errors import InferenceError, ModelError
from avdnn.fit import Fit, Fitted, fitted
from avdnn.frame import Layout

from ..conftest import require_module
from .networks import Fake, blur, double, loader, pyramid, reshaping, upscaler

HALF_LSB = 0.5 / 255


def picture(height: int, width: int, channels: int = 3, seed: int = 0) -> Any:
    return np.random.default_rng(seed).random((1, channels, height, width), np.float32)


def run(made: Fitted, array: Any) -> Any:
    try:
        return made.backend.infer_async({"x": array}).result(60)["y"]
    finally:
        made.backend.close()


def fit_to(load: Any, height: int, width: int, **rest: Any) -> Fitted:
    options = Options(size=(height, width), batch_size=rest.pop("batch_size", 1))
    return fitted(load, options, **rest)


def whole(function: Any, array: Any) -> Any:
    """What the same model gives without fitting."""
    return Fake(function)._run(array)["y"]


# ---- as it is, reshape -------------------------------------------------------------------------


def test_model_of_free_size_is_left_alone() -> None:
    load = loader(upscaler)
    made = fit_to(load, 100, 75)
    assert made.plan.how is None
    assert made.backend is load.made[0]
    assert str(made.plan) == "frames of 75x100 go in as they are"


def test_model_of_the_frame_size_is_left_alone() -> None:
    made = fit_to(loader(upscaler, (100, 75)), 100, 75)
    assert made.plan.how is None


def test_runtime_that_reshapes_is_left_alone() -> None:
    made = fit_to(reshaping(upscaler), 100, 75)
    assert made.plan.how is None
    assert run(made, picture(100, 75)).shape == (1, 3, 200, 150)


def test_reshaped_model_says_what_it_was_made_for(tmp_path: Path) -> None:
    path = tmp_path / "fixed.model"
    write(path, nm.model([nm.Maximum("x", "y", 0.5)], {"x": (1, 64, 48, 1)}))
    made = fit_to(lambda options: backends.load("native", path, options), 20, 30)
    made.backend.close()
    assert str(made.plan) == "the model is reshaped to frames of 30x20 (made for 48x64)"


@pytest.mark.parametrize("backend", ["native", "openvino", "onnx"])
def test_backend_that_reshapes_does_not_where_another_way_is_asked(
    tmp_path: Path, backend: str
) -> None:
    if backend == "native":
        path = tmp_path / "fixed.model"
        write(path, nm.model([nm.Maximum("x", "y", 0.5)], {"x": (1, 64, 64, 1)}))
    else:
        require_module(backend)
        path = onnx_network(tmp_path / "fixed.onnx", 64, 64)

    def load(options: Options) -> Any:
        return backends.load(backend, path, options)

    with pytest.raises(ModelError, match=r"takes pictures of 64x64, the frames are 75x100"):
        fit_to(load, 100, 75, channels=1, fit=Fit.ERROR)
    made = fit_to(load, 100, 75, channels=1, fit=Fit.SCALE)
    made.backend.close()
    assert made.plan.how is Fit.SCALE
    made = fit_to(load, 50, 60, channels=1, fit=Fit.PAD)
    made.backend.close()
    assert str(made.plan).startswith("frames of 60x50 are padded to 64x64 and cropped back")
    with pytest.raises(ModelError, match=r"64x64, smaller than the frames of 75x100: fit=pad"):
        fit_to(load, 100, 75, channels=1, fit=Fit.PAD)
    for height, width in ((100, 75), (50, 60)):
        made = fit_to(load, height, width, channels=1, fit=Fit.TILE)
        made.backend.close()
        assert str(made.plan.model) == "64x64"
    assert fit_to(load, 64, 64, channels=1, fit=Fit.ERROR).plan.how is None


def test_reshape_that_is_not_possible_is_an_error() -> None:
    load = loader(upscaler, (64, 64))
    with pytest.raises(ModelError, match=r"takes pictures of 64x64 and cannot be reshaped"):
        fit_to(load, 100, 75, fit=Fit.RESHAPE)
    assert load.made[0].closed == 1


def test_error_lists_the_ways_out() -> None:
    with pytest.raises(ModelError) as error:
        fit_to(loader(upscaler, (64, 64)), 100, 75, fit=Fit.ERROR, title="net.onnx")
    text = str(error.value)
    assert text.startswith("net.onnx takes pictures of 64x64, the frames are 75x100: ")
    for way in ("auto", "pad", "tile", "scale"):
        assert way in text


# ---- pad ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [1, 2, 3])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("load", [loader, reshaping])
def test_model_of_a_multiple_is_padded_and_cropped(levels: int, strict: bool, load: Any) -> None:
    function = pyramid(levels, strict=strict)
    frame = picture(50, 75)
    made = fit_to(load(function), 50, 75)
    multiple = 2**levels
    height, width = (-(-side // multiple) * multiple for side in (50, 75))
    assert made.plan.how is Fit.PAD
    assert f"multiple of {multiple}" in str(made.plan)
    padded = np.pad(frame, ((0, 0), (0, 0), (0, height - 50), (0, width - 75)), mode="edge")
    np.testing.assert_array_equal(run(made, frame), whole(function, padded)[:, :, :50, :75])


def test_size_that_is_a_multiple_is_not_padded() -> None:
    assert fit_to(loader(pyramid(3, strict=True)), 64, 80).plan.how is None


@pytest.mark.parametrize("size", [(1, 1), (16, 16), (63, 64), (64, 20)])
def test_small_frame_is_padded_to_a_fixed_model(size: tuple[int, int]) -> None:
    frame = picture(*size)
    made = fit_to(loader(upscaler, (64, 64)), *size)
    assert made.plan.how is Fit.PAD
    pads = ((0, 0), (0, 0), (0, 64 - size[0]), (0, 64 - size[1]))
    wanted = whole(upscaler, np.pad(frame, pads, mode="edge"))
    np.testing.assert_array_equal(run(made, frame), wanted[:, :, : 2 * size[0], : 2 * size[1]])


def test_padding_cannot_make_a_frame_smaller() -> None:
    with pytest.raises(ModelError, match=r"smaller than the frames of 75x100.*fit=tile"):
        fit_to(loader(upscaler, (64, 64)), 100, 75, fit=Fit.PAD)


def test_output_that_is_smaller_by_a_border_is_left_alone() -> None:
    def valid(image: Any) -> dict[str, Any]:
        return {"y": image[2:-2, 2:-2]}

    made = fit_to(loader(valid), 50, 75)
    assert made.plan.how is None
    assert run(made, picture(50, 75)).shape == (1, 3, 46, 71)
    with pytest.raises(ModelError, match="no whole multiple"):
        fit_to(loader(valid), 50, 75, fit=Fit.PAD)


def test_model_that_fails_at_every_size_says_why() -> None:
    def broken(image: Any) -> dict[str, Any]:
        if image.any() or image.shape[:2] != (64, 64):
            raise InferenceError("always")
        return {"y": image}

    load = loader(broken)
    with pytest.raises(ModelError, match=r"frames of 75x50: always"):
        fit_to(load, 50, 75)
    assert all(fake.closed for fake in load.made)


def test_large_frame_is_not_needed_to_find_the_multiple() -> None:
    load = loader(pyramid(3, strict=True))
    made = fit_to(load, 2160, 3840)
    assert made.plan.how is None
    assert load.made[0].tried == [(1, 3, 192 + 2160 % 192, 192)]


def test_model_of_fixed_size_without_a_scale_is_loaded_once() -> None:
    def valid(image: Any) -> dict[str, Any]:
        return {"y": image[2:-2, 2:-2]}

    load = loader(valid, (50, 75))
    assert fit_to(load, 50, 75).plan.how is None
    assert len(load.made) == 1


# ---- tile --------------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", list(Layout))
@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("size", [(100, 75), (64, 200), (65, 64), (130, 131)])
def test_tiled_equals_untiled(layout: Layout, dtype: str, size: tuple[int, int]) -> None:
    form: dict[str, Any] = {"layout": layout, "dtype": dtype, "channels": 2}
    frame = picture(*size, channels=2)
    frame = frame if layout is Layout.NCHW else frame.transpose(0, 2, 3, 1)
    frame = np.rint(255 * frame).astype(np.uint8) if dtype == "uint8" else frame
    made = fit_to(loader(upscaler, (64, 64), **form), *size, channels=2)
    assert made.plan.how is Fit.TILE
    assert made.plan.exact
    wanted = Fake(upscaler, **form)._run(frame)["y"]
    found = run(made, frame)
    assert found.dtype == wanted.dtype
    # sums of the same floats in another order, at most
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_overlap_is_what_the_model_sees() -> None:
    made = fit_to(loader(upscaler, (64, 64)), 100, 75)
    assert made.plan.overlap == 6
    assert str(made.plan) == (
        "frames of 75x100 go in as 2x2 tiles of 64x64 that overlap by 6 "
        "(the model sees 3 pixels far; cut in the middle)"
    )


def test_less_overlap_than_needed_is_blended() -> None:
    frame = picture(100, 175)
    made = fit_to(loader(upscaler, (64, 64)), 100, 175, overlap=4)
    assert not made.plan.exact
    assert "6 would hide the borders; blended" in str(made.plan)
    difference = np.abs(run(made, frame) - whole(upscaler, frame))
    assert 0 < difference.max() < 0.2
    assert (difference > HALF_LSB).mean() < 0.2


def test_more_overlap_is_still_exact() -> None:
    frame = picture(100, 175)
    made = fit_to(loader(upscaler, (64, 64)), 100, 175, overlap=20)
    assert made.plan.exact
    np.testing.assert_allclose(run(made, frame), whole(upscaler, frame), atol=1e-6)


def test_overlap_of_a_whole_tile_is_refused() -> None:
    with pytest.raises(ModelError, match="at most 63 is possible"):
        fit_to(loader(upscaler, (64, 64)), 100, 75, overlap=64)


@pytest.mark.parametrize("size", [(40, 200), (100, 30)])
def test_frame_that_is_small_one_way_is_tiled_the_other(size: tuple[int, int]) -> None:
    frame = picture(*size)
    made = fit_to(loader(upscaler, (64, 64)), *size)
    assert made.plan.how is Fit.TILE
    assert not made.plan.exact
    found, wanted = run(made, frame), whole(upscaler, frame)
    assert found.shape == wanted.shape
    # where it was padded the model sees the edge go on instead of its own zeros
    inner = (..., slice(0, 2 * size[0] - 6), slice(0, 2 * size[1] - 6))
    np.testing.assert_allclose(found[inner], wanted[inner], atol=1e-6)


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_tiles_keep_the_model_in_phase(levels: int) -> None:
    function = pyramid(levels, strict=True)
    frame = picture(144, 200)
    made = fit_to(loader(function, (64, 64)), 144, 200)
    assert made.plan.how is Fit.TILE
    assert made.plan.exact
    np.testing.assert_allclose(run(made, frame), whole(function, frame), atol=1e-6)


@pytest.mark.parametrize(("width", "how"), [(128, "side by side"), (120, "blended")])
def test_tiles_without_an_overlap_are_blended_where_they_share_pixels(width: int, how: str) -> None:
    made = fit_to(loader(upscaler, (64, 64)), 64, width, overlap=0)
    made.backend.close()
    assert str(made.plan).endswith(f"by 0 (6 would hide the borders; {how})")


def test_model_that_sees_everything_is_blended_without_seams() -> None:
    def balanced(image: Any) -> dict[str, Any]:
        return {"y": image + 0.1 * image.mean()}

    rows, columns = np.mgrid[0:150, 0:200] / 200
    frame = (rows + columns).astype(np.float32)[None, None] / 2
    made = fit_to(loader(balanced, (64, 64), channels=1), 150, 200)
    assert not made.plan.exact
    assert "blended" in str(made.plan)
    found = run(made, frame)[0, 0]
    steps = max(np.abs(np.diff(found, axis=0)).max(), np.abs(np.diff(found, axis=1)).max())
    # The picture itself has steps of 1 / 400; a cut between tiles would be ten times that.
    assert steps < 2 / 255


def test_model_that_makes_pictures_smaller_is_tiled() -> None:
    def shrink(image: Any) -> dict[str, Any]:
        soft = blur(image, 1)
        return {"y": (soft[::2, ::2] + soft[1::2, ::2] + soft[::2, 1::2] + soft[1::2, 1::2]) / 4}

    frame = picture(150, 202)
    made = fit_to(loader(shrink, (64, 64)), 150, 202)
    assert made.plan.exact
    np.testing.assert_allclose(run(made, frame), whole(shrink, frame), atol=1e-6)


def test_outputs_may_have_scales_of_their_own() -> None:
    def both(image: Any) -> dict[str, Any]:
        soft = blur(image, 1)
        return {"y": soft, "large": double(soft)}

    frame = picture(100, 75)
    made = fit_to(loader(both, (64, 64)), 100, 75)
    found = made.backend.infer_async({"x": frame}).result()
    wanted = Fake(both)._run(frame)
    shapes = made.backend.output_shapes({"x": frame.shape})
    for name in ("y", "large"):
        np.testing.assert_allclose(found[name], wanted[name], atol=1e-6)
        assert shapes[name] == wanted[name].shape
    made.backend.close()


@pytest.mark.parametrize("batch", [1, 3, 4])
def test_tiles_go_in_batches(batch: int) -> None:
    load = loader(upscaler, (64, 64))
    made = fit_to(load, 200, 300, batch_size=batch)
    load.made[0].calls.clear()
    frame = picture(200, 300)
    np.testing.assert_allclose(run(made, frame), whole(upscaler, frame), atol=1e-6)
    counts = [shape[0] for shape in load.made[0].calls]
    assert sum(counts) == made.plan.tiles[0] * made.plan.tiles[1]
    assert set(counts[:-1]) <= {batch}
    assert made.backend.info.max_batch == 1


def test_fixed_batch_is_filled_up() -> None:
    load = loader(upscaler, (64, 64), batch=4)
    made = fit_to(load, 100, 175)
    frame = picture(100, 175)
    np.testing.assert_allclose(run(made, frame), whole(upscaler, frame), atol=1e-6)
    assert {shape[0] for shape in load.made[0].calls} == {4}


def test_free_model_can_be_tiled_on_request() -> None:
    frame = picture(600, 520)
    load = loader(upscaler)
    made = fit_to(load, 600, 520, fit=Fit.TILE)
    assert made.plan.tiles == (2, 2)
    np.testing.assert_allclose(run(made, frame), whole(upscaler, frame), atol=1e-6)
    assert all(fake.closed for fake in load.made)


def test_tiles_of_a_bundled_model_are_the_whole_frame_but_for_float32s_last_bits() -> None:
    def load(options: Options) -> Any:
        return backends.load("native", models.resolve("espcn-x2", "native"), options)

    frame = np.ascontiguousarray(picture(320, 700, 1).transpose(0, 2, 3, 1))
    plain, tiled = (fit_to(load, 320, 700, channels=1, fit=fit) for fit in (Fit.AUTO, Fit.TILE))
    assert tiled.plan.exact
    assert tiled.plan.tiles == (1, 2)
    difference = np.abs(run(tiled, frame) - run(plain, frame))
    assert difference.max() < 2e-6  # BLAS adds up in another order for other widths


def test_whole_frame_is_never_given_to_a_model_in_tiles() -> None:
    sizes: list[Any] = []
    fakes = loader(upscaler)

    def load(options: Options) -> Any:
        sizes.append(options.size)
        return fakes(options)

    made = fit_to(load, 4320, 7680, fit=Fit.TILE, channels=1)
    made.backend.close()
    assert set(sizes) == {(512, 512)}
    shapes = [shape for fake in fakes.made for shape in (*fake.tried, *fake.calls)]
    assert {max(shape[2:]) for shape in shapes} == {512}


def test_model_of_the_frame_size_in_tiles_is_one_tile() -> None:
    made = fit_to(loader(upscaler, (100, 75)), 100, 75, fit=Fit.TILE)
    assert made.plan.tiles == (1, 1)
    frame = picture(100, 75)
    np.testing.assert_array_equal(run(made, frame), whole(upscaler, frame))


def test_plan_and_info_describe_the_frame() -> None:
    made = fit_to(loader(upscaler, (64, 64)), 100, 75)
    info = made.backend.info
    assert info.inputs[0].shape == (1, 3, 100, 75)
    assert info.outputs[0].shape == (1, 3, 200, 150)
    assert dict(made.backend.output_shapes({"x": (1, 3, 100, 75)})) == {"y": (1, 3, 200, 150)}
    made.backend.close()


def test_failing_tile_fails_in_the_future() -> None:
    class Fragile(Fake):
        fragile = False

        def infer_async(self, inputs: Any) -> Future[Any]:
            if self.fragile and len(self.calls) > 3:
                failed: Future[Any] = Future()
                failed.set_exception(InferenceError("tile failed"))
                return failed
            return super().infer_async(inputs)

    fakes: list[Fragile] = []

    def load(options: Options) -> Fragile:
        fakes.append(Fragile(upscaler, (64, 64)))
        return fakes[-1]

    made = fit_to(load, 200, 300)
    fakes[0].calls.clear()
    fakes[0].fragile = True
    with pytest.raises(InferenceError, match="tile failed"):
        run(made, picture(200, 300))


def test_memory_stays_bounded_for_an_8k_frame() -> None:
    def invert(image: Any) -> dict[str, Any]:
        return {"y": 1 - image}

    height, width = 4320, 7680
    frame = np.zeros((1, height, width, 1), np.uint8)
    frame[0, ::7, ::5] = 200
    load = loader(invert, (512, 512), channels=1, layout=Layout.NHWC, dtype="uint8")
    made = fit_to(load, height, width, channels=1)
    tracemalloc.start()
    found = run(made, frame)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    np.testing.assert_array_equal(found, 255 - frame)
    # The output itself, and a few tiles in the float64 of the fake model.
    assert peak < height * width + 12 * 512 * 512 * 8


# ---- scale -------------------------------------------------------------------------------------


def test_scale_keeps_a_smooth_picture() -> None:
    rows, columns = np.mgrid[0:90, 0:160].astype(np.float32) / 160
    frame = (0.3 + rows / 3 + columns / 3)[None, None]

    def same(image: Any) -> dict[str, Any]:
        return {"y": image}

    made = fit_to(loader(same, (45, 64), channels=1), 90, 160, fit=Fit.SCALE)
    assert made.plan.how is Fit.SCALE
    assert str(made.plan) == "frames of 160x90 are scaled to 64x45 and back (detail may be lost)"
    found = run(made, frame)
    assert found.shape == frame.shape
    # A plane is kept but at the borders, where the filter sees the edge go on.
    np.testing.assert_allclose(found[..., 4:-4, 4:-4], frame[..., 4:-4, 4:-4], atol=1 / 255)


def test_scale_is_the_last_resort_of_auto() -> None:
    def odd(image: Any) -> dict[str, Any]:
        return {"y": image[:48, :48]}

    made = fit_to(loader(odd, (64, 64)), 128, 96)
    assert made.plan.how is Fit.SCALE
    assert run(made, picture(128, 96)).shape == (1, 3, 96, 72)
    with pytest.raises(ModelError, match="fit=scale may be"):
        fit_to(loader(odd, (64, 64)), 128, 96, fit=Fit.TILE)


def test_scaled_codes_are_rounded_and_clipped() -> None:
    def same(image: Any) -> dict[str, Any]:
        return {"y": image}

    form: dict[str, Any] = {"dtype": "uint8", "layout": Layout.NHWC, "channels": 3}
    frame = np.full((1, 70, 90, 3), 255, np.uint8)
    made = fit_to(loader(same, (64, 64), **form), 70, 90, fit=Fit.SCALE)
    found = run(made, frame)
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, frame)


def test_output_that_is_no_picture_cannot_be_scaled() -> None:
    def label(image: Any) -> dict[str, Any]:
        return {"y": image.mean((0, 1), keepdims=True)}

    class Labels(Fake):
        def output_shapes(self, inputs: Any) -> Any:
            return {"y": (1, 3)}

    with pytest.raises(ModelError, match="is no picture"):
        fit_to(lambda options: Labels(label, (64, 64)), 100, 75)


# ---- real runtimes -----------------------------------------------------------------------------


def weights(*shape: int) -> Any:
    return (np.random.default_rng(3).random(shape, np.float32) - 0.5) / 4


LAYERS = [
    nm.Conv2d("x", "a", weights(8, 5, 5, 1), weights(8), activation=nm.Activation.TANH),
    nm.Conv2d("a", "b", weights(4, 3, 3, 8), weights(4), activation=nm.Activation.SIGMOID),
    nm.DepthToSpace("b", "y", 2),
]


def test_native_model_of_fixed_size_equals_the_free_one(tmp_path: Path) -> None:
    fixed, free = tmp_path / "fixed.model", tmp_path / "free.model"
    write(fixed, nm.model(LAYERS, {"x": (1, 64, 64, 1)}))
    write(free, nm.model(LAYERS, {"x": (1, -1, -1, 1)}))
    frame = picture(100, 75, 1).reshape(1, 100, 75, 1)
    made = fit_to(lambda _: backends.load("native", fixed, Options()), 100, 75)
    assert made.plan.how is Fit.TILE
    untiled = fit_to(lambda options: backends.load("native", free, options), 100, 75)
    np.testing.assert_allclose(run(made, frame), run(untiled, frame), atol=1e-5)


def onnx_network(path: Path, height: int | str, width: int | str, *, steps: bool = False) -> Path:
    """Two convolutions and a doubling; with `steps` the first are strided, and one goes back up."""
    require_module("onnx")
    require_module("onnxruntime")
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    pad = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    w = {"a": weights(8, 1, 5, 5), "b": weights(4, 8, 3, 3), "c": weights(8, 8, 3, 3)}
    if steps:
        nodes = [
            helper.make_node("Conv", ["x", "a"], ["1"], pads=[2] * 4, strides=[2, 2]),
            helper.make_node("Conv", ["1", "c"], ["2"], strides=[2, 2], **pad),
            helper.make_node("Resize", ["2", "", "two"], ["3"], mode="nearest"),
            helper.make_node("Add", ["3", "1"], ["4"]),
            helper.make_node("Conv", ["4", "b"], ["5"], **pad),
        ]
    else:
        nodes = [
            helper.make_node("Conv", ["x", "a"], ["1"], pads=[2] * 4),
            helper.make_node("Tanh", ["1"], ["2"]),
            helper.make_node("Conv", ["2", "b"], ["5"], **pad),
        ]
    nodes.append(helper.make_node("DepthToSpace", ["5"], ["y"], blocksize=2))
    w["two"] = np.array([1, 1, 2, 2], np.float32)
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, height, width])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1, "p", "q"])],
        [numpy_helper.from_array(array, name) for name, array in w.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path


def onnx_fitted(path: Path, height: int, width: int) -> Fitted:
    return fit_to(lambda options: backends.load("onnx", path, options), height, width, channels=1)


def test_onnx_model_of_fixed_size_equals_the_free_one(tmp_path: Path) -> None:
    frame = picture(100, 75, 1)
    made = onnx_fitted(onnx_network(tmp_path / "fixed.onnx", 64, 64), 100, 75)
    assert made.plan.how is Fit.TILE
    assert made.plan.exact
    assert made.plan.overlap == 6
    free = onnx_fitted(onnx_network(tmp_path / "free.onnx", "h", "w"), 100, 75)
    assert free.plan.how is None
    difference = np.abs(run(made, frame) - run(free, frame))
    assert difference.max() < 1e-5


def test_onnx_model_of_a_multiple_is_padded_and_tiled_in_phase(tmp_path: Path) -> None:
    frame = picture(102, 150, 1)
    free = onnx_network(tmp_path / "free.onnx", "h", "w", steps=True)
    made = onnx_fitted(free, 102, 150)
    assert made.plan.how is Fit.PAD
    assert made.plan.model.height % 4 == made.plan.model.width % 4 == 0
    padded = run(made, frame)
    assert padded.shape == (1, 1, 102, 150)
    tiled = onnx_fitted(onnx_network(tmp_path / "fixed.onnx", 64, 64, steps=True), 102, 150)
    assert tiled.plan.how is Fit.TILE
    difference = np.abs(run(tiled, frame) - padded)
    assert difference.max() < 1e-5


def test_openvino_model_is_reshaped_and_says_from_what(tmp_path: Path) -> None:
    require_module("openvino")
    path = onnx_network(tmp_path / "fixed.onnx", 64, 64)
    made = fit_to(lambda options: backends.load("openvino", path, options), 100, 75, channels=1)
    assert str(made.plan) == "the model is reshaped to frames of 75x100 (made for 64x64)"
    free = onnx_fitted(onnx_network(tmp_path / "free.onnx", "h", "w"), 100, 75)
    frame = picture(100, 75, 1)
    difference = np.abs(run(made, frame) - run(free, frame))
    assert difference.max() < 1e-5
