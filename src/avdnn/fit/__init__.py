"""Any model at any size: how a model of fixed size meets a frame of another one.

What is needed of the model - scale, multiple, how far it sees - is measured by running it.
"""

from __future__ import annotations

from collections.abc import Callable

from ..backends import Backend, Options
from ._chained import Padded, Scaled
from ._grid import Along, Grid
from ._pictures import Area, picture_input
from ._plan import Fit, Fitted, Plan
from ._search import Search, opened
from ._tiled import Tiled
from ._triangle import taps

__all__ = [
    "Along",
    "Area",
    "Fit",
    "Fitted",
    "Grid",
    "Plan",
    "decided",
    "fitted",
    "taps",
    "wrapped",
]


def fitted(
    load: Callable[[Options], Backend],
    options: Options,
    *,
    fit: Fit = Fit.AUTO,
    overlap: int = -1,
    channels: int = 3,
    title: str = "the model",
) -> Fitted:
    """Load a model so that it takes frames of `options.size`, by itself or with help.

    `load` loads it with given options, perhaps several times. `overlap` is in input pixels; -1
    means as much as the model was measured to need. `channels` are those of the frames, for a
    model that takes any. `options.batch_size` tiles go into one inference. ModelError if `fit`
    is not possible.
    """
    bare = decided(load, options, fit=fit, overlap=overlap, channels=channels, title=title)
    return Fitted(wrapped(bare.backend, bare.plan, options.batch_size), bare.plan)


def decided(
    load: Callable[[Options], Backend],
    options: Options,
    *,
    fit: Fit = Fit.AUTO,
    overlap: int = -1,
    channels: int = 3,
    title: str = "the model",
) -> Fitted:
    """As `fitted`, but the backend is the bare one, loaded for pictures of `plan.model`."""
    if options.size is None:
        raise ValueError("fitted() needs options.size")
    frame = Area(*options.size)
    search = Search(
        load, options, fit, overlap, channels, title, frame, opened(load, options, frame, fit)
    )
    try:
        plan = search.decide()
    except BaseException:
        search.backend.close()
        raise
    return Fitted(search.backend, plan)


def wrapped(backend: Backend, plan: Plan, batch: int) -> Backend:
    """A backend for pictures of `plan.model` as one for host arrays of `plan.frame`."""
    given = picture_input(backend)
    if given is None or plan.how in (None, Fit.RESHAPE):
        return backend
    if plan.grid is not None:
        grid, scales = plan.grid, plan.scales
        return Tiled(backend, given, plan.frame, grid, scales, min(batch, len(grid)))
    made = Padded if plan.how is Fit.PAD else Scaled
    return made(backend, given, plan.frame, plan.model, plan.made)
