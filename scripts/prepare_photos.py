"""Fetch the photographs that the bundled models are trained on, and shrink them.

    python scripts/prepare_photos.py OUT

Needs Debian's apt-get and dpkg, Pillow, and scikit-image for its sample photographs. Writes
OUT/train/*.jpg, OUT/held/*.jpg and OUT/held/*.png. The longest side becomes 1280 at most, and
every photograph shrinks by a third at least, so that its pixels are sharp. None of it is ours:
keep it out of the repository.
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import tempfile
from pathlib import Path

from PIL import Image
from training import sources

LONGEST = 1280
SHRINK = 4 / 3


def fetch(folder: Path) -> None:
    """Unpack each package under `folder`/NAME."""
    for package in sources.PACKAGES:
        subprocess.run(["apt-get", "-qq", "download", package], cwd=folder, check=True)
        (archive,) = folder.glob(f"{package}_*.deb")
        (folder / package).mkdir()
        subprocess.run(["dpkg", "-x", archive, folder / package], check=True)
        archive.unlink()


def shrink(source: Path, target: Path) -> None:
    image = Image.open(source).convert("RGB")
    factor = max(max(image.size) / LONGEST, SHRINK)
    size = [round(side / factor / 4) * 4 for side in image.size]
    small = image.resize(size, Image.Resampling.LANCZOS)
    small.save(target, quality=95, subsampling="4:4:4")


def samples(target: Path) -> None:
    """scikit-image's photographs, cropped to a multiple of 4 and as they are otherwise."""
    spec = importlib.util.find_spec("skimage")
    if spec is None or spec.origin is None:
        raise SystemExit("scikit-image is needed for its sample photographs: pip install it")
    for name in sources.SAMPLES:
        image = Image.open(Path(spec.origin).parent / "data" / name).convert("RGB")
        image = image.crop((0, 0, image.width // 4 * 4, image.height // 4 * 4))
        image.save(target / f"{Path(name).stem}.png")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory() as work:
        fetch(Path(work))
        for group, items in zip(("train", "held"), sources.split(), strict=True):
            (out / group).mkdir(parents=True, exist_ok=True)
            for package, path in items:
                shrink(Path(work) / package / path, out / group / f"{sources.title(path)}.jpg")
    samples(out / "held")


if __name__ == "__main__":
    main()
