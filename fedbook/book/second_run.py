"""The second run of a chapter: nbval on the committed notebook at other parameters.

papermill shows that a chapter runs; nbval shows that the cells tagged ``nbval-check-output`` still give
what is committed, and it sees errors of widgets in another way. nbval has no parameters, but it runs what
papermill prepared, and preparing keeps the stored outputs.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedbook.arguments import real
from fedbook.book.contents import notebook_path
from fedbook.book.kernel import run_process, surroundings
from fedbook.book.parameters import checked
from fedbook.book.product import COLOUR


@dataclass(frozen=True)
class NbvalReport:
    """Code cells passed and failed, whether all is well, and the end of nbval's own words.

    nbval counts code cells only, from 0, and prints the source of each that failed.
    """

    name: str
    passed: int
    failed: int
    ok: bool
    tail: str


def prepare(path: str | Path, parameters: Mapping[str, Any] | None, out: str | Path) -> Path:
    """Write the committed notebook with ``parameters`` injected and its stored outputs kept to ``out``.

    Raises: ValueError, TypeError (a parameter that the notebook does not have), FileNotFoundError.
    """
    import papermill

    path, out = notebook_path(path), Path(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    values = checked(path, parameters or {})
    papermill.execute_notebook(
        str(path), str(out), parameters=values, prepare_only=True, kernel_name="python3", progress_bar=False
    )
    return out


def nbval_chapter(
    path: str | Path, *, cell_timeout: float = 120.0, timeout: float = 600.0, tail: int = 3000
) -> NbvalReport:
    """Run nbval on one notebook in a process of its own; the times are in seconds.

    Only cells tagged ``nbval-check-output`` are compared with their stored output; every cell must run.
    """
    path = notebook_path(path)
    real("cell_timeout", cell_timeout, above=0)
    real("timeout", timeout, above=0)
    with surroundings() as env:
        # An own, empty configuration: the caller's warning filters and plugins are not the chapter's.
        settings = Path(env["IPYTHONDIR"]).with_name("nbval.ini")
        settings.write_text("[pytest]\n", encoding="utf-8")
        command = [sys.executable, "-P", "-m", "pytest", str(path), "-c", str(settings), "--rootdir", str(path.parent)]
        command += ["-q", "--color=no", "-p", "no:cacheprovider", "-p", "nbval.plugin", "--nbval-lax"]
        command += ["--nbval-current-env", f"--nbval-cell-timeout={cell_timeout:g}", "--noconftest"]
        code, output = run_process(command, env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, timeout)
    passed, failed = (_count(word, output) for word in ("passed", "failed"))
    words = output if code is not None else f"{output}\n{path.stem}: not finished within {timeout:g} s"
    return NbvalReport(
        path.stem, passed, failed, ok=code == 0 and passed > 0 and failed == 0, tail=COLOUR.sub("", words)[-tail:]
    )


def _count(word: str, output: str) -> int:
    found = re.findall(rf"(\d+) {word}", output)
    return int(found[-1]) if found else 0
