"""Progress of long work: a bar on a terminal or in a live notebook, plain lines elsewhere, silence when headless."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from fedbook.arguments import flag, integer, wrong

Item = TypeVar("Item")
LINE_EVERY_S = 5.0  # between two plain lines; a log should not grow faster
PHASE_AFTER_S = 0.5  # what is over sooner needs no line of its own


def headless() -> bool:
    """Whether nobody watches: the environment variable ``FEDBOOK_HEADLESS`` is set (and not 0)."""
    return os.environ.get("FEDBOOK_HEADLESS", "").strip() not in ("", "0")


def progress(
    iterable: Iterable[Item],
    total: int | None = None,
    label: str = "",
    quiet: bool = False,
    note: Callable[[], str] = str,
) -> Iterator[Item]:
    """The items of ``iterable``, while stderr (or the notebook) says how far we are.

    Silent with ``quiet=True`` or when headless. ``total`` defaults to ``len(iterable)`` where it has one. ``note()``:
    what else to say after an item, as a short text.
    Raises: TypeError, ValueError.
    """
    if not isinstance(iterable, Iterable):
        raise wrong(TypeError, "iterable", iterable, "something to iterate over")
    if not isinstance(label, str):
        raise wrong(TypeError, "label", label, "a text")
    if total is None and hasattr(iterable, "__len__"):
        total = len(iterable)
    total = None if total is None else integer("total", total, 0)
    if flag("quiet", quiet) or headless():
        return iter(iterable)
    if _in_notebook():  # a bar of text: a widget that the notebook stores is an error message when it is opened again
        return _bar(iterable, total, label, note, sys.stdout)
    if _on_terminal():
        return _bar(iterable, total, label, note, sys.stderr)
    return _lines(iterable, total, label, note)


class Phases:
    """What long work is doing: a line on stderr for each phase that lasts half a second, as long as no bar is shown.

    Between the lines of :func:`progress` it says what is going on before the first item is done.
    """

    def __init__(self, label: str = "", bar: bool = True) -> None:
        self.label, self._timer = label, None
        self.silent = headless() or _in_notebook() or (bar and _on_terminal())

    def begin(self, text: str) -> None:
        """The phase before is over, another one begins."""
        self.end()
        if not self.silent:
            self._timer = threading.Timer(PHASE_AFTER_S, _write, [f"{self.label}: {text}" if self.label else text])
            self._timer.daemon = True
            self._timer.start()

    def end(self) -> None:
        """The last phase is over."""
        if self._timer is not None:
            self._timer.cancel()


@contextmanager
def phase(text: str) -> Iterator[None]:
    """One phase, inside the block; on a terminal too, where no bar is shown yet."""
    phases = Phases(bar=False)
    phases.begin(text)
    try:
        yield
    finally:
        phases.end()


def _bar(iterable: Iterable[Item], total: int | None, label: str, note: Callable[[], str], file) -> Iterator[Item]:
    from tqdm import tqdm

    text = ""
    with tqdm(total=total, desc=label, file=file, leave=False) as bar:
        for item in iterable:
            yield item
            bar.update()
            told, text = text, note()
            bar.set_postfix_str(text, refresh=text != told)


def _lines(iterable: Iterable[Item], total: int | None, label: str, note: Callable[[], str]) -> Iterator[Item]:
    """The items, with one line on stderr every LINE_EVERY_S seconds and one at the end if there was any."""
    start = said = time.monotonic()
    done = said_of = 0
    for item in iterable:
        yield item
        done += 1
        now = time.monotonic()
        if now - said >= LINE_EVERY_S:
            _say(label, done, total, now - start, note())
            said, said_of = now, done
    if 0 < said_of < done:
        _say(label, done, total, time.monotonic() - start, note())


def _say(label: str, done: int, total: int | None, seconds: float, note: str) -> None:
    name = f"{label}: " if label else ""
    of = f" of {total}" if total is not None else ""
    _write(f"{name}{done}{of}, {seconds:.0f} s" + (f", {note}" if note else ""))


def say(line: str) -> None:
    """A line on stderr, unless headless."""
    if not headless():
        _write(line)


def _write(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel (asked without importing IPython)."""
    core = sys.modules.get("IPython")
    shell = core.get_ipython() if core is not None and hasattr(core, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None
