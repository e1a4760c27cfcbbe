"""MIMIC-III on made-up files: the .npz as it must be and as it must not, and the benchmark's CSVs turned into it."""

import csv

import numpy as np
import pytest
import torch

from fedbook import data
from fedbook.data import BrokenFile, mimic
from fedbook.data.fetch import main_report
from fedbook.data.mimic import NAMES, NUMBERS, VARIABLES, hourly, mimic3_from_benchmark

RNG = np.random.default_rng(0)
HONEST = {
    "X": RNG.standard_normal((7, 48, 76)).astype(np.float32),
    "y": np.array([0, 1, 0, 0, 1, 0, 1], np.uint8),
    "test": np.array([0, 0, 1, 0, 1, 0, 0], np.uint8),
}


def write(root, **arrays):
    path = root / "mimic3" / "mimic3_ihm.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **{name: array for name, array in {**HONEST, **arrays}.items() if array is not None})
    return root


@pytest.mark.parametrize("kind", [np.uint8, np.int64, bool])
@pytest.mark.parametrize("real", [np.float32, np.float64])
def test_reads_the_file(tmp_path, kind, real):
    x = HONEST["X"].astype(real)
    write(tmp_path, X=x, y=HONEST["y"].astype(kind), test=HONEST["test"].astype(kind))
    stays = data.load("mimic3", root=tmp_path)
    assert stays.name == "mimic3" and stays.classes == ("survives", "dies")
    assert stays.train_x.shape == (5, 48, 76) and stays.test_x.shape == (2, 48, 76)
    assert stays.train_x.dtype == torch.float32 and stays.train_y.dtype == torch.int64
    assert np.array_equal(stays.train_x, HONEST["X"][[0, 1, 3, 5, 6]]) and stays.train_y.tolist() == [0, 1, 0, 0, 1]
    assert np.array_equal(stays.test_x, HONEST["X"][[2, 4]]) and stays.test_y.tolist() == [0, 1]


def spoilt(place, value):
    x = HONEST["X"].astype(np.float64)
    x[place] = value
    return x


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"X": HONEST["X"][:, :47]}, r"X has shape \[7, 47, 76\]; expected is \[2 to 100000, 48, 76\]"),
        ({"X": HONEST["X"].astype(np.float16)}, "X is of type float16"),
        ({"y": HONEST["y"][:6]}, "different lengths: X 7, y 6, test 7"),
        ({"y": HONEST["y"] + 1}, "y holds values other than 0 and 1"),
        ({"test": -HONEST["test"].astype(np.int64)}, "test holds values other than 0 and 1"),
        ({"y": np.array([0, 2, 3, 0, 1, 0, 1], np.uint8).view(bool)}, "y holds values other than 0 and 1"),
        ({"test": HONEST["test"] * 0}, "test must be 1 for some stays and 0 for others"),
        ({"X": spoilt((3, 4, 5), np.nan)}, "X holds NaN or infinite values"),
        ({"X": spoilt((0, 0, 0), 1e300)}, "too large for float32"),
        ({"test": None}, "holds X, y; expected are exactly X, test, y"),
        ({"extra": HONEST["y"]}, "holds X, extra, test, y; expected"),
    ],
)
def test_refuses_other_files(tmp_path, changes, message):
    with pytest.raises(BrokenFile, match=message):
        data.mimic3(write(tmp_path, **changes))


# the benchmark's CSVs


def stay(path, rows, header=None):
    """A stay's CSV; a row is (hours, {variable: text})."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = header or ["Hours", *NAMES]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *([h, *(cells.get(name, "") for name in header[1:])] for h, cells in rows)])
    return path


def listfile(path, rows):
    path.write_text("stay,y_true\n" + "".join(f"{name},{y}\n" for name, y in rows))


def columns_of(name):
    """Where a variable's columns begin and end, counted anew."""
    widths = [max(1, len(variable.categories)) for variable in VARIABLES]
    first = sum(widths[: NAMES.index(name)])
    return first, first + widths[NAMES.index(name)]


def test_the_variables_make_76_columns():
    assert len(VARIABLES) == 17 and sorted(NAMES) == NAMES
    assert sum(len(variable.categories) for variable in VARIABLES) == 47 and len(NUMBERS) == 12
    assert all(len(set(v.categories)) == len(v.categories) for v in VARIABLES)
    assert [v.normal in v.categories for v in VARIABLES if v.categories] == [True] * 5


