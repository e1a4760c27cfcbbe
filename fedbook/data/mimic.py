"""MIMIC-III's in-hospital mortality, and the public benchmark's CSVs made into the one file that is read.

Nothing of MIMIC-III ships: its licence forbids it. The CSVs, of whoever may have them, hold for each stay in intensive
care the hours since admission and seventeen variables; here every hour of the first 48 becomes a row of 76 columns.

Source: H. Harutyunyan, H. Khachatrian, D. Kale, G. Ver Steeg and A. Galstyan, Multitask learning and benchmarking with
clinical time series data (2019); variables, categories, normal values: its repository YerevaNN/mimic3-benchmarks.
"""

from __future__ import annotations

import csv
import math
import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from fedbook.data.formats import Expected, read_npz, reading
from fedbook.data.images import Images
from fedbook.data.root import BrokenFile, Root, find
from fedbook.data.sources import SOURCES

if TYPE_CHECKING:
    import pandas as pd

HOURS = 48
COLUMNS = 76
MOST_STAYS = 100_000  # the benchmark has 21,139
MOST_BYTES = 2**26  # of a CSV
SLACK = 1e-6  # hours: a reading at exactly 1 belongs to the first hour
FILE = "mimic3_ihm.npz"


class Variable(NamedTuple):
    """A variable: its name in the CSVs, what is assumed before any reading, its categories (none: it is a number)."""

    name: str
    normal: str
    categories: tuple[str, ...] = ()


