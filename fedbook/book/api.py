"""The API reference, from the docstrings, by pdoc: pages in the book's look, and entries for its search."""

from __future__ import annotations

import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

from fedbook.book.page import ASSETS

LEFT_OUT = ("fedbook.chapters", "fedbook.book.worker", "fedbook.__main__")  # drawings, scripts


def write_reference(out: Path) -> list[tuple[str, str, str, str]]:
    """Write the reference into ``out/api``; the search entries (module, name, address, first paragraph)."""
    import pdoc.doc
    import pdoc.render

    import fedbook

    shutil.rmtree(out / "api", ignore_errors=True)
    pdoc.render.configure(search=False, show_source=False, template_directory=ASSETS / "api")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # annotations that only a type checker can read
        names = [one.name for one in walk_packages(fedbook.__path__, "fedbook.") if not one.name.startswith(LEFT_OUT)]
        modules = {}
        for name in ["fedbook", *names]:
            with suppress(ModuleNotFoundError):  # an engine whose package is not installed
                modules[name] = pdoc.doc.Module(import_module(name))
        entries = []
        for name, module in modules.items():
            target = out / "api" / f"{name.replace('.', '/')}.html"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(pdoc.render.html_module(module, modules), encoding="utf-8")
            address = target.relative_to(out).as_posix()
            entries.append((name, name, address, _first(module)))
            entries += [(name, one.qualname, f"{address}#{one.qualname}", _first(one)) for one in _public(module)]
    return entries


def _public(parent: Any) -> Iterator[Any]:
    for one in parent.own_members:
        if not one.name.startswith("_") and one.docstring:
            yield one
            if one.kind == "class":
                yield from _public(one)


def _first(one: Any) -> str:
    return re.sub(r"(:\w+:)?`+", "", " ".join(one.docstring.split("\n\n")[0].split()))
