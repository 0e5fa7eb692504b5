"""What all dnn filters share: the loop from frames to sessions and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from ..errors import DeviceError, HostMemoryOnly, ModelError
from ..frame import Frame
from ..graph import Call
from ..pixfmt import FORMATS
from ..window import window
from . import Context, Item
from ._libav import Converter, Resizer
from ._options import DnnOptions, alternatives, default_device, locate
from ._session import Session


class DnnFilter:
    """Runs a model on every frame; one frame out for each in, in order.

    Frames of another format than `formats` are converted first. `prescale` is sr's rule: a model
    that keeps the size gets frames that were enlarged that many times before.
    """

    def __init__(
        self,
        call: Call,
        options: DnnOptions,
        context: Context,
        *,
        formats: Iterable[str] = FORMATS,
        prescale: int = 1,
    ) -> None:
        self._options = options
        self._context = context = replace(context, say=_once(context.say), note=_once(context.tell))
        self._prescale = prescale
        self._convert = Converter(formats, context, call.name)
        self._backend_name, self._model = locate(options)

    @property
    def strict(self) -> bool:
        """Whether frames may not leave the device where they are."""
        return self._options.strict

    def __call__(self, items: Iterator[Item]) -> Iterator[Item]:
        number = 0
        held: Frame | None = None
        adapt: Callable[[Frame], Frame] = self._convert

        def alike(first: Frame) -> Iterator[Item]:
            """`first` and what follows, up to a frame of another kind, which is held."""
            nonlocal held
            kind = _kind(first)
            yield first
            del first
            for item in items:
                if isinstance(item, Frame):
                    item = adapt(item)
                    if _kind(item) != kind:
                        held = item
                        return
                yield item
                del item

        while True:
            if held is None:
                for item in items:
                    if isinstance(item, Frame):
                        held = adapt(item)
                        break
                    yield item
                if held is None:
                    return
            first, held = held, None
            try:
                session = self._open(first, number)
            except HostMemoryOnly as why:
                adapt = self._fetching(why)
                first = adapt(first)
                session = self._open(first, number)
            try:
                if adapt is self._convert and self._keeps_size(session, first):
                    session.close()
                    adapt = Resizer(self._convert, self._prescale, self._context)
                    first = adapt(first)
                    session = self._open(first, number)
                run = alike(first)
                del first
                yield from window(
                    run,
                    is_work=_is_frame,
                    start=session.start,
                    finish=session.finish,
                    batch=session.batch,
                    in_flight=session.in_flight,
                )
                number = session.number
            finally:
                session.close()

    def _keeps_size(self, session: Session, first: Frame) -> bool:
        """Whether frames must be enlarged first, since the model does not do it."""
        return self._prescale > 1 and session.output_size(first) == (first.height, first.width)

    def _fetching(self, why: HostMemoryOnly) -> Callable[[Frame], Frame]:
        """Takes frames from a device to a backend that cannot use them there, and says so once."""
        if self._options.strict:
            raise DeviceError(f"{why}: put hwdownload before the filter", device=why.device)
        self._context.say(f"{why}: they are downloaded for it")
        fetch = _device_module().fetch
        return lambda frame: self._convert(fetch(frame))

    def _open(self, first: Frame, number: int) -> Session:
        with self._context.clock.measure("open"):
            if first.device != "cpu":
                device = _device_module()
                opened: Session = device.open_session(self._options, first, self._context, number)
                return opened
            return self._first_that_loads(first, number)

    def _first_that_loads(self, first: Frame, number: int) -> Session:
        """A session on the chosen backend; where nobody chose, the next one that reads the file
        gets its turn if that one cannot run it, and this is said."""
        names = [self._backend_name, *alternatives(self._options, self._backend_name, self._model)]
        failure: ModelError | None = None
        for name in names:
            device = self._options.device or default_device(name)
            options = replace(self._options, device=device)
            try:
                session = Session(options, name, self._model, first, self._context, number)
            except ModelError as error:
                failure = failure or error
                continue
            if failure is not None:
                self._context.say(f"{failure}; {name} runs it instead")
                self._backend_name = name
            return session
        assert failure is not None
        raise failure


def _device_module() -> Any:
    from . import _device

    return _device


def _once(say: Callable[[str], None]) -> Callable[[str], None]:
    """`say` without repetitions, which a model that is loaded again would make."""
    said: set[str] = set()

    def unless_said(text: str) -> None:
        if text not in said:
            said.add(text)
            say(text)

    return unless_said


def _kind(frame: Frame) -> tuple[str, int, int, str]:
    return frame.format, frame.width, frame.height, frame.device


def _is_frame(item: Item) -> bool:
    return isinstance(item, Frame)
