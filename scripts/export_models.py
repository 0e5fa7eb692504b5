"""Write every exported form of the bundled models from their safetensors weights.

    python scripts/export_models.py [NAME ...]

Needs numpy, onnx, openvino, tensorflow and torch. PyTorch, ONNX and IR are NCHW, TensorFlow and
.model are NHWC; batch, height and width are free in all; tensors are called x and y.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from training import forms, weights
from training.networks import NETWORKS

MODELS = Path(__file__).resolve().parent.parent / "src" / "avdnn" / "models"


def export(name: str) -> None:
    """All forms of one model, beside its weights."""
    network, folder = NETWORKS[name], MODELS / name
    tensors, _ = weights.read(folder / f"{name}.safetensors")
    layers = [
        (tensors[f"conv{i}.weight"], tensors[f"conv{i}.bias"]) for i in range(len(network.layers))
    ]
    for (kernel, bias), shape in zip(layers, network.shapes, strict=True):
        if kernel.shape != shape or bias.shape != shape[:1] or not np.isfinite(kernel).all():
            raise SystemExit(f"{name}: weights are {kernel.shape}, the network wants {shape}")
    for suffix, write in forms.WRITERS.items():
        path = folder / f"{name}{suffix}"
        write(network, layers, path)
        print(f"{path.name}: {path.stat().st_size} bytes")


def main() -> None:
    for name in sys.argv[1:] or NETWORKS:
        export(name)


if __name__ == "__main__":
    main()
