"""The process that executes one notebook: ``python -P worker.py JOB.json``.

One process a chapter, because papermill changes the working directory of its process and because the peak
memory of a process's children is exact only if there is one kernel. It imports nothing of fedbook: the
runner's own imports must not be counted, and papermill alone is enough.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any


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


def execute(job: dict[str, Any]) -> dict[str, Any]:
    """Run the job's notebook; what went wrong outside its cells comes back under ``failure``."""
    import papermill

    failure = ""
    start = time.perf_counter()
    try:
        papermill.execute_notebook(
            job["notebook"],
            job["product"],
            parameters=job["parameters"],
            cwd=job["folder"],
            kernel_name="python3",
            progress_bar=False,
            log_output=False,
        )
    except papermill.PapermillExecutionError:
        pass  # The product holds the error, in its cell.
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
    return {"seconds": time.perf_counter() - start, "peak_mb": peak_of_children(), "failure": failure}


if __name__ == "__main__":
    where = Path(sys.argv[1])
    answer = execute(json.loads(where.read_text(encoding="utf-8")))
    where.with_suffix(".answer.json").write_text(json.dumps(answer), encoding="utf-8")