def test_an_hour_by_hour_stay(tmp_path):
    eye, verbal = "Glascow coma scale eye opening", "Glascow coma scale verbal response"
    total = "Glascow coma scale total"
    path = stay(
        tmp_path / "a.csv",
        [
            (0.0, {"Heart Rate": "90"}),
            (0.5, {"Heart Rate": "95", eye: "None"}),
            (1.0, {"Heart Rate": "100.5"}),  # still the first hour, and its last word
            (1.25, {"pH": "7.1"}),
            (5.000001, {total: "9.0", "Capillary refill rate": "1"}),  # the fifth hour, but for rounding
            (5.1, {total: "3", eye: "2 To pain"}),
            (47.5, {verbal: "1.0 ET/Trach"}),
            (48.0, {"Weight": "60"}),
            (48.5, {"Weight": "10", "Heart Rate": "not read"}),  # after the 48 hours
        ],
    )
    x = hourly(path)
    assert x.shape == (48, 76)

    def number(name):
        return x[:, columns_of(name)[0]].tolist()

    def category(name):
        first, last = columns_of(name)
        assert (x[:, first:last].sum(1) == 1).all()
        return [VARIABLES[NAMES.index(name)].categories[k] for k in x[:, first:last].argmax(1)]

    assert number("Heart Rate") == [100.5] * 48
    assert number("pH") == [7.4] + [7.1] * 47
    assert number("Weight") == [81.0] * 47 + [60.0]
    assert number("Glucose") == [128.0] * 48
    assert category(eye) == ["None"] * 5 + ["2 To pain"] * 43
    assert category(total) == ["15"] * 4 + ["9"] + ["3"] * 43
    assert category("Capillary refill rate") == ["0.0"] * 4 + ["1.0"] * 44
    assert category(verbal) == ["5 Oriented"] * 47 + ["1.0 ET/Trach"]
    masks = {(0, "Heart Rate"), (0, eye), (1, "pH"), (4, total), (4, "Capillary refill rate"), (5, total), (5, eye)}
    masks |= {(47, verbal), (47, "Weight")}
    read = {(int(h), NAMES[k]) for h, k in zip(*np.nonzero(x[:, 59:]), strict=True)}
    assert read == masks and set(np.unique(x[:, 59:])) == {0, 1}


def test_the_order_of_columns_in_the_file_does_not_matter(tmp_path):
    rows = [(0.3, {"Glucose": "150", "pH": "7"}), (9.7, {"Height": "160"})]
    one = hourly(stay(tmp_path / "a.csv", rows))
    assert np.array_equal(hourly(stay(tmp_path / "b.csv", rows, ["Hours", *reversed(NAMES)])), one)


@pytest.fixture
def benchmark(tmp_path):
    """Four stays for training (one of them for validation) and two for testing."""
    folder = tmp_path / "in-hospital-mortality"
    rates = {"train": [80, 90, 100, 400], "test": [85, 120]}
    for part, values in rates.items():
        for i, value in enumerate(values):
            stay(folder / part / f"{i}_episode1_timeseries.csv", [(2.5, {"Heart Rate": str(value)})])
        rows = [(f"{i}_episode1_timeseries.csv", i % 2) for i in range(len(values))]
        listfile(folder / part / "listfile.csv", rows)
    return folder


