"""The alignment set, taken out of the training images: without labels, known to every client, the same for every seed.

From elsewhere it comes by fedbook.learning.public_images. Source: Makhija, Ho and Ghosh, Federated Self-supervised
Learning for Heterogeneous Clients (2022), section 3: 5,000 images; where they come from is not said.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fedbook.randomness import stream


def split_alignment(train_x: Tensor, train_y: Tensor, count: int) -> tuple[Tensor, Tensor, Tensor]:
    """``count`` of the training images, taken out for everybody, and the rest with its labels, in its old order.

    The alignment images' labels are not returned. They are chosen without a look at classes; fewer are the beginning
    of more.
    Shapes: ``train_x`` [N, ...], ``train_y`` [N] integers -> [count, ...], [N - count, ...], [N - count].
    """
    order = torch.from_numpy(stream(0, "alignment set").permutation(len(train_y)))
    chosen, rest = order[:count], order[count:].sort().values
    return train_x[chosen], train_x[rest], train_y[rest]
