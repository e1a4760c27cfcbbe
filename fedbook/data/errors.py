"""What can go wrong with a dataset: it is not there, a file is broken, or it could not be fetched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class BrokenFile(ValueError):
    """A file that is there but is not what it should be (cut short, altered, of another shape, malicious).

    ``path`` is the file, ``why`` the reason; the message holds both.
    """

    def __init__(self, path: str | Path, why: str) -> None:
        self.path, self.why = Path(path), why
        super().__init__(f"{path}: {why}")


class DataNotFound(FileNotFoundError):
    """A dataset of which no folder looked in holds all files.

    ``name`` is the dataset, ``folders`` where it was looked for, ``missing`` the files (relative to such a
    folder), ``remedy`` what to do; the message holds all four.
    """

    def __init__(self, name: str, folders: Sequence[Path], missing: Sequence[str], remedy: str) -> None:
        self.name, self.folders, self.missing, self.remedy = name, tuple(folders), tuple(missing), remedy
        looked = "\n".join(f"  {folder}" for folder in folders)
        super().__init__(
            f"dataset {name!r} was not found. Looked in (in this order):\n{looked}\n"
            f"for: {', '.join(missing)}\n{remedy}\n"
            "Another folder can be named by the argument root=... or by the environment variable FEDBOOK_DATA."
        )


class FetchFailed(OSError):
    """A dataset that could not be fetched. Nothing was left behind; the message says what was tried and why it failed.

    A plain ``OSError`` without errno: the reason may be the network, the server or a checksum.
    """

    def __init__(self, name: str, reasons: Sequence[str]) -> None:
        self.name, self.reasons = name, tuple(reasons)
        super().__init__(
            f"dataset {name!r} could not be fetched; nothing was changed:\n" + "\n".join(f"  {r}" for r in reasons)
        )
