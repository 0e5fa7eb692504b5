"""The text of -benchmark."""

from __future__ import annotations

from ..pipeline import Report

_MIB = 1 << 20


def report_text(report: Report) -> str:
    """A report for people; the lines for a device are there where it was used."""
    lines = [
        ("frames", str(report.frames)),
        ("fps", f"{report.fps:.2f}"),
        ("seconds", f"{report.seconds:.3f}"),
        ("first frame", f"{report.first_frame_seconds:.3f} s"),
        ("CPU time", f"{report.cpu_seconds:.3f} s"),
        ("peak memory", f"{report.peak_memory_bytes / _MIB:.0f} MiB"),
    ]
    if report.device_peak_bytes:
        lines.append(("device memory", f"{report.device_peak_bytes / _MIB:.0f} MiB at the peak"))
    moved = report.host_to_device_bytes, report.device_to_host_bytes
    if any(moved) and report.frames:
        to_device, to_host = (f"{count / report.frames:.0f}" for count in moved)
        lines.append(("bytes a frame", f"{to_device} to the device, {to_host} to the host"))
    lines += [(f"in {name}", f"{spent:.3f} s") for name, spent in report.stages.items()]
    wide = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{wide}}  {value}" for name, value in lines)
