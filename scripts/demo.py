"""Make a clip with moving detail, enlarge it with a bundled model, and show the result.

    python scripts/demo.py [--out FOLDER] [--model NAME] [--backend NAME] [--frames N]

Writes clip.mkv (the input), MODEL.mkv (the output) and demo.png: input, bicubic, output and
original side by side. Prints the luma PSNR of bicubic and of the output against the original.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import demo_scene
import numpy as np

from avdnn.compare import png
from avdnn.compare.picture import stacked
from avdnn.compare.quality import psnr_of, squared_error
from avdnn.models import registry

RATE = 12
CROPS = {"zone plate": (40, 40), "text": (40, 130), "gratings": (20, 150), "fractal": (60, 130)}
"""Top and left, in each panel, of the part that is shown."""
SHOWN = (150, 220)


def make_clip(path: Path, originals: list[np.ndarray]) -> None:
    """The originals at half the size, H.264, with a tone."""
    with av.open(path, "w") as container:
        video = container.add_stream("libx264", rate=RATE, options={"crf": "8"})
        video.pix_fmt = "yuv420p"
        video.width, video.height = demo_scene.WIDTH, demo_scene.HEIGHT
        audio = container.add_stream("aac", rate=48000, layout="mono")
        for index, picture in enumerate(originals):
            frame = av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(
                video.width, video.height, "yuv420p", interpolation="BICUBIC"
            )
            frame.pts, frame.time_base = index, Fraction(1, RATE)
            container.mux(video.encode(frame))
            container.mux(audio.encode(_tone(index)))
        for stream in (video, audio):
            container.mux(stream.encode(None))


def _tone(index: int) -> av.AudioFrame:
    """The sound of one frame: 440 Hz that swells."""
    size = 48000 // RATE
    time = (np.arange(size) + index * size) / 48000
    wave = 0.3 * np.sin(2 * np.pi * 440 * time) * np.sin(np.pi * time) ** 2
    frame = av.AudioFrame.from_ndarray(wave[None].astype(np.float32), "fltp", "mono")
    frame.sample_rate, frame.time_base, frame.pts = 48000, Fraction(1, 48000), index * size
    return frame


def enlarge(clip: Path, target: Path, model: str, backend: str) -> None:
    """The job, through the command line, as a user runs it."""
    text = f"dnn_processing=model={model}" + (f":dnn_backend={backend}" if backend else "")
    if registry()[model].channels == 3:
        text = f"format=rgb24,{text},format=yuv420p"
    command = ["run", "-y", "-i", str(clip), "-vf", text, "-crf", "6", str(target)]
    print("avdnn", *command, flush=True)
    subprocess.run([sys.executable, "-m", "avdnn", *command], check=True)


def decoded(path: Path) -> Iterator[av.VideoFrame]:
    with av.open(path) as container:
        yield from container.decode(video=0)


def report(
    clip: Path, target: Path, picture: Path, label: str, originals: list[np.ndarray]
) -> tuple[float, float]:
    """Write the picture; PSNR over all frames of bicubic and of the output, luma, in dB."""
    errors = np.zeros(2)
    triples = zip(originals, decoded(clip), decoded(target), strict=True)
    for index, (original, small, large) in enumerate(triples):
        height, width = original.shape[:2]
        wanted = _luma(av.VideoFrame.from_ndarray(original, format="rgb24"))
        bicubic = small.reformat(width, height, "yuv420p", interpolation="BICUBIC")
        errors += [squared_error(_luma(other), wanted) for other in (bicubic, large)]
        if index == len(originals) // 3:
            near = small.reformat(format="rgb24").to_ndarray().repeat(2, 0).repeat(2, 1)
            shown = {"input": near, "bicubic": _rgb(bicubic), label: _rgb(large)}
            png.write(picture, sheet(shown | {"original": original}))
    first, second = (psnr_of(error / len(originals), 255) for error in errors)
    return first, second


def sheet(shown: dict[str, np.ndarray]) -> np.ndarray:
    """A row for each panel of the scene, a column for each picture."""
    rows = []
    for index, (y, x) in enumerate(CROPS.values()):
        top = y + index // 2 * demo_scene.HEIGHT
        left = x + index % 2 * demo_scene.WIDTH
        part = slice(top, top + SHOWN[0]), slice(left, left + SHOWN[1])
        titles = shown if index == 0 else [""] * len(shown)
        rows.append(
            [(title, picture[part]) for title, picture in zip(titles, shown.values(), strict=True)]
        )
    return stacked(rows, zoom=2)


def _luma(frame: av.VideoFrame) -> np.ndarray:
    if frame.format.name != "yuv420p":
        frame = frame.reformat(format="yuv420p", interpolation="BICUBIC")
    plane = np.frombuffer(frame.planes[0], np.uint8).reshape(frame.height, -1)
    return plane[:, : frame.width].copy()


def _rgb(frame: av.VideoFrame) -> np.ndarray:
    return frame.reformat(format="rgb24", interpolation="BICUBIC").to_ndarray()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(".demo"))
    names = [name for name, model in registry().items() if model.scale == 2]
    parser.add_argument("--model", choices=names, default="espcn-x2")
    parser.add_argument("--backend", default="", help="the best installed one without it")
    parser.add_argument("--frames", type=int, default=24)
    options = parser.parse_args(arguments)
    options.out.mkdir(parents=True, exist_ok=True)
    clip, target = options.out / "clip.mkv", options.out / f"{options.model}.mkv"
    picture = options.out / "demo.png"
    originals = [demo_scene.frame(index / options.frames) for index in range(options.frames)]
    make_clip(clip, originals)
    enlarge(clip, target, options.model, options.backend)
    bicubic, output = report(clip, target, picture, options.model, originals)
    print(
        f"luma PSNR over {options.frames} frames: bicubic {bicubic:.2f} dB, "
        f"{options.model} {output:.2f} dB"
    )
    print(f"input, bicubic, {options.model} and original side by side: {picture}")


if __name__ == "__main__":
    main()
