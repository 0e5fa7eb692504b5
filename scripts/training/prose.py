"""The words of the model cards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .networks import Network

RIVAL = "FFmpeg recipes' ESPCN"

_USE = {
    "espcn-x2": """\
Enlarges luma to twice the size; chroma goes through bicubic, as in FFmpeg's `dnn_processing`.
The ESPCN network of Shi et al. (2016): 5x5x64, 3x3x32, 3x3x4, depth to space. It is the smallest
and fastest bundled model, made for clean video. It does not remove compression noise.""",
    "compact-x2": """\
Enlarges RGB to twice the size and takes light compression noise away. Twelve 3x3 convolutions of
64 channels with leaky ReLU, depth to space, and the input enlarged by nearest neighbour added to
the result. Out-of-focus pictures gain nothing or lose (at 46 dB and above, where the eye sees no
difference): what little grain they have is taken for noise.""",
    "compact-x4": """\
Enlarges RGB to four times the size and takes light compression noise away. Twelve 3x3
convolutions of 64 channels with leaky ReLU, depth to space, and the input enlarged by nearest
neighbour added to the result. Trained for fidelity: it does not invent texture.""",
    "deblock": """\
Same size, RGB: removes block and ringing noise of H.264 and JPEG, and restores colour edges that
4:2:0 blurred. Twelve 3x3 convolutions of 64 channels with leaky ReLU, added to the input. Made for
strongly compressed material (H.264 crf 28 to 40, JPEG quality 15 to 70); fine texture that the
encoder has removed does not come back.""",
}

_DATA = {
    "espcn-x2": "luma of photographs, downscaled to half; half of the steps in limited range, half"
    " in full range; no compression",
    "compact-x2": "photographs, downscaled to half: 60 % as they are, 25 % as frames of short H.264"
    " clips (crf 16 to 32) that drift over the photograph, 15 % as JPEG (quality 30 to 95)",
    "compact-x4": "photographs, downscaled to a quarter: 60 % as they are, 25 % as frames of short"
    " H.264 clips (crf 16 to 32) that drift over the photograph, 15 % as JPEG (quality 30 to 95)",
    "deblock": "photographs: 80 % as frames of short H.264 clips (crf 26 to 40) that drift over the"
    " photograph, 20 % as JPEG (quality 15 to 70)",
}

_LICENCES = """\
The weights are the project's own work and under its licence, Apache-2.0. The training photographs
are not in the repository. They come from these Debian packages, whose copyright files give:

| package | licence of the pictures |
|---|---|
| gnome-backgrounds | CC-BY-SA-3.0, CC-BY-SA-2.0, CC-BY-2.0 |
| mate-backgrounds | GPL-2+ |
| plasma-workspace-wallpapers | GPL-2+ |
| ukui-wallpapers | CC-BY-SA-3.0 |

The pictures shown here are crops of scikit-image's sample photographs: astronaut (NASA, public
domain) and coffee (Rachel Michetti, CC0)."""


def _run(network: Network) -> str:
    if network.channels == 1:
        return f'avdnn run -i in.mp4 -vf "dnn_processing=model={network.name}" out.mp4'
    chain = f"format=rgb24,dnn_processing=model={network.name},format=yuv420p"
    return f'avdnn run -i in.mp4 -vf "{chain}" out.mp4'


def _speed(report: Mapping[str, Any]) -> str:
    speed = report.get("speed")
    if not speed:
        return "Not measured yet."
    lines = [
        f"Milliseconds for one {speed['size']} frame, one at a time, float32; {speed['machine']}, "
        f"{speed['date']}:",
        "",
        "| " + " | ".join(speed["milliseconds"]) + " |",
        "|" + "---|" * len(speed["milliseconds"]),
        "| " + " | ".join(f"{value:g}" for value in speed["milliseconds"].values()) + " |",
    ]
    return "\n".join(lines)


def card(network: Network, title: str, report: Mapping[str, Any], tables: str) -> str:
    """The card's Markdown."""
    plan = report["plan"]
    start = "input" if network.scale == 1 else "bicubic"
    how = (
        "Input and baseline are the decoded H.264 frames (libx264, medium, yuv420p)"
        if network.scale == 1
        else "Input is the photograph after a bicubic downscale (antialiased, a = -0.5); the"
        " baseline is a bicubic upscale of the same input (a = -0.5)"
    )
    rival = f"; {RIVAL} is public, measured here on the native backend" if "rival" in report else ""
    over = "limited-range BT.601 luma" if network.channels == 1 else "R, G and B together"
    return f"""# {network.name}

{title}.

    avdnn run --model {network.name} in.mp4 out.mp4
    {_run(network)}

{_USE[network.name]}

{report["parameters"]} parameters, any frame size, any batch. Forms: `.xml`/`.bin` (OpenVINO),
`.onnx`, `.pt` (TorchScript), `.pb` (TensorFlow), `.model` (FFmpeg's native format),
`.safetensors` (the weights). All give the same frames. Tensors are `x` and `y`.

![{start}, {network.name} and original](example.png)

## Quality

Pictures that were never trained on: a fifth of the photographs, and eight sample photographs of
scikit-image. {how}. PSNR is over {over}, 8-bit codes, whole frames with their borders; SSIM as in
Wang et al. 2004.

{tables}

All figures are in [figures.json](figures.json); {report["device"]}, {report["date"]}{rival}.

## Training

Data: {_DATA[network.name]}.
Each photograph is used at three sizes. Loss: Charbonnier with an elbow at {plan["soft"]:g}.
AdamW, rate {plan["rate"]:g} falling by a cosine, {report["steps"]} steps of {plan["batch"]} patches
of {plan["patch"]}x{plan["patch"]} input pixels; the weights are an exponential average over the
steps, rounded to 8 bits of mantissa. {report["seconds"]:.0f} s on one {report["device"]} beside
the other networks, PyTorch {report["torch"]}, seed {report["seed"]}. To repeat it:

    python scripts/prepare_photos.py photos
    python scripts/train_models.py photos out --steps {network.name}={report["steps"]} \
--only {network.name}
    cp out/{network.name}.safetensors src/avdnn/models/{network.name}/
    python scripts/export_models.py {network.name}

![held-out PSNR over training](curve.svg)

## Speed

{_speed(report)}

## Licence

{_LICENCES}
"""
