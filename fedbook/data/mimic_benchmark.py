"""The public benchmark's CSVs of MIMIC-III, of whoever may have them, made into the one ``.npz`` that ``mimic3`` reads.

They hold, for each stay in intensive care, the hours since admission and seventeen variables; here every hour of the
first 48 becomes a row of 76 columns.

Source: H. Harutyunyan, H. Khachatrian, D. Kale, G. Ver Steeg and A. Galstyan, Multitask learning and benchmarking with
clinical time series data (2019); variables, categories, normal values: its repository YerevaNN/mimic3-benchmarks.
"""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedbook.data.errors import BrokenFile
from fedbook.data.mimic import COLUMNS, HOURS, MOST_STAYS

MOST_BYTES = 2**26  # of a CSV
SLACK = 1e-6  # hours: a reading at exactly 1 belongs to the first hour
FILE = "mimic3_ihm.npz"


class Variable(NamedTuple):
    """A variable: its name in the CSVs, what is assumed before any reading, its categories (none: it is a number)."""

    name: str
    normal: str
    categories: tuple[str, ...] = ()


# Two systems recorded the coma scale, each in its own words; the benchmark keeps them apart, and its order.
VARIABLES = (
    Variable("Capillary refill rate", "0.0", ("0.0", "1.0")),
    Variable("Diastolic blood pressure", "59.0"),
    Variable("Fraction inspired oxygen", "0.21"),
    Variable(
        "Glascow coma scale eye opening",
        "4 Spontaneously",
        (
            *("To Pain", "3 To speech", "1 No Response", "4 Spontaneously"),
            *("None", "To Speech", "Spontaneously", "2 To pain"),
        ),
    ),
    Variable(
        "Glascow coma scale motor response",
        "6 Obeys Commands",
        (
            *("1 No Response", "3 Abnorm flexion", "Abnormal extension", "No response"),
            *("4 Flex-withdraws", "Localizes Pain", "Flex-withdraws", "Obeys Commands"),
            *("Abnormal Flexion", "6 Obeys Commands", "5 Localizes Pain", "2 Abnorm extensn"),
        ),
    ),
    Variable("Glascow coma scale total", "15", ("11", "10", "13", "12", "15", "14", "3", "5", "4", "7", "6", "9", "8")),
    Variable(
        "Glascow coma scale verbal response",
        "5 Oriented",
        (
            *("1 No Response", "No Response", "Confused", "Inappropriate Words"),
            *("Oriented", "No Response-ETT", "5 Oriented", "Incomprehensible sounds"),
            *("1.0 ET/Trach", "4 Confused", "2 Incomp sounds", "3 Inapprop words"),
        ),
    ),
    Variable("Glucose", "128.0"),
    Variable("Heart Rate", "86"),
    Variable("Height", "170.0"),
    Variable("Mean blood pressure", "77.0"),
    Variable("Oxygen saturation", "98.0"),
    Variable("Respiratory rate", "19"),
    Variable("Systolic blood pressure", "118.0"),
    Variable("Temperature", "36.6"),
    Variable("Weight", "81.0"),
    Variable("pH", "7.4"),
)
FIRST = np.cumsum([0, *(max(1, len(variable.categories)) for variable in VARIABLES)])  # column of each, then of masks
NUMBERS = [int(first) for first, variable in zip(FIRST, VARIABLES, strict=False) if not variable.categories]


def mimic3_from_benchmark(folder: str | Path, out: str | Path) -> Path:
    """Makes ``mimic3_ihm.npz`` in the folder ``out`` from the benchmark's in-hospital-mortality CSVs; returns its path.

    ``folder`` holds ``train/`` and ``test/``, each with a CSV for every stay and a ``listfile.csv`` (columns stay and
    y_true). Where ``folder`` has a ``train_listfile.csv``, as after the benchmark's split for validation, only its
    stays are taken for training: 14,681 instead of 17,903.

    Every stay becomes 48 rows, one for each hour: what was read last in (h, h + 1] stands in row h. Hours without a
    reading keep the value before, or the normal value if there is none. Numbers take one column, a variable with n
    categories n columns of which one is 1: 12 + 47. Then 17 columns say which variables were read in that hour.
    The 12 columns of numbers are shifted and scaled by mean and standard deviation over all hours of training stays.
    Memory: 14,592 bytes a stay, 261 MB in all.
    Raises: BrokenFile (names file, line and what is wrong), FileNotFoundError.
    """
    folder, out = Path(folder), Path(out)
    fewer = folder / "train_listfile.csv"
    lists = {"train": fewer if fewer.is_file() else folder / "train" / "listfile.csv"}
    lists["test"] = folder / "test" / "listfile.csv"
    listed = [(part, path, deaths) for part, file in lists.items() for path, deaths in _stays(file, folder / part)]
    if len(listed) > MOST_STAYS:
        raise BrokenFile(lists["train"], f"refused: {len(listed):,} stays with those of test; at most {MOST_STAYS:,}")
    x = np.empty((len(listed), HOURS, COLUMNS), np.float32)
    for i, (_, path, _) in enumerate(listed):
        x[i] = hourly(path)
    test = np.array([part == "test" for part, *_ in listed])
    for column in NUMBERS:
        known = x[~test, :, column].astype(np.float64)
        x[..., column] = (x[..., column] - known.mean()) / (known.std() or 1)
    out.mkdir(parents=True, exist_ok=True)
    unfinished = out / f".{FILE}.part"
    try:
        with unfinished.open("wb") as file:
            np.savez(file, X=x, y=np.array([dies for *_, dies in listed], np.uint8), test=test.astype(np.uint8))
        os.replace(unfinished, out / FILE)
    finally:
        unfinished.unlink(missing_ok=True)
    return out / FILE


