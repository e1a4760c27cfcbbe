"""Progress of long work: a bar on a terminal or in a live notebook, plain lines elsewhere, silence when headless."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

from fedbook.arguments import flag, integer, wrong

Item = TypeVar("Item")
LINE_EVERY_S = 5.0  # between two plain lines; a log should not grow faster


def headless() -> bool:
    """Whether nobody watches: the environment variable ``FEDBOOK_HEADLESS`` is set (and not 0)."""
    return os.environ.get("FEDBOOK_HEADLESS", "").strip() not in ("", "0")


def progress(
    iterable: Iterable[Item], total: int | None = None, label: str = "", quiet: bool = False
) -> Iterator[Item]:
    """The items of ``iterable``, while stderr (or the notebook) says how far we are.

    Silent with ``quiet=True`` or when headless. ``total`` defaults to ``len(iterable)`` where it has one.
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
        from tqdm import tqdm

        return iter(tqdm(iterable, total=total, desc=label, file=sys.stdout, leave=False))
    if sys.stderr is not None and sys.stderr.isatty():
        from tqdm import tqdm

        return iter(tqdm(iterable, total=total, desc=label, file=sys.stderr, leave=False))
    return _lines(iterable, total, label)


def _lines(iterable: Iterable[Item], total: int | None, label: str) -> Iterator[Item]:
    """The items, with one line on stderr every LINE_EVERY_S seconds and one at the end if there was any."""
    start = said = time.monotonic()
    done, said_any = 0, False
    for item in iterable:
        yield item
        done += 1
        now = time.monotonic()
        if now - said >= LINE_EVERY_S:
            _say(label, done, total, now - start)
            said, said_any = now, True
    if said_any:
        _say(label, done, total, time.monotonic() - start)


def _say(label: str, done: int, total: int | None, seconds: float) -> None:
    name = f"{label}: " if label else ""
    of = f" of {total}" if total is not None else ""
    sys.stderr.write(f"{name}{done}{of}, {seconds:.0f} s\n")
    sys.stderr.flush()


def _in_notebook() -> bool:
    """Whether this is a Jupyter kernel (asked without importing IPython)."""
    core = sys.modules.get("IPython")
    shell = core.get_ipython() if core is not None and hasattr(core, "get_ipython") else None
    return getattr(shell, "kernel", None) is not None
