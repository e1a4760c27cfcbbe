"""Features of people as tables: scikit-learn's breast cancer data."""

from __future__ import annotations

import numpy as np
import torch

from fedbook.data.images import Images, Root
from fedbook.randomness import stream


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
    test = np.zeros(len(y), bool)
    for label in (0, 1):
        rows = np.flatnonzero(y == label)
        keys = stream(0, "breast cancer", client=label).bit_generator.random_raw(len(rows))
        test[rows[np.argsort(keys, kind="stable")[: round(len(rows) / 5)]]] = True
    x = (x - x[~test].mean(0)) / x[~test].std(0)
    parts = (torch.from_numpy(v) for v in (x[~test].astype(np.float32), y[~test], x[test].astype(np.float32), y[test]))
    return Images("breast_cancer", *parts, ("benign", "malignant"))
