"""Frames per second of every backend on one job: ESPCN, 960x540 luma to 1920x1080, no encoding.

Each figure is the median of runs in processes of their own, taken in turn with what it is compared
with, so that a ratio is one of the same minutes on the same machine:
- avdnn: the whole program, file in, frames out;
- alone: the runtime without avdnn, on frames that lie in memory: the limit;
- plain: TorchScript eager in NCHW float32, which is how FFmpeg's torch filter runs a model;
- ffmpeg: FFmpeg's filter with the same backend and model, for an FFmpeg that has it (--ffmpeg).

Writes benchmarks/cpu.json and the table benchmarks/cpu.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BACKENDS = ("native", "openvino", "tensorflow", "onnx", "torch")
WIDTH, HEIGHT = 960, 540


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--backends", nargs="+", default=list(BACKENDS), choices=BACKENDS)
    parser.add_argument("--precisions", nargs="+", default=["float32", "auto"])
    parser.add_argument("--frames", type=int, default=40, help="frames of a run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--ffmpeg", help="an FFmpeg whose dnn_processing has the backends")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        print(json.dumps(work(json.loads(args.worker))))
        return
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.mp4"
        make_clip(clip, args.frames)
        rows = [row for name in args.backends for row in measure(name, clip, args)]
    write(args.out, rows)


def make_clip(path: Path, frames: int) -> None:
    """Moving detail in H.264, made here so that anybody has the same clip."""
    import av
    import numpy as np

    y, x = np.mgrid[0:HEIGHT, 0:WIDTH].astype(np.float32)
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=30, options={"crf": "18"})
        stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
        for number in range(frames):
            radius = np.hypot(x - WIDTH / 2 - 3 * number, y - HEIGHT / 2)
            frame = av.VideoFrame(WIDTH, HEIGHT, "yuv420p")
            for plane in frame.planes:
                plane.update(bytes([128]) * plane.buffer_size)
            luma = (127 + 100 * np.sin(radius**2 / 900 + number / 5)).astype(np.uint8)
            frame.planes[0].update(np.ascontiguousarray(luma).tobytes())
            frame.pts, frame.time_base = number, Fraction(1, 30)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())


def measure(name: str, clip: Path, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of one backend, one a precision."""
    from avdnn import backends, models

    if not backends.installed(name):
        print(f"{name}: not installed, left out")
        return
    model = models.registry()["espcn-x2"].files[name]
    able = [str(p) for p in backends.module(name).precisions(backends.Options())]
    for precision in args.precisions:
        if precision == "auto" and able == ["float32"]:
            continue
        job = {"backend": name, "model": str(model), "clip": str(clip), "precision": precision}
        job["frames"] = args.frames if name != "native" else min(args.frames, 10)
        kinds = ["avdnn", *([] if name == "native" else ["alone"])]
        if name == "torch":
            kinds.append("plain")
        if args.ffmpeg and has_backend(args.ffmpeg, name, model, clip):
            kinds.append("ffmpeg")
        found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in kinds}
        for _ in range(args.runs):
            for kind in kinds:
                one = {**job, "kind": kind}
                if kind == "ffmpeg":
                    found[kind].append(run_ffmpeg(args.ffmpeg, one))
                else:
                    found[kind].append(run_worker(one))
        yield row(name, precision, found)


