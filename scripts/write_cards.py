"""Write the cards of the bundled models from what training measured.

    python scripts/write_cards.py --training OUT --photos PHOTOS [--rival espcn.model]
    python scripts/write_cards.py --speed

OUT is the folder that train_models.py wrote, PHOTOS the one of prepare_photos.py. Each model gets
README.md, figures.json (all pictures, the plan, the curve, the speeds), curve.svg and example.png.
Without --training, figures.json is where the figures come from; without --photos, example.png
stays. Run export_models.py first: pictures and speeds come from the exported forms.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import numpy as np
from training import figures, pairs, prose
from training.networks import NETWORKS, Network

from avdnn import backends
from avdnn.compare import png
from avdnn.compare.picture import stacked
from avdnn.compare.quality import psnr
from avdnn.frame import Layout
from avdnn.models import registry

EXAMPLES = {"astronaut": (60, 165), "coffee": (160, 300)}
"""Held-out photographs that are free of rights, and where the shown part is (top, left)."""
SHOWN = (112, 144)
CASES = {
    "espcn-x2": (("clean", "astronaut"),),
    "compact-x2": (("clean", "astronaut"), ("H.264 crf 30", "coffee")),
    "compact-x4": (("clean", "astronaut"), ("H.264 crf 30", "coffee")),
    "deblock": (("H.264 crf 34", "astronaut"), ("H.264 crf 34", "coffee")),
}
SPEED_SIZE = (270, 480)


def runner(path: Path, backend: str) -> figures.Run:
    """Codes in, codes out, through a backend as the filters use it."""
    loaded: dict[tuple[int, int], backends.Backend] = {}

    def run(low: np.ndarray) -> np.ndarray:
        size = (low.shape[0], low.shape[1])
        if size not in loaded:
            for other in loaded.values():
                other.close()
            loaded.clear()
            loaded[size] = backends.load(backend, path, backends.Options(size=size))
        model = loaded[size]
        (spec,), (out,) = model.info.inputs, model.info.outputs
        tensor = (low.astype(np.float32) / 255)[None]
        if spec.layout is Layout.NCHW:
            tensor = tensor.transpose(0, 3, 1, 2)
        result = np.asarray(model.infer_async({spec.name: tensor}).result()[out.name])[0]
        return figures.codes(result.transpose(1, 2, 0) if out.layout is Layout.NCHW else result)

    return run


def coloured(network: Network, run: figures.Run, low: np.ndarray) -> np.ndarray:
    """RGB in, RGB out; a luma network gets Y, and the colours are enlarged by bicubic."""
    if network.channels == 3:
        return run(low)
    ycc = np.array([[0.299, 0.587, 0.114], [-0.1687, -0.3313, 0.5], [0.5, -0.4187, -0.0813]])
    luma = figures.limited_luma(low)
    plain = figures.baseline(network, low).astype(np.float64) @ ycc.T
    plain[..., 0] = (run(luma)[..., 0].astype(np.float64) - 16) * 255 / 219
    return np.clip(np.rint(plain @ np.linalg.inv(ycc).T), 0, 255).astype(np.uint8)


def example(network: Network, run: figures.Run, photos: Path) -> np.ndarray:
    """A row for each case: input (or bicubic), the network's output, the original."""
    rows = []
    for case, name in CASES[network.name]:
        top, left = EXAMPLES[name]
        image = pairs.picture(photos / "held" / f"{name}.png")
        if network.channels == 1:
            low, wanted = pairs.shrunk(image, network.scale), image
        else:
            low, wanted = next(
                (low, wanted)
                for found, low, wanted in figures.cases(network, image)
                if found == case
            )
        part = slice(top, top + SHOWN[0]), slice(left, left + SHOWN[1])
        before = figures.baseline(network, low)
        label = f"bicubic, {case}" if network.scale > 1 else case
        after = coloured(network, run, low)
        panels = ((label, before), (network.name, after), ("original", wanted))
        rows.append([(text, picture[part]) for text, picture in panels])
    return stacked(rows, zoom=2)


def rival_psnr(network: Network, run: figures.Run, photos: Path) -> dict[str, float]:
    """PSNR of another network on the clean case of every held-out photograph."""
    found = {}
    for path in sorted((photos / "held").iterdir()):
        _, low, wanted = next(iter(figures.cases(network, pairs.picture(path))))
        found[path.stem] = psnr(wanted[..., 0], run(low)[..., 0], 255)
    return found


def speeds(network: Network) -> dict[str, float]:
    """Milliseconds a frame for each installed backend, median of five, one frame at a time."""
    low = np.random.default_rng(0).integers(0, 256, (*SPEED_SIZE, network.channels), np.uint8)
    found = {}
    for backend, path in registry()[network.name].files.items():
        if not backends.installed(backend):
            continue
        run, taken = runner(path, backend), []
        for _ in range(6):
            begun = time.perf_counter()
            run(low)
            taken.append(time.perf_counter() - begun)
        found[backend] = round(1000 * statistics.median(taken[1:]), 1)
    return found


