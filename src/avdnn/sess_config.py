"""TensorFlow's session configuration as the hex text that FFmpeg's recipes carry.

A strict reader and a writer of protobuf's wire format for the one message ConfigProto, so that
neither needs TensorFlow.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum, auto

from .errors import ModelError, UsageError


class Kind(Enum):
    """What a field of a message holds."""

    INTEGER = auto()
    BOOL = auto()
    DOUBLE = auto()
    TEXT = auto()
    DEVICES = auto()
    MESSAGE = auto()
    GPU = auto()


GPU_OPTIONS = {
    1: ("per_process_gpu_memory_fraction", Kind.DOUBLE),
    2: ("allocator_type", Kind.TEXT),
    3: ("deferred_deletion_bytes", Kind.INTEGER),
    4: ("allow_growth", Kind.BOOL),
    5: ("visible_device_list", Kind.DEVICES),
    6: ("polling_active_delay_usecs", Kind.INTEGER),
    7: ("polling_inactive_delay_msecs", Kind.INTEGER),
    8: ("force_gpu_compatible", Kind.BOOL),
    9: ("experimental", Kind.MESSAGE),
}

CONFIG = {
    1: ("device_count", Kind.MESSAGE),
    2: ("intra_op_parallelism_threads", Kind.INTEGER),
    3: ("placement_period", Kind.INTEGER),
    4: ("device_filters", Kind.TEXT),
    5: ("inter_op_parallelism_threads", Kind.INTEGER),
    6: ("gpu_options", Kind.GPU),
    7: ("allow_soft_placement", Kind.BOOL),
    8: ("log_device_placement", Kind.BOOL),
    9: ("use_per_session_threads", Kind.BOOL),
    10: ("graph_options", Kind.MESSAGE),
    11: ("operation_timeout_in_ms", Kind.INTEGER),
    12: ("session_inter_op_thread_pool", Kind.MESSAGE),
    13: ("rpc_options", Kind.MESSAGE),
    14: ("cluster_def", Kind.MESSAGE),
    15: ("isolate_session_state", Kind.BOOL),
    16: ("experimental", Kind.MESSAGE),
    17: ("share_cluster_devices_in_session", Kind.BOOL),
}

REPEATED = ("device_count", "device_filters", "session_inter_op_thread_pool")

Fields = dict[int, tuple[str, Kind]]

WIRE = {Kind.INTEGER: 0, Kind.BOOL: 0, Kind.DOUBLE: 1}
"""Wire types; all other kinds are 2, a length and that many bytes."""


def parse(text: str) -> bytes:
    """The serialized ConfigProto in `0x...`, whose bytes may stand forward or reversed.

    ModelError unless exactly one of the two readings is a valid message.
    """
    digits = text.removeprefix("0x").removeprefix("0X")
    try:
        forward = bytes.fromhex(digits) if digits.isalnum() else b""
    except ValueError:
        forward = b""
    if not forward:
        message = f"sess_config={text}: hex digits of whole bytes are wanted, as in 0x30012a0332"
        raise ModelError(message, backend="tensorflow")
    readings = {data for data in (forward, forward[::-1]) if is_config(data)}
    if not readings:
        raise ModelError(
            f"sess_config={text}: no ConfigProto of TensorFlow, forward or reversed; "
            f"`avdnn sess-config` makes one",
            backend="tensorflow",
        )
    if len(readings) > 1:
        raise ModelError(
            f"sess_config={text}: a ConfigProto both forward and reversed; add a setting, "
            f"with `avdnn sess-config`, so that it is one",
            backend="tensorflow",
        )
    return readings.pop()


def is_config(data: bytes) -> bool:
    """Whether every byte of `data` belongs to a field that ConfigProto has."""
    try:
        return bool(list(fields(data)))
    except ValueError:
        return False


def fields(
    data: bytes, known: Fields | None = None, path: str = ""
) -> Iterator[tuple[str, object]]:
    """Each set field by its dotted name, in order; ValueError for what is no such message."""
    known = CONFIG if known is None else known
    position = 0
    seen: set[str] = set()
    while position < len(data):
        tag, position = _varint(data, position)
        if tag >> 3 not in known:
            raise ValueError(f"no field {tag >> 3}")
        name, kind = known[tag >> 3]
        if name in seen and name not in REPEATED:
            raise ValueError(f"{name} is set twice")
        seen.add(name)
        if tag & 7 != WIRE.get(kind, 2):
            raise ValueError(f"{name} has another type")
        if kind in (Kind.INTEGER, Kind.BOOL):
            value, position = _varint(data, position)
            if kind is Kind.BOOL and value > 1:
                raise ValueError(f"{name} is {value}")
            yield path + name, bool(value) if kind is Kind.BOOL else value
            continue
        length = 8
        if kind is not Kind.DOUBLE:
            length, position = _varint(data, position)
        block = data[position : position + length]
        position += length
        if len(block) != length:
            raise ValueError(f"{name} ends early")
        yield from _block(block, name, kind, path)


def _block(block: bytes, name: str, kind: Kind, path: str) -> Iterator[tuple[str, object]]:
    """A field of wire type 1 or 2."""
    if kind is Kind.GPU:
        yield path + name, block
        yield from fields(block, GPU_OPTIONS, f"{path}{name}.")
    elif kind is Kind.DOUBLE:
        yield path + name, struct.unpack("<d", block)[0]
    elif kind is Kind.MESSAGE:
        yield path + name, block
    else:
        text = block.decode("utf-8")
        if kind is Kind.DEVICES and not all(part.isdecimal() for part in text.split(",")):
            raise ValueError(f"{name} is {text!r}")
        yield path + name, text


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A number and where the next field starts; ValueError if it is cut, too long or padded."""
    value = 0
    for count, byte in enumerate(data[position : position + 10]):
        value |= (byte & 0x7F) << (7 * count)
        if not byte & 0x80:
            if count and not byte:
                raise ValueError("a padded number")
            return value, position + count + 1
    raise ValueError("a number ends early")


