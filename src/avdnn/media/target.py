"""Where output bytes go: beside the final name until they are whole, or straight to a device."""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

import av

from ..access import cannot_write
from ..errors import MediaError, UsageError
from ..job import InputSpec, OutputSpec
from .opening import av_name, is_device, is_local, is_pattern, local_path
from .part import Part

_IN_PLACE = frozenset(
    {"null", "hls", "dash", "segment", "stream_segment", "tee", "smoothstreaming"}
)
"""Formats that name their own files, or none: there is no single file to rename."""


def output_format(spec: OutputSpec) -> str:
    """The name of the container that -f or the file's name asks for."""
    try:
        if spec.format:
            return av.ContainerFormat(spec.format, "w").name
        with av.open(spec.url, "w") as guessed:
            return guessed.format.name
    except ValueError as error:
        wrong = f"{spec.url}: no container goes with this name; choose one with -f"
        if spec.format:
            wrong = f"-f {spec.format}: no such output format"
        raise UsageError(wrong) from error


class Target:
    """The output's final name and the name to write to.

    A file is written as `.NAME.RANDOM.part` in its own folder and renamed by `commit`; `discard`
    removes it, so the final name holds a whole file or what it held before; one that a killed
    run left is removed by the next for the same name. Numbered pictures are each renamed when
    whole (by the muxer); those already done stay. Pipes, devices and formats that name their own
    files are written directly.
    """

    def __init__(self, spec: OutputSpec, form: str, source: InputSpec) -> None:
        self.url = spec.url
        self._overwrite = spec.overwrite
        self._final: Path | None = None
        self._part: Part | None = None
        self.is_pipe = spec.url == "-" or spec.url.startswith("pipe:")
        self.pictures = form == "image2" and is_pattern(spec.url)
        if form in _IN_PLACE or not is_local(spec.url):
            self.name = av_name(spec.url, "pipe:1")
            if form in _IN_PLACE and form != "null" and is_local(spec.url):
                self._check_folder(local_path(spec.url))
            return
        path = local_path(spec.url)
        if not is_device(source.format) and is_local(source.url):
            self._check_source(path, source.url)
        if self.pictures:
            self._check_folder(path)
            self._check_pictures(path)
            self.name = f"file:{path}"
            return
        self._plan_file(path)

    def _plan_file(self, path: Path) -> None:
        try:
            kind = path.stat().st_mode
        except FileNotFoundError:
            kind = 0
        except OSError as error:
            raise self._error(error) from error
        if stat.S_ISDIR(kind):
            raise MediaError(f"{self.url}: is a folder, not a file", self.url)
        if kind and not stat.S_ISREG(kind):
            self.name = f"file:{path}"
            return
        path = path.resolve()
        if kind and not self._overwrite:
            raise MediaError(f"{self.url}: exists already; -y overwrites it", self.url)
        self._check_folder(path)
        self._final = path
        try:
            self._part = Part(path)
        except OSError as error:
            raise self._error(error) from error
        self.name = f"file:{self._part.path}"

    def _check_folder(self, path: Path) -> None:
        folder = path.parent
        if not folder.is_dir():
            raise MediaError(f"{self.url}: no such folder: {folder}", self.url)
        wrong = cannot_write(folder)
        if wrong:
            raise MediaError(f"{self.url}: cannot be written: {wrong}", self.url)

    def _check_source(self, path: Path, source: str) -> None:
        origin = local_path(source)
        both = path.exists() and origin.exists()
        if (both and os.path.samefile(path, origin)) or path.absolute() == origin.absolute():
            kind = path.stat().st_mode if path.exists() else stat.S_IFREG
            if stat.S_ISREG(kind):
                raise MediaError(f"{self.url}: is the input itself; name another file", self.url)

    def _check_pictures(self, path: Path) -> None:
        before, width, after = re.split(r"%(0?\d*)d", path.name, maxsplit=1)
        digits = rf"\d{{{int(width)},}}" if width else r"\d+"
        pattern = re.compile(re.escape(before) + digits + re.escape(after))
        if self._overwrite:
            return
        for name in sorted(os.listdir(path.parent)):
            if pattern.fullmatch(name):
                raise MediaError(f"{self.url}: {name} exists already; -y overwrites it", self.url)

    def _error(self, error: OSError) -> MediaError:
        return MediaError(f"{self.url}: {(error.strerror or str(error)).lower()}", self.url)

    @property
    def part(self) -> Path | None:
        """The unfinished file; None where there is none."""
        return None if self._part is None else self._part.path

    def commit(self) -> None:
        """Put the whole file under its final name."""
        if self._part is None or self._final is None:
            return
        part = self._part.path
        try:
            with part.open("rb") as whole:
                os.fsync(whole.fileno())
            if not self._overwrite and self._final.exists():
                raise MediaError(f"{self.url}: has appeared meanwhile; -y overwrites it", self.url)
            if self._final.exists():
                shutil.copymode(self._final, part)
            part.replace(self._final)
        except MediaError:
            self.discard()
            raise
        except OSError as error:
            self.discard()
            raise self._error(error) from error
        self._part.release()
        self._part = None

    def discard(self) -> None:
        """Remove what is not whole."""
        if self._part is not None:
            self._part.path.unlink(missing_ok=True)
            self._part.release()
            self._part = None
        if self.pictures:
            path = local_path(self.url)
            for left in path.parent.glob(re.sub(r"%0?\d*d", "*", path.name) + ".tmp"):
                left.unlink(missing_ok=True)
