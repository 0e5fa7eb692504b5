"""Any model at any size: how a model of fixed size meets a frame of another one.

What is needed of the model - scale, multiple, how far it sees - is measured by running it.
"""

from __future__ import annotations

from collections.abc import Callable

from ..backends import Backend, Options
from ._pictures import Area
from ._plan import Fit, Fitted, Plan
from ._search import Search, opened

__all__ = ["Fit", "Fitted", "Plan", "fitted"]


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
    if options.size is None:
        raise ValueError("fitted() needs options.size")
    frame = Area(*options.size)
    search = Search(
        load, options, fit, overlap, channels, title, frame, opened(load, options, frame)
    )
    try:
        return search.decide()
    except BaseException:
        search.backend.close()
        raise
