"""Where datasets lie, the data root, and what can go wrong with one.

Looked in, in this order: the argument ``root`` (then nowhere else), the folder named by ``FEDBOOK_DATA``, the
``data/`` that comes with the book (of the checkout, or in the wheel), and the user's own folder. The first folder
that holds all files of a dataset serves it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fedbook import arguments, shipped
from fedbook.data.sources import Source

VARIABLE = "FEDBOOK_DATA"
Root = str | os.PathLike[str] | None


class BrokenFile(ValueError):
    """A file that is there but is not what it should be (cut short, altered, of another shape, malicious).

    ``path`` is the file, ``why`` the reason; the message holds both.
    """

    def __init__(self, path: str | Path, why: str) -> None:
        self.path, self.why = Path(path), why
        super().__init__(f"{path}: {why}")


class DataNotFound(FileNotFoundError):
    """A dataset of which no folder looked in holds all files.

    ``name`` is the dataset, ``folders`` where it was looked for, ``missing`` the files (relative to such a
    folder), ``remedy`` what to do; the message holds all four.
    """

    def __init__(self, name: str, folders: Sequence[Path], missing: Sequence[str], remedy: str) -> None:
        self.name, self.folders, self.missing, self.remedy = name, tuple(folders), tuple(missing), remedy
        looked = "\n".join(f"  {folder}" for folder in folders)
        super().__init__(
            f"dataset {name!r} was not found. Looked in (in this order):\n{looked}\n"
            f"for: {', '.join(missing)}\n{remedy}\n"
            "Another folder can be named by the argument root=... or by the environment variable FEDBOOK_DATA."
        )


class FetchFailed(OSError):
    """A dataset that could not be fetched. Nothing was left behind; the message says what was tried and why it failed.

    A plain ``OSError`` without errno: the reason may be the network, the server or a checksum.
    """

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        self.name, self.reasons = name, tuple(reasons)
        super().__init__(
            f"dataset {name!r} could not be fetched; nothing was changed:\n" + "\n".join(f"  {r}" for r in reasons)
        )


def folders(root: Root = None) -> tuple[Path, ...]:
    """The folders that are looked in, first to last: only ``root`` if it is given.

    Raises: TypeError, ValueError if ``root`` or ``FEDBOOK_DATA`` is no folder's name.
    """
    if root is not None:
        return (_folder("root", root),)
    places = [named_by_environment(), of_book(), of_user()]
    return tuple(dict.fromkeys(place for place in places if place is not None))


def to_write(root: Root = None) -> Path:
    """The folder that fetched data go to: ``root``, else ``FEDBOOK_DATA``, else the user's own.

    Never the book's ``data/``: what ships stays as it was committed.
    """
    if root is not None:
        return _folder("root", root)
    return named_by_environment() or of_user()


def named_by_environment() -> Path | None:
    """The folder named by ``FEDBOOK_DATA``, or ``None`` if that is unset or empty. Raises: ValueError."""
    value = os.environ.get(VARIABLE, "")
    return _folder(VARIABLE, value) if value else None


def of_book() -> Path | None:
    """The ``data/`` of the checkout, or the wheel's copy of it; ``None`` where the package came without."""
    return shipped.folder("data", "SHA256SUMS")


def of_user() -> Path:
    """The user's own folder for fetched data (``~/.cache/fedbook`` on Linux, the custom of each other system)."""
    import platformdirs

    return Path(platformdirs.user_cache_dir("fedbook"))


def find(source: Source, root: Root = None, paths: Sequence[str] = ()) -> Path:
    """The first folder looked in that holds all files of ``source``, or only ``paths`` of them.

    Raises: DataNotFound, TypeError, ValueError (``root``).
    """
    places, paths = folders(root), paths or source.paths
    for place in places:
        if all(files(place, path) for path in paths):
            return place
    missing = [path for path in paths if not any(files(place, path) for place in places)]
    raise DataNotFound(source.name, places, missing or list(paths), source.remedy)


def files(place: Path, path: str) -> list[Path]:
    """The files called ``path`` below ``place``: one or none, or with a ``*`` all that fit, in order."""
    candidates = place.glob(path) if "*" in path else [place / path]
    return sorted(file for file in candidates if file.is_file())


def _folder(name: str, value: str | os.PathLike[str]) -> Path:
    if not isinstance(value, (str, os.PathLike)) or isinstance(value, bytes):
        raise arguments.wrong(TypeError, name, value, "the path of a folder (text or pathlib.Path)")
    if not str(value):
        raise arguments.wrong(ValueError, name, value, "the path of a folder, not an empty text")
    path = Path(value).expanduser().absolute()
    if path.exists() and not path.is_dir():
        raise arguments.wrong(ValueError, name, str(value), "a folder, and this is a file")
    return path
