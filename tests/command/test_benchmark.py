"""The text of -benchmark."""

from __future__ import annotations

from avdnn.command.benchmark import report_text
from avdnn.pipeline import Report


def _lines(report: Report) -> dict[str, str]:
    lines = [line.split("  ", 1) for line in report_text(report).splitlines()]
    return {name.strip(): value.strip() for name, value in lines}


def test_report_without_a_device() -> None:
    report = Report(50, 2.0, 0.5, 3.25, 100 << 20, {"decode": 0.25, "filter": 1.5})
    assert _lines(report) == {
        "frames": "50",
        "fps": "25.00",
        "seconds": "2.000",
        "first frame": "0.500 s",
        "CPU time": "3.250 s",
        "peak memory": "100 MiB",
        "in decode": "0.250 s",
        "in filter": "1.500 s",
    }


def test_report_counts_what_crosses_to_a_device_and_back() -> None:
    report = Report(
        10,
        1.0,
        0.1,
        1.0,
        1 << 20,
        host_to_device_bytes=1000,
        device_to_host_bytes=0,
        device_peak_bytes=3 << 20,
    )
    lines = _lines(report)
    assert lines["bytes a frame"] == "100 to the device, 0 to the host"
    assert lines["device memory"] == "3 MiB at the peak"


def test_no_frames_is_no_error() -> None:
    report = Report(0, 0.0, 0.0, 0.0, 0, host_to_device_bytes=1)
    assert _lines(report)["fps"] == "0.00"
