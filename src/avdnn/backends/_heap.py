"""The C heap's habits, where they cost frames."""

from __future__ import annotations

import ctypes
import os

ARENA_MAX, MMAP_MAX, TRIM_THRESHOLD = -8, -4, -1


def keep_pages() -> bool:
    """Let freed memory stay in the process; False where that cannot be, or must not.

    glibc maps every large block anew and gives it back when it is freed. A network's feature maps
    are large and live for one layer, so each frame would fault all their pages in again, which
    costs about as much as the network. Blocks now come from the one main heap, and stay. It holds
    for the whole process; threads that took memory before keep the arena that they have, so it is
    best called before there are any. AVDNN_KEEP_MEMORY=0 in the environment forbids it.
    """
    if os.environ.get("AVDNN_KEEP_MEMORY") == "0":
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False
    wanted = ((ARENA_MAX, 1), (MMAP_MAX, 0), (TRIM_THRESHOLD, 2**31 - 1))
    return all([set_option(option, value) for option, value in wanted])
