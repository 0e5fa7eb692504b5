"""fit= on device frames: the pixels of the host's path, or of the model on the whole frame."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from avdnn import host
from avdnn.cuda import frames as cuda_frames
from avdnn.errors import DeviceError, InferenceError, ModelError, NonFiniteError
from avdnn.frame import Frame, Meta
from avdnn.pixfmt import pixel_format

from .test_device import Network, Setup, setup  # noqa: F401

MODEL = "dnn_processing=model=net.pt:precision=float32"


def pictures(form: str, width: int, height: int, count: int = 3) -> list[Frame]:
    """Host frames of smooth noise, each of its own brightness."""
    known = pixel_format(form)
    random = np.random.default_rng(width + height)
    made = []
    for number in range(count):
        frame = host.empty(form, width, height, Meta(number, 1, Fraction(1, 25)))
        for plane in frame.planes:
            noise = random.integers(0, known.peak // 2, plane.shape) + 10 * number
            plane[...] = noise.astype(known.dtype) << known.shift
        made.append(frame)
    return made


def on_both(setup: Setup, text: str, given: list[Frame]) -> tuple[list[Frame], list[Frame]]:  # noqa: F811
    """The filter's frames on the device, brought down, and on the host."""
    there = setup.run(text, [cuda_frames.upload(setup.gpu, frame) for frame in given])
    assert {frame.device for frame in there} == {"cuda:0"}
    plans = list(setup.said)
    setup.said.clear()
    here = setup.run(text, given)
    assert [line for line in setup.said if "frames of" in line] == [
        line for line in plans if "frames of" in line
    ]
    return [cuda_frames.to_host(setup.gpu, frame) for frame in there], here


def apart(one: list[Frame], other: list[Frame]) -> int:
    """The largest difference, in codes."""
    worst = 0
    for got, expected in zip(one, other, strict=True):
        assert (got.format, got.width, got.height) == (
            expected.format,
            expected.width,
            expected.height,
        )
        assert got.meta.pts == expected.meta.pts
        shift = pixel_format(got.format).shift
        for a, b in zip(got.planes, expected.planes, strict=True):
            worst = max(worst, int(np.abs((a >> shift).astype(int) - (b >> shift)).max()))
    return worst


def blurred(x: Any) -> Any:
    """The mean of 3x3, zeros outside: sees one pixel far."""
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    rows, columns = x.shape[2:]
    parts = [wide[:, :, j : j + rows, i : i + columns] for j in range(3) for i in range(3)]
    return np.sum(parts, axis=0, dtype=np.float32) / np.float32(9)


def doubled(x: Any) -> Any:
    return blurred(x).repeat(2, -1).repeat(2, -2)


def halved(x: Any) -> Any:
    """Means of 2x2, as a network with a stride."""
    parts = [x[:, :, j::2, i::2] for j in (0, 1) for i in (0, 1)]
    return np.sum(parts, axis=0, dtype=np.float32) / np.float32(4)


def levelled(x: Any) -> Any:
    """Sees all of its picture."""
    return x * np.float32(0.5) + x.mean(axis=(1, 2, 3), keepdims=True, dtype=np.float32) / 2


def odd(x: Any) -> Any:
    """Three rows and columns for two."""
    return x.repeat(3, -1).repeat(3, -2)[..., ::2, ::2]


