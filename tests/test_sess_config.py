"""The hex text of sess_config=, read strictly and written."""

from __future__ import annotations

from itertools import product

import pytest

from avdnn import sess_config
from avdnn.errors import ModelError, UsageError

FORWARD = "0x10022805320e09cdccccccccccec3f20012a01303801"


def settings(data: bytes) -> dict[str, object]:
    return {name: value for name, value in sess_config.fields(data) if type(value) is not bytes}


def test_documented_string_is_read_forward() -> None:
    assert settings(sess_config.parse(FORWARD)) == {
        "intra_op_parallelism_threads": 2,
        "inter_op_parallelism_threads": 5,
        "gpu_options.per_process_gpu_memory_fraction": 0.9,
        "gpu_options.allow_growth": True,
        "gpu_options.visible_device_list": "0",
        "allow_soft_placement": True,
    }


@pytest.mark.parametrize(("text", "device"), [("0x30012a0332", "0"), ("0x31012a0332", "1")])
def test_recipes_of_2020_are_read_reversed(text: str, device: str) -> None:
    data = sess_config.parse(text)
    assert data == bytes.fromhex(text[2:])[::-1]
    assert settings(data) == {"gpu_options.visible_device_list": device}


def test_prefix_and_case_do_not_matter() -> None:
    assert sess_config.parse(FORWARD[2:].upper()) == sess_config.parse(FORWARD)


@pytest.mark.parametrize("text", ["", "0x", "0x1", "0xzz", "0x10 02", "0x1_02"])
def test_what_is_not_hex_is_refused(text: str) -> None:
    with pytest.raises(ModelError, match="hex digits"):
        sess_config.parse(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0xdeadbeef", "no such fields"),
        ("0x320f2a0131", "cut"),
        ("0x3802", "a flag of 2"),
        ("0x10021004", "one setting twice"),
        ("0x1082808000", "a padded number"),
        ("0x32032a0178", "a device list of letters"),
        ("0x09000000000000e03f", "another field's type"),
    ],
)
def test_what_parses_in_neither_direction_is_one_line(text: str, why: str) -> None:
    with pytest.raises(ModelError, match="forward or reversed") as error:
        sess_config.parse(text)
    assert text in str(error.value), why
    assert "\n" not in str(error.value)


def test_what_parses_in_both_directions_is_refused() -> None:
    with pytest.raises(ModelError, match="both forward and reversed"):
        sess_config.parse("0x2810")


def test_every_built_string_reads_back() -> None:
    devices, fractions = ("", "0", "1", "0,1"), (None, 0.5)
    threads, growth = (None, 2, 16, 40, 300), (None, True, False)
    for visible, fraction, intra, inter, grow in product(
        devices, fractions, threads, threads, growth
    ):
        wanted = {
            "intra_op_parallelism_threads": intra,
            "inter_op_parallelism_threads": inter,
            "gpu_options.per_process_gpu_memory_fraction": fraction,
            "gpu_options.allow_growth": grow,
            "gpu_options.visible_device_list": visible or None,
        }
        wanted = {name: value for name, value in wanted.items() if value is not None}
        if not wanted:
            continue
        text = sess_config.build(
            visible_devices=visible,
            memory_fraction=fraction,
            allow_growth=grow,
            intra_threads=intra,
            inter_threads=inter,
        )
        read = settings(sess_config.parse(text))
        assert read.pop("log_device_placement", False) is False
        assert read == wanted


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"memory_fraction": 0.0},
        {"memory_fraction": 1.5},
        {"intra_threads": 0},
        {"inter_threads": -1},
        {"visible_devices": "gpu"},
    ],
)
def test_settings_that_mean_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        sess_config.build(**wrong)
