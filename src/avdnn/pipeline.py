"""The whole job on one screen: read, filter, write."""

from __future__ import annotations

import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

from av.codec import find_best_pix_fmt_of_list

from . import acceleration, backends, filters, graph, models
from .backends._heap import keep_pages
from .clock import Clock
from .errors import UsageError
from .filters import Context, Item
from .frame import Frame
from .interrupt import ShieldedStack
from .job import Job, OutputSpec
from .media.reader import Reader
from .media.writer import Writer
from .native_rate import at_native_rate
from .notes import NOTE, teller
from .pixfmt import FORMATS, Family
from .progress import Progress
from .stage import Stage

_log = logging.getLogger(__name__)

DEPTH = 4
"""Frames that a stage may be ahead."""

DEVICE_DEPTH = 64
"""The same for a GPU, which gives frames in batches; its decoders have threads of their own."""

DEFAULT_MODEL = "espcn-x2"


@dataclass(frozen=True, slots=True)
class Report:
    """What a job did and what it took; times are seconds, sizes are bytes.

    `stages` are seconds by step; steps on different threads overlap, and a step that runs on
    several cores counts once. Device figures are 0 without a GPU.
    """

    frames: int
    seconds: float
    first_frame_seconds: float
    cpu_seconds: float
    peak_memory_bytes: int
    stages: Mapping[str, float] = field(default_factory=dict)
    host_to_device_bytes: int = 0
    device_to_host_bytes: int = 0
    device_peak_bytes: int = 0

    @property
    def fps(self) -> float:
        """Frames per second from the first frame read to the last written."""
        return self.frames / self.seconds if self.seconds > 0 else 0.0


def run(job: Job, *, progress: Progress | None = None) -> Report:
    """Do a job; the output file is there only if this returns.

    Errors of any thread are raised here, after all threads have ended. Notes for the user go to
    this module's logger, at WARNING where something is lost or not as asked, else at NOTE.
    """
    keep_pages()
    progress = progress or Progress()
    clock = Clock()
    note = teller(_log, NOTE)
    began, cpu_began = time.perf_counter(), time.process_time()
    first = 0.0
    with ShieldedStack() as opened:
        plan = acceleration.plan(job, _log.warning, note)
        reader = opened.enter_context(plan.reader())
        rate = reader.nominal_rate
        context = Context(
            say=_log.warning,
            note=note,
            clock=clock,
            cache=cache_folder(),
            frame_rate=str(rate) if rate else "",
            filter_device=acceleration.filter_device(job),
            dnn_options=job.dnn_options,
        )
        chain = filters.build(chain_text(job, reader, on_device=plan.stays), context)
        writer = opened.enter_shielded(Writer(job.output, reader, unwrap=acceleration.unwrapper()))
        chain = plan.around(chain, context, writer.why_host)
        decoded: Iterator[Item] = clock.iterate("decode", reader)
        stopped = threading.Event()
        if job.input.speed is not None:
            decoded = at_native_rate(decoded, job.input.speed, stopped.wait)
        depth = DEPTH if plan.device is None else DEVICE_DEPTH
        if plan.device is None:
            decoded = opened.enter_shielded(Stage(decoded, depth, "decode"))
        filtered = filters.connect(chain, decoded)
        items: Stage[Item] = opened.enter_shielded(Stage(filtered, depth, "filter"))
        progress.start(*_expected(job.output, reader))
        with closing(items), ExitStack() as leaving:
            leaving.callback(stopped.set)
            for item in items:
                with clock.measure("encode and write"):
                    writer.write(item)
                if isinstance(item, Frame) and writer.frames:
                    first = first or time.perf_counter() - began
                    progress.update(writer.frames, _seconds(item))
                del item
                if writer.full:
                    break
        with clock.measure("encode and write"):
            writer.close()
    progress.finish(writer.frames)
    return Report(
        frames=writer.frames,
        seconds=time.perf_counter() - began,
        first_frame_seconds=first,
        cpu_seconds=time.process_time() - cpu_began,
        peak_memory_bytes=_peak_memory(),
        stages=dict(clock.seconds),
        **acceleration.device_figures(),
    )


