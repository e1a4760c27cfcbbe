"""A new paper in a checkout: its folder, its three notebooks, its tests, its line in the contents; all or nothing.

What is written stands in ``new_paper/``, as files that are linted like the rest. The notebooks are executed as they
are committed, so that they pass the rules from the first moment.
"""

from __future__ import annotations

import importlib.util
import json
import keyword
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedbook import papers, shipped
from fedbook.arguments import wrong
from fedbook.book.commit import KERNELSPEC
from fedbook.book.contents import CHAPTERS, KINDS, Chapter, navigation
from fedbook.progress import phase

TEMPLATES = Path(__file__).with_name("new_paper")
LONGEST = 22  # letters of a name: with more, the import in the lesson takes lines that its cell has no room for
CELL = re.compile(r'(?m)^# %% (?P<kind>markdown|code)(?: tags=(?P<tags>\S+))?(?: alt="(?P<alt>.*)")?\n')
ENTRY = """    *Chapter(
        number={number},
        slug="{name}",
        title="{title}: what it is about",
        citation="Authors. Title. Venue, year.",
        claim="What the paper claims, in one sentence.",
    ).all_kinds(),
"""


def new_paper(name: str, root: Path = shipped.PACKAGE.parent) -> list[Path]:
    """Make the paper ``name`` in the checkout ``root``; the files that are new or changed.

    Raises: TypeError, ValueError (a name that cannot be used, no checkout), RuntimeError (a tool is missing, or a
    notebook was not executed); then the checkout is as it was.
    """
    _usable(name, root)
    for tool in ("ruff", "nbval", "papermill", "ipykernel"):
        if importlib.util.find_spec(tool) is None:
            raise RuntimeError(f'new-paper needs {tool}: pip install -e ".[dev]"')
    files = _files(name, root)
    with _all_or_none(files):
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        ours = [path for path in files if path.suffix == ".py" or name in path.name]
        for command in (["check", "--quiet", "--fix", "--select", "I"], ["format", "--quiet"]):
            _call(["ruff", *command, *map(str, ours)], root)
        with phase("executing the notebooks"):
            _call(["fedbook", "book", "--commit", name], root)
    return list(files)


def _usable(name: str, root: Path) -> None:
    if not isinstance(name, str):
        raise wrong(TypeError, "NAME", name, "a word")
    if not (root / "tests" / "papers").is_dir() or not (root / "pyproject.toml").is_file():
        raise wrong(
            ValueError, "new-paper", str(root), 'a checkout, with fedbook installed from it: pip install -e "."'
        )
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or len(name) > LONGEST:
        raise wrong(
            ValueError, "NAME", name, f"at most {LONGEST} small letters, digits and single _, beginning with a letter"
        )
    if keyword.iskeyword(name) or importlib.util.find_spec(name) is not None:
        raise wrong(ValueError, "NAME", name, "no word of Python and no name of a module that is installed")
    taken = {*papers.NAMES, *(one.slug for one in CHAPTERS), *(path.stem for path in (root / "tests/papers").iterdir())}
    taken |= {path.stem for path in (*(root / "fedbook/papers").iterdir(), *(root / "fedbook/chapters").iterdir())}
    if name in taken | {kind for kind in KINDS} | {"new_paper"}:
        raise wrong(ValueError, "NAME", name, "a name that no paper, chapter or module of papers/ and chapters/ has")


def _files(name: str, root: Path) -> dict[Path, str]:
    """Every file that is new or changed, with its text."""
    number = CHAPTERS[-1].number + 1
    title = "".join(part.capitalize() for part in name.split("_"))
    words = {"NN_new_paper": f"{number:02d}_{name}", "NN": str(number), "NewPaper": title, "New paper": title}
    words |= {"new_paper": name, "new-paper": name.replace("_", "-")}

    def filled(file: str) -> str:
        return re.sub("|".join(words), lambda found: words[found[0]], (TEMPLATES / file).read_text(encoding="utf-8"))

    own = Chapter(number, name, f"{title}: what it is about", "", "").all_kinds()
    contents, entries = root / "fedbook/book/contents.py", root / "fedbook/papers/__init__.py"
    line = ENTRY.format(number=number, name=name, title=title)
    files = {
        root / "fedbook/papers" / name / "__init__.py": filled("entry.py"),
        root / "fedbook/papers" / name / "algorithm.py": filled("algorithm.py"),
        root / "tests/papers" / name / "test_algorithm.py": filled("test_algorithm.py"),
        contents: _edited(contents, r"(?ms)^CHAPTERS: .*?^(?=\)$)", line),
        entries: _edited(entries, r"(?s)\nNAMES = \{[^}]*?(?=,?\s*\})", f', "{name}": {number}'),
    }
    for one in own:
        source = filled(f"{one.kind}.txt")
        files[root / "notebooks" / one.file] = _notebook(source, navigation(one.name, [*CHAPTERS, *own]))
    for one in CHAPTERS:
        before, after = (json.dumps(navigation(one.name, book), ensure_ascii=False) for book in
                         (CHAPTERS, [*CHAPTERS, *own]))  # fmt: skip
        path = root / "notebooks" / one.file
        if before != after:
            files[path] = path.read_text(encoding="utf-8").replace(before, after)
    return files


def _edited(path: Path, place: str, new: str) -> str:
    """The text of a file with ``new`` behind what the pattern ``place`` finds."""
    text = path.read_text(encoding="utf-8")
    found = re.search(place, text)
    if found is None:
        raise RuntimeError(f"{path} does not have the list that a new paper is entered into")
    return text[: found.end()] + new + text[found.end() :]


def _notebook(text: str, bar: str) -> str:
    """The notebook that a text with lines ``# %% code tags=...`` stands for; cells tagged nav hold ``bar``."""
    import nbformat

    starts = list(CELL.finditer(text))
    cells = []
    for at, (start, after) in enumerate(zip(starts, [*starts[1:], None], strict=True), 1):
        source = text[start.end() : after.start() if after else None].strip()
        tags = start["tags"].split(",") if start["tags"] else []
        metadata: dict[str, Any] = {"tags": tags} if tags else {}
        metadata |= {"alt": start["alt"]} if start["alt"] else {}
        make = nbformat.v4.new_markdown_cell if start["kind"] == "markdown" else nbformat.v4.new_code_cell
        cells.append(make(bar if "nav" in tags else source, id=f"cell-{at}", metadata=metadata))
    return nbformat.writes(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": KERNELSPEC})) + "\n"


@contextmanager
def _all_or_none(files: Mapping[Path, str]) -> Iterator[None]:
    """What stands in the block has these files as they were, and no new folder, if it does not come to its end."""
    before = {path: path.read_bytes() if path.exists() else None for path in files}
    folders = {path.parent for path in files if not path.parent.exists()}
    try:
        yield
    except BaseException:
        for path, content in before.items():
            if content is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(content)
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
        raise


def _call(words: list[str], root: Path) -> None:
    done = subprocess.run([sys.executable, "-m", *words], cwd=root, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:3])} failed, nothing was made:\n{(done.stdout + done.stderr).strip()}")
