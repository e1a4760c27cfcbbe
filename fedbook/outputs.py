"""Folders of results: one run at a time writes there, only the same run goes on there, and no file is half written."""

from __future__ import annotations

import json
import os
import socket
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

try:
    import fcntl
except ImportError:  # Windows: nothing keeps a second run out
    fcntl = None

IDENTITY, LOCK = "identity.json", ".lock"


class Refused(ValueError):
    """A folder that cannot be used as asked; the message says why and what is allowed."""


@contextmanager
def replaced(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write, which takes the place of ``path`` when all of it is on the disk, or never.

    Raises: OSError with the name of ``path``.
    """
    path = Path(path)
    part = path.with_name(path.name + ".part")
    try:
        with open(part, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with suppress(OSError):  # its folder is none
            part.unlink(missing_ok=True)


def write(path: str | Path, text: str) -> None:
    """The text as the file ``path``, whole or not at all."""
    with replaced(path) as file:
        file.write(text.encode())


def read(path: Path) -> Any:
    """The JSON in the file ``path``, None if there is none. Raises: Refused."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise Refused(f"--out: {path} is damaged ({error}); allowed is another folder") from error


@contextmanager
def claimed(
    folder: Path | None, identity: Mapping[str, Any], results: Sequence[str], resume: bool, prolonged: str | None = None
) -> Iterator[bool]:
    """Hold ``folder`` for the run that ``identity`` names (plain values); gives whether anything is there already.

    ``results``: the names of the files that runs write. A folder that holds any of them is used only with
    ``resume`` and by the run that wrote them; ``prolonged`` is what may differ (the number of rounds). Without a
    folder nothing is done. Raises: Refused.
    """
    if folder is None:
        yield False
        return
    new = not os.path.exists(folder)  # Path.exists would raise where a folder above may not be entered
    if resume and not any(os.path.exists(folder / name) for name in (IDENTITY, *results)):
        raise Refused(f"--resume: there is no run in {folder}; allowed is the --out of an earlier run")
    wanted = json.loads(json.dumps(identity))
    with _locked(folder):
        try:
            there = [name for name in results if (folder / name).exists()]
            before = _check(folder, wanted, there, resume, prolonged)
            try:
                write(folder / IDENTITY, json.dumps(wanted, indent=1) + "\n")
            except OSError as error:
                raise _unusable(folder, error) from error
            try:
                yield bool(there)
            except Exception:  # refused, such as fewer rounds than are there: still the folder of the run before
                if there and before is not None:
                    write(folder / IDENTITY, json.dumps(before, indent=1) + "\n")
                raise
        finally:
            if new and not any((folder / name).exists() for name in results):  # refused later: as it was
                for name in (IDENTITY, LOCK):
                    (folder / name).unlink(missing_ok=True)
                if not any(folder.iterdir()):
                    folder.rmdir()


def _check(
    folder: Path, wanted: dict[str, Any], there: list[str], resume: bool, prolonged: str | None
) -> dict[str, Any] | None:
    """The identity in the folder. Raises: Refused, if what lies there is another run's or would be overwritten."""
    found = read(folder / IDENTITY)
    if not there and not resume:  # nothing can be lost
        return found
    files = ", ".join(there) or IDENTITY
    if found is None:
        raise Refused(f"--out: {folder} holds {files} of an unknown run; allowed is another folder")
    differ = [
        f"{name} (there: {found.get(name, 'absent')!r}, given: {wanted.get(name, 'absent')!r})"
        for name in [*wanted, *(name for name in found if name not in wanted)]
        if name != prolonged and found.get(name, "absent") != wanted.get(name, "absent")
    ]
    if differ:
        other = "another folder, or the settings that are there" + ("" if resume else " and --resume")
        raise Refused(
            f"--out: {folder} holds another run, {files}; it differs in {'; '.join(differ)}; allowed is {other}"
        )
    if not resume:
        raise Refused(f"--out: {folder} holds {files} of this run; allowed is --resume to go on, or another folder")
    return found


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other runs out of the folder. The kernel gives the lock back when the process ends, however it ends."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115
    except (OSError, ValueError) as error:
        raise _unusable(folder, error) from error
    with file:
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            who = file.read().strip() or "another process"
            raise Refused(f"--out: {folder} is in use by {who}; allowed is another folder, or to wait") from None
        except OSError as error:
            warnings.warn(f"{folder} cannot be locked ({error.strerror}): start no second run there", stacklevel=2)
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        except OSError as error:
            raise _unusable(folder, error) from error
        yield


def _unusable(folder: Path, error: Exception) -> Refused:
    reason = getattr(error, "strerror", None) or error
    return Refused(f"--out: got {str(folder)!r}, which cannot be written ({reason}); allowed is a folder to write in")
