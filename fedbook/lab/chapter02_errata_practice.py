"""Chapter 2's errata, part three: witnesses about Algorithm 1, section 5 and what the paper says of other methods.

Each returns the number that is found and the number that the statement promises; the statements stand in
chapter02_errata.
"""

from __future__ import annotations

import math

import torch

from fedbook.lab import chapter02_paper as paper
from fedbook.randomness import normal, stream

# --- Algorithm 1


def weights_at_the_server() -> tuple[float, float]:
    """'At Server': numbers of a client that A_j = Phi_j(X; W_j) needs there (ResNet-34); 3.2 sends [5000, 512]."""
    return float(paper.WEIGHTS["resnet34"]), float(paper.representation_bytes(paper.ALIGNMENT_IMAGES, 512, 1))


def undefined_models() -> tuple[float, float]:
    """Algorithm 1, Table 3's 100 clients: how many W_j(1) exist when round 2 computes A_j; of all clients."""
    trained = stream(0, "cohort").permutation(100)[: paper.SCALES[100]]  # Algorithm 1 assigns no other W_j(1)
    return float(len(set(trained.tolist()))), 100.0


def stale_kernel() -> tuple[float, float]:
    """K_i 'for each local epoch': share of an epoch's steps on 10,000 images for which it is the kernel of W_i; all."""
    batches = range(0, paper.SIZE["CIFAR-10"] // 5, paper.BATCH_SIZE)
    return sum(start == 0 for start in batches) / len(batches), 1.0


def sent_again() -> tuple[float, float]:
    """'In each round .. server sends the RAD': MB that a client receives in 200 rounds; X never changes."""
    once = paper.alignment_set_bytes(paper.ALIGNMENT_IMAGES, (3, 32, 32)) / 1e6
    return paper.ROUNDS * once, once


def batch_dependence() -> tuple[float, float]:
    """Batch norm in the predictor, training mode: change of Phi(x) when the other image of the batch changes."""
    batch = torch.tensor([[1.0], [0.0]], dtype=torch.float64)
    other = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    out = [torch.nn.functional.batch_norm(x, None, None, training=True)[0] for x in (batch, other)]
    return float((out[0] - out[1]).abs()), 0.0


def weights_from_outputs() -> tuple[float, float]:
    """One linear layer: error of its weights solved from A and the public X, relative; 'privacy' keeps them."""
    x, w = normal((50, 6), stream(0, "public images")), normal((6, 3), stream(0, "weights"))
    return round(float((torch.linalg.lstsq(x, x @ w).solution - w).norm() / w.norm()), 12), math.inf


# --- section 5 and other methods


def _margin(table: dict, data: str | int) -> tuple[float, list[float]]:
    """Points above the best other, and both deviations."""
    cells = {name: row[data] for name, row in table.items() if name in paper.FEDERATED}
    own = cells.pop(paper.OWN)
    best = max(cells.values())
    return own[0] - best[0], [own[1], best[1]]


def margin_within() -> tuple[float, float]:
    """Table 3, 100 clients: points above the best other method, and the larger deviation of the two."""
    points, deviations = _margin(paper.TABLE_3, 100)
    return points, max(deviations)


def overlap() -> tuple[float, float]:
    """Table 1, Tiny-ImageNet: points above the best other method, and the sum of both deviations."""
    points, deviations = _margin(paper.TABLE_1, "Tiny-ImageNet")
    return points, sum(deviations)


def slightly_worse() -> tuple[float, float]:
    """Table 1, Tiny-ImageNet: points below centralised BYOL, and above the best baseline."""
    central, own = paper.TABLE_1["centralized-byol"]["Tiny-ImageNet"], paper.TABLE_1[paper.OWN]["Tiny-ImageNet"]
    return central[0] - own[0], _margin(paper.TABLE_1, "Tiny-ImageNet")[0]


def easier_disjoint() -> tuple[float, float]:
    """CIFAR-100, Hetero-SSFL: accuracy with disjoint classes, and with i.i.d. data; on one test it should be lower."""
    return paper.TABLE_1[paper.OWN]["CIFAR-100"][0], paper.TABLE_2[paper.OWN]["CIFAR-100"][0]


def equal_classes() -> tuple[float, float]:
    """Classes of the clients with most and with fewest, five clients of disjoint blocks (Table 1): difference."""
    blocks = torch.arange(paper.CLASSES["CIFAR-10"]).tensor_split(5)
    return float(max(map(len, blocks)) - min(map(len, blocks))), math.inf


def classes_lost() -> tuple[float, float]:
    """100 clients that each draw one of 100 classes: mean number of classes that nobody drew."""
    return 100 * (1 - 1 / 100) ** 100, 0.0


def more_images() -> tuple[float, float]:
    """Alignment images over private ones, five clients, CIFAR: seen by Hetero-SSFL's clients, not by the baselines'."""
    return paper.ALIGNMENT_IMAGES / (paper.SIZE["CIFAR-10"] / 5), 0.0


def outputs_of_the_probe() -> tuple[float, float]:
    """Outputs of a linear layer of 1000 neurons, and the classes of CIFAR-10."""
    return float(paper.PROBE_NEURONS), float(paper.CLASSES["CIFAR-10"])


def data_of_leaf() -> tuple[float, float]:
    """The paper's data sets that are among LEAF's six, and how many the paper has."""
    leaf = {"FEMNIST", "Sentiment140", "Shakespeare", "CelebA", "Reddit", "Synthetic"}
    return float(len(leaf & set(paper.SIZE))), float(len(paper.SIZE))


def fedu_updates() -> tuple[float, float]:
    """FedU, a client far beyond its threshold: parts of the client's model that become the global one's."""
    divergence, threshold = 10.0, 0.4
    own, received = {"encoder": 0.0, "predictor": 0.0}, {"encoder": 1.0, "predictor": 1.0}
    taken = {"encoder": received["encoder"], "predictor": (received if divergence < threshold else own)["predictor"]}
    return sum(taken.values()), 0.0
