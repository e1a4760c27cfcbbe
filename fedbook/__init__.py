"""fedbook: federated learning as a workbook. Five papers, each derived, verified, run in full and explored.

``fedbook.federation`` who holds what, who takes part, what crosses. ``fedbook.learning`` models, batched
local training, evaluation. ``fedbook.privacy`` clipping, noise, accounting. ``fedbook.papers`` one file a
chapter. ``fedbook.data``, ``fedbook.partition`` real data and its split. ``fedbook.lab`` widgets, figures,
exercises. ``fedbook.book`` runs, checks and renders the chapters.
"""

from importlib import import_module

__version__ = "0.1.0"

_MODULES = (
    "arguments", "book", "data", "experiment", "federation", "lab", "learning", "papers", "partition", "privacy",
    "progress", "randomness",
)  # fmt: skip


def __getattr__(name: str) -> object:
    # modules are loaded when first used: `import fedbook` must cost little more than `import torch`
    if name in _MODULES:
        return import_module(f"fedbook.{name}")
    raise AttributeError(f"module 'fedbook' has no attribute {name!r}; its modules are {', '.join(_MODULES)}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