def chain_text(job: Job, reader: Reader, *, on_device: bool = False) -> str:
    """The job's filter text; without one, the bundled or named model and what it needs.

    Luma frames meet a model of three channels as RGB, colour frames one of one channel as YUV, of
    the source's depth, and the output is converted back; frames on a device go to it as they are.
    The output's `size` is one more filter at its end.
    """
    text = _filters(job, reader, on_device=on_device)
    if job.output.size is None:
        return text
    width, height = job.output.size
    stop = graph.ends(text).stop
    return f"{text[:stop]},scale={width}:{height}{text[stop:]}"


def _filters(job: Job, reader: Reader, *, on_device: bool) -> str:
    if job.vf is not None:
        if job.model:
            raise UsageError("--model and -vf exclude each other: write model= in the filter")
        return job.vf
    model = job.model or DEFAULT_MODEL
    text = f"dnn_processing=model={_quoted(model)}"
    if on_device:
        given = "batch_size" in job.dnn_options
        return text if given else f"{text}:batch_size={acceleration.BATCH}"
    if not reader.pix_fmt:
        return text
    channels = _channels(model, job.dnn_options.get("dnn_backend", "auto"))
    source = _nearest(reader.pix_fmt, FORMATS)
    if channels not in (1, 3) or FORMATS[source].channels == channels:
        return text
    family = Family.PLANAR if channels == 3 else Family.LUMA
    taken = [name for name, form in FORMATS.items() if form.family is family]
    return f"format={_nearest(source, taken)},{text},format={source}"


def _nearest(name: str, formats: Iterable[str]) -> str:
    """`name` itself or the one of `formats` that loses least."""
    best, _ = find_best_pix_fmt_of_list(list(formats), name, has_alpha=True)
    assert best is not None
    return best.name


def _channels(model: str, wanted: str) -> int:
    """What a bundled or a user's model takes; a user's model is opened to see."""
    bundled = models.registry().get(model)
    if bundled is not None:
        return bundled.channels
    path = models.resolve(model)
    name = backends.choose(path) if wanted == "auto" else wanted
    backend = backends.load(name, path, backends.Options())
    try:
        return backend.info.inputs[0].channels
    finally:
        backend.close()


def _quoted(value: str) -> str:
    """`value` as one option value of filter text, whatever it holds."""
    inner = "".join(f"\\{char}" if char in ":\\'" else char for char in value)
    return "'" + inner.replace("'", "'\\''") + "'"


def cache_folder() -> Path | None:
    """Where compiled models are kept: AVDNN_CACHE, else the user's cache folder; None if unusable.

    An empty AVDNN_CACHE turns caching off.
    """
    named = os.environ.get("AVDNN_CACHE")
    if named == "":
        return None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(named or os.path.join(base, "avdnn"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        _log.debug("no cache for compiled models: %s", error)
        return None
    return folder if os.access(folder, os.W_OK) else None


def _expected(output: OutputSpec, reader: Reader) -> tuple[int | None, float | None]:
    """Frames that will be written, and the time of the last one, as far as that is known."""
    frames, duration = reader.frames, reader.duration
    if duration is not None:
        duration += Fraction(reader.spec.offset)
    if output.duration is not None:
        end = Fraction(output.duration) + Fraction(output.start or 0)
        frames, duration = None, end if duration is None else min(end, duration)
    if output.frames is not None:
        frames = output.frames if frames is None else min(frames, output.frames)
    return frames, None if duration is None else float(duration)


def _seconds(frame: Frame) -> float | None:
    pts = frame.meta.pts
    return None if pts is None else float(pts * frame.meta.time_base)


def _peak_memory() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
