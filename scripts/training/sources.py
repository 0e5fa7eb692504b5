"""Which photographs are used: Debian packages, files, and which of them are held out."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "gnome-backgrounds": tuple(
        f"usr/share/backgrounds/gnome/{name}.webp"
        for name in [
            "grid-d",
            "grid-l",
            "licorice-d",
            "licorice-l",
            "pixels-d",
            "pixels-l",
            "truchet-d",
            "truchet-l",
            "wood-l",
        ]
    ),
    "mate-backgrounds": (
        "usr/share/backgrounds/mate/abstract/Elephants_3840x2160.jpg",
        *(
            f"usr/share/backgrounds/mate/nature/{name}.jpg"
            for name in [
                "Aqua",
                "Blinds",
                "Dune",
                "FreshFlower",
                "Garden",
                "GreenMeadow",
                "LadyBird",
                "RainDrops",
                "Storm",
                "TwoWings",
                "Wood",
                "YellowFlower",
            ]
        ),
    ),
    "plasma-workspace-wallpapers": tuple(
        f"usr/share/wallpapers/{name}/contents/images/{size}"
        for size, names in {
            "2560x1600.jpg": "Autumn BytheWater ColdRipple ColorfulCups DarkestHour EveningGlow"
            " FallenLeaf Grey Kite OneStandsOut Path summer_1am",
            "2560x1600.png": "FlyingKonqui",
            "3840x2160.png": "Canopee Cascade Cluster Opal",
            "5120x2880.jpg": "SafeLanding Shell Volna Flow",
            "5120x2880.png": "Altai IceCold Kay Patak",
        }.items()
        for name in names.split()
    ),
    "ukui-wallpapers": tuple(
        f"usr/share/backgrounds/{name}"
        for name in [
            "2004default.jpg",
            "firstgeneration.jpg",
            "focal-ubuntukylin.png",
            "rhythm.jpg",
            "string.jpg",
            "the-mouse.jpg",
        ]
    ),
}

SAMPLES = (
    "astronaut.png",
    "camera.png",
    "chelsea.png",
    "coffee.png",
    "coins.png",
    "hubble_deep_field.jpg",
    "motorcycle_left.png",
    "rocket.jpg",
)
"""scikit-image's photographs, held out too."""


def title(path: str) -> str:
    """A short name of its own for one file."""
    parts = Path(path).parts
    return parts[-4] if "contents" in parts else Path(path).stem


def split() -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """(package, file) to train on and to hold out: the fifth with the lowest hash of its name.

    Dark and light variants of one picture (name-d, name-l) stay on one side.
    """
    every = [(package, path) for package, paths in PACKAGES.items() for path in paths]
    every.sort(
        key=lambda item: hashlib.sha256(title(item[1]).partition("-")[0].encode()).hexdigest()
    )
    count = -(-len(every) // 5)
    return sorted(every[count:]), sorted(every[:count])
