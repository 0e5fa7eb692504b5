"""The frame contract on every pixel format, size and backend of the reference index.

What is expected is worked out here by the contract's own arithmetic (section 4), not by avdnn:
the affine models in float32, ESPCN in float64 from its weights, SRCNN by the native backend
(which tests/backends/test_native.py holds against FFmpeg's), chroma by libswscale. The index's
stored output frames are compared too where they are output: files that only repeat the input
cannot be, since no model here does that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import av
import av.filter
import numpy as np
import pytest

from avdnn import backends, host
from avdnn.filters import Context, build, connect
from avdnn.frame import Frame
from avdnn.pixfmt import Family, PixelFormat, pixel_format

from .conftest import DATA, require_module

INDEX = DATA / "reference" / "index.json"
CASES: list[dict[str, Any]] = json.loads(INDEX.read_text()) if INDEX.is_file() else []

AFFINE: dict[str, Callable[[Any], Any]] = {
    "half": lambda x: x * np.float32(0.5),
    "affine": lambda x: x * np.float32(2) - np.float32(0.5),
    "frac": lambda x: x + np.float32(0.3 / 255),
    "frac7": lambda x: x + np.float32(0.7 / 255),
}
"""What the reference models of those names do."""

FLOAT_TOLERANCE = 2e-5
"""grayf32 through a convolution: float32 sums in another order."""


def read_frames(path: Path, form: PixelFormat, width: int, height: int) -> Iterator[list[Any]]:
    """The planes of each frame of a tightly packed raw file."""
    data = np.frombuffer(path.read_bytes(), form.dtype)
    at = 0
    while at < data.size:
        planes = []
        for index, (rows, columns) in enumerate(form.plane_sizes(width, height)):
            parts = 2 if form.interleaved and index == 1 else form.components
            shape = (rows, columns, parts) if parts > 1 else (rows, columns)
            size = int(np.prod(shape))
            planes.append(data[at : at + size].reshape(shape))
            at += size
        yield planes


def source(case: dict[str, Any], folder: Path) -> Iterator[Frame]:
    entry = case["input"]
    form = pixel_format(entry["pix_fmt"])
    size = entry["width"], entry["height"]
    for number, planes in enumerate(read_frames(folder / entry["file"], form, *size)):
        made = av.VideoFrame(*size, form.name)
        made.pts, made.time_base = number, Fraction(1, 25)
        frame = host.from_av(made)
        for target, plane in zip(frame.planes, planes, strict=True):
            target[...] = plane
        yield frame


@pytest.mark.parametrize("case", CASES, ids=[case["case"] for case in CASES])
def test_every_case_of_the_index_follows_the_contract(
    case: dict[str, Any], reference: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module(backends.FRAMEWORKS[case["backend"]])
    monkeypatch.chdir(reference)
    chain = build(f"{case['filter']}:precision=float32", Context(say=lambda note: None))
    given = list(source(case, reference))
    out = list(connect(chain, iter(given)))
    assert [frame.meta.pts for frame in out] == list(range(len(given)))
    for before, after in zip(given, out, strict=True):
        wanted = expected(case, before)
        assert len(after.planes) == len(wanted)
        for index, (got, plane) in enumerate(zip(after.planes, wanted, strict=True)):
            compare(case, index, after, got, plane)
    compare_stored(case, out, reference)


def compare(case: dict[str, Any], index: int, frame: Frame, got: Any, wanted: Any) -> None:
    form = pixel_format(frame.format)
    assert got.shape == wanted.shape
    delta = np.abs(got.astype(np.float64) - wanted)
    if got.dtype == np.float32:
        assert delta.max() <= (0 if model(case) in AFFINE else FLOAT_TOLERANCE)
        return
    # A convolution's float32 sums may come in another order: 1 LSB of 8 bit where that decides
    # a rounding. Planes that the model does not write, and affine models, are exact.
    convolved = model(case) not in AFFINE and (index == 0 or form.family is not Family.LUMA)
    assert delta.max() <= (form.peak / 255 if convolved else 0)


def model(case: dict[str, Any]) -> str:
    """The kind of model that a case runs; the conv_* cases run ESPCN."""
    name = case["case"].split("_")[1]
    return "espcn" if case["case"].startswith("conv_") else name


def expected(case: dict[str, Any], frame: Frame) -> list[Any]:
    """The planes that the contract asks for."""
    if "yuv420p10" in case["filter"]:
        frame = deepened(frame)
    form = pixel_format(frame.format)
    if form.family is Family.LUMA:
        first = codes(through(case, values(frame.planes[0], form)), form)
        size = first.shape[1], first.shape[0]
        return [first, *chroma(frame, form, size)]
    picture = values(frame.planes[0], form)
    if "rgb1" in case["filter"]:
        picture = picture[..., 1:2].repeat(3, axis=2)
    channels = [through(case, picture[..., channel]) for channel in range(3)]
    return [codes(np.stack(channels, axis=-1), form)]


def values(codes_in: Any, form: PixelFormat) -> Any:
    if form.dtype == "float32":
        return codes_in
    return codes_in * np.float32(1 / form.peak)


def codes(made: Any, form: PixelFormat) -> Any:
    if form.dtype == "float32":
        return made
    return np.clip(np.rint(made * np.float32(form.peak)), 0, form.peak).astype(form.dtype)


def through(case: dict[str, Any], plane: Any) -> Any:
    """One channel of values through the case's model."""
    name = model(case)
    if name in AFFINE:
        return AFFINE[name](plane)
    if name == "espcn":
        return espcn(plane)
    network = native("srcnn.model")
    spec = network.info.inputs[0]
    out = network.infer_async({spec.name: plane[np.newaxis, ..., np.newaxis]}).result()
    return out[network.info.outputs[0].name][0, ..., 0]