def curve_svg(points: list[dict[str, float]]) -> str:
    """Held-out PSNR over training steps."""
    width, height, left, bottom = 520, 200, 50, 30
    values = [point["psnr"] for point in points]
    low, high, last = min(values), max(values), points[-1]["step"]

    def place(step: float, value: float) -> tuple[float, float]:
        x = left + step / last * (width - left - 10)
        y = 10 + (high - value) / (high - low) * (height - bottom - 10)
        return round(x, 1), round(y, 1)

    line = " ".join("{},{}".format(*place(p["step"], p["psnr"])) for p in points)
    marks = []
    for value in np.linspace(low, high, 4):
        _, y = place(0, value)
        marks.append(f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{value:.1f}</text>')
        marks.append(f'<path d="M{left} {y}H{width - 10}" stroke="#ccc"/>')
    marks.append(f'<text x="{left}" y="{height - 8}">0</text>')
    marks.append(
        f'<text x="{width - 10}" y="{height - 8}" text-anchor="end">{last:.0f} steps</text>'
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11"><rect width="100%" height="100%" fill="#fff"/>'
        f'{"".join(marks)}<polyline points="{line}" fill="none" stroke="#06c" '
        f'stroke-width="2"/></svg>\n'
    )


def tables(network: Network, report: Mapping[str, Any]) -> str:
    """Means by case, then every held-out picture of the first case."""
    base = "input" if network.scale == 1 else "bicubic"
    lines = [f"| case | {base} | {network.name} | gain | SSIM {base} | SSIM {network.name} |"]
    lines.append("|---|---|---|---|---|---|")
    for case, mean in report["means"].items():
        lines.append(
            f"| {case} | {mean['baseline_psnr']:.2f} dB | {mean['psnr']:.2f} dB | "
            f"{mean['gain']:+.2f} dB | {mean['baseline_ssim']:.4f} | {mean['ssim']:.4f} |"
        )
    first = "H.264 crf 34" if network.scale == 1 else "clean"
    rows: dict[str, list[dict[str, float]]] = {}
    for figure in report["figures"]:
        if figure["case"] == first:
            rows.setdefault(figure["picture"], []).append(figure)
    rival = report.get("rival", {})
    lines += ["", f"Every picture, {first}:", ""]
    more = f" {prose.RIVAL} |" if rival else ""
    lines.append(f"| picture | {base} |{more} {network.name} | SSIM {base} | SSIM {network.name} |")
    lines.append("|---|---|" + ("---|" if rival else "") + "---|---|---|")
    for picture, found in rows.items():
        mean = {key: float(np.mean([f[key] for f in found])) for key in found[0] if "_" in key}
        mean |= {key: float(np.mean([f[key] for f in found])) for key in ("psnr", "ssim")}
        other = f" {rival[picture]:.2f} |" if rival else ""
        lines.append(
            f"| {picture} | {mean['baseline_psnr']:.2f} |{other} {mean['psnr']:.2f} | "
            f"{mean['baseline_ssim']:.4f} | {mean['ssim']:.4f} |"
        )
    return "\n".join(lines)


def processor() -> str:
    """The machine's name for a table: cores and processor."""
    name = platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return f"{os.cpu_count()} cores of {name}"


def write_card(name: str, new: dict[str, Any], options: argparse.Namespace) -> None:
    """All files of one card; `new` figures replace those that it has."""
    network, model = NETWORKS[name], registry()[name]
    target = model.path / "figures.json"
    report = (json.loads(target.read_text()) if target.exists() else {}) | new
    if options.photos:
        run = runner(model.files["openvino"], "openvino")
        png.write(model.path / "example.png", example(network, run, options.photos))
    if options.rival and network.channels == 1:
        rival = runner(options.rival, backends.choose(options.rival))
        report["rival"] = rival_psnr(network, rival, options.photos)
    if options.speed:
        report["speed"] = {
            "machine": processor(),
            "date": date.today().isoformat(),
            "size": f"{SPEED_SIZE[1]}x{SPEED_SIZE[0]}",
            "milliseconds": speeds(network),
        }
    target.write_text(json.dumps(report, indent=1) + "\n")
    (model.path / "curve.svg").write_text(curve_svg(report["curve"]))
    text = prose.card(network, model.title, report, tables(network, report))
    model.card.write_text(text, encoding="utf-8")
    print(model.card)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--training", type=Path)
    parser.add_argument("--photos", type=Path)
    parser.add_argument("--rival", type=Path, help="another x2 luma network to measure as well")
    parser.add_argument("--speed", action="store_true", help="time every installed backend")
    parser.add_argument("--only", nargs="*", default=list(NETWORKS), choices=list(NETWORKS))
    options = parser.parse_args()
    if options.rival and not options.photos:
        parser.error("--rival needs --photos")
    new: dict[str, dict[str, Any]] = {name: {} for name in options.only}
    if options.training:
        trained = json.loads((options.training / "figures.json").read_text())
        curves = json.loads((options.training / "curves.json").read_text())
        about = {key: trained[key] for key in ("device", "torch", "seed", "date")}
        for name in options.only:
            new[name] = about | trained["networks"][name] | {"curve": curves[name]}
    for name, figures_of in new.items():
        write_card(name, figures_of, options)


if __name__ == "__main__":
    main()
