"""What a model file is, told from its bytes, so that a foreign or cut file gets one clear line."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from ..errors import ModelError

HEAD = 4096


class Kind(StrEnum):
    """The model formats that some backend reads."""

    IR = "OpenVINO IR"
    ONNX = "ONNX model"
    GRAPH_DEF = "TensorFlow GraphDef"
    SAVED_MODEL = "TensorFlow SavedModel"
    TFLITE = "TensorFlow Lite model"
    PADDLE = "PaddlePaddle model"
    TORCH = "torch file"
    SAFETENSORS = "safetensors file"
    NATIVE = "FFmpeg native model"
    UNKNOWN = "unknown file"


READERS: dict[Kind, tuple[str, ...]] = {
    Kind.IR: ("openvino",),
    Kind.ONNX: ("openvino", "onnx"),
    Kind.GRAPH_DEF: ("tensorflow", "openvino"),
    Kind.SAVED_MODEL: ("tensorflow", "openvino"),
    Kind.TFLITE: ("openvino",),
    Kind.PADDLE: ("openvino",),
    Kind.TORCH: ("torch",),
    Kind.SAFETENSORS: ("torch",),
    Kind.NATIVE: ("native",),
    Kind.UNKNOWN: (),
}


def check(model: Path, backend: str) -> Kind:
    """The kind of a file that `backend` reads.

    ModelError if it cannot be opened, ends early, is no model, or is another backend's.
    """
    try:
        kind, whole = identify(model)
    except OSError as error:
        message = f"{model}: {error.strerror or error}"
        raise ModelError(message, backend=backend) from error
    if kind is Kind.UNKNOWN:
        raise ModelError(f"{model}: not a model file, or a damaged one", backend=backend)
    if backend not in READERS[kind]:
        readers = " or ".join(READERS[kind])
        raise ModelError(
            f"{model}: {_article(kind)} {kind}, which backend {backend} does not read; "
            f"{readers} does",
            backend=backend,
        )
    if not whole:
        raise ModelError(f"{model}: the {kind} ends early; the file is cut", backend=backend)
    return kind


def _article(kind: Kind) -> str:
    return "an" if kind in (Kind.IR, Kind.ONNX, Kind.NATIVE) else "a"


def identify(model: Path) -> tuple[Kind, bool]:
    """The kind of a model and whether it is whole as far as its frame tells."""
    if model.is_dir():
        inner = model / "saved_model.pb"
        return (Kind.SAVED_MODEL, _messages(inner)[1]) if inner.is_file() else (Kind.UNKNOWN, True)
    with model.open("rb") as file:
        head = file.read(HEAD)
        file.seek(max(0, model.stat().st_size - 64))
        tail = file.read()
    if head.startswith(b"FFMPEGDNNNATIVE"):
        return Kind.NATIVE, True
    if head.startswith((b"PK\x03\x04", b"\x80\x02")):
        return Kind.TORCH, True
    if head[4:8] == b"TFL3":
        return Kind.TFLITE, True
    if head[8:10] in (b'{"', b"{ ") and int.from_bytes(head[:8], "little") < 100_000_000:
        return Kind.SAFETENSORS, True
    if head.lstrip().startswith((b"<?xml", b"<net")):
        is_ir = b"<net" in head
        return (Kind.IR, tail.rstrip().endswith(b"</net>")) if is_ir else (Kind.UNKNOWN, True)
    return _protobuf(model)


def _protobuf(model: Path) -> tuple[Kind, bool]:
    """Tell protobuf models apart by their top-level fields (number, wire type)."""
    fields, whole = _messages(model)
    varint, block = 0, 2
    if (1, varint) in fields and fields & {(7, block), (8, block)}:
        return Kind.ONNX, whole
    if (1, varint) in fields and (2, block) in fields:
        return (Kind.ONNX if model.suffix.lower() == ".onnx" else Kind.SAVED_MODEL), whole
    if (1, block) in fields and fields <= {(number, block) for number in range(1, 8)}:
        return (Kind.PADDLE if model.suffix.lower() == ".pdmodel" else Kind.GRAPH_DEF), whole
    return Kind.UNKNOWN, whole


def _messages(model: Path) -> tuple[set[tuple[int, int]], bool]:
    """Top-level (field, wire type) pairs of a protobuf file, and whether its last field fits.

    Values are skipped, not read, so that a large model costs nothing. Nothing is returned for
    bytes that are no protobuf.
    """
    fields: set[tuple[int, int]] = set()
    size = model.stat().st_size
    with model.open("rb") as file:
        while (start := file.tell()) < size:
            key = _varint(file.read(10))
            if key is None:
                return fields, False
            tag, length = key
            position = start + length
            field, wire = tag >> 3, tag & 7
            file.seek(position)
            if wire == 2:
                body = _varint(file.read(10))
                if body is None:
                    return fields, False
                position += body[1] + body[0]
            elif wire == 0:
                value = _varint(file.read(10))
                if value is None:
                    return fields, False
                position += value[1]
            elif wire in (1, 5):
                position += 8 if wire == 1 else 4
            else:
                return set(), True
            if field == 0:
                return set(), True
            fields.add((field, wire))
            if position > size:
                return fields, False
            file.seek(position)
    return fields, True


def _varint(data: bytes) -> tuple[int, int] | None:
    """A protobuf varint and its length, or None if `data` ends within it."""
    value = 0
    for index, byte in enumerate(data):
        value |= (byte & 0x7F) << (7 * index)
        if not byte & 0x80:
            return value, index + 1
    return None