# ---- writing -----------------------------------------------------------------------------------


def build(
    *,
    visible_devices: str = "",
    memory_fraction: float | None = None,
    allow_growth: bool | None = None,
    intra_threads: int | None = None,
    inter_threads: int | None = None,
) -> str:
    """The value of sess_config= for these settings, bytes forward. What is None stays unset.

    `visible_devices` is a list such as "0" or "1,2"; `memory_fraction` is in (0, 1]. UsageError for
    others, and where nothing is set.
    """
    if memory_fraction is not None and not 0 < memory_fraction <= 1:
        raise UsageError(f"memory fraction {memory_fraction:g}: above 0 and at most 1 is wanted")
    for name, count in (("intra", intra_threads), ("inter", inter_threads)):
        if count is not None and count < 1:
            raise UsageError(f"{name} threads {count}: at least 1 is wanted")
    if visible_devices and not all(part.isdecimal() for part in visible_devices.split(",")):
        raise UsageError(f"visible devices {visible_devices!r}: numbers like 0 or 1,2 are wanted")
    gpu = b""
    if memory_fraction is not None:
        gpu += _tag(1, 1) + struct.pack("<d", memory_fraction)
    if allow_growth is not None:
        gpu += _tag(4, 0) + _number(int(allow_growth))
    if visible_devices:
        gpu += _tag(5, 2) + _number(len(visible_devices)) + visible_devices.encode()
    made = b""
    if intra_threads is not None:
        made += _tag(2, 0) + _number(intra_threads)
    if inter_threads is not None:
        made += _tag(5, 0) + _number(inter_threads)
    if gpu:
        made += _tag(6, 2) + _number(len(gpu)) + gpu
    if not made:
        raise UsageError("sess_config: nothing to set; give devices, a memory fraction or threads")
    if is_config(made[::-1]) and made != made[::-1]:
        # log_device_placement=0, its default: a message that ends in 0 is none when reversed.
        made += _tag(8, 0) + _number(0)
    return f"0x{made.hex()}"


def _tag(field: int, wire: int) -> bytes:
    return _number(field << 3 | wire)


def _number(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)
