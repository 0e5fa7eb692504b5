"""Train the bundled models.

    python scripts/prepare_photos.py photos
    python scripts/train_models.py photos out --seconds 240

Builds the training pairs on the CPU, then trains all networks side by side on one device, each in
a process. Writes NAME.safetensors, figures.json and curves.json. `--seconds` lets the
schedule follow the clock; the step counts that it came to are in figures.json, and
`--steps NAME=COUNT` repeats them with the same seed. Needs numpy, torch, Pillow and PyAV.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from dataclasses import asdict, replace
from datetime import date
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import numpy as np
import torch
from training import figures, learn, pairs, weights
from training.networks import NETWORKS, Network

POOLS = {
    "same": pairs.Recipe(scale=1, clips=4, crf=(26, 40)),
    "x2": pairs.Recipe(scale=2, clips=3, crf=(16, 32)),
    "x4": pairs.Recipe(scale=4, clips=3, crf=(16, 32)),
}
_ENLARGE = {"patch": 64, "rate": 8e-4, "clean": 0.6, "jpeg": 0.15, "pick": 1.5}
PLANS = {
    "espcn-x2": learn.Plan("x2", patch=64, batch=64, rate=2e-3, clean=1, jpeg=0, soft=1e-3),
    "compact-x2": learn.Plan("x2", batch=48, **_ENLARGE),
    "compact-x4": learn.Plan("x4", batch=32, **_ENLARGE),
    "deblock": learn.Plan(
        "same", patch=96, batch=24, rate=8e-4, clean=0, jpeg=0.2, qualities=(15, 70), pick=1.25
    ),
}
BITS = 8
"""Mantissa bits of the stored weights: half of float16's size once packed, no loss to be seen."""


def _runner(model: learn.Model, device: torch.device) -> figures.Run:
    @torch.no_grad()
    def run(low: np.ndarray) -> np.ndarray:
        tensor = torch.from_numpy(low.transpose(2, 0, 1).copy())[None]
        out = model(tensor.to(device).float() / 255)
        return figures.codes(out[0].cpu().numpy().transpose(1, 2, 0))

    return run


def _validator(network: Network, folder: Path, device: torch.device):  # type: ignore[no-untyped-def]
    """Mean PSNR on the middle of each held-out photograph, first case that counts."""
    wanted_case = "H.264 crf 34" if network.scale == 1 else "clean"
    side = 128 if network.scale == 1 else 256 // network.scale
    lows, highs = [], []
    for path in sorted(folder.iterdir()):
        for case, low, high in figures.cases(network, pairs.picture(path)):
            if case != wanted_case:
                continue
            y, x = ((length - side) // 2 for length in low.shape[:2])
            step = network.scale
            lows.append(low[y : y + side, x : x + side])
            highs.append(high[y * step : (y + side) * step, x * step : (x + side) * step])
            break
    low, high = (
        torch.from_numpy(np.stack(group).transpose(0, 3, 1, 2)).to(device).float() / 255
        for group in (lows, highs)
    )

    @torch.no_grad()
    def validate(model: torch.nn.Module) -> float:
        error = (model(low).clamp(0, 1) - high).square().mean((1, 2, 3))
        return float((-10 * error.log10()).mean())

    return validate


def _train(name: str, network: Network, plan: learn.Plan, args: argparse.Namespace) -> None:
    """One network, in a process of its own."""
    torch.set_num_threads(2)
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    device = torch.device(args.device)
    pool = pairs.Pool.load(args.work / f"{plan.pool}.npz")
    validate = _validator(network, args.photos / "held", device)
    begun = time.monotonic()
    model, curve = learn.train(
        network, plan, pool, device=device, seed=args.seed, validate=validate
    )
    seconds = time.monotonic() - begun
    tensors = model.tensors(bits=BITS)
    model.assign(tensors)
    metadata = {
        "name": name,
        "seed": str(args.seed),
        "steps": str(int(curve[-1]["step"])),
        "activation": network.activation.value,
    }
    weights.write(args.out / f"{name}.safetensors", tensors, metadata)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    found = figures.measure(network, _runner(model, device), args.photos / "held")
    report = {
        "parameters": network.parameters,
        "activation": network.activation.value,
        "steps": int(curve[-1]["step"]),
        "seconds": round(seconds, 1),
        "plan": asdict(plan),
        "means": figures.means(found),
        "figures": [asdict(figure) for figure in found],
    }
    (args.work / f"{name}.json").write_text(json.dumps({"report": report, "curve": curve}))
    for case, mean in report["means"].items():
        print(f"{name} {case}: {mean['baseline_psnr']:.2f} -> {mean['psnr']:.2f} dB", flush=True)


def _plans(args: argparse.Namespace) -> dict[str, tuple[Network, learn.Plan]]:
    steps = dict(item.split("=") for item in args.steps)
    made = {}
    for name in args.only or NETWORKS:
        network, plan = NETWORKS[name], PLANS[name]
        if args.batch:
            plan = replace(plan, batch=args.batch)
        made[name] = (
            network,
            replace(plan, steps=int(steps.get(name, 0)), seconds=args.seconds),
        )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("photos", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--steps", nargs="*", default=[], metavar="NAME=COUNT")
    parser.add_argument("--batch", type=int, default=0, help="for a quick trial")
    parser.add_argument("--photographs", type=int, default=None, help="for a quick trial")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    plans = _plans(args)
    with tempfile.TemporaryDirectory() as work:
        args.work = Path(work)
        begun = time.monotonic()
        photos = sorted((args.photos / "train").iterdir())[: args.photographs]
        for name in dict.fromkeys(plan.pool for _, plan in plans.values()):
            pool = pairs.build(photos, POOLS[name], seed=args.seed, workers=args.workers)
            pool.save(args.work / f"{name}.npz")
            size = len(pool.low) / 1e6
            print(
                f"pool {name}: {len(pool.samples)} pictures, {size:.0f} Mpixel, "
                f"{time.monotonic() - begun:.0f} s",
                flush=True,
            )
        context = multiprocessing.get_context("spawn")
        processes = {
            name: context.Process(target=_train, args=(name, network, plan, args))
            for name, (network, plan) in plans.items()
        }
        for process in processes.values():
            process.start()
        for process in processes.values():
            process.join()
        made = {
            name: json.loads((args.work / f"{name}.json").read_text())
            for name in plans
            if (args.work / f"{name}.json").exists()
        }
    device = torch.cuda.get_device_name() if args.device.startswith("cuda") else "CPU"
    report: dict[str, object] = {
        "device": device,
        "torch": torch.__version__,
        "seed": args.seed,
        "date": date.today().isoformat(),
    }
    report["networks"] = {name: part["report"] for name, part in made.items()}
    (args.out / "figures.json").write_text(json.dumps(report, indent=1))
    curves = {name: part["curve"] for name, part in made.items()}
    (args.out / "curves.json").write_text(json.dumps(curves))
    failed = [name for name, process in processes.items() if process.exitcode]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
