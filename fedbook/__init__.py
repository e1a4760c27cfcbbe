"""fedbook: federated learning as a workbook. Five papers, each derived, verified, run in full and explored.

``fedbook.federation`` who holds what, who takes part, what crosses. ``fedbook.learning`` models, batched
local training, evaluation. ``fedbook.privacy`` clipping, noise, accounting. ``fedbook.papers`` one file a
chapter. ``fedbook.data``, ``fedbook.partition`` real data and its split. ``fedbook.lab`` widgets, figures,
exercises. ``fedbook.book`` runs, checks and renders the chapters.
"""

import os
import sys

__version__ = "0.1.0"

_MODULES = (
    "arguments", "book", "data", "experiment", "federation", "lab", "learning", "papers", "partition", "privacy",
    "progress", "randomness",
)  # fmt: skip
# by any of these somebody has said how threads are to wait, or how many there are to be
_THREADS = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "OMP_THREAD_LIMIT", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def _share_the_machine() -> None:
    """Threads that wait for each other sleep instead of spinning, unless somebody said otherwise.

    Spinning threads on a machine with other work are up to ten times slower (``python -m benchmarks.threads``). What is
    set here is read when torch is loaded; if it is loaded already, and has as many threads as there are cores, one
    thread is left.
    """
    if any(os.environ.get(name) for name in _THREADS):
        return
    if "torch" not in sys.modules:
        os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
        return
    import torch

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if torch.get_num_threads() in (cores, os.cpu_count()):  # another number was chosen
        torch.set_num_threads(1)


_share_the_machine()


def __getattr__(name: str) -> object:
    # modules are loaded when first used: `import fedbook` must cost little more than `import torch`
    if name in _MODULES:
        from importlib import import_module

        return import_module(f"fedbook.{name}")
    raise AttributeError(f"module 'fedbook' has no attribute {name!r}; its modules are {', '.join(_MODULES)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
