"""Frames per second on an NVIDIA GPU: decoded frame to finished frame in pinned host memory.

960x540 H.264 in, 1920x1080 out, no encoding. Beside avdnn's ways stand the plain one (CPU decode,
upload, float32, download, one after another) and NVDEC with float32 and a synchronization of the
whole device for each frame, so that every ratio is one of the same minutes on the same card.

Writes benchmarks/<card>.json, one row a job, and a table beside it. Needs torch, CuPy and PyAV.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import av  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402

from avdnn import backends, cuda, filters, host, models  # noqa: E402
from avdnn.backends import Options  # noqa: E402
from avdnn.chroma import ChromaScaler  # noqa: E402
from avdnn.cuda import decode as cuda_decode  # noqa: E402
from avdnn.filters import Context  # noqa: E402
from avdnn.filters.hwdownload import HwDownload  # noqa: E402
from avdnn.frame import Frame, Layout, Precision, TensorSpec  # noqa: E402
from avdnn.job import InputSpec  # noqa: E402

WIDTH, HEIGHT, BATCH = 960, 540, 8
RUNS = 3
"""Runs of a job whose frames per second vary; the middle one counts, the others are told."""

WARM_FRAMES = 200
"""Frames before the clock starts: models load, compile and fill the pipeline."""


@dataclass
class Row:
    """One job of the table; `limit` says what bounds it, `profile` in which figures."""

    job: str
    fps: float
    goal: float | None = None
    limit: str = ""
    ratio: float | None = None
    frames: int = 0
    uploaded: float = 0.0
    downloaded: float = 0.0
    profile: dict[str, float] = field(default_factory=dict)


# ---- what is run ---------------------------------------------------------------------------------


def repeated(clip: Path, target: Path, frames: int) -> Path:
    """The clip's packets over and over, at least `frames` of them."""
    with av.open(str(clip)) as source, av.open(str(target), "w") as out:
        video = source.streams.video[0]
        made = out.add_stream_from_template(video)
        packets = [packet for packet in source.demux(video) if packet.size]
        length = max(packet.pts + packet.duration for packet in packets)
        for turn in range(-(-frames // len(packets))):
            for packet in packets:
                copy = av.Packet(bytes(packet))
                copy.pts, copy.dts = packet.pts + turn * length, packet.dts + turn * length
                copy.duration, copy.time_base = packet.duration, packet.time_base
                copy.is_keyframe, copy.stream = packet.is_keyframe, made
                out.mux(copy)
    return target


def synthetic(target: Path, frames: int = 600) -> Path:
    """A moving test picture, for machines without a clip."""
    source = f"testsrc2=size={WIDTH}x{HEIGHT}:rate=30:duration={frames // 30}"
    with av.open(source, format="lavfi") as scene, av.open(str(target), "w") as out:
        stream = out.add_stream("libx264", rate=30, options={"preset": "veryfast", "g": "60"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for frame in scene.decode(video=0):
            frame.pts, frame.pict_type = None, 0
            out.mux(stream.encode(frame.reformat(format="yuv420p")))
        out.mux(stream.encode(None))
    return target


def compact(folder: Path) -> Path:
    """A compact x2 network for RGB, 64 features, 16 layers, with random weights."""
    torch.manual_seed(0)

    class Compact(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers: list[torch.nn.Module] = [torch.nn.Conv2d(3, 64, 3, padding=1)]
            for _ in range(16):
                layers += [torch.nn.PReLU(64), torch.nn.Conv2d(64, 64, 3, padding=1)]
            layers += [torch.nn.PReLU(64), torch.nn.Conv2d(64, 12, 3, padding=1)]
            self.body = torch.nn.Sequential(*layers)
            self.shuffle = torch.nn.PixelShuffle(2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            near = torch.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")
            return near + self.shuffle(self.body(x)) * 0.1

    path = folder / "compact64x16.pt"
    torch.jit.trace(Compact().eval(), torch.rand(1, 3, 32, 32)).save(str(path))
    return path


# ---- how it is run -------------------------------------------------------------------------------


class Meter:
    """Frames per second between the first frame after the warm-up and the last."""

    def __init__(self, warm: int) -> None:
        self._warm = warm
        self._seen = 0
        self._start = self._last = 0.0

    def tick(self) -> None:
        self._seen += 1
        self._last = time.perf_counter()
        if self._seen == self._warm:
            self._start = self._last

    @property
    def fps(self) -> float:
        return (self._seen - self._warm) / max(self._last - self._start, 1e-9)

    @property
    def frames(self) -> int:
        return self._seen


def ours(clip: Path, text: str, decoders: int, *, warm: int = WARM_FRAMES) -> Row:
    """avdnn's own way, from the decoder to host frames."""
    device = cuda.device(0)
    up, down = device.traffic.up, device.traffic.down
    context = Context(say=lambda line: print(f"  {line}", flush=True))
    chain = [*filters.build(text, context), HwDownload(context)]
    meter = Meter(warm)
    with (
        cuda_decode.DeviceReader(InputSpec(str(clip), decoders=decoders), device) as reader,
        closing(filters.connect(chain, context.clock.iterate("decode (waiting)", reader))) as items,
    ):
        for item in items:
            if isinstance(item, Frame):
                meter.tick()
            del item
    count = meter.frames
    return Row(
        "",
        meter.fps,
        frames=count,
        uploaded=(device.traffic.up - up) / count,
        downloaded=(device.traffic.down - down) / count,
        profile={f"s in {name}": round(spent, 3) for name, spent in context.clock.seconds.items()},
    )


def median(rows: list[Row]) -> Row:
    """The row in the middle; its profile holds the slowest and the fastest."""
    rows = sorted(rows, key=lambda row: row.fps)
    found = rows[len(rows) // 2]
    found.profile |= {"slowest run": round(rows[0].fps), "fastest run": round(rows[-1].fps)}
    return found


def decode_alone(clip: Path, decoders: int) -> float:
    """NVDEC sessions into device memory, nothing behind them."""
    meter = Meter(WARM_FRAMES)
    with cuda_decode.DeviceReader(
        InputSpec(str(clip), decoders=decoders), cuda.device(0)
    ) as reader:
        for item in reader:
            if isinstance(item, Frame):
                meter.tick()
            del item
    return meter.fps


def network_alone(model: Path, channels: int, *, compiled: bool, precision: str) -> float:
    """The network on tensors that lie on the GPU."""
    device = cuda.device(0)
    config = {"compile": "1"} if compiled else {}
    options = Options(
        device=device.label,
        precision=Precision(precision),
        batch_size=BATCH,
        size=(HEIGHT, WIDTH),
        sample="float32",
        config=config,
        stream=device.compute,
    )
    backend = backends.load("torch", model, options)
    spec = backend.info.inputs[0]
    kind = getattr(torch, spec.dtype)
    tensor = torch.rand(BATCH, channels, HEIGHT, WIDTH, device="cuda").to(kind)
    tensor = tensor.contiguous(memory_format=torch.channels_last)
    torch.cuda.synchronize()
    stream = torch.cuda.ExternalStream(device.compute.ptr)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    runs = 40
    for turn in range(runs + 5):
        if turn == 5:
            start.record(stream)
        backend.infer_async({spec.name: tensor}).result()
    end.record(stream)
    end.synchronize()
    backend.close()
    return 1000.0 * runs * BATCH / start.elapsed_time(end)


def download_alone(frames: int = 200) -> float:
    """Finished 1080p NV12 frames to pinned memory, a slot at a time."""
    device = cuda.device(0)
    size = 2 * WIDTH * 2 * HEIGHT * 3 // 2 * BATCH
    block = device.pool.take(size, device.copies)
    host = device.pinned.take(size, device.copies)
    device.mark(device.copies).synchronize()
    began = time.perf_counter()
    for _ in range(frames // BATCH):
        device.copy(host.pointer, size, block.pointer, size, size, 1, device.copies, way="down")
    device.mark(device.copies).synchronize()
    return frames / (time.perf_counter() - began)


def network32(model: Path) -> Any:
    """The network as a plain port has it: float32, NCHW, eager."""
    return torch.jit.load(str(model), map_location="cuda").eval().float()


def plain(clip: Path, model: Path, count: int) -> float:
    """CPU decode, float32 up, network, float32 down, rounding and chroma on the CPU."""
    network, meter = network32(model), Meter(20)
    spec = TensorSpec("x", (-1, 1, -1, -1), layout=Layout.NCHW)
    scaler = ChromaScaler()
    with av.open(str(clip)) as container, torch.inference_mode():
        container.streams.video[0].thread_type = "AUTO"
        for _, picture in zip(range(count), container.decode(video=0), strict=False):
            frame = host.from_av(picture)
            tensor = torch.from_numpy(host.pack([frame], spec)).cuda()
            made = network(tensor).cpu().numpy()
            host.unpack(made[0], spec, frame, scaler)
            meter.tick()
    return meter.fps


def synchronized(clip: Path, model: Path, count: int) -> float:
    """NVDEC and all of it on the GPU, float32, the device synchronized for each frame."""
    device, network, meter = cuda.device(0), network32(model), Meter(20)
    landing = torch.empty(2 * HEIGHT * 3 // 2, 2 * WIDTH, dtype=torch.uint8, pin_memory=True)
    with av.open(str(clip)) as container, torch.inference_mode():
        video = container.streams.video[0]
        decoder = cuda_decode.open_decoder(device, video)
        seen = 0
        for packet in container.demux(video):
            for frame in decoder.decode(packet if packet.size else None):
                luma, chroma = (torch.from_dlpack(plane.__dlpack__()) for plane in frame.planes)
                made = network((luma.float() / 255)[None, None])[0, 0]
                made = (made * 255).round_().clamp_(0, 255).to(torch.uint8)
                pair = chroma.permute(2, 0, 1)[None].float()
                pair = torch.nn.functional.interpolate(pair, scale_factor=2.0, mode="bicubic")
                pair = pair.round_().clamp_(0, 255).to(torch.uint8)[0].permute(1, 2, 0)
                torch.cuda.synchronize()
                landing[: 2 * HEIGHT].copy_(made)
                landing[2 * HEIGHT :].copy_(pair.reshape(HEIGHT, 2 * WIDTH))
                torch.cuda.synchronize()
                meter.tick()
                seen += 1
            if seen >= count:
                break
    return meter.fps


# ---- the table -----------------------------------------------------------------------------------


def espcn_text(*, batch: int, precision: str, compiled: bool, model: str = "espcn-x2") -> str:
    more = ":options=compile=1" if compiled else ""
    return (
        f"dnn_processing=dnn_backend=torch:model={model}:batch_size={batch}"
        f":precision={precision}{more}"
    )


def measure(clip: Path, long: Path, folder: Path, rows: list[Row], quick: bool) -> None:
    """Fill `rows`, so that a run that is cut short still has what it measured."""
    espcn = models.resolve("espcn-x2", "torch")
    wide = compact(folder)
    parts: dict[str, float] = {}

    def part(name: str, value: float) -> float:
        parts[name] = value
        print(f"{name}: {value:.0f}", flush=True)
        return value

    def add(row: Row, job: str, goal: float | None = None, limit: str = "") -> None:
        row.job, row.goal, row.limit = job, goal, limit
        if parts.get("plain"):
            row.ratio = row.fps / parts["plain"]
        rows.append(row)
        print(f"{job}: {row.fps:.0f} frames/s, goal {goal}; {limit}", flush=True)

    part("plain", plain(clip, espcn, 300))
    add(
        Row("", parts["plain"]),
        "plain: CPU decode, float32 up, network, float32 down, rounding and chroma on the CPU",
        None,
        "one step waits for the other",
    )
    rate = synchronized(clip, espcn, 400)
    add(
        Row("", rate),
        "NVDEC, zero copy, float32, device synchronized per frame",
        None,
        "one step waits for the other",
    )
    nvdec = {
        n: part(f"NVDEC alone, {n} sessions", decode_alone(long, n))
        for n in (1, 4, cuda_decode.AUTO_DECODERS)
    }
    part("download alone", download_alone())
    net32 = part(
        "ESPCN alone, float32", network_alone(espcn, 1, compiled=False, precision="float32")
    )
    net = part(
        "ESPCN alone, float16 compiled", network_alone(espcn, 1, compiled=True, precision="float16")
    )
    for decoders in (1, 4, cuda_decode.AUTO_DECODERS):
        text = espcn_text(batch=BATCH, precision="float16", compiled=True)
        row = median([ours(long, text, decoders) for _ in range(RUNS)])
        bounds = {"NVDEC and reading alone": nvdec[decoders], "the network alone": net}
        name = min(bounds, key=bounds.__getitem__)
        bound = bounds[name]
        sessions = "1 decode session" if decoders == 1 else f"{decoders} decode sessions"
        add(
            row,
            f"ESPCN x2, {sessions}, batch {BATCH}, float16 compiled",
            {1: 1500.0, cuda_decode.AUTO_DECODERS: 4150.0}.get(decoders),
            f"{name}: {bound:.0f}, {100 * row.fps / bound:.0f} % reached",
        )
    if not quick:
        row = ours(clip, espcn_text(batch=1, precision="float16", compiled=False), 1, warm=100)
        add(row, "ESPCN x2, 1 decode session, batch 1, float16", None, "Python for each frame")
        row = ours(clip, espcn_text(batch=BATCH, precision="float32", compiled=False), 4, warm=100)
        add(
            row,
            f"ESPCN x2, 4 decode sessions, batch {BATCH}, float32 exact",
            None,
            f"the network alone: {net32:.0f}, {100 * row.fps / net32:.0f} % reached",
        )
    alone = part(
        "compact 64x16 alone, float16 compiled",
        network_alone(wide, 3, compiled=True, precision="float16"),
    )
    text = espcn_text(batch=BATCH, precision="float16", compiled=True, model=str(wide))
    row = ours(clip, text, 2, warm=100)
    add(
        row,
        f"compact 64x16 RGB, 2 decode sessions, batch {BATCH}, float16 compiled",
        440,
        f"the network alone: {alone:.0f}, {100 * row.fps / alone:.0f} % reached",
    )
    rows[0].profile = {name: round(value, 1) for name, value in parts.items()}


def facts(commit: str) -> dict[str, str]:
    """Card, driver, versions, date, commit."""
    import cupy

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    name, driver = subprocess.check_output(query, text=True).splitlines()[0].split(", ")
    if not commit:
        command = ["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"]
        told = subprocess.run(command, capture_output=True, text=True)
        commit = told.stdout.strip() or "unknown"
    return {
        "card": name,
        "driver": driver,
        "cuda": str(torch.version.cuda),
        "torch": torch.__version__,
        "cupy": cupy.__version__,
        "pyav": av.__version__,
        "ffmpeg": av.ffmpeg_version_info,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "cores": str(len(os.sched_getaffinity(0))),
        "date": datetime.date.today().isoformat(),
        "commit": commit,
    }


def table(known: dict[str, str], rows: list[Row]) -> str:
    """The rows for people."""
    lines = [
        f"# {known['card']}",
        "",
        f"Driver {known['driver']}, CUDA {known['cuda']}, torch {known['torch']}, CuPy "
        f"{known['cupy']}, PyAV {known['pyav']}, Python {known['python']}, {known['cores']} cores; "
        f"{known['date']}, commit {known['commit']}. Made by `make bench-gpu`.",
        "",
        "| job, 960x540 to 1920x1080, decoded frame to finished frame in pinned host memory "
        "| frames/s | goal | times the plain way | bytes up a frame | bytes down a frame "
        "| what limits it |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        goal = f"{row.goal:,.0f}" if row.goal else ""
        ratio = f"{row.ratio:.1f}" if row.ratio else ""
        moved = (f"{row.uploaded:,.0f}", f"{row.downloaded:,.0f}") if row.frames else ("", "")
        low, high = (row.profile.get(f"{which} run") for which in ("slowest", "fastest"))
        rate = f"{row.fps:,.0f}" + (f" ({low:,.0f} to {high:,.0f})" if low and high else "")
        cells = (row.job, rate, goal, ratio, *moved, row.limit)
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", "Parts alone, frames/s:", ""]
    lines += [f"- {name}: {value:,.0f}" for name, value in rows[0].profile.items()]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clip", type=Path, help="a 960x540 H.264 clip; made if it is not given")
    parser.add_argument("--frames", type=int, default=12000, help="frames of the long runs")
    parser.add_argument("--commit", default="", help="where git is not at hand")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks")
    parser.add_argument("--quick", action="store_true", help="the rows with goals only")
    given = parser.parse_args()
    known = facts(given.commit)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clip = given.clip or synthetic(folder / "clip.mp4")
        long = repeated(clip, folder / "long.mp4", given.frames)
        try:
            measure(repeated(clip, folder / "short.mp4", 1500), long, folder, rows, given.quick)
        finally:
            given.out.mkdir(parents=True, exist_ok=True)
            card = re.sub(r"[^a-z0-9]+", "-", known["card"].lower()).strip("-")
            written = {"machine": known, "rows": [vars(row) for row in rows]}
            path = given.out / f"{card}.json"
            path.write_text(json.dumps(written, indent=1) + "\n")
            if rows:
                path.with_suffix(".md").write_text(table(known, rows))
                print(table(known, rows))


if __name__ == "__main__":
    main()
