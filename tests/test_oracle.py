"""The same command line through FFmpeg's own filters and through avdnn, frame against frame.

FFmpeg 4.3 to 5.1 has dnn_processing, sr and derain with the native backend; Debian 12 packages 5.1.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn.cli import main
from avdnn.pixfmt import Family, pixel_format

from .conftest import require

FORMATS = (
    "yuv420p", "yuv422p", "yuv444p", "yuv410p", "yuv411p", "nv12", "grayf32le", "rgb24", "bgr24",
)  # fmt: skip
"""Without gray, which FFmpeg 5.1 lists and fails to configure."""

SIZES = ((64, 48), (63, 47))
FRAMES = 2


@functools.cache
def has_native_filters() -> bool:
    if shutil.which("ffmpeg") is None:
        return False
    shown = subprocess.run(
        ["ffmpeg", "-hide_banner", "-h", "filter=dnn_processing"], capture_output=True, text=True
    )
    return "native" in shown.stdout


@pytest.fixture(autouse=True)
def oracle() -> None:
    reason = "no FFmpeg whose dnn_processing has the native backend"
    require("ffmpeg", has_native_filters(), reason)


def source(folder: Path, form: str, size: tuple[int, int]) -> Path:
    """Smooth gradients with some noise: what pictures are like."""
    known = pixel_format(form)
    random = np.random.default_rng(3)
    data = []
    for number in range(FRAMES):
        for index, (rows, columns) in enumerate(known.plane_sizes(*size)):
            parts = 2 if known.interleaved and index else known.components
            y, x, part = np.mgrid[0:rows, 0:columns, 0:parts]
            values = 0.5 + 0.4 * np.sin(x / 5 + y / 7 + part + number)
            values = (values + random.normal(0, 0.05, values.shape)).clip(0, 1)
            data.append((values * known.peak).astype(known.dtype).tobytes())
    path = folder / f"{form}.raw"
    path.write_bytes(b"".join(data))
    return path


def both(
    folder: Path, raw: Path, form: str, size: tuple[int, int], text: str, own: str = ""
) -> tuple[Any, Any]:
    """The raw output samples of FFmpeg and of avdnn, for the same text or for its `own`."""
    words = ["-f", "rawvideo", "-pix_fmt", form, "-s", f"{size[0]}x{size[1]}", "-i", str(raw)]
    out = ["-f", "rawvideo"]
    command = ["ffmpeg", "-v", "error", "-y", *words, "-vf", text, *out]
    subprocess.run([*command, str(folder / "ffmpeg.raw")], check=True, capture_output=True)
    assert main(["run", *words, "-vf", own or text, *out, str(folder / "avdnn.raw")]) == 0
    dtype = pixel_format(form).dtype
    theirs, ours = (
        np.frombuffer((folder / f"{name}.raw").read_bytes(), dtype).astype(np.float64)
        for name in ("ffmpeg", "avdnn")
    )
    assert ours.size == theirs.size
    return theirs, ours


def split(samples: Any, form: str, size: tuple[int, int]) -> tuple[Any, Any]:
    """What the model wrote and the other planes."""
    known = pixel_format(form)
    sizes = known.plane_sizes(*size)
    if known.family is not Family.LUMA:
        return samples, samples[:0]
    luma = sizes[0][0] * sizes[0][1]
    frames = samples.reshape(FRAMES, -1)
    return frames[:, :luma], frames[:, luma:]


@pytest.mark.parametrize("size", SIZES, ids=["even", "odd"])
@pytest.mark.parametrize("form", FORMATS)
def test_dnn_processing(form: str, size: tuple[int, int], seed: Path, tmp_path: Path) -> None:
    colour = pixel_format(form).channels == 3
    model = seed / ("can.model" if colour else "espcn.model")
    text = f"dnn_processing=dnn_backend=native:model={model}:input=x:output=y"
    theirs, ours = both(tmp_path, source(tmp_path, form, size), form, size, text)
    made = size if colour else (2 * size[0], 2 * size[1])
    (luma, rest), (own, own_rest) = split(theirs, form, made), split(ours, form, made)
    if form == "grayf32le":
        assert np.abs(luma - own).max() <= 1e-5  # float32 sums in another order
    else:
        assert np.abs(luma - own).max() <= 1  # where such a sum decides a rounding
        assert (luma != own).mean() < 0.005
    if form != "nv12" or size == SIZES[0]:  # upstream loses nv12's last column of odd frames
        assert np.array_equal(rest, own_rest)


@pytest.mark.parametrize("form", ["yuv420p", "yuv444p", "gray"])
def test_sr_with_a_model_that_enlarges(form: str, seed: Path, tmp_path: Path) -> None:
    text = f"sr=dnn_backend=native:model={seed / 'espcn.model'}"
    assert_alike(form, seed, tmp_path, text, text)


def test_sr_with_a_model_that_keeps_the_size(seed: Path, tmp_path: Path) -> None:
    """FFmpeg 5.1's sr aborts on SRCNN; what it should do is written out for dnn_processing."""
    model = f"dnn_backend=native:model={seed / 'srcnn.model'}"
    theirs = f"scale=iw*2:ih*2:flags=bicubic,dnn_processing={model}:input=x:output=y"
    assert_alike("yuv420p", seed, tmp_path, theirs, f"sr={model}")


def assert_alike(form: str, seed: Path, folder: Path, theirs: str, ours: str) -> None:
    size = SIZES[0]
    made = (2 * size[0], 2 * size[1])
    out, own = both(folder, source(folder, form, size), form, size, theirs, ours)
    (luma, rest), (own_luma, own_rest) = split(out, form, made), split(own, form, made)
    assert np.abs(luma - own_luma).max() <= 1
    assert (luma != own_luma).mean() < 0.005
    assert np.array_equal(rest, own_rest)


def test_derain(seed: Path, tmp_path: Path) -> None:
    size = SIZES[1]
    text = f"derain=dnn_backend=native:model={seed / 'can.model'}"
    theirs, ours = both(tmp_path, source(tmp_path, "rgb24", size), "rgb24", size, text)
    assert np.abs(theirs - ours).max() <= 1
    assert (theirs != ours).mean() < 0.005