def test_the_whole_way(benchmark, tmp_path):
    path = mimic3_from_benchmark(benchmark, tmp_path / "root" / "mimic3")
    assert [p.name for p in path.parent.iterdir()] == ["mimic3_ihm.npz"]
    stays = data.mimic3(tmp_path / "root")
    assert stays.train_x.shape == (4, 48, 76) and stays.train_y.tolist() == [0, 1, 0, 1]
    assert stays.test_x.shape == (2, 48, 76) and stays.test_y.tolist() == [0, 1]
    rate = columns_of("Heart Rate")[0]
    raw = np.array([[86.0] * 2 + [value] * 46 for value in (80, 90, 100, 400, 85, 120)])
    scaled = (raw - raw[:4].mean()) / raw[:4].std()
    assert np.allclose(torch.cat([stays.train_x, stays.test_x])[:, :, rate], scaled, atol=1e-5)
    assert (stays.train_x[..., columns_of("pH")[0]] == 0).all()  # never read: constant, no division by 0
    assert stays.train_x[0, :, 59:].nonzero().tolist() == [[2, NAMES.index("Heart Rate")]]
    first, last = columns_of("Glascow coma scale total")
    assert stays.train_x[0, :, first:last].sum() == 48  # categories are not scaled

    listfile(benchmark / "train_listfile.csv", [(f"{i}_episode1_timeseries.csv", i % 2) for i in (2, 0)])
    assert main_report("mimic3", tmp_path / "less", True, benchmark)[2]
    with pytest.raises(ValueError, match="--from: got .*; allowed is a folder for the dataset mimic3 only"):
        main_report("mnist", tmp_path / "less", False, benchmark)
    less = data.mimic3(tmp_path / "less")
    assert less.train_x.shape == (2, 48, 76) and less.train_y.tolist() == [0, 0]
    assert less.train_x[0, 40, rate] > 0 > less.train_x[1, 40, rate]  # in the order of the list


LINE = "Hours," + ",".join(NAMES) + "\n"
EMPTY = "," * 17 + "\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is not what it should be"),
        (LINE.replace("Glucose", "Sugar") + "1" + EMPTY, "is no table"),
        (LINE, "its rows do not begin with the hours"),
        (LINE + "1,2\n", "is no table"),
        (LINE + "1" + EMPTY + "x" + EMPTY, "could not convert string to float: 'x'"),
        (LINE + "-1" + EMPTY, "its rows do not begin with the hours"),
        (LINE + "2" + EMPTY + "1" + EMPTY, "its rows do not begin with the hours, ascending"),
        (LINE + "1" + EMPTY[:-1] + ">60/minute\n", "pH is '>60/minute', which is no value of it"),
        (LINE + "1" + EMPTY[:-1] + "1e300\n", "pH is '1e300'"),
        (LINE + "1,2" + EMPTY[1:], "Capillary refill rate is '2'"),
        (LINE + "1,,,,open" + EMPTY[4:], "Glascow coma scale eye opening is 'open'"),
    ],
)
def test_refuses_other_csvs(tmp_path, text, message):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(BrokenFile, match=message) as caught:
        hourly(path)
    assert caught.value.path == path


def test_refuses_long_and_odd_csvs(tmp_path, monkeypatch):
    path = tmp_path / "a.csv"
    path.write_bytes(LINE.encode() + b"1,\xff" + EMPTY[1:].encode())
    with pytest.raises(BrokenFile, match="is not what it should be"):
        hourly(path)
    monkeypatch.setattr(mimic, "MOST_BYTES", 10)
    with pytest.raises(BrokenFile, match="refused: has .* bytes; at most 10"):
        hourly(path)
    with pytest.raises(FileNotFoundError):
        hourly(tmp_path / "b.csv")


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "is not what it should be"),
        ("stay,y_true\n", "names no stay, or one twice"),
        ("stay,y_true\n0_episode1_timeseries.csv,2\n", "with '2' is no file in .* with 0 or 1"),
        ("stay,y_true\n../train/0_episode1_timeseries.csv,1\n", "refused: it names '../train"),
        ("stay,y_true\n9_episode1_timeseries.csv,1\n", "'9_episode1_timeseries.csv' with '1' is no file in"),
        ("stay,y_true\n" + "0_episode1_timeseries.csv,1\n" * 2, "names no stay, or one twice"),
    ],
)
def test_refuses_other_lists_and_leaves_nothing(benchmark, tmp_path, text, message):
    (benchmark / "train" / "listfile.csv").write_text(text)
    with pytest.raises(BrokenFile, match=message):
        mimic3_from_benchmark(benchmark, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_refuses_too_many_stays_and_missing_folders(benchmark, tmp_path, monkeypatch):
    monkeypatch.setattr(mimic, "MOST_STAYS", 5)
    with pytest.raises(BrokenFile, match="refused: its lists name 6 stays"):
        mimic3_from_benchmark(benchmark, tmp_path / "out")
    with pytest.raises(FileNotFoundError):
        mimic3_from_benchmark(tmp_path / "nowhere", tmp_path / "out")
