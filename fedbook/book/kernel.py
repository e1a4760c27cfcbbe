"""The surroundings a chapter's kernel gets: this interpreter, this fedbook, one thread, headless."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

ONE_THREAD = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# A backend or test options set by the caller would silence figures or change the second run.
NOT_INHERITED = ("MPLBACKEND", "PYTEST_ADDOPTS", "PYTEST_CURRENT_TEST", "PYTHONSTARTUP")
# Run by IPython before the first message: the first code that is asked for leaves a file.
SAYS_THAT_IT_ANSWERS = """def _say():
    shell = get_ipython()

    def say(*_):
        open({path!r}, "w").close()
        shell.events.unregister("pre_execute", say)

    shell.events.register("pre_execute", say)


_say()
del _say
"""


@contextmanager
def surroundings() -> Iterator[dict[str, str]]:
    """Environment variables for a run, valid inside the ``with``.

    ``python3`` means the running interpreter (a kernel of that name installed elsewhere is not taken),
    ``import fedbook`` finds the package that is running, the reader's IPython profile does not interfere.
    :func:`answered` names the file that its first kernel to be given code leaves.
    """
    with tempfile.TemporaryDirectory(prefix="fedbook-") as name:
        spec = Path(name) / "kernels" / "python3"
        spec.mkdir(parents=True)
        argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel = {"argv": argv, "display_name": "Python 3", "language": "python"}
        (spec / "kernel.json").write_text(json.dumps(kernel), encoding="utf-8")
        startup = Path(name) / "ipython" / "profile_default" / "startup" / "answered.py"
        startup.parent.mkdir(parents=True)
        startup.write_text(SAYS_THAT_IT_ANSWERS.format(path=str(Path(name) / "answered")), encoding="utf-8")
        package = str(Path(__file__).resolve().parents[2])
        paths = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
        env = {key: value for key, value in os.environ.items() if key not in NOT_INHERITED}
        env |= dict.fromkeys(ONE_THREAD, "1")
        env |= {
            "FEDBOOK_HEADLESS": "1",
            "IPYTHONDIR": str(Path(name) / "ipython"),
            "JUPYTER_PATH": os.pathsep.join(filter(None, [name, os.environ.get("JUPYTER_PATH", "")])),
            "JUPYTER_PLATFORM_DIRS": "1",
            "PYDEVD_DISABLE_FILE_VALIDATION": "1",
            "PYTHONHASHSEED": "0",
            "PYTHONPATH": os.pathsep.join([package, *paths]),
        }
        yield env


def answered(env: Mapping[str, str]) -> Path:
    """The file that is there as soon as a kernel in these :func:`surroundings` has begun what it was asked."""
    return Path(env["IPYTHONDIR"]).with_name("answered")


def run_process(
    command: Sequence[str], env: Mapping[str, str], timeout: float, *, sign: Path | None = None, within: float = 60.0
) -> tuple[int | None, str]:
    """Exit status (``None``: past its time) and output; its whole process tree ends with it.

    Its time is ``timeout`` seconds, or ``within`` if the file ``sign`` is not there by then.
    """
    process = subprocess.Popen(
        command, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        if sign is not None and within < timeout:
            try:
                output, _ = process.communicate(timeout=within)
                return process.returncode, output
            except subprocess.TimeoutExpired:
                if not sign.exists():
                    raise
                timeout -= within
        output, _ = process.communicate(timeout=timeout)
        return process.returncode, output
    except subprocess.TimeoutExpired:
        _end_tree(process.pid)
        output, _ = process.communicate()
        return None, output
    except BaseException:
        _end_tree(process.pid)
        process.wait()
        raise


def _end_tree(pid: int) -> None:
    """End a process and its descendants: a kernel is started apart and would stay."""
    import psutil

    try:
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
    except psutil.NoSuchProcess:
        return
    for one in family:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    deadline = time.monotonic() + 10
    while any(_runs(one) for one in family[:-1]) and time.monotonic() < deadline:  # a kill takes effect a moment later
        time.sleep(0.01)


def _runs(process: psutil.Process) -> bool:
    """Whether it still does something (a zombie does not, and may stay where nobody collects it)."""
    import psutil

    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
