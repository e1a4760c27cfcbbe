"""Ctrl-C where it does no harm: between two steps of a computation, never inside one.

Python raises KeyboardInterrupt at whatever instruction the signal meets. In the middle of a vectorised step that
leaves torch.func's own bookkeeping half undone, and every later call in the same process (a notebook's kernel, the
saving of a checkpoint) fails; in a destructor it is lost.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_waiting = False


@contextmanager
def held() -> Iterator[None]:
    """Inside, the first interrupt waits for the next :func:`point` or for the end; a second one comes at once.

    Nested uses are one. It changes nothing outside the main thread, and where somebody has set a handler of their own.
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        point()
        return
    signal.signal(signal.SIGINT, _note)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        point()


def point() -> None:
    """A place between two steps. Raises: KeyboardInterrupt, if one waits."""
    global _waiting
    if _waiting and threading.current_thread() is threading.main_thread():
        _waiting = False
        raise KeyboardInterrupt


def _note(signum: int, frame: FrameType | None) -> None:
    global _waiting
    if _waiting:
        point()
    _waiting = True
