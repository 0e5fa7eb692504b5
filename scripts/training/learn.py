"""Train one network on one pool."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import jpeg, weights
from .networks import SLOPE, Activation, Network
from .pairs import Pool


@dataclass(frozen=True, slots=True)
class Plan:
    """How to train. `patch` is the degraded side; `clean` and `jpeg` are shares of the batch,
    the rest is H.264; with `seconds` the schedule follows the clock, else it is `steps` long."""

    pool: str
    patch: int
    batch: int
    rate: float
    clean: float
    jpeg: float
    qualities: tuple[float, float] = (30.0, 95.0)
    steps: int = 0
    seconds: float = 0.0
    average: float = 0.999
    pick: float = 1.0  # draw this many times the batch and keep the patches with most detail
    soft: float = 0.01  # errors below this count squared, above linearly


class Model(nn.Module):
    """The network of networks.py, planar, in float32 at both ends."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        self.convs = nn.ModuleList(
            nn.Conv2d(shape[1], shape[0], shape[2], padding=shape[2] // 2)
            for shape in network.shapes
        )
        gain = nn.init.calculate_gain("leaky_relu", SLOPE)
        if network.activation is Activation.TANH:
            gain = 1.0
        for conv in self.convs:
            fan_in = conv.weight[0].numel()
            nn.init.normal_(conv.weight, std=gain / math.sqrt(fan_in))
            nn.init.zeros_(conv.bias)
        if network.shortcut:
            self.convs[-1].weight.data *= 0.1

    def forward(self, x: Tensor) -> Tensor:
        y = x
        for conv in self.convs[:-1]:
            y = self._activate(conv(y))
        y = self.convs[-1](y).float()
        if self.network.shortcut:
            y = y + x.repeat_interleave(self.network.scale**2, dim=1)
        return F.pixel_shuffle(y, self.network.scale) if self.network.scale > 1 else y

    def _activate(self, y: Tensor) -> Tensor:
        match self.network.activation:
            case Activation.TANH:
                return torch.tanh(y)
            case Activation.RELU:
                return F.relu(y)
        return F.leaky_relu(y, SLOPE)

    def tensors(self, *, bits: int) -> dict[str, np.ndarray]:
        """Weights and biases as they are stored."""
        return {
            f"conv{i}.{part}": weights.shorten(value.detach().float().cpu().numpy(), bits=bits)
            for i, conv in enumerate(self.convs)
            for part, value in (("weight", conv.weight), ("bias", conv.bias))
        }

    def assign(self, tensors: dict[str, np.ndarray]) -> None:
        for i, conv in enumerate(self.convs):
            for part, target in (("weight", conv.weight), ("bias", conv.bias)):
                target.data.copy_(torch.from_numpy(tensors[f"conv{i}.{part}"].astype(np.float32)))


class Patches:
    """Random patches of a pool that lies on the device."""

    def __init__(self, pool: Pool, plan: Plan, device: torch.device, seed: int) -> None:
        self.plan, self.scale, self.device = plan, pool.scale, device
        self.low = torch.from_numpy(pool.low).to(device)
        self.high = torch.from_numpy(pool.high).to(device)
        self.samples = torch.from_numpy(pool.samples).to(device)
        self.random = torch.Generator(device).manual_seed(seed)
        area = (self.samples[:, 1] * self.samples[:, 2]).float()
        coded = self.samples[:, 5] == 1
        self.weights = [torch.where(coded == kind, area, 0) for kind in (False, True)]

    def _cut(self, kind: int, count: int) -> tuple[Tensor, Tensor]:
        rows = torch.multinomial(self.weights[kind], count, True, generator=self.random)
        rows = self.samples[rows]
        draw = torch.rand((2, count), generator=self.random, device=self.device)
        side, scale = self.plan.patch, self.scale
        y = (draw[0] * (rows[:, 1] - side + 1)).long()
        x = (draw[1] * (rows[:, 2] - side + 1)).long()
        low = self._gather(self.low, rows[:, 0] + y * rows[:, 2] + x, rows[:, 2], side)
        start = rows[:, 3] + (y * rows[:, 4] + x) * scale
        return low, self._gather(self.high, start, rows[:, 4], side * scale)

    def _gather(self, flat: Tensor, start: Tensor, stride: Tensor, side: int) -> Tensor:
        steps = torch.arange(side, device=self.device)
        index = start[:, None, None] + steps[:, None] * stride[:, None, None] + steps
        return flat[index].permute(0, 3, 1, 2).float()

    def _detailed(self, kind: int, count: int) -> tuple[Tensor, Tensor]:
        low, high = self._cut(kind, math.ceil(count * self.plan.pick))
        if len(low) == count:
            return low, high
        luma = high.mean(1)
        detail = luma.diff(dim=1).abs().mean((1, 2)) + luma.diff(dim=2).abs().mean((1, 2))
        keep = detail.topk(count).indices
        return low[keep], high[keep]

    def batch(self) -> tuple[Tensor, Tensor]:
        """(degraded, clean) in [0, 1]."""
        plan = self.plan
        clean = round(plan.batch * plan.clean)
        blocks = round(plan.batch * plan.jpeg)
        coded = plan.batch - clean - blocks
        parts = []
        if clean + blocks:
            low, high = self._detailed(0, clean + blocks)
            if blocks:
                draw = torch.rand(blocks, generator=self.random, device=self.device)
                quality = plan.qualities[0] + draw * (plan.qualities[1] - plan.qualities[0])
                low = torch.cat((low[:clean], jpeg.compressed(low[clean:], quality)))
            parts.append((low, high))
        if coded:
            parts.append(self._detailed(1, coded))
        low, high = (torch.cat(side) / 255 for side in zip(*parts, strict=True))
        turn = int(torch.randint(8, (), generator=self.random, device=self.device))
        for bit, dims in ((1, (2,)), (2, (3,))):
            if turn & bit:
                low, high = low.flip(dims), high.flip(dims)
        if turn & 4:
            low, high = low.transpose(2, 3), high.transpose(2, 3)
        return low, high


