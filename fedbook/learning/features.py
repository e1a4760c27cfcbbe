"""Checks that features and labels fit each other."""

from __future__ import annotations

import torch
from torch import Tensor

from fedbook import arguments


def check_features(h: Tensor, y: Tensor, num_classes: int | None) -> tuple[Tensor, int]:
    """The labels as int64 and C, if features [N, D] and labels [N] fit."""
    arguments.tensor("train_h", h, ndim=2, kind="float")
    arguments.tensor("train_y", y, ndim=1, kind="integer")
    if h.numel() == 0 or len(h) != len(y) or h.device != y.device:
        raise ValueError(
            f"train_h and train_y: got {arguments.shown(h)} on {h.device} and {arguments.shown(y)} on "
            f"{y.device}; allowed is [N, D] and [N] on one device, N and D above 0"
        )
    if num_classes is not None:
        num_classes = arguments.integer("num_classes", num_classes, 1)
    check_classes("train_y", y, num_classes)
    return y.long(), num_classes or int(y.max()) + 1


def check_same_features(train_h: Tensor, test_h: Tensor) -> None:
    arguments.tensor("test_h", test_h, shape=(None, train_h.shape[1]), kind="float")
    if len(test_h) == 0 or test_h.dtype != train_h.dtype or test_h.device != train_h.device:
        allowed = f"at least one row of dtype {train_h.dtype} on {train_h.device}, as train_h"
        raise arguments.wrong(ValueError, "test_h", test_h, allowed)


def check_classes(name: str, y: Tensor, num_classes: int | None) -> None:
    low, high = (int(v) for v in torch.aminmax(y))
    if low < 0 or (num_classes is not None and high >= num_classes):
        top = "" if num_classes is None else f" to {num_classes - 1}"
        raise ValueError(f"{name}: got labels from {low} to {high}; allowed are classes from 0{top}")
