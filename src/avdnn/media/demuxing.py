"""Which options an input takes: libav reads what it knows and drops the rest without a word."""

from __future__ import annotations

from difflib import get_close_matches

import av
import av.container
from av.codec.context import OptionFlags

from ..errors import UsageError
from ..job import InputSpec

_GENERAL = frozenset(
    {
        "analyzeduration", "avioflags", "blocksize", "codec_whitelist", "correct_ts_overflow",
        "cryptokey", "dump_separator", "duration_probesize", "err_detect", "f_err_detect",
        "f_strict", "fdebug", "fflags", "follow", "format_whitelist", "formatprobesize",
        "fpsprobesize", "indexmem", "max_delay", "max_probe_packets", "max_streams",
        "max_ts_probe", "probesize", "protocol_blacklist", "protocol_whitelist", "rtbufsize",
        "seek2any", "seekable", "skip_estimate_duration_from_pts", "skip_initial_bytes", "strict",
        "use_wallclock_as_timestamps",
    }
)  # fmt: skip
_PICTURES = frozenset(
    {
        "export_path_metadata", "frame_size", "framerate", "loop", "pattern_type", "pixel_format",
        "start_number", "start_number_range", "ts_from_file", "video_size",
    }
)  # fmt: skip
_OWN: dict[str, frozenset[str]] = {
    "apng": frozenset({"default_fps", "ignore_loop", "max_fps"}),
    "avi": frozenset({"use_odml"}),
    "concat": frozenset({"auto_convert", "safe", "segment_time_metadata"}),
    "flv": frozenset(
        {"flv_full_metadata", "flv_ignore_prevtag", "flv_metadata", "missing_streams"}
    ),
    "gif": frozenset({"default_delay", "ignore_loop", "max_gif_delay", "min_delay"}),
    "h264": frozenset({"framerate", "raw_packet_size"}),
    "hevc": frozenset({"framerate", "raw_packet_size"}),
    "image2": _PICTURES,
    "lavfi": frozenset({"dumpgraph", "graph", "graph_file"}),
    "matroska": frozenset(),
    "mov": frozenset(
        {
            "advanced_editlist", "decryption_key", "enable_drefs", "export_all", "export_xmp",
            "ignore_chapters", "ignore_editlist", "interleaved_read", "max_stts_delta",
            "seek_streams_individually", "use_absolute_path", "use_mfra_for", "use_tfdt",
        }
    ),
    "mpegts": frozenset(
        {
            "fix_teletext_pts", "max_packet_size", "merge_pmt_versions", "resync_size",
            "scan_all_pmts", "skip_changes", "skip_clear", "skip_unknown_pmt", "ts_packetsize",
        }
    ),
    "nut": frozenset(),
    "rawvideo": frozenset({"framerate", "pixel_format", "video_size"}),
    "yuv4mpegpipe": frozenset(),
}  # fmt: skip
"""The options of common demuxers. Those of others and of protocols are not known here."""


def decoder_options(video: av.VideoStream) -> set[str]:
    """Every option that a stream's decoder has."""
    known = video.codec_context.supported_options
    decoding = [entry for entry in known.generic if OptionFlags.DECODING_PARAM in entry.flags]
    return {entry.name for entry in (*decoding, *known.private)}


def check_options(
    container: av.container.InputContainer, video: av.VideoStream, spec: InputSpec
) -> None:
    """UsageError for an option that neither demuxer nor decoder knows, of a common demuxer."""
    name = container.format.name.split(",")[0]
    own = _PICTURES if name.endswith("_pipe") else _OWN.get(name)
    if own is None:
        return
    known = _GENERAL | own | decoder_options(video)
    for option in spec.options:
        if option not in known:
            near = get_close_matches(option, known, 1, 0.75)
            hint = f"; did you mean -{near[0]}?" if near else ""
            raise UsageError(
                f"-{option} before -i: neither input format {name} nor decoder "
                f"{video.codec_context.name} has this option{hint}"
            )
