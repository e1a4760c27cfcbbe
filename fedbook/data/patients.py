"""Patients as tables: tumours from scikit-learn, and a SYNTHETIC stand-in for MIMIC-III's in-hospital mortality.

The stand-in: in each of four parts of the body a patient declines from hour 30 on, or recovers (a standard normal
number, the decline). Each party measures one part by ten noisy sensors, from time to time. Who dies is a matter of all
four: of declines one by one, and more so of two parts that decline together.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy import ndarray

from fedbook import arguments
from fedbook.data.images import Images, keyed_rows
from fedbook.data.root import Root
from fedbook.randomness import stream

HOURS = 48
SENSORS = 10
NOISE = (0.6, 0.8, 1.0, 1.2)  # standard deviation of a measurement, by party
MEASURED = (0.8, 0.6, 0.4, 0.25)  # probability that a sensor is read in an hour, by party
ONSET = 30  # hours
STRENGTH = 2.5  # what a decline of 1 adds to a sensor by the last hour, before its weight
LUCK = 0.3  # standard deviation of what no party sees
FATAL = 2.25  # risk and luck above this: 13.2 % of all patients


def breast_cancer(root: Root = None) -> Images:
    """Breast Cancer Wisconsin (Diagnostic): 569 tumours, x ``[N, 30]`` float32; y 1 is malignant (212), 0 benign (357).

    Mind that scikit-learn numbers the classes the other way round; here the disease is the positive class, of which
    the F1 score speaks. The columns are the means of ten features of the cells' nuclei, their standard errors and
    their largest values. The set has no official split. Ours: of each class, the fifth with the smallest raw numbers
    of the stream ``(0, "breast cancer", client=class)`` is the test part (113), the rest the training part (456), both
    in the order of scikit-learn; columns are shifted and scaled by mean and standard deviation of the training part.
    ``root`` is not used: the data come with scikit-learn.
    """
    from sklearn.datasets import load_breast_cancer

    bunch = load_breast_cancer()
    x, y = bunch.data, 1 - bunch.target.astype(np.int64)
    test = keyed_rows(y, "breast cancer")
    train = np.delete(np.arange(len(y)), test)
    x = ((x - x[train].mean(0)) / x[train].std(0)).astype(np.float32)
    parts = (torch.from_numpy(part) for part in (x[train], y[train], x[test], y[test]))
    return Images("breast_cancer", *parts, ("benign", "malignant"))


def time_series(train_samples: int = 4_000, test_samples: int = 2_000, seed: int = 0) -> Images:
    """SYNTHETIC: 48 hours of 76 columns a patient, x ``[N, 48, 76]`` float32; y 1 (13 in 100) dies, 0 survives.

    Columns 19 m to 19 m + 18 are party m's, m from 0 to 3: ten sensors, of which the first is read every hour, then
    nine masks: whether each of the other sensors was read in that hour. A sensor that was not keeps its last value, 0
    at first. From party to party noise grows and readings become rarer. Fewer samples are the beginning of more.
    Bytes a patient: 14,592. A stand-in for MIMIC-III where that is absent: nothing in it comes from a patient, and
    figures on it are no figures on MIMIC-III.
    Raises: TypeError, ValueError.
    """
    counts = {
        "train": arguments.integer("train_samples", train_samples, 1),
        "test": arguments.integer("test_samples", test_samples, 1),
    }
    tensors = []
    for part, count in counts.items():
        drawn = stream(seed, f"time series {part}").standard_normal((count, len(NOISE) + 1))
        decline, luck = drawn[:, :-1], drawn[:, -1]
        y = risk(decline) + LUCK * luck > FATAL
        x = np.concatenate([_columns(decline[:, m], m, seed, part) for m in range(len(NOISE))], 2)
        tensors += [torch.from_numpy(x), torch.from_numpy(y.astype(np.int64))]
    return Images("time_series", *tensors, ("survives", "dies"))


def risk(decline: ndarray) -> ndarray:
    """What decides over life and death but for luck. Shapes: ``decline`` [N, 4] -> [N]."""
    bad = np.maximum(decline, 0)
    return bad.sum(1) / 2 + bad[:, 0] * bad[:, 1] + bad[:, 2] * bad[:, 3]


def _columns(decline: ndarray, party: int, seed: int, part: str) -> ndarray:
    """What a party holds: [N] -> float32 [N, 48, 19]."""
    count, hours = len(decline), np.arange(HOURS)
    # the sensors' weights are a matter of the party, not of the patient: the same for training and test
    weight = stream(seed, "time series sensors", client=party).choice([-1, 1], SENSORS) * np.linspace(0.5, 1, SENSORS)
    drawn = stream(seed, f"time series {part} values", client=party).standard_normal((count, HOURS + 1, SENSORS + 1))
    habit, noise = drawn[:, :1, :SENSORS] / 2, drawn[:, 1:, :SENSORS] * NOISE[party]
    wander = drawn[:, 1:, SENSORS:].cumsum(1) / np.sqrt(HOURS)
    late = np.maximum(hours + 1 - ONSET, 0)[:, None] / (HOURS - ONSET)
    values = habit + weight * (wander + STRENGTH * decline[:, None, None] * late) + noise

    read = stream(seed, f"time series {part} readings", client=party).random(values.shape) < MEASURED[party]
    read[..., 0] = True
    latest = np.maximum.accumulate(np.where(read, hours[:, None], -1), 1)  # hour of the last reading, -1 before any
    known = np.where(latest < 0, 0, np.take_along_axis(values, np.maximum(latest, 0), 1))
    return np.concatenate([known, read[..., 1:]], 2).astype(np.float32)
