"""Checkpoints: one dictionary of tensors and plain values, written at once or not at all."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

FORMAT = 2


class CheckpointError(ValueError):
    """A file that is no checkpoint of this run; the message says what differs."""


def save(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write ``state`` to ``path``: a reader (or a crash) sees the old file or the new one, never half of one."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "wb") as file:
            torch.save({"format": FORMAT, **state}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def load(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint without unpickling code. Raises: FileNotFoundError, CheckpointError."""
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"checkpoint: there is no file {path}")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError) as error:
        reason = str(error).splitlines()[0] if str(error) else "unreadable"
        raise CheckpointError(f"checkpoint: {path} is damaged or not a checkpoint ({reason})") from error
    if not isinstance(state, dict) or state.get("format") != FORMAT or "configuration" not in state:
        raise CheckpointError(f"checkpoint: {path} has not the format {FORMAT} of this version")
    return state


def same_configuration(saved: Mapping[str, Any], wanted: Mapping[str, Any], path: str | Path) -> None:
    """Refuse a checkpoint of another configuration by the names of what differs. Raises: CheckpointError."""
    differ = [
        f"{name} (checkpoint: {saved.get(name, 'absent')!r}, this run: {wanted.get(name, 'absent')!r})"
        for name in sorted(set(saved) | set(wanted))
        if saved.get(name, "absent") != wanted.get(name, "absent")
    ]
    if differ:
        raise CheckpointError(
            f"checkpoint: {path} belongs to another configuration; it differs in " + "; ".join(differ)
        )


def identity(config: Any, **more: Any) -> dict[str, Any]:
    """Plain values that identify a run: the settings without the number of rounds, so that it can be prolonged."""
    return {key: value for key, value in asdict(config).items() if key != "rounds"} | more
