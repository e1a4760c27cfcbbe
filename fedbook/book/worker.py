"""The process that executes one notebook: ``python -P worker.py JOB.json``.

One process a notebook, because papermill changes the working directory of its process and because the peak
memory of a process's children is exact only if there is one kernel. It imports nothing of fedbook: papermill
alone, or nbval or nbclient on what papermill prepared, is enough.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

START = 600  # seconds, an integer: whoever started this process ends it earlier when its kernel does not answer


def peak_of_children() -> float:
    """The high-water mark of resident memory, in MB, of the largest child that has ended; NaN on Windows.

    The operating system keeps it, so nothing is missed between samples. It is the largest process, not
    the sum: a chapter whose kernel starts workers is counted by its kernel.
    """
    try:
        import resource
    except ImportError:
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


def by_papermill(job: dict[str, Any], *, prepare_only: bool = False) -> str:
    """Execute the notebook, or only put in the parameters (its stored outputs stay)."""
    import papermill

    with suppress(papermill.PapermillExecutionError):  # the product holds the error, in its cell
        papermill.execute_notebook(
            job["notebook"],
            job["product"],
            parameters=job["parameters"],
            cwd=job["folder"],
            kernel_name="python3",
            progress_bar=False,
            log_output=False,
            prepare_only=prepare_only,
            start_timeout=START,
        )
    return ""


def by_nbval(job: dict[str, Any]) -> str:
    """Execute the prepared notebook, compare the marked cells with what is committed, keep what they gave."""
    import pytest

    by_papermill(job, prepare_only=True)
    # An own, empty configuration: the caller's warning filters and plugins are not the chapter's.
    settings = Path(job["product"]).with_suffix(".ini")
    settings.write_text("[pytest]\n", encoding="utf-8")
    command = [job["product"], "-c", str(settings), "--rootdir", str(settings.parent), "-q", "--color=no"]
    command += ["-p", "no:cacheprovider", "-p", "nbval.plugin", "--noconftest", "--nbval-lax", "--nbval-current-env"]
    command += [f"--nbval-kernel-startup-timeout={START}"]
    status = pytest.main([*command, f"--nbval-cell-timeout={job['timeout']:g}"], plugins=[Keeper(job["product"])])
    settings.unlink()
    return "" if status in (0, 1) else f"nbval ended with status {int(status)}"


def by_nbclient(job: dict[str, Any]) -> str:
    """Execute every cell whatever the others give; what there is is kept.

    A cell of an exercise has ``each`` seconds, any other, which imports or trains, ten times that.
    """
    import nbclient
    import nbformat

    by_papermill(job, prepare_only=True)
    book = nbformat.read(job["product"], as_version=4)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = []

    def seconds(cell: Any) -> float:
        answers = "exercise" in cell.metadata.get("tags", []) or "check(" in cell.source
        return job["each"] if answers else 10 * job["each"]

    client = nbclient.NotebookClient(
        book,
        timeout_func=seconds,
        startup_timeout=START,
        allow_errors=True,
        interrupt_on_timeout=True,
        kernel_name="python3",
        resources={"metadata": {"path": job["folder"]}},
    )
    client.on_cell_start = lambda cell, cell_index: nbformat.write(book, job["product"])
    client.execute()
    nbformat.write(book, job["product"])
    return ""


class Keeper:
    """The pytest plugin that writes outputs and status of nbval's cells into the notebook at ``product``."""

    def __init__(self, product: str) -> None:
        import nbformat

        self.write, self.product = nbformat.write, product
        self.notebook = nbformat.read(product, as_version=4)
        self.cells = [cell for cell in self.notebook.cells if cell.cell_type == "code"]

    def pytest_runtest_setup(self, item: Any) -> None:
        self.cells[item.cell_num].metadata["nbval"] = {"status": "running"}  # stays when the time is up
        self.write(self.notebook, self.product)

    def pytest_runtest_makereport(self, item: Any, call: Any) -> None:
        if call.when != "call":
            return
        cell = self.cells[item.cell_num]
        cell.outputs, cell.execution_count = item.test_outputs or [], item.cell_num + 1
        cell.metadata["nbval"] = {"status": "failed" if call.excinfo else "completed"}
        if call.excinfo and not any(output.output_type == "error" for output in cell.outputs):
            error = call.excinfo.value
            cell.metadata["nbval"]["problem"] = f"{error}\n{getattr(error, 'inner_traceback', '')}".strip()

    def pytest_sessionfinish(self) -> None:
        self.write(self.notebook, self.product)


def execute(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job's notebook; what went wrong outside its cells comes back under ``failure``."""
    start = time.perf_counter()
    try:
        failure = (by_nbclient if "each" in job else by_nbval if job["compare"] else by_papermill)(job)
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    return {"seconds": time.perf_counter() - start, "peak_mb": peak_of_children(), "failure": failure}


if __name__ == "__main__":
    where = Path(sys.argv[1])
    answer = execute(json.loads(where.read_text(encoding="utf-8")))
    where.with_suffix(".answer.json").write_text(json.dumps(answer), encoding="utf-8")