def luma(rgb: Tensor, *, limited: bool) -> Tensor:
    """BT.601 luma codes over 255, as FFmpeg hands them to a network."""
    y = (rgb * rgb.new_tensor([0.299, 0.587, 0.114])[:, None, None]).sum(1, keepdim=True)
    y = y * (219 / 255) + 16 / 255 if limited else y
    return (y * 255).round() / 255


def train(
    network: Network,
    plan: Plan,
    pool: Pool,
    *,
    device: torch.device,
    seed: int,
    validate: Callable[[nn.Module], float],
) -> tuple[Model, list[dict[str, float]]]:
    """The averaged model, and the curve: step, loss, validation PSNR."""
    torch.manual_seed(seed)
    model = Model(network).to(device).to(memory_format=torch.channels_last)
    average = copy.deepcopy(model).requires_grad_(False)
    patches = Patches(pool, plan, device, seed)
    optimizer = torch.optim.AdamW(model.parameters(), plan.rate, betas=(0.9, 0.99), weight_decay=0)
    mixed = device.type == "cuda" and network.channels == 3
    curve: list[dict[str, float]] = []
    begun, step, recent, done = time.monotonic(), 0, torch.zeros((), device=device), 0.0
    mark = 0
    while done < 1:
        rate = plan.rate * min(1, (step + 1) / 200) * (0.5 + 0.5 * math.cos(math.pi * done))
        for group in optimizer.param_groups:
            group["lr"] = max(rate, plan.rate * 0.005)
        low, high = patches.batch()
        if network.channels == 1:
            limited = step % 2 == 0
            low, high = luma(low, limited=limited), luma(high, limited=limited)
        low = low.contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16, enabled=mixed):
            out = model(low)
        loss = _loss(out, high, soft=plan.soft, border=8 * network.scale)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        keep = min(plan.average, step / (step + 50))
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - keep)
        recent += (loss.detach() - recent) * max(0.01, 1 / (step + 1))
        step += 1
        if step % 20 == 0 and device.type == "cuda":
            torch.cuda.synchronize()
        done = _progress(plan, step, time.monotonic() - begun)
        if int(done * 24) > mark or done >= 1:
            mark = int(done * 24)
            point = {"step": step, "loss": float(recent), "psnr": validate(average)}
            curve.append(point)
            print(f"{network.name}: {point} {time.monotonic() - begun:.0f} s", flush=True)
    return average, curve


def _progress(plan: Plan, step: int, seconds: float) -> float:
    return step / plan.steps if plan.steps else seconds / plan.seconds


def _loss(out: Tensor, wanted: Tensor, *, soft: float, border: int) -> Tensor:
    """Charbonnier; the border, where zero padding is seen, counts less than its area."""
    error = torch.sqrt((out - wanted) ** 2 + soft**2)
    inner = error[..., border:-border, border:-border]
    return 0.85 * inner.mean() + 0.15 * error.mean()
