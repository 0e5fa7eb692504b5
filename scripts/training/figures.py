"""PSNR and SSIM of a network on held-out photographs, over whole frames of 8-bit codes.

Super-resolution starts from a Pillow bicubic downscale (antialiased, a = -0.5); its baseline is
Pillow's bicubic upscale of the same picture. `deblock` starts from H.264. Figures of RGB networks
are over R, G and B together, those of luma networks over limited-range BT.601 luma.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from avdnn.compare.quality import psnr, ssim

from .networks import Network
from .pairs import drifting, h264, picture, resized, shrunk

Run = Callable[[np.ndarray], np.ndarray]
"""Codes (H, W, C) in, codes (scale*H, scale*W, C) out."""

FRAMES = 6


@dataclass(frozen=True, slots=True)
class Figure:
    """One picture: the network against the baseline, in dB and SSIM."""

    picture: str
    case: str
    baseline_psnr: float
    psnr: float
    baseline_ssim: float
    ssim: float


def limited_luma(rgb: np.ndarray) -> np.ndarray:
    """BT.601 limited-range luma codes, (H, W, 1)."""
    y = rgb.astype(np.float64) @ [0.299, 0.587, 0.114] * (219 / 255) + 16
    return np.rint(y).astype(np.uint8)[..., None]


def codes(values: np.ndarray) -> np.ndarray:
    """Network output in [0, 1] to 8-bit codes, as the filters round."""
    return np.clip(np.rint(values * np.float32(255)), 0, 255).astype(np.uint8)


def _similar(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.mean([ssim(a[..., i], b[..., i], 255) for i in range(a.shape[2])]))


def _figure(name: str, case: str, wanted: np.ndarray, base: np.ndarray, out: np.ndarray) -> Figure:
    flat = [picture.reshape(len(picture), -1) for picture in (wanted, base, out)]
    return Figure(
        name,
        case,
        psnr(flat[0], flat[1], 255),
        psnr(flat[0], flat[2], 255),
        _similar(wanted, base),
        _similar(wanted, out),
    )


def cases(network: Network, image: np.ndarray) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(case, network input, original) of one held-out photograph."""
    unit = max(network.scale, 2)
    height, width = (side // unit * unit for side in image.shape[:2])
    image = image[:height, :width]
    if network.channels == 1:
        luma = limited_luma(image)
        yield "clean", shrunk(luma[..., 0], network.scale)[..., None], luma
        return
    if network.scale > 1:
        small = shrunk(image, network.scale)
        yield "clean", small, image
        yield from _coded(small, image, network.scale, 30)
        return
    for crf in (28, 34, 40):
        yield from _coded(image, image, 1, crf)


def _coded(
    small: np.ndarray, image: np.ndarray, scale: int, crf: int
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Two frames of a clip that drifts over the photograph, through H.264."""
    frames, places = drifting(small, FRAMES, np.random.default_rng(crf))
    decoded = list(h264(frames, crf))
    for i in (1, FRAMES - 2):
        y, x = places[i] * scale
        height, width = (side * scale for side in decoded[i].shape[:2])
        yield f"H.264 crf {crf}", decoded[i], image[y : y + height, x : x + width]


def baseline(network: Network, low: np.ndarray) -> np.ndarray:
    if network.scale == 1:
        return low
    height, width = (side * network.scale for side in low.shape[:2])
    if low.shape[2] == 1:
        return resized(low[..., 0], width, height)[..., None]
    return resized(low, width, height)


def measure(network: Network, run: Run, folder: Path, *, threads: int = 4) -> list[Figure]:
    """All cases of all pictures in `folder`."""

    def one(path: Path) -> list[Figure]:
        return [
            _figure(path.stem, case, wanted, baseline(network, low), run(low))
            for case, low, wanted in cases(network, picture(path))
        ]

    with ThreadPoolExecutor(threads) as pool:
        return [figure for found in pool.map(one, sorted(folder.iterdir())) for figure in found]


def means(figures: list[Figure]) -> dict[str, dict[str, float]]:
    """Mean of each column, by case."""
    columns = ("baseline_psnr", "psnr", "baseline_ssim", "ssim")
    out: dict[str, dict[str, float]] = {}
    for case in dict.fromkeys(figure.case for figure in figures):
        rows = [asdict(figure) for figure in figures if figure.case == case]
        out[case] = {name: float(np.mean([row[name] for row in rows])) for name in columns}
        out[case]["gain"] = out[case]["psnr"] - out[case]["baseline_psnr"]
    return out
