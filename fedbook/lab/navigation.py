"""The bar at both ends of a chapter: previous, contents, next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedbook.arguments import wrong

CONTENTS = "00_start_here.ipynb"
SEPARATOR = " · "


def navigation(slug: str, chapters: Sequence[Any] | None = None) -> str:
    """Markdown for the chapter with that slug (``fedsc``) or name (``01_fedsc``): links beside it in the folder.

    Raises: ValueError (no such chapter).
    """
    if chapters is None:
        from fedbook.book.contents import CHAPTERS

        chapters = CHAPTERS
    ordered = sorted(chapters, key=lambda one: one.number)
    places = [i for i, one in enumerate(ordered) if slug in (one.slug, one.file.removesuffix(".ipynb"))]
    if not places:
        raise wrong(ValueError, "slug", slug, "one of " + ", ".join(one.slug for one in ordered))
    at = places[0]
    contents = "**contents**" if ordered[at].file == CONTENTS else f"[contents]({CONTENTS})"
    parts = [f"← {_entry(ordered[at - 1])}"] if at > 0 else []
    parts.append(contents)
    parts += [f"{_entry(ordered[at + 1])} →"] if at + 1 < len(ordered) else []
    return SEPARATOR.join(parts)


def _entry(chapter: Any) -> str:
    return f"[{chapter.number} {chapter.title}]({chapter.file})"
