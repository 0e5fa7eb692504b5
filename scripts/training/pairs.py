"""Pairs of degraded and clean pictures, made from photographs on the CPU.

A pool holds whole pictures in two flat buffers of RGB pixels; a sample names its degraded picture
and where that lies in its clean one, so that patches are cut by index arithmetic on the GPU.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import av
import numpy as np
from PIL import Image

SIZES = (1.0, 0.7, 0.5)
"""Each photograph is used at these sizes, which triples what detail there is to learn."""

_FRAMES = 6
_KEPT = 2
_DRIFT = 4  # pixels a frame at most, so that motion is predicted as in real video


@dataclass(frozen=True, slots=True)
class Pool:
    """`samples` columns: offset, height, width of the degraded picture in `low`; offset of its
    first pixel and width of the clean picture in `high`; 1 for H.264, 0 for a clean downscale."""

    low: np.ndarray
    high: np.ndarray
    samples: np.ndarray
    scale: int

    def save(self, path: Path) -> None:
        np.savez(path, low=self.low, high=self.high, samples=self.samples, scale=self.scale)

    @staticmethod
    def load(path: Path) -> Pool:
        with np.load(path) as file:
            return Pool(file["low"], file["high"], file["samples"], int(file["scale"]))


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a pool is made: `clips` short H.264 clips of each picture, crf drawn from `crf`."""

    scale: int
    clips: int
    crf: tuple[int, int]


def picture(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB"))


def resized(image: np.ndarray, width: int, height: int) -> np.ndarray:
    """Bicubic (a = -0.5), with antialiasing where it shrinks."""
    small = Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(small)


def shrunk(image: np.ndarray, scale: int) -> np.ndarray:
    """The picture at 1/scale."""
    height, width = image.shape[:2]
    return resized(image, width // scale, height // scale) if scale > 1 else image


def h264(frames: Iterable[np.ndarray], crf: int, preset: str = "medium") -> Iterator[np.ndarray]:
    """RGB frames through libx264 (yuv420p) and back, in order."""
    encoder = av.CodecContext.create("libx264", "w")
    decoder = av.CodecContext.create("h264", "r")
    decoder.thread_count = 1

    def decoded(packets: Iterable[av.Packet]) -> Iterator[np.ndarray]:
        for packet in packets:
            for frame in decoder.decode(packet):
                yield frame.reformat(format="rgb24", interpolation="BICUBIC").to_ndarray()

    for count, image in enumerate(frames):
        frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(image), format="rgb24")
        frame = frame.reformat(format="yuv420p", interpolation="BICUBIC")
        frame.pts = count
        if count == 0:
            encoder.width, encoder.height = frame.width, frame.height
            encoder.pix_fmt, encoder.framerate = "yuv420p", 25
            encoder.options = {"crf": str(crf), "preset": preset, "threads": "1"}
        yield from decoded(encoder.encode(frame))
    yield from decoded(encoder.encode(None))
    yield from decoded([None])


def drifting(
    image: np.ndarray, frames: int, rng: np.random.Generator
) -> tuple[list[np.ndarray], np.ndarray]:
    """A window that moves over `image`, and its (row, column) in each frame."""
    margin = _DRIFT * frames
    velocity = rng.integers(-_DRIFT, _DRIFT + 1, 2)
    first = np.where(velocity < 0, margin, 0)
    places = first + velocity * np.arange(frames)[:, None]
    height, width = ((side - margin) // 2 * 2 for side in image.shape[:2])
    return [image[y : y + height, x : x + width] for y, x in places], places


def _degrade(
    path: Path, seed: int, *, recipe: Recipe
) -> tuple[np.ndarray, list[tuple[np.ndarray, int, int, int]]]:
    """One clean picture, and (degraded, row, column, 1 for H.264) for each sample of it."""
    rng = np.random.default_rng(seed)
    image = picture(path)
    size = SIZES[seed % len(SIZES)]
    height, width = (int(side * size) // 8 * 8 for side in image.shape[:2])
    image = resized(image, width, height)
    small = shrunk(image, recipe.scale)
    samples = [(small, 0, 0, 0)]
    for _ in range(recipe.clips):
        frames, places = drifting(small, _FRAMES, rng)
        crf = int(rng.integers(recipe.crf[0], recipe.crf[1] + 1))
        preset = str(rng.choice(["veryfast", "medium"]))
        decoded = list(h264(frames, crf, preset))
        for i in rng.choice(_FRAMES, _KEPT, replace=False):
            samples.append((decoded[i], *(int(place) for place in places[i]), 1))
    return image, samples


def build(photos: list[Path], recipe: Recipe, *, seed: int, workers: int) -> Pool:
    """All samples of all photographs."""
    count = len(SIZES)
    paths = [path for path in photos for _ in SIZES]
    seeds = [seed * 3_000 + i for i in range(len(photos) * count)]
    job = functools.partial(_degrade, recipe=recipe)
    work = list(zip(paths, seeds, strict=True))
    if workers == 1:
        made = list(itertools.starmap(job, work))
    else:
        with multiprocessing.get_context("fork").Pool(workers) as pool:
            made = pool.starmap(job, work, chunksize=1)
    low, high, rows = [], [], []
    low_offset = high_offset = 0
    for image, samples in made:
        width = image.shape[1]
        for degraded, y, x, kind in samples:
            start = high_offset + (y * width + x) * recipe.scale
            rows.append((low_offset, *degraded.shape[:2], start, width, kind))
            low.append(degraded.reshape(-1, 3))
            low_offset += len(low[-1])
        high.append(image.reshape(-1, 3))
        high_offset += len(high[-1])
    return Pool(np.concatenate(low), np.concatenate(high), np.array(rows, np.int64), recipe.scale)