def row(name: str, precision: str, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    fps = {kind: statistics.median(run["fps"] for run in runs) for kind, runs in found.items()}
    ours = found["avdnn"]
    made = {
        "backend": name,
        "precision": precision,
        "ran": ours[0].get("ran", ""),
        "fps": fps,
        "spread": {kind: spread(runs) for kind, runs in found.items()},
        "ratio": {kind: fps["avdnn"] / value for kind, value in fps.items() if kind != "avdnn"},
        "first_frame_seconds": statistics.median(run["first"] for run in ours),
        "peak_memory_mib": round(statistics.median(run["peak"] for run in ours) / 2**20),
        "stages": ours[-1]["stages"],
    }
    print(json.dumps(made))
    return made


def spread(runs: list[dict[str, Any]]) -> list[float]:
    values = [run["fps"] for run in runs]
    return [round(min(values), 2), round(max(values), 2)]


# ---- one run, in a process of its own ----------------------------------------------------------


def run_worker(job: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, __file__, "--worker", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{job}: {done.stderr}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def work(job: dict[str, Any]) -> dict[str, Any]:
    if job["kind"] == "avdnn":
        return work_avdnn(job)
    import numpy as np

    frames = [np.random.rand(HEIGHT, WIDTH).astype(np.float32) for _ in range(4)]
    run = plain_torch if job["kind"] == "plain" else ALONE[job["backend"]]
    return {"fps": run(job, frames)}


def work_avdnn(job: dict[str, Any]) -> dict[str, Any]:
    """The whole program without the encoder, timed from the first finished frame to the last."""
    import logging

    from avdnn import InputSpec, Job, OutputSpec, pipeline

    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("avdnn").addHandler(handler)
    times: list[float] = []

    class Times(pipeline.Progress):
        def update(self, frames: int, time_: float | None = None) -> None:
            times.append(time.perf_counter())

    text = f"dnn_processing=dnn_backend={job['backend']}:model='{job['model']}'"
    report = pipeline.run(
        Job(
            InputSpec(job["clip"]),
            OutputSpec("-", format="null", frames=job["frames"]),
            vf=f"{text}:precision={job['precision']}",
        ),
        progress=Times(),
    )
    return {
        "fps": (len(times) - 1) / (times[-1] - times[0]),
        "first": report.first_frame_seconds,
        "peak": report.peak_memory_bytes,
        "stages": {name: round(value, 3) for name, value in report.stages.items()},
        "ran": said[0] if said else "",
    }


def timed(run: Callable[[Any], Any], frames: list[Any], count: int, workers: int) -> float:
    """Frames per second of `run` over `count` frames from so many threads, after a warm-up."""
    from concurrent.futures import ThreadPoolExecutor

    run(frames[0])
    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(run, frames[:workers]))
        start = time.perf_counter()
        list(pool.map(run, (frames[number % len(frames)] for number in range(count))))
        return count / (time.perf_counter() - start)


def alone_openvino(job: dict[str, Any], frames: list[Any]) -> float:
    from avdnn.backends.openvino import runtime

    ov = runtime()
    core = ov.Core()
    model = core.read_model(job["model"])
    model.reshape([1, 1, HEIGHT, WIDTH])
    hints = {"PERFORMANCE_HINT": "THROUGHPUT"}
    if job["precision"] == "float32":
        hints["INFERENCE_PRECISION_HINT"] = "f32"
    compiled = core.compile_model(model, "CPU", hints)
    queue = ov.AsyncInferQueue(compiled)
    for frame in frames:
        queue.start_async({0: frame[None, None]})
    queue.wait_all()
    start = time.perf_counter()
    for number in range(job["frames"]):
        queue.start_async({0: frames[number % len(frames)][None, None]})
    queue.wait_all()
    return job["frames"] / (time.perf_counter() - start)


def alone_tensorflow(job: dict[str, Any], frames: list[Any]) -> float:
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import tensorflow as tf

    v1 = tf.compat.v1
    definition = v1.GraphDef()
    definition.ParseFromString(Path(job["model"]).read_bytes())
    graph = tf.Graph()
    with graph.as_default():
        tf.import_graph_def(definition, name="")
    nodes = definition.node
    given = next(node.name for node in nodes if node.op == "Placeholder")
    session = v1.Session(graph=graph)
    call = session.make_callable(f"{nodes[-1].name}:0", [f"{given}:0"])
    pictures = [frame[None, ..., None] for frame in frames]
    return max(timed(call, pictures, job["frames"], workers) for workers in (1, 2))


def alone_onnx(job: dict[str, Any], frames: list[Any]) -> float:
    import onnxruntime

    def rate(threads: int, workers: int) -> float:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(
            job["model"], options, providers=["CPUExecutionProvider"]
        )
        name = session.get_inputs()[0].name
        pictures = [frame[None, None] for frame in frames]
        return timed(lambda x: session.run(None, {name: x}), pictures, job["frames"], workers)

    return max(rate(0, 1), rate(1, os.cpu_count() or 1))


def alone_torch(job: dict[str, Any], frames: list[Any]) -> float:
    """Frozen and optimised: the fastest that TorchScript has at float32."""
    import torch

    return rate_torch(
        job, frames, lambda module: torch.jit.optimize_for_inference(torch.jit.freeze(module))
    )


def plain_torch(job: dict[str, Any], frames: list[Any]) -> float:
    return rate_torch(job, frames, lambda module: module)


def rate_torch(job: dict[str, Any], frames: list[Any], prepare: Callable[[Any], Any]) -> float:
    import warnings

    import torch

    warnings.simplefilter("ignore")
    ready = prepare(torch.jit.load(job["model"]).eval())
    pictures = [torch.from_numpy(frame[None, None]) for frame in frames]

    def run(x: Any) -> Any:
        with torch.inference_mode():
            return ready(x)

    for _ in range(3):
        run(pictures[0])
    return timed(run, pictures, job["frames"], 1)


ALONE: dict[str, Callable[[dict[str, Any], list[Any]], float]] = {
    "openvino": alone_openvino,
    "tensorflow": alone_tensorflow,
    "onnx": alone_onnx,
    "torch": alone_torch,
}

# ---- FFmpeg ------------------------------------------------------------------------------------


def ffmpeg_command(ffmpeg: str, name: str, model: Path | str, clip: Path | str) -> list[str]:
    text = f"dnn_processing=dnn_backend={name}:model={model}:input=x:output=y"
    return [ffmpeg, "-v", "error", "-i", str(clip), "-vf", text]


def has_backend(ffmpeg: str, name: str, model: Path, clip: Path) -> bool:
    command = [*ffmpeg_command(ffmpeg, name, model, clip), "-frames:v", "1", "-f", "null", "-"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}: {ffmpeg} does not run it: {done.stderr.strip().splitlines()[-1:]}")
    return done.returncode == 0


def run_ffmpeg(ffmpeg: str, job: dict[str, Any]) -> dict[str, Any]:
    """Frames per second between a run of one frame and a run of all."""

    def seconds(count: int) -> float:
        command = ffmpeg_command(ffmpeg, job["backend"], job["model"], job["clip"])
        start = time.perf_counter()
        subprocess.run([*command, "-frames:v", str(count), "-f", "null", "-"], check=True)
        return time.perf_counter() - start

    many = min(job["frames"], 4) if job["backend"] == "native" else job["frames"]
    return {"fps": (many - 1) / (seconds(many) - seconds(1))}


# ---- the report --------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    name = re.search(r"model name\s*: (.*)", text)
    flags = re.search(r"flags\s*: (.*)", text)
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
    return {
        "cpu": name.group(1) if name else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "instructions": [flag for flag in known if flags and flag in flags.group(1).split()],
        "python": platform.python_version(),
        "versions": versions(),
        "date": datetime.date.today().isoformat(),
        "commit": git("rev-parse", "--short", "HEAD"),
    }


def versions() -> dict[str, str]:
    from importlib import metadata

    names = ("av", "numpy", "openvino", "tensorflow-cpu", "tensorflow", "onnxruntime", "torch")
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def write(folder: Path, rows: list[dict[str, Any]]) -> None:
    folder.mkdir(exist_ok=True)
    report = {"job": main_job(), "machine": machine(), "rows": rows}
    (folder / "cpu.json").write_text(json.dumps(report, indent=1) + "\n")
    about = report["machine"]
    lines = [
        f"# ESPCN on a CPU: {about['cpu']}, {about['cores']} cores, {about['date']}",
        "",
        f"{main_job()}. Instructions: {', '.join(about['instructions'])}. "
        f"Versions: {', '.join(f'{k} {v}' for k, v in about['versions'].items())}; "
        f"Python {about['python']}; commit {about['commit']}. Made by `make bench`.",
        "",
        "| backend | precision | frames/s | runtime alone | of the limit | plain | times plain "
        "| FFmpeg | times FFmpeg | first frame, s | peak MiB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        fps, ratio = one["fps"], one["ratio"]
        lines.append(
            f"| {one['backend']} | {one['precision']} | {fps['avdnn']:.2f} "
            f"| {number(fps.get('alone'))} | {number(ratio.get('alone'))} "
            f"| {number(fps.get('plain'))} | {number(ratio.get('plain'))} "
            f"| {number(fps.get('ffmpeg'))} | {number(ratio.get('ffmpeg'))} "
            f"| {one['first_frame_seconds']:.2f} | {one['peak_memory_mib']} |"
        )
    (folder / "cpu.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def main_job() -> str:
    return f"{WIDTH}x{HEIGHT} luma to {2 * WIDTH}x{2 * HEIGHT}, H.264 in, no encoding"


def number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    main()