def hourly(path: str | Path) -> np.ndarray:
    """One stay's CSV as 48 hours of 76 columns, numbers as they are. Shapes: float64 [48, 76]. Raises: BrokenFile."""
    path = Path(path)
    names = [variable.name for variable in VARIABLES]
    lines = _rows(path)
    header = next(lines, (0, []))[1]
    if header[:1] != ["Hours"] or sorted(header[1:]) != sorted(names):
        raise BrokenFile(path, f"its header is not Hours and the {len(names)} variables, but {str(header)[:200]}")
    order = [names.index(name) for name in header[1:]]
    read: list[dict[int, np.ndarray]] = [{} for _ in range(HOURS)]
    before, count = -math.inf, 0
    for number, row in lines:
        where, hours = f"line {number}", _number(row[0])
        if len(row) != len(header) or hours is None or hours < -SLACK or hours < before - SLACK:
            raise BrokenFile(path, f"{where} is no row of {len(header)} cells that begins with the hours, ascending")
        before, count = hours, count + 1
        if hours > HOURS + SLACK:
            continue
        step = max(0, math.ceil(hours - SLACK) - 1)
        for k, cell in zip(order, row[1:], strict=True):
            if cell:
                value = _encoded(k, cell)
                if value is None:
                    raise BrokenFile(path, f"{where}: {names[k]} is {cell[:80]!r}, which is no value of it")
                read[step][k] = value
    if not count:
        raise BrokenFile(path, "holds no reading")
    x = np.zeros((HOURS, COLUMNS))
    for k, variable in enumerate(VARIABLES):
        value = _encoded(k, variable.normal)
        for step in range(HOURS):
            x[step, FIRST[-1] + k] = k in read[step]
            value = read[step].get(k, value)
            x[step, FIRST[k] : FIRST[k + 1]] = value
    return x


@lru_cache(maxsize=10_000)
def _encoded(k: int, cell: str) -> np.ndarray | None:
    """The columns that a cell of the variable k takes, or None if it is none of its values."""
    variable, number = VARIABLES[k], _number(cell)
    if not variable.categories:
        return None if number is None else np.array([number])
    # the same number is written 15 or 15.0, as the version of the benchmark's tools has it
    same = [cell == known or (number is not None and number == _number(known)) for known in variable.categories]
    return np.array(same, float) if any(same) else None


def _number(text: str) -> float | None:
    """The number that the text is, or None if it is none, or none that float32 can hold."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < 1e38 else None


def _stays(listfile: Path, folder: Path) -> Iterator[tuple[Path, int]]:
    """The CSV and the outcome of each stay that a list file names."""
    lines = _rows(listfile)
    header = next(lines, (0, []))[1]
    if header != ["stay", "y_true"]:
        raise BrokenFile(listfile, f"its header is not stay,y_true, but {str(header)[:200]}")
    seen: set[str] = set()
    for number, row in lines:
        if len(row) != 2 or row[1] not in ("0", "1"):
            raise BrokenFile(listfile, f"line {number} is no name of a file and 0 or 1")
        if row[0] in seen or not row[0].endswith(".csv") or row[0] != Path(row[0]).name:
            raise BrokenFile(listfile, f"refused: line {number} names {row[0][:200]!r}, no plain .csv (or one twice)")
        if not (folder / row[0]).is_file():
            raise BrokenFile(listfile, f"line {number} names {row[0]!r}, which is not in {folder}")
        seen.add(row[0])
        yield folder / row[0], int(row[1])
    if not seen:
        raise BrokenFile(listfile, "names no stay")


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV with the number of their line, empty lines left out."""
    if (size := path.stat().st_size) > MOST_BYTES:
        raise BrokenFile(path, f"refused: has {size:,} bytes; at most {MOST_BYTES:,} are read")
    try:
        with path.open(encoding="utf-8", newline="") as file:
            lines = csv.reader(file)
            yield from ((lines.line_num, row) for row in lines if row)
    except (csv.Error, UnicodeDecodeError) as error:
        raise BrokenFile(path, f"is no CSV ({error})") from error
