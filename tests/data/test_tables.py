"""Breast cancer data: scikit-learn's rows, the disease as the positive class, a fixed split, training statistics."""

import numpy as np
import torch
from sklearn.datasets import load_breast_cancer

from fedbook import data

KEPT = [1, 2, 4, 6, 7, 8]


def test_breast_cancer():
    table, bunch = data.load("breast_cancer"), load_breast_cancer()
    assert table.train_x.shape == (456, 30) and table.test_x.shape == (113, 30)
    assert table.train_x.dtype == torch.float32 and table.train_y.dtype == torch.int64
    assert table.classes == ("benign", "malignant")
    assert bunch.target_names.tolist() == ["malignant", "benign"]  # the other way round
    assert torch.bincount(table.train_y).tolist() == [286, 170] and torch.bincount(table.test_y).tolist() == [71, 42]
    assert table.train_x.double().mean(0).abs().max() < 1e-6
    assert (table.train_x.double().std(0, unbiased=False) - 1).abs().max() < 1e-6


def test_every_row_of_scikit_learn_is_there_once_with_its_label():
    table, bunch = data.breast_cancer(), load_breast_cancer()
    x = torch.cat([table.train_x, table.test_x]).double().numpy()
    y = torch.cat([table.train_y, table.test_y]).numpy()
    scale = bunch.data.std(0) / x.std(0)  # undoes any shift and scale of columns
    back = x * scale + (bunch.data.mean(0) - x.mean(0) * scale)
    nearest = np.abs((back[:, None] - bunch.data) / bunch.data.std(0)).max(-1).argmin(1)
    assert sorted(nearest) == list(range(569))
    assert np.array_equal(y, 1 - bunch.target[nearest])
    assert np.allclose(back, bunch.data[nearest], rtol=1e-5, atol=1e-4)
    train = nearest[:456]
    assert (np.diff(train) > 0).all() and train[:6].tolist() == KEPT  # in scikit-learn's order, on every machine
    mean, std = bunch.data[train].mean(0), bunch.data[train].std(0)
    assert np.allclose(table.test_x, (bunch.data[nearest[456:]] - mean) / std, atol=1e-5)
