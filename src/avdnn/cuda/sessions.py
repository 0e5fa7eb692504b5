"""Several decoders for one stream: each takes a run of key-frame groups, the order is kept.

One thread demuxes, one thread a decoder decodes, and the caller takes the results run by run.
Pictures that follow a key frame in the file but come before it on screen need the group before:
that decoder gets the key frame and them as well and shows them, the next one leaves them out.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import av
import av.error

from ..channel import Channel, close_items

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

LEAST_RUN = 48
"""Frames of a run, at least: shorter key-frame groups are put together."""

GROUP = 8
"""Packets that are handed to a decoder at once: each hand-over wakes a thread."""

GROUPS_AHEAD = 64
ITEMS_AHEAD = 64


@dataclass(frozen=True, slots=True)
class Damage:
    """A packet that cannot be decoded."""

    packet: av.Packet[Any]
    reason: str


class Collector(Protocol[T_co]):
    """Makes results of decoded pictures, on the thread of one decoder."""

    def add(self, picture: av.VideoFrame) -> Iterable[T_co]:
        """Take a picture, which is dropped after this; give what is ready."""

    def flush(self) -> Iterable[T_co]:
        """Give the rest: a run ends."""


@dataclass(slots=True, eq=False)
class _Run(Generic[T]):
    """Packets for one decoder and what comes of them; times are in the stream's time base."""

    first: int | None
    out: Channel[T | av.Packet[Any] | Damage]
    packets: Channel[list[av.Packet[Any]]] = field(default_factory=lambda: Channel(GROUPS_AHEAD))
    trims: bool = False
    last: int | None = None
    count: int = 0
    held: list[av.Packet[Any]] = field(default_factory=list)

    def give(self, packet: av.Packet[Any]) -> bool:
        """Hand a packet to the decoder, with some others; False once it wants no more."""
        self.held.append(packet)
        return len(self.held) < GROUP or self.flush()

    def flush(self) -> bool:
        """Hand over what is held."""
        held, self.held = self.held, []
        return not held or self.packets.put(held)

    def finish(self) -> None:
        """Hand over the rest; no more comes."""
        self.flush()
        self.packets.end()


