"""What comes with the package and is no code: ``data/`` and ``notebooks/``, of the checkout or in the wheel."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from fedbook import arguments

PACKAGE = Path(__file__).resolve().parent
IN_WHEEL = PACKAGE / "_shipped"


def folder(name: str, holding: str) -> Path | None:
    """The shipped folder ``name``: beside the package in a checkout, inside it where it was installed; None: nowhere.

    ``holding``: a file that makes it ours. Any folder called "data" may lie in site-packages.
    """
    places = [PACKAGE.parent / name, IN_WHEEL / name]
    return next((place for place in places if (place / holding).is_file()), None)


def copy_notebooks(source: Path, to: Path, change: Callable[[str], str] | None = None) -> list[Path]:
    """Copy notebooks, frames and images of ``source`` to the new folder ``to``, all or nothing; the notebooks there.

    ``change``: from the text of a notebook to what is written.
    Raises: ValueError (``to`` is a file, or a folder that holds something: nothing is ever overwritten), OSError.
    """
    allowed = "a folder that is not there yet, or an empty one: nothing is overwritten"
    if os.path.lexists(to) and (not to.is_dir() or any(to.iterdir())):
        raise arguments.wrong(ValueError, "DIR", str(to), allowed)
    there = to.is_dir()  # perhaps somebody stands in it, or it is a link: then it is filled, not replaced
    (to if there else to.parent).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".notebooks-", dir=to if there else to.parent) as stage:
        fresh = Path(stage) / "fresh"
        fresh.mkdir()
        for notebook in sorted(source.glob("[0-9]*.ipynb")):
            shutil.copyfile(notebook, fresh / notebook.name)
            if change is not None:
                (fresh / notebook.name).write_text(change(notebook.read_text(encoding="utf-8")), encoding="utf-8")
        for part in ("frames", "images"):
            if (source / part).is_dir():
                shutil.copytree(source / part, fresh / part, copy_function=shutil.copyfile)
        for one, place in [(part, to / part.name) for part in fresh.iterdir()] if there else [(fresh, to)]:
            os.replace(one, place)
    return sorted(to.glob("*.ipynb"))
