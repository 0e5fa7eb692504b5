"""Read and write safetensors files: an 8-byte length, a JSON header, then the raw tensors."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

import numpy as np

_TYPES = {"F16": np.dtype("<f2"), "F32": np.dtype("<f4")}


def write(path: Path, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
    """Write `tensors` (float16 or float32) and the string `metadata`."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    chunks, offset = [], 0
    for name, tensor in tensors.items():
        kind = next(key for key, dtype in _TYPES.items() if dtype == tensor.dtype)
        chunk = np.ascontiguousarray(tensor).tobytes()
        span = [offset, offset + len(chunk)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": span}
        chunks.append(chunk)
        offset += len(chunk)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(chunks))


def read(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """The tensors as float32, in file order, and the metadata."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, entry in header.items():
        start, stop = (8 + length + offset for offset in entry["data_offsets"])
        flat = np.frombuffer(data[start:stop], _TYPES[entry["dtype"]])
        tensors[name] = flat.reshape(entry["shape"]).astype(np.float32)
    return tensors, metadata


def shorten(tensor: np.ndarray, *, bits: int) -> np.ndarray:
    """Round to float16 with `bits` of its 10 mantissa bits, so that archives pack it well."""
    half = np.asarray(tensor, np.float16)
    drop = 10 - bits
    if drop <= 0:
        return half
    codes = half.view(np.uint16).astype(np.uint32)
    rounded = (codes + (1 << (drop - 1)) - 1 + ((codes >> drop) & 1)) >> drop << drop
    return rounded.astype(np.uint16).view(np.float16)