class Sessions(Generic[T]):
    """Decodes the video packets among `packets` with `count` decoders; use it as a context.

    Iterating gives results, packets of other streams and Damage, in order. `open_decoder` and
    `collect` are called on each decoder's thread. `ahead` limits the results that wait in a run.
    `restarts` says whether a key frame's pictures are the same from a decoder that begins there.
    """

    def __init__(
        self,
        packets: Iterable[av.Packet[Any]],
        video: int,
        *,
        count: int,
        open_decoder: Callable[[], av.VideoCodecContext],
        collect: Callable[[], Collector[T]],
        ahead: int = ITEMS_AHEAD,
        restarts: Callable[[av.Packet[Any]], bool] = lambda packet: True,
    ) -> None:
        self._packets = packets
        self._video = video
        self._count = count
        self._open_decoder = open_decoder
        self._collect = collect
        self._ahead = ahead
        self._restarts = restarts
        self._work: Channel[_Run[T]] = Channel(count + 1)
        self._order: Channel[_Run[T]] = Channel(count + 1)
        self._runs: list[_Run[T]] = []
        self._begun = False
        self._stopped = False
        names = [f"decode {number}" for number in range(count)]
        self._threads = [threading.Thread(target=self._decode, name=name) for name in names]
        self._threads.append(threading.Thread(target=self._feed, name="demux"))

    def __enter__(self) -> Sessions[T]:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped = True
        self._work.close()
        self._order.close()
        for run in list(self._runs):
            run.packets.close()
            run.out.close()
        for thread in self._threads:
            thread.join()

    def __iter__(self) -> Iterator[T | av.Packet[Any] | Damage]:
        for run in self._order:
            yield from run.out
            self._runs.remove(run)

    # ---- demuxing --------------------------------------------------------------------------

    def _feed(self) -> None:
        run: _Run[T] | None = None
        before: _Run[T] | None = None
        try:
            for packet in self._packets:
                if packet.stream_index != self._video:
                    run = run or self._begin(packet, None)
                    run.out.put(packet, wait=False)
                    continue
                if not packet.size:
                    continue
                if run is None or self._splits(run, packet):
                    self._finish(before)
                    before, run = run, self._begin(packet, packet.pts)
                    if before is not None:
                        before.last = packet.pts
                        before.give(packet)
                elif before is not None:
                    if _leads(packet, run):
                        before.give(packet)
                    else:
                        self._finish(before)
                        before = None
                run.count += 1
                if not run.give(packet) and self._stopped:
                    return
            self._finish(before)
            self._finish(run)
            self._order.end()
        except BaseException as error:
            self._finish(before)
            self._finish(run)
            self._order.end(error)
        finally:
            self._work.end()
            close_items(self._packets)

    def _begin(self, packet: av.Packet[Any], first: int | None) -> _Run[T]:
        run: _Run[T] = _Run(first, Channel(self._ahead), trims=self._begun)
        self._begun = True
        self._runs.append(run)
        self._order.put(run)
        self._work.put(run)
        if self._stopped:
            run.packets.close()
            run.out.close()
        return run

    def _splits(self, run: _Run[T], packet: av.Packet[Any]) -> bool:
        """Whether a new run begins: a key frame with a time, and enough in the run before."""
        timed = packet.is_keyframe and packet.pts is not None
        return self._count > 1 and timed and run.count >= LEAST_RUN and self._restarts(packet)

    def _finish(self, run: _Run[T] | None) -> None:
        if run is not None:
            run.finish()

    # ---- decoding --------------------------------------------------------------------------

    def _decode(self) -> None:
        decoder: av.VideoCodecContext | None = None
        for run in self._work:
            try:
                if decoder is None:
                    decoder = self._open_decoder()
                else:
                    decoder.flush_buffers()
                for item in _results(run, decoder, self._collect()):
                    if not run.out.put(item):
                        break
                run.out.end()
            except BaseException as error:
                run.out.end(error)
                run.packets.close()


def _results(
    run: _Run[T], decoder: av.VideoCodecContext, collector: Collector[T]
) -> Iterator[T | Damage]:
    """What a run's packets become; the decoder is emptied at the end.

    Before the first picture of all whatever a decoder refuses is damage: it may not know such
    streams. A decoder that refuses all of a later run lacks something else.
    """
    refused: tuple[type[av.error.FFmpegError], ...] = (av.error.InvalidDataError,)
    if not run.trims:
        refused = (av.error.FFmpegError,)
    for group in run.packets:
        for packet in group:
            try:
                pictures = decoder.decode(packet)
            except refused as error:
                yield Damage(packet, error.strerror or str(error))
                continue
            if pictures:
                refused = (av.error.InvalidDataError,)
            yield from _collected(run, pictures, collector)
    try:
        pictures = decoder.decode(None)
    except (av.error.EOFError, av.error.InvalidDataError):
        pictures = []
    yield from _collected(run, pictures, collector)
    yield from collector.flush()


def _collected(run: _Run[T], pictures: list[av.VideoFrame], collector: Collector[T]) -> Iterator[T]:
    while pictures:
        picture = pictures.pop(0)
        if _shown(run, picture.pts):
            yield from collector.add(picture)
        del picture


def _leads(packet: av.Packet[Any], run: _Run[Any]) -> bool:
    """Whether a packet is shown before the key frame that its run begins with."""
    return packet.pts is not None and run.first is not None and packet.pts < run.first


def _shown(run: _Run[Any], pts: int | None) -> bool:
    """Whether a picture is this run's: not before its key frame, and before the next run's."""
    if pts is None:
        return True
    if run.first is not None and run.trims and pts < run.first:
        return False
    return run.last is None or pts < run.last
