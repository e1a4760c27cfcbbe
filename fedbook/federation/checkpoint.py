"""Checkpoints: one dictionary of tensors and plain values, written at once or not at all, checked when read."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

import torch

from fedbook import outputs

FORMAT = 4
HEAD = f"fedbook checkpoint {FORMAT}\n".encode()  # then the SHA-256 of what follows, then what torch.save wrote


class CheckpointError(ValueError):
    """A file that is no checkpoint of this run; the message says what differs."""


class _Summed:
    """A file to write whose bytes are summed up on their way."""

    def __init__(self, file: BinaryIO):
        self.file, self.digest = file, hashlib.sha256()
        self.failed: OSError | None = None  # a full disk, say: torch.save tells of its own confusion instead

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        try:
            return self.file.write(data)
        except OSError as error:
            self.failed = error
            raise

    def flush(self) -> None:
        self.file.flush()


def save(path: str | Path, state: Mapping[str, Any]) -> None:
    """Write ``state`` to ``path``: a reader (or a crash) sees the old file or the new one, never half of one.

    Raises: OSError with the file's name.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with outputs.replaced(path) as file:
        summed = _Summed(file)
        file.write(HEAD + bytes(summed.digest.digest_size))
        try:
            torch.save(dict(state), summed)
        except RuntimeError as error:
            raise summed.failed or error from error
        file.seek(len(HEAD))
        file.write(summed.digest.digest())


def load(path: str | Path) -> dict[str, Any]:
    """Read a checkpoint without unpickling code; a bit that changed since is noticed.

    Raises: FileNotFoundError, CheckpointError.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"checkpoint: there is no file {path}")
    with open(path, "rb") as file:
        if file.read(len(HEAD)) != HEAD:
            raise CheckpointError(f"checkpoint: {path} has not the format {FORMAT} of this version, or it is damaged")
        digest, begin = file.read(hashlib.sha256().digest_size), file.tell()
        if hashlib.file_digest(file, "sha256").digest() != digest:
            raise CheckpointError(f"checkpoint: {path} is damaged: it is not what was written")
        file.seek(begin)
        try:
            state = torch.load(file, map_location="cpu", weights_only=True)
        except (RuntimeError, pickle.UnpicklingError, EOFError, ValueError, KeyError) as error:
            reason = str(error).splitlines()[0] if str(error) else "unreadable"
            raise CheckpointError(f"checkpoint: {path} is not a checkpoint ({reason})") from error
    if not isinstance(state, dict) or "configuration" not in state:
        raise CheckpointError(f"checkpoint: {path} is not a checkpoint of a run")
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