# Two systems recorded the coma scale, each in its own words; the benchmark keeps them apart, and its order.
EYE = "To Pain|3 To speech|1 No Response|4 Spontaneously|None|To Speech|Spontaneously|2 To pain"
MOTOR = (
    "1 No Response|3 Abnorm flexion|Abnormal extension|No response|4 Flex-withdraws|Localizes Pain|Flex-withdraws|"
    "Obeys Commands|Abnormal Flexion|6 Obeys Commands|5 Localizes Pain|2 Abnorm extensn"
)
TOTAL = "11|10|13|12|15|14|3|5|4|7|6|9|8"
VERBAL = (
    "1 No Response|No Response|Confused|Inappropriate Words|Oriented|No Response-ETT|5 Oriented|"
    "Incomprehensible sounds|1.0 ET/Trach|4 Confused|2 Incomp sounds|3 Inapprop words"
)
VARIABLES = (
    Variable("Capillary refill rate", "0.0", ("0.0", "1.0")),
    Variable("Diastolic blood pressure", "59.0"),
    Variable("Fraction inspired oxygen", "0.21"),
    Variable("Glascow coma scale eye opening", "4 Spontaneously", tuple(EYE.split("|"))),
    Variable("Glascow coma scale motor response", "6 Obeys Commands", tuple(MOTOR.split("|"))),
    Variable("Glascow coma scale total", "15", tuple(TOTAL.split("|"))),
    Variable("Glascow coma scale verbal response", "5 Oriented", tuple(VERBAL.split("|"))),
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
NAMES = [variable.name for variable in VARIABLES]
FIRST = np.cumsum([0, *(max(1, len(variable.categories)) for variable in VARIABLES)])  # column of each, then of masks
NUMBERS = [int(first) for first, variable in zip(FIRST, VARIABLES, strict=False) if not variable.categories]


def mimic3(root: Root = None) -> Images:
    """MIMIC-III, in-hospital mortality: x ``[N, 48, 76]`` float32; y 1 dies in hospital, 0 survives. Does not ship.

    Read from ``mimic3/mimic3_ihm.npz``, which holds exactly ``X`` [n, 48, 76] (float32 or float64), ``y`` [n] (0 or 1)
    and ``test`` [n] (1: this stay is for testing), both of bytes, bools or 8-byte integers. ``mimic3_from_benchmark``
    makes it and says what the columns are. Bytes a stay: 14,592.
    Raises: DataNotFound, BrokenFile, TypeError, ValueError (``root``).
    """
    source = SOURCES["mimic3"]
    path = find(source, root) / source.paths[0]
    flags = Expected((range(2, MOST_STAYS + 1),), ("uint8", "bool", "int64"))
    form = {"X": Expected((*flags.shape, HOURS, COLUMNS), ("float32", "float64")), "y": flags, "test": flags}
    arrays = read_npz(path, form)
    if len({len(array) for array in arrays.values()}) > 1:
        text = ", ".join(f"{name} {len(array):,}" for name, array in arrays.items())
        raise BrokenFile(path, f"its arrays are of different lengths: {text}")
    with np.errstate(over="ignore"):  # what overflows is infinite, and refused next
        x = arrays["X"].astype(np.float32, copy=False)
    if not np.isfinite(x).all():
        raise BrokenFile(path, "X holds NaN or infinite values, or such as are too large for float32")
    for name in ("y", "test"):
        numbers = arrays[name].view(np.uint8) if arrays[name].dtype == bool else arrays[name]
        if not np.isin(numbers, (0, 1)).all():
            raise BrokenFile(path, f"{name} holds values other than 0 and 1")
        arrays[name] = numbers.astype(np.int64)
    y, test = arrays["y"], arrays["test"] == 1
    if test.all() or not test.any():
        raise BrokenFile(path, "test must be 1 for some stays and 0 for others")
    tensors = (torch.from_numpy(part) for part in (x[~test], y[~test], x[test], y[test]))
    return Images("mimic3", *tensors, ("survives", "dies"))


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
    Raises: BrokenFile (names the file and what is wrong), FileNotFoundError.
    """
    folder, out = Path(folder), Path(out)
    fewer = folder / "train_listfile.csv"
    train = _stays(fewer if fewer.is_file() else folder / "train" / "listfile.csv", folder / "train")
    stays = train + _stays(folder / "test" / "listfile.csv", folder / "test")
    if len(stays) > MOST_STAYS:
        raise BrokenFile(folder, f"refused: its lists name {len(stays):,} stays; at most {MOST_STAYS:,} are read")
    x = np.empty((len(stays), HOURS, COLUMNS), np.float32)
    for i, (path, _) in enumerate(stays):
        x[i] = hourly(path)
    test = np.arange(len(stays)) >= len(train)
    for column in NUMBERS:
        known = x[~test, :, column].astype(np.float64)
        x[..., column] = (x[..., column] - known.mean()) / (known.std() or 1)
    out.mkdir(parents=True, exist_ok=True)
    unfinished = out / f".{FILE}.part"
    try:
        with unfinished.open("wb") as file:
            np.savez(file, X=x, y=np.array([dies for _, dies in stays], np.uint8), test=test.astype(np.uint8))
        os.replace(unfinished, out / FILE)
    finally:
        unfinished.unlink(missing_ok=True)
    return out / FILE


def hourly(path: Path) -> np.ndarray:
    """One stay's CSV as 48 hours of 76 columns, numbers as they are. Shapes: float64 [48, 76]. Raises: BrokenFile."""
    import pandas as pd

    table = _table(path, ["Hours", *NAMES])
    with reading(path):
        hours = table["Hours"].to_numpy(object).astype(float)
        steps = np.diff(hours, prepend=0)
        if not len(hours) or not np.isfinite(hours).all() or steps.min() < -SLACK:
            raise BrokenFile(path, "its rows do not begin with the hours, ascending from 0")
        kept = hours <= HOURS + SLACK
        values = pd.DataFrame({name: [_value(k, cell) for cell in table[name][kept]] for k, name in enumerate(NAMES)})
    row = np.maximum(np.ceil(hours[kept] - SLACK) - 1, 0).astype(int)
    read = values.groupby(row).last().reindex(range(HOURS))  # the last of an hour, NaN where there is none
    filled = read.ffill().fillna({name: _value(k, VARIABLES[k].normal) for k, name in enumerate(NAMES)})
    x = np.zeros((HOURS, COLUMNS))
    x[:, FIRST[-1] :] = read.notna()
    for k, variable in enumerate(VARIABLES):
        column = filled[variable.name].to_numpy()[:, None]
        numbers = range(len(variable.categories))
        x[:, FIRST[k] : FIRST[k + 1]] = column == [*numbers] if variable.categories else column
    return x


@lru_cache(maxsize=10_000)
def _value(k: int, cell: str) -> float:
    """The number in a cell of the variable k, or that of its category; NaN for an empty one. Raises: ValueError."""
    variable = VARIABLES[k]
    if not cell:
        return math.nan
    if cell in variable.categories:
        return variable.categories.index(cell)
    try:
        number = float(cell)
        if not variable.categories and abs(number) < 1e38:  # float32 can hold no more
            return number
        # the same number is written 15 or 15.0, as the version of the benchmark's tools has it
        return [float(known) for known in variable.categories].index(number)
    except ValueError:
        raise ValueError(f"{variable.name} is {cell[:80]!r}, which is no value of it") from None


def _stays(listfile: Path, folder: Path) -> list[tuple[Path, int]]:
    """The CSV and the outcome of each stay that a list file names."""
    table = _table(listfile, ["stay", "y_true"])
    stays = []
    for name, dies in zip(table["stay"], table["y_true"], strict=True):
        if name != Path(name).name or not name.endswith(".csv"):
            raise BrokenFile(listfile, f"refused: it names {name[:200]!r}, no plain .csv")
        if dies not in ("0", "1") or not (folder / name).is_file():
            raise BrokenFile(listfile, f"{name!r} with {dies[:80]!r} is no file in {folder} with 0 or 1")
        stays.append((folder / name, int(dies)))
    if not stays or table["stay"].duplicated().any():
        raise BrokenFile(listfile, "names no stay, or one twice")
    return stays


def _table(path: Path, columns: list[str]) -> pd.DataFrame:
    """A CSV of exactly these columns, in any order, as texts."""
    import pandas as pd

    if (size := path.stat().st_size) > MOST_BYTES:
        raise BrokenFile(path, f"refused: has {size:,} bytes; at most {MOST_BYTES:,} are read")
    with reading(path), path.open(encoding="utf-8", newline="") as file:
        header, *rows = (row for row in csv.reader(file) if row)
    # by hand: pandas takes a row that was cut short for one whose last cells are empty
    if sorted(header) != sorted(columns) or any(len(row) != len(header) for row in rows):
        raise BrokenFile(path, f"is no table of the {len(columns)} columns {columns[0]}, ... {columns[-1]}")
    return pd.DataFrame(rows, columns=header)