SIZES = [(1, 1), (5, 3), (16, 16), (33, 15)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", ["gray", "rgb24", "bgr0"])
@pytest.mark.parametrize("batch", [1, 3])
def test_padded_frames_are_the_hosts(
    setup: Setup,  # noqa: F811
    size: tuple[int, int],
    form: str,
    batch: int,
) -> None:
    setup.network, setup.size = doubled, (32, 40)
    setup.channels = pixel_format(form).channels
    got, expected = on_both(setup, f"{MODEL}:batch_size={batch}", pictures(form, *size, 4))
    assert apart(got, expected) <= 1
    assert set(setup.loaded[0].batches) == {batch, 1}
    assert setup.loaded[0].closed


@pytest.mark.parametrize("size", [(80, 50), (33, 97), (200, 20), (64, 64)])
@pytest.mark.parametrize(
    ("network", "more"),
    [
        (blurred, ""),
        (doubled, ""),
        (doubled, ":overlap=1"),
        (doubled, ":overlap=20"),
        (halved, ""),
        (levelled, ""),
        (levelled, ":overlap=23"),
    ],
)
@pytest.mark.parametrize("batch", [1, 4])
def test_tiled_frames_are_the_hosts(
    setup: Setup,  # noqa: F811
    size: tuple[int, int],
    network: Network,
    more: str,
    batch: int,
) -> None:
    setup.network, setup.size = network, (32, 32)
    given = pictures("gray", *size)
    got, expected = on_both(setup, f"{MODEL}:batch_size={batch}{more}", given)
    assert apart(got, expected) <= 1
    assert max(setup.loaded[0].batches) == batch


@pytest.mark.parametrize("network", [blurred, doubled])
@pytest.mark.parametrize("form", ["rgb24", "nv12", "p010le"])
@pytest.mark.parametrize("size", [(70, 46), (71, 47)])
def test_exact_tiles_are_the_model_on_the_whole_frame(
    setup: Setup,  # noqa: F811
    network: Network,
    form: str,
    size: tuple[int, int],
) -> None:
    setup.network, setup.channels = network, 3
    given = [cuda_frames.upload(setup.gpu, frame) for frame in pictures(form, *size)]
    whole = setup.run(MODEL, given)
    setup.size = (32, 48)
    made = setup.run(f"{MODEL}:batch_size=2", given)
    assert "cut in the middle" in setup.said[-1]
    down = [[cuda_frames.to_host(setup.gpu, frame) for frame in run] for run in (made, whole)]
    assert apart(*down) == 0
    assert all(shape[2:] == (32, 48) for shape in setup.loaded[1].shapes)


@pytest.mark.parametrize("form", ["gray", "rgb24", "p010le", "p016le", "nv12"])
@pytest.mark.parametrize("size", [(20, 30), (61, 35), (90, 90)])
@pytest.mark.parametrize("more", ["", ":overlap=3", ":overlap=0"])
def test_identity_stays_exact(
    setup: Setup,  # noqa: F811
    form: str,
    size: tuple[int, int],
    more: str,
) -> None:
    setup.size, setup.channels = (32, 32), 3 if form == "rgb24" else 1
    given = pictures(form, *size)
    made = setup.run(f"{MODEL}{more}", [cuda_frames.upload(setup.gpu, frame) for frame in given])
    assert apart([cuda_frames.to_host(setup.gpu, frame) for frame in made], given) == 0


@pytest.mark.parametrize("size", [(20, 30), (61, 35), (100, 7)])
@pytest.mark.parametrize("network", [odd, blurred])
@pytest.mark.parametrize("form", ["gray", "rgb24"])
def test_scaled_frames_are_the_hosts(
    setup: Setup,  # noqa: F811
    size: tuple[int, int],
    network: Network,
    form: str,
) -> None:
    setup.network, setup.size = network, (32, 32)
    setup.channels = pixel_format(form).channels
    got, expected = on_both(setup, f"{MODEL}:fit=scale:batch_size=2", pictures(form, *size))
    assert apart(got, expected) <= 1


@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.parametrize(
    ("size", "batch"), [((20, 30), 1), ((20, 30), 4), ((61, 35), 1), ((61, 35), 4)]
)
@pytest.mark.parametrize("fit", ["auto", "scale"])
def test_fixed_batch_is_filled(
    setup: Setup,  # noqa: F811
    captures: bool,
    size: tuple[int, int],
    batch: int,
    fit: str,
) -> None:
    setup.network, setup.size, setup.fixed_batch = doubled, (32, 32), 4
    setup.captures = captures
    got, expected = on_both(setup, f"{MODEL}:fit={fit}:batch_size={batch}", pictures("gray", *size))
    assert apart(got, expected) <= 1
    assert set(setup.loaded[0].batches) == {4}


@pytest.mark.parametrize("size", [(20, 30), (61, 35)])
@pytest.mark.parametrize("fit", ["auto", "scale"])
@pytest.mark.parametrize("batch", [1, 3])
def test_recorded_jobs_give_the_same_frames(
    setup: Setup,  # noqa: F811
    size: tuple[int, int],
    fit: str,
    batch: int,
) -> None:
    setup.network, setup.size = levelled, (32, 32)
    given = [cuda_frames.upload(setup.gpu, frame) for frame in pictures("nv12", *size, 9)]
    text = f"{MODEL}:fit={fit}:batch_size={batch}"
    plain = setup.run(text, given)
    setup.captures = True
    calls = [len(backend.batches) for backend in setup.loaded]
    recorded = setup.run(text, given)
    down = [[cuda_frames.to_host(setup.gpu, frame) for frame in run] for run in (plain, recorded)]
    assert apart(*down) == 0
    assert "step by step" not in "".join(setup.said)
    jobs, inferences = -(-9 // (1 if "tiles" in setup.said[-1] else batch)), max(calls)
    assert len(setup.loaded[-1].batches) == 5 * inferences // jobs


def test_model_of_free_size_is_tiled_where_that_is_asked(setup: Setup) -> None:  # noqa: F811
    limit = 512 * 512
    plain = setup.network = doubled

    def small(x: Any) -> Any:
        if x.shape[2] * x.shape[3] > limit:
            raise InferenceError("CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has")
        return plain(x)

    setup.network = small
    given = [cuda_frames.upload(setup.gpu, frame) for frame in pictures("gray", 700, 530, 1)]
    with pytest.raises(DeviceError, match=r"3.00 GiB more are needed.*fit=tile"):
        setup.run(MODEL, given)
    made = setup.run(f"{MODEL}:fit=tile", given)
    assert "2x2 tiles of 512x512" in setup.said[-1]
    assert setup.loaded[-1].shapes == [(1, 1, 512, 512)] * 4
    setup.network = plain
    down = [
        [cuda_frames.to_host(setup.gpu, frame) for frame in run]
        for run in (made, setup.run(MODEL, given))
    ]
    assert apart(*down) == 0


def test_model_of_multiples_pads_device_frames(setup: Setup) -> None:  # noqa: F811
    def eights(x: Any) -> Any:
        if x.shape[2] % 8 or x.shape[3] % 8:
            raise InferenceError(f"no multiple of 8: {x.shape}")
        return x

    setup.network = eights
    got, expected = on_both(setup, MODEL, pictures("gray", 30, 21))
    assert apart(got, expected) == 0
    assert "padded to 32x24" in next(line for line in setup.said if "padded" in line)


def test_decision_is_said_once_for_all_precisions(setup: Setup) -> None:  # noqa: F811
    setup.size = (32, 32)
    given = [cuda_frames.upload(setup.gpu, frame) for frame in pictures("gray", 61, 35)]
    setup.run("dnn_processing=model=net.pt:options=compile=1", given)
    told = [line for line in setup.said if "tiles of" in line]
    assert told == [
        "net.pt: frames of 61x35 go in as 2x2 tiles of 32x32 that overlap by 0 (the model sees 0 "
        "pixels far; cut in the middle)"
    ]
    exact, quick = setup.loaded
    assert (dict(exact.options.config), dict(quick.options.config)) == ({}, {"compile": "1"})


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        ("error", "takes pictures of 32x32, the frames are 61x35"),
        ("reshape", "cannot be reshaped"),
        ("pad", "smaller than the frames"),
    ],
)
def test_what_is_not_possible_is_the_hosts_error(
    setup: Setup,  # noqa: F811
    fit: str,
    words: str,
) -> None:
    setup.size = (32, 32)
    given = [cuda_frames.upload(setup.gpu, frame) for frame in pictures("gray", 61, 35)]
    with pytest.raises(ModelError, match=words):
        setup.run(f"{MODEL}:fit={fit}", given)
    assert all(backend.closed for backend in setup.loaded)


