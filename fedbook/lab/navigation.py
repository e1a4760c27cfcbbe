"""The bar at both ends of a chapter: previous, contents, next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedbook.arguments import wrong

CONTENTS = "00_start_here.ipynb"
SEPARATOR = " · "


def navigation(slug: str, chapters: Sequence[Any] | None = None) -> str:
    """Markdown for chapter ``slug``: links beside it in the folder; a chapter not yet written has no link.

    Raises: ValueError (no such chapter).
    """
    if chapters is None:
        from fedbook.book.contents import CHAPTERS

        chapters = CHAPTERS
    ordered = sorted(chapters, key=lambda one: one.number)
    slugs = [one.slug for one in ordered]
    if slug not in slugs:
        raise wrong(ValueError, "slug", slug, "one of " + ", ".join(slugs))
    at = slugs.index(slug)
    contents = "**contents**" if ordered[at].file == CONTENTS else f"[contents]({CONTENTS})"
    parts = [f"← {_entry(ordered[at - 1])}"] if at > 0 else []
    parts.append(contents)
    parts += [f"{_entry(ordered[at + 1])} →"] if at + 1 < len(ordered) else []
    return SEPARATOR.join(parts)


def _entry(chapter: Any) -> str:
    title = f"{chapter.number} {chapter.title}"
    return f"[{title}]({chapter.file})" if chapter.ready else f"{title} (not yet written)"
