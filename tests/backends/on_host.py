"""Host arrays that are said to lie in the memory of a GPU, for runtimes that run on the host."""

from __future__ import annotations

from typing import Any

import numpy as np


class Tensor(np.ndarray):
    """A host array with the interfaces of a GPU's, on the GPU 0."""

    index = 0

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.__array_interface__, "version": 3}

    def __dlpack_device__(self) -> tuple[Any, int]:
        return 2, self.index

    def __dlpack__(self, *, stream: int | None = None, **told: Any) -> Any:
        """A capsule of host memory; nothing waits for a stream (-1)."""
        assert stream == -1
        return np.asarray(self).view(np.ndarray).__dlpack__(**told)


def said(array: Any, index: int = 0) -> Any:
    """The array, said to lie on the GPU `index`."""
    made = array.view(Tensor)
    made.index = index
    return made


def placed(array: Any, index: int = 0, offset: int = 0) -> Any:
    """A copy on the GPU `index`, `offset` bytes behind a multiple of 64."""
    given = np.asarray(array)
    room = np.zeros(given.nbytes + 64 + offset, np.uint8)
    start = -room.ctypes.data % 64 + offset
    made = room[start : start + given.nbytes].view(given.dtype).reshape(given.shape)
    made[...] = given
    return said(made, index)


def read(shown: Any) -> Any:
    """A view of what an output holds."""
    holder = type("Holder", (), {"owner": shown})()
    holder.__array_interface__ = shown.__cuda_array_interface__
    return np.asarray(holder)
