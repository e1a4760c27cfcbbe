"""What the shell offers after a Tab, by argcomplete: papers, and what the paper on the line has."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping
from typing import Any


def offer(parser: argparse.ArgumentParser) -> None:
    """Answer the shell and end, if it is the shell that asks; otherwise nothing, not even an import."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)


def papers(prefix: str, **_: object) -> Iterable[str]:
    """The names of the papers."""
    from fedbook.papers import NAMES

    return tuple(NAMES)


def methods(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """The paper's methods; of a list separated by commas the last word is completed."""
    before, comma, _ = prefix.rpartition(",")
    return [before + comma + word for word in _of_paper(parsed_args, "methods")]


def problems(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """The paper's problems."""
    return _of_paper(parsed_args, "problems")


def profiles(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """The profiles."""
    from fedbook.experiment import PROFILES

    return PROFILES


def settings(prefix: str, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
    """The paper's settings as "name=", and after it the words that are allowed."""
    rows = _of_paper(parsed_args, "settings")
    name, equals, rest = prefix.partition("=")
    if not equals:
        return [f"{word}=" for word in rows]
    words = rows[name]["choices"] if name in rows else ()
    before, comma, _ = rest.rpartition(",")
    return [f"{name}={before}{comma}{word}" for word in words]


def chapters(prefix: str, **_: object) -> Iterable[str]:
    """The names of the notebooks."""
    from fedbook.book.contents import CHAPTERS

    return [chapter.name for chapter in CHAPTERS]


def datasets(prefix: str, **_: object) -> Iterable[str]:
    """The names of the datasets."""
    from fedbook.data.sources import SOURCES

    return SOURCES


def _of_paper(parsed: argparse.Namespace, what: str) -> Mapping[str, Any]:
    """``what`` the paper on the line has; nothing where there is no such paper."""
    from fedbook import papers

    try:
        one = papers.paper(parsed.paper)
    except ValueError:
        return {}
    return one.described() if what == "settings" else getattr(one, what)