def espcn(plane: Any) -> Any:
    """The reference folder's ESPCN in float64: three convolutions, tanh, tanh, sigmoid, shuffle."""
    features = plane[np.newaxis].astype(np.float64)
    for index in (1, 2, 3):
        weight, bias = weights()[f"w{index}"], weights()[f"b{index}"]
        pad = weight.shape[2] // 2
        padded = np.pad(features, ((0, 0), (pad, pad), (pad, pad)))
        windows = np.lib.stride_tricks.sliding_window_view(padded, weight.shape[2:], axis=(1, 2))
        features = np.tensordot(weight, windows, ((1, 2, 3), (0, 3, 4)))
        features += bias[:, np.newaxis, np.newaxis]
        features = np.tanh(features) if index < 3 else 1 / (1 + np.exp(-features))
    rows, columns = plane.shape
    shuffled = features.reshape(2, 2, rows, columns).transpose(2, 0, 3, 1)
    return shuffled.reshape(2 * rows, 2 * columns).astype(np.float32)


@cache
def weights() -> dict[str, Any]:
    onnx = pytest.importorskip("onnx")
    graph = onnx.load(DATA / "reference" / "models" / "espcn.onnx").graph
    return {
        entry.name: onnx.numpy_helper.to_array(entry).astype(np.float64)
        for entry in graph.initializer
    }


@cache
def native(name: str) -> backends.Backend:
    return backends.load("native", DATA / "seed" / name, backends.Options())


def chroma(frame: Frame, form: PixelFormat, size: tuple[int, int]) -> list[Any]:
    sizes = form.plane_sizes(*size)[1:]
    planes = []
    for plane, (rows, columns) in zip(frame.planes[1:], sizes, strict=True):
        if plane.shape[:2] == (rows, columns):
            planes.append(plane)
        elif plane.ndim == 2:
            planes.append(swscale(plane, rows, columns, form.depth))
        else:
            planes.append(swscale_pair(plane, rows, columns))
    return planes


def swscale(plane: Any, rows: int, columns: int, depth: int) -> Any:
    """A plane as gray through libavfilter's scale with plain bicubic flags."""
    name = "gray" if depth == 8 else f"gray{depth}le"
    gray = av.VideoFrame(plane.shape[1], plane.shape[0], name)
    gray.pts, gray.time_base = 0, Fraction(1, 25)
    host.from_av(gray).planes[0][...] = plane
    return filtered(gray, "scale", f"{columns}:{rows}:flags=bicubic").planes[0]


def swscale_pair(plane: Any, rows: int, columns: int) -> Any:
    """An NV12 chroma plane as gray with alpha."""
    height, width = plane.shape[:2]
    pair = av.VideoFrame(width, height, "ya8")
    pair.pts, pair.time_base = 0, Fraction(1, 25)
    pair.planes[0].update(padded(plane, pair.planes[0].line_size))
    made = filtered(pair, "scale", f"{columns}:{rows}:flags=bicubic").owner.planes[0]
    lines = np.frombuffer(made, np.uint8).reshape(rows, made.line_size)
    return lines[:, : 2 * columns].reshape(rows, columns, 2)


def padded(plane: Any, pitch: int) -> bytes:
    lines = np.zeros((plane.shape[0], pitch), np.uint8)
    lines[:, : plane.shape[1] * plane.shape[2]] = plane.reshape(plane.shape[0], -1)
    return lines.tobytes()


def deepened(frame: Frame) -> Frame:
    """A yuv420p frame in ten bits, as libavfilter makes it."""
    return filtered(frame.owner, "format", "yuv420p10le")


def filtered(frame: av.VideoFrame, name: str, args: str) -> Frame:
    graph = av.filter.Graph()
    source_args = f"video_size={frame.width}x{frame.height}:pix_fmt={frame.format.name}"
    nodes = [
        graph.add("buffer", f"{source_args}:time_base=1/25"),
        graph.add(name, args),
        graph.add("buffersink"),
    ]
    graph.link_nodes(*nodes).configure()
    graph.push(frame)
    pulled = graph.pull()
    assert isinstance(pulled, av.VideoFrame)
    return host.from_av(pulled)


def compare_stored(case: dict[str, Any], out: list[Frame], folder: Path) -> None:
    """Hold the stored frames against ours, unless they are the input."""
    stored = (folder / case["output"]["file"]).read_bytes()
    if stored == (folder / case["input"]["file"]).read_bytes()[: len(stored)]:
        return
    got = b"".join(plane.tobytes() for frame in out for plane in frame.planes)
    form = pixel_format(case["output"]["pix_fmt"])
    ours, theirs = (np.frombuffer(data[: len(stored)], form.dtype) for data in (got, stored))
    most = 4 if case["precision"] == "bfloat16" else 1
    assert np.abs(ours.astype(np.float64) - theirs).max() <= most


def test_every_framework_is_named() -> None:
    """The cases above skip by framework: a renamed backend would skip them all in silence."""
    assert {case["backend"] for case in CASES} <= set(backends.FRAMEWORKS)
