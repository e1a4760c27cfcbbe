"""Running notebooks, each once: a lesson under nbval, any other under papermill with a scan afterwards.

nbval executes the committed notebook at the profile's size (preparing keeps the stored outputs), compares the
cells tagged ``nbval-check-output`` with what is committed and fails when a widget callback raises. papermill
fails neither then nor for a misspelt parameter; both are checked here. Two notebooks run at a time, each in
its own process with one torch thread.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from fedbook.arguments import integer, one_of, real
from fedbook.book.contents import PROFILES, Chapter, notebook_path, notebooks_folder
from fedbook.book.kernel import answered, run_process, surroundings
from fedbook.book.parameters import checked
from fedbook.book.product import cell_problems, counted, records, widget_problems
from fedbook.progress import say

WORKER = Path(__file__).with_name("worker.py")
# A kernel in some hundred never answers its first message. Seconds that a first start gets, and a second: on a busy
# machine a start that is well takes ten.
START_LIMITS = (60.0, 180.0)
REPORTS = "reports.json"


@dataclass(frozen=True)
class ChapterReport:
    """What one run of a notebook gave. ``problems`` is empty when all is well.

    ``passed`` and ``failed`` count code cells, ``marked`` those whose outputs were compared with the committed
    ones and ``agreed`` those among them that gave the same. ``peak_mb`` is the kernel's largest resident size
    in MB (2**20 bytes), ``size_kb`` the size of the executed notebook in kB (1,000 bytes). Both, and
    ``seconds``, are None where there was nothing to measure.
    """

    name: str
    profile: str
    problems: tuple[str, ...] = ()
    cells: int = 0
    seconds: float | None = None
    peak_mb: float | None = None
    size_kb: float | None = None
    records: Mapping[str, Any] = field(default_factory=dict)
    product: str | None = None
    kind: str = "lesson"
    passed: int = 0
    failed: int = 0
    marked: int = 0
    agreed: int = 0

    @property
    def ok(self) -> bool:
        """Whether the run had no problem."""
        return not self.problems


def run_chapter(
    path: str | Path,
    parameters: Mapping[str, Any] | None = None,
    out_path: str | Path | None = None,
    *,
    profile: str = "",
    timeout: float = 300.0,
    folder: str | Path | None = None,
    compare: bool = False,
    start_limits: tuple[float, float] = START_LIMITS,
) -> ChapterReport:
    """Execute the notebook at ``path`` and report; ``out_path`` keeps the product.

    ``compare`` runs it under nbval, in the product's folder; papermill's kernel works in the notebook's
    folder, or in ``folder``. Problems inside the notebook are in the report, each with chapter, cell number,
    first line and error.
    ``timeout`` is in seconds, for the whole notebook. A kernel that answers nothing within the first of
    ``start_limits`` (seconds) is started once more, with the second.
    Raises: FileNotFoundError, ValueError and TypeError (a parameter that the notebook does not have).
    """
    path = notebook_path(path)
    timeout = real("timeout", timeout, above=0)
    first, second = (real("start_limits", limit, above=0) for limit in start_limits)
    parameters = checked(path, parameters or {})
    with surroundings() as env, tempfile.TemporaryDirectory(prefix="fedbook-") as scratch:
        product = Path(out_path).resolve() if out_path is not None else Path(scratch) / path.name
        product.parent.mkdir(parents=True, exist_ok=True)
        product.unlink(missing_ok=True)
        work = {
            "notebook": str(path),
            "product": str(product),
            "parameters": parameters,
            "folder": str(Path(folder or path.parent).resolve()),
            "compare": compare,
            "timeout": timeout,
        }
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        env["FEDBOOK_FRAMES"] = str(int(profile not in ("", "quick")))  # a page will show this run
        told = run_worker(work, Path(scratch), env, timeout, (first, second))
        return _report(path, profile, product, told, out_path is not None)


def run_worker(
    work: Mapping[str, Any],
    scratch: Path,
    env: Mapping[str, str],
    timeout: float,
    start_limits: tuple[float, float] = START_LIMITS,
) -> dict[str, Any]:
    """What the worker tells of one notebook; ``failure``: what went wrong outside its cells.

    ``env`` is that of :func:`fedbook.book.kernel.surroundings`; times are in seconds.
    """
    job, sign = scratch / "job.json", answered(env)
    job.write_text(json.dumps(work), encoding="utf-8")
    for within in start_limits:
        command = [sys.executable, "-P", str(WORKER), str(job)]
        code, log = run_process(command, env, timeout, sign=sign, within=within)
        silent = code is None and within < timeout and not sign.exists()
        if not silent:
            break
    answer = job.with_suffix(".answer.json")
    told = json.loads(answer.read_text(encoding="utf-8")) if answer.is_file() else {}
    if silent:
        first, second = start_limits
        told = {"failure": f"its kernel did not answer within {first:g} s, nor, started again, within {second:g} s"}
    elif code is None:
        told.setdefault("failure", f"not finished within {timeout:g} s")
    return {"failure": f"the runner ended with status {code}: {log.strip()[-500:]}"} | told


def _report(path: Path, profile: str, product: Path, told: Mapping[str, Any], keep: bool) -> ChapterReport:
    """The report of a run from its product and what the worker told."""
    import nbformat

    problems, values, counts, size = [], {}, {}, None
    if product.is_file():
        notebook = nbformat.read(product, as_version=4)
        values, wrong_records = records(notebook)
        problems = cell_problems(notebook) + widget_problems(notebook) + wrong_records
        counts, size = counted(notebook), product.stat().st_size / 1000
    if told["failure"]:
        problems.append(told["failure"])
    peak = told.get("peak_mb")
    return ChapterReport(
        name=path.stem,
        profile=profile,
        problems=tuple(f"{path.stem}: {problem}" for problem in problems),
        **counts,
        seconds=told.get("seconds"),
        peak_mb=peak if peak is not None and math.isfinite(peak) else None,
        size_kb=size,
        records=values,
        product=str(product) if keep and product.is_file() else None,
    )


def run_all(
    chapters: Iterable[Chapter],
    profile: str = "quick",
    out_dir: str | Path = "build/book/executed",
    *,
    jobs: int = 2,
    timeout: float | None = None,
    root: str | Path | None = None,
) -> list[ChapterReport]:
    """Run the chapters, ``jobs`` at a time; a failure does not stop the others.

    Each says on stderr when it begins and ends. The products and ``reports.json`` lie in ``out_dir`` afterwards.
    ``timeout`` in seconds a chapter:
    without one, ten times the budget at ``quick`` (a guard, not a test of speed) and a day otherwise.
    ``root`` is the folder of the notebooks.
    Raises: TypeError, ValueError, FileNotFoundError (no folder of notebooks).
    """
    one_of("profile", profile, PROFILES)
    jobs = integer("jobs", jobs, 1)
    folder, out = notebooks_folder(root), Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)

    def one(chapter: Chapter) -> ChapterReport:
        limit = timeout if timeout is not None else 10 * chapter.budget_s if profile == "quick" else 86_400.0
        say(f"{chapter.name}: runs")
        try:
            product = out / chapter.file
            proof = profile == "quick" and chapter.kind == "lesson"  # at other sizes the product becomes a page
            report = run_chapter(
                folder / chapter.file, chapter.sizes(profile), product, profile=profile, timeout=limit, compare=proof
            )
        except (OSError, TypeError, ValueError) as error:
            report = ChapterReport(chapter.name, profile, (f"{chapter.name}: {error}",))
        say(f"{chapter.name}: {'done' if report.ok else 'FAILED'}, {_number(report.seconds)} s")
        return replace(report, kind=chapter.kind)

    with ThreadPoolExecutor(jobs) as pool:
        reports = list(pool.map(one, chapters))
    write_reports(out, (read_reports(out) | {report.name: report for report in reports}).values())
    return reports


def write_reports(folder: Path, reports: Iterable[ChapterReport]) -> None:
    """Write ``reports.json`` into ``folder``."""
    text = json.dumps([asdict(report) for report in reports], indent=1, allow_nan=False, default=str)
    (folder / REPORTS).write_text(text + "\n", encoding="utf-8")


def read_reports(folder: str | Path) -> dict[str, ChapterReport]:
    """The reports that lie in ``folder``, by chapter name; empty without a ``reports.json``."""
    path = Path(folder) / REPORTS
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))
    return {row["name"]: ChapterReport(**row | {"problems": tuple(row["problems"])}) for row in rows}


def table(reports: Iterable[ChapterReport]) -> str:
    """The reports as lines of text: one a chapter, the problems below."""
    reports = list(reports)
    head = f"{'notebook':<28} {'cells':>7} {'agreed':>7} {'seconds':>8} {'peak MB':>8} {'kB':>6} {'records':>7}"
    lines = [f"{head}  status"]
    for one in reports:
        seconds, peak, size = (_number(value) for value in (one.seconds, one.peak_mb, one.size_kb))
        cells, agreed = f"{one.passed}/{one.passed + one.failed}", f"{one.agreed}/{one.marked}"
        numbers = f"{cells:>7} {agreed:>7} {seconds:>8} {peak:>8} {size:>6} {len(one.records):>7}"
        lines.append(f"{one.name:<28} {numbers}  {'ok' if one.ok else 'FAILED'}")
    return "\n".join(lines + [problem for one in reports for problem in one.problems])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}" if value < 10 else f"{value:.0f}"
