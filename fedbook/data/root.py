"""Where datasets lie: the data root.

Looked in, in this order: the argument ``root`` (then nowhere else), the folder named by ``FEDBOOK_DATA``, the
``data/`` of the checkout the package runs from, and the user's own folder. The first folder that holds all files
of a dataset serves it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fedbook import arguments
from fedbook.data.errors import DataNotFound

VARIABLE = "FEDBOOK_DATA"


def folders(root: str | os.PathLike[str] | None = None) -> tuple[Path, ...]:
    """The folders that are looked in, first to last: only ``root`` if it is given.

    Raises: TypeError, ValueError if ``root`` or ``FEDBOOK_DATA`` is no folder's name.
    """
    if root is not None:
        return (_folder("root", root),)
    places = [named_by_environment(), of_checkout(), of_user()]
    return tuple(dict.fromkeys(place for place in places if place is not None))


def to_write(root: str | os.PathLike[str] | None = None) -> Path:
    """The folder that fetched data go to: ``root``, else ``FEDBOOK_DATA``, else the user's own.

    Never the checkout's ``data/``: what ships stays as it was committed.
    """
    if root is not None:
        return _folder("root", root)
    return named_by_environment() or of_user()


def named_by_environment() -> Path | None:
    """The folder named by ``FEDBOOK_DATA``, or ``None`` if that is unset or empty. Raises: ValueError."""
    value = os.environ.get(VARIABLE, "")
    return _folder(VARIABLE, value) if value else None


def of_checkout() -> Path | None:
    """The ``data/`` beside the package, or ``None`` where the package was installed without it."""
    folder = Path(__file__).resolve().parents[2] / "data"
    # Any folder called "data" may lie in site-packages; ours has the list of checksums.
    return folder if (folder / "SHA256SUMS").is_file() else None


def of_user() -> Path:
    """The user's own folder for fetched data (``~/.cache/fedbook`` on Linux, the custom of each other system)."""
    import pooch

    return Path(pooch.os_cache("fedbook"))


def find(name: str, paths: Sequence[str], remedy: str, root: str | os.PathLike[str] | None = None) -> Path:
    """The first folder looked in that holds all ``paths`` (relative to it; a ``*`` stands for any file there).

    Raises: DataNotFound, which says ``name``, the folders and the ``remedy``.
    """
    places = folders(root)
    for place in places:
        if all(files(place, path) for path in paths):
            return place
    missing = [path for path in paths if not any(files(place, path) for place in places)]
    raise DataNotFound(name, places, missing or list(paths), remedy)


def files(place: Path, path: str) -> list[Path]:
    """The files called ``path`` below ``place``: one or none, or with a ``*`` all that fit, in order."""
    found = place.glob(path) if "*" in path else [place / path]
    return sorted(file for file in found if file.is_file())


def _folder(name: str, value: str | os.PathLike[str]) -> Path:
    if not isinstance(value, (str, os.PathLike)) or isinstance(value, bytes):
        raise arguments.wrong(TypeError, name, value, "the path of a folder (text or pathlib.Path)")
    if not str(value):
        raise arguments.wrong(ValueError, name, value, "the path of a folder, not an empty text")
    path = Path(value).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise arguments.wrong(ValueError, name, str(value), "a folder, and this is a file")
    return path
