"""Ctrl-C where it does no harm: between two steps of a computation, never inside one.

Python raises KeyboardInterrupt at whatever instruction the signal meets. In the middle of a vectorised step that
leaves torch.func's own bookkeeping half undone, and every later call in the same process (a notebook's kernel, the
saving of a checkpoint) fails; in a destructor it is lost; in an import it breaks whatever was being imported.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

_waiting = 0  # the signal that waits for a point; 0: none
_leave: Callable[[int], None] | None = None


class Terminated(KeyboardInterrupt):
    """SIGTERM (a scheduler, ``kill``), where :func:`catch` asked for it: it ends a run as Ctrl-C does."""


def catch(leave: Callable[[int], None]) -> None:
    """From now on Ctrl-C and SIGTERM call ``leave(signal)``, which ends the process: for a program of its own.

    Not inside :func:`held` or :func:`raised`. A handler that somebody has set stays, and so does a signal that
    is ignored (Ctrl-C in a job that a script put in the background).
    """
    global _leave
    _leave = leave
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL)):
        if signal.getsignal(number) is usual:
            signal.signal(number, _now)


@contextmanager
def raised() -> Iterator[None]:
    """Inside, what :func:`catch` caught raises KeyboardInterrupt at once: for work that cleans up after itself."""
    global _leave
    before, _leave = _leave, None
    try:
        yield
    finally:
        _leave = before


@contextmanager
def held() -> Iterator[None]:
    """Inside, the first interrupt waits for the next :func:`point` or for the end; a second one comes at once.

    The end of a nested use is a point, too. It changes nothing outside the main thread, and where somebody has set a
    handler of their own.
    """
    ours = threading.current_thread() is threading.main_thread()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)} if ours else {}
    handlers = {n: before for n, before in handlers.items() if before in (signal.default_int_handler, _now)}
    for number in handlers:
        signal.signal(number, _note)
    try:
        yield
    finally:
        for number, before in handlers.items():
            signal.signal(number, before)
        point()


def point() -> None:
    """A place between two steps. Raises: KeyboardInterrupt, if one waits."""
    global _waiting
    if _waiting and threading.current_thread() is threading.main_thread():
        number, _waiting = _waiting, 0
        _interrupt(number)


def _interrupt(number: int) -> None:
    raise Terminated if number == signal.SIGTERM else KeyboardInterrupt


def _now(number: int, frame: FrameType | None) -> None:
    if _leave is not None:
        _leave(number)
    _interrupt(number)


def _note(number: int, frame: FrameType | None) -> None:
    global _waiting
    if _waiting:
        point()
    _waiting = number
