"""Memory that several streams use in turn: a block goes back when its last holder drops it.

Nothing here knows CUDA: allocation, release, streams and events come from outside.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from ..frame import Array

LOOKED_AT = 4
"""Idle blocks that are asked whether their last use is over, the ones given back first."""


class Event(Protocol):
    """A point in a stream's work."""

    @property
    def done(self) -> bool:
        """Whether the stream has passed it."""

    def synchronize(self) -> None:
        """Wait until the stream has passed it."""


class Stream(Protocol):
    """Work that a device does in order."""

    @property
    def ptr(self) -> int:
        """The driver's handle."""

    def wait_event(self, event: Any) -> None:
        """Let what is put into the stream from now on wait for `event`."""


@dataclass(slots=True)
class Memory:
    """One allocation and the events after which it may be used again."""

    pointer: int
    size: int
    events: list[Event] = field(default_factory=list)


class Block:
    """A piece of memory in use.

    Every stream that reads or writes it is named by `touch`, after its work was put in. When the
    last reference goes, an event on each of these streams marks the end of the use: the memory is
    given out again at once, and only then does the next stream wait for them.
    """

    __slots__ = ("__weakref__", "_memory", "_pool", "_streams")

    def __init__(self, pool: Pool, memory: Memory) -> None:
        self._pool = pool
        self._memory = memory
        self._streams: dict[int, Stream] = {}

    @property
    def pointer(self) -> int:
        return self._memory.pointer

    @property
    def size(self) -> int:
        """Bytes, at least as many as were asked for."""
        return self._memory.size

    def touch(self, stream: Stream) -> None:
        """Note that work in `stream` uses the block."""
        self._streams[stream.ptr] = stream

    def __del__(self) -> None:
        self._pool.give(self._memory, self._streams)


class Pool:
    """Blocks of one device, or of pinned host memory.

    `allocate` raises MemoryError when there is no more. Idle memory of sizes that are no longer
    asked for is freed when it passes `idle_limit` bytes.
    """

    def __init__(
        self,
        allocate: Callable[[int], int],
        free: Callable[[int], None],
        mark: Callable[[Stream], Event],
        *,
        idle_limit: int = 1 << 30,
        grain: int = 1 << 16,
    ) -> None:
        self._allocate = allocate
        self._free = free
        self._mark = mark
        self._idle_limit = idle_limit
        self._grain = grain
        self._idle: dict[int, list[Memory]] = {}
        self._lock = threading.RLock()
        self._closed = False
        self.held = 0
        self.peak = 0

    def take(self, size: int, stream: Stream | None = None) -> Block:
        """A block of at least `size` bytes for work in `stream`, or for the host without one.

        Memory whose last use is over is preferred; else more is allocated; only when there is
        no more does `stream` (or the host) wait for a use to end.
        """
        size = max(-(-size // self._grain) * self._grain, self._grain)
        with self._lock:
            idle = self._idle.setdefault(size, [])
            oldest = idle[:LOOKED_AT]
            memory = next((one for one in oldest if all(event.done for event in one.events)), None)
            if memory is None:
                memory = self._more(size, idle)
            if memory in idle:
                idle.remove(memory)
        for event in memory.events:
            if event.done:
                continue
            if stream is None:
                event.synchronize()
            else:
                stream.wait_event(event)
        memory.events = []
        block = Block(self, memory)
        if stream is not None:
            block.touch(stream)
        return block

    def _more(self, size: int, idle: list[Memory]) -> Memory:
        self._trim(self._idle_limit)
        try:
            pointer = self._allocate(size)
        except MemoryError:
            if idle:
                return idle[0]
            self._trim(0)
            pointer = self._allocate(size)
        self.held += size
        self.peak = max(self.peak, self.held)
        return Memory(pointer, size)

    def _trim(self, limit: int) -> None:
        """Free idle memory, the largest first, until at most `limit` bytes of it are left."""
        total = sum(len(idle) * size for size, idle in self._idle.items())
        for size in sorted(self._idle, reverse=True):
            idle = self._idle[size]
            while idle and total > limit:
                memory = idle.pop()
                for event in memory.events:
                    event.synchronize()
                self._free(memory.pointer)
                self.held -= size
                total -= size

    def give(self, memory: Memory, streams: dict[int, Stream]) -> None:
        """Take a block back after what `streams` hold now; called by Block alone."""
        if self._closed:
            return
        memory.events = [self._mark(stream) for stream in streams.values()]
        with self._lock:
            self._idle.setdefault(memory.size, []).append(memory)

    def close(self) -> None:
        """Free what is idle; blocks still in use are left to the process's end."""
        with self._lock:
            self._trim(0)
            self._closed = True


def pinned_array(block: Block, size: int) -> Array:
    """Pinned host memory as bytes; the array keeps the block alive."""
    return np.asarray(_Pinned(block, size))


class _Pinned:
    """What NumPy needs to see a block, and to hold it."""

    def __init__(self, block: Block, size: int) -> None:
        self._block = block
        self.__array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (block.pointer, False),
            "version": 3,
        }
