"""What an encoder gets, and what is said where that is not the frames' own format."""

from __future__ import annotations

import av
import pytest

from avdnn.media.encoding import choose_format


@pytest.mark.parametrize(
    ("own", "lost"),
    [
        ("yuv420p", None),
        ("gray", ""),
        ("gray10le", "depth"),
        ("yuv444p", "chroma resolution"),
        ("yuva420p", "transparency"),
        ("pal8", "chroma resolution"),
    ],
)
def test_a_note_names_what_the_nearest_format_loses(own: str, lost: str | None) -> None:
    choice = choose_format(av.Codec("mpeg4", "w"), "", own)
    assert choice.pix_fmt == "yuv420p"
    if lost is None:
        assert choice.note == ""
    else:
        assert choice.note.startswith(f"mpeg4 does not take {own}; encoding yuv420p")
        assert choice.note.partition(", which loses ")[2].partition(" (")[0] == lost


@pytest.mark.parametrize(
    ("codec", "own", "chosen"),
    [
        ("libvpx-vp9", "gray", "yuv420p"),
        ("libvpx-vp9", "ya8", "yuva420p"),
        ("libvpx-vp9", "rgba", "yuva420p"),
        ("libvpx-vp9", "yuva444p", "yuva420p"),
        ("libvpx-vp9", "rgb24", "gbrp"),
        ("libsvtav1", "gray", "yuv420p"),
        ("libsvtav1", "gray12le", "yuv420p10le"),
        ("libx264", "gray", "gray"),
        ("libx264", "gray16le", "gray10le"),
    ],
)
def test_the_nearest_format_is_one_that_players_know(codec: str, own: str, chosen: str) -> None:
    assert choose_format(av.Codec(codec, "w"), "", own).pix_fmt == chosen