NAN: list[tuple[str, Callable[[Any], Any], tuple[int, int]]] = [
    ("pad", lambda x: x, (20, 30)),
    ("tile", lambda x: x, (61, 35)),
    ("tile", doubled, (61, 35)),
    ("tile", levelled, (61, 35)),
    ("scale", lambda x: x, (61, 35)),
]


@pytest.mark.parametrize(("fit", "network", "size"), NAN)
@pytest.mark.parametrize("captures", [False, True])
@pytest.mark.parametrize("batch", [1, 2])
def test_nan_names_its_frame(
    setup: Setup,  # noqa: F811
    fit: str,
    network: Network,
    size: tuple[int, int],
    captures: bool,
    batch: int,
) -> None:
    setup.size, setup.captures = (32, 32), captures
    # Only the fifth frame holds a code that is white.
    setup.network = lambda x: np.where(network(x) >= 1, np.float32(np.nan), network(x))
    frames = pictures("gray", *size, 7)
    for frame in frames:
        frame.planes[0][...] = 100
    frames[4].planes[0][...] = 255
    given = [cuda_frames.upload(setup.gpu, frame) for frame in frames]
    with pytest.raises(NonFiniteError, match="frame 4"):
        setup.run(f"{MODEL}:fit={fit}:batch_size={batch}", given)


@pytest.mark.parametrize("size", [(20, 30), (61, 35)])
def test_nan_outside_what_is_used_does_not_count(
    setup: Setup,  # noqa: F811
    size: tuple[int, int],
) -> None:
    """It lies in what was padded, or in what another tile covers."""

    def fragile(x: Any) -> Any:
        made = blurred(x)
        if setup.gpu.holds(x):
            made[0, :, -1, -1] = np.nan
        return made

    setup.network, setup.size = fragile, (32, 32)
    text = f"{MODEL}:overlap=4:batch_size=4"
    got, expected = on_both(setup, text, pictures("gray", *size, 4))
    assert apart(got, expected) <= 1
