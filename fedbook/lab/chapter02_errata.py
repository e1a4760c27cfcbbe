"""Chapter 2's errata: what the Hetero-SSFL paper states that does not hold or does not follow, each with a witness.

A witness returns the number that is found and the number that the statement promises; ``ERRATA`` has those that
change conclusions first. Here are the witnesses about the loss; those about section 4 and
appendix A are in chapter02_errata_theorem, about Algorithm 1, experiments and other methods in
chapter02_errata_practice.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor

from fedbook.lab import chapter02_errata_practice as practice
from fedbook.lab import chapter02_errata_theorem as theorem
from fedbook.lab.errata import Erratum, errata_text
from fedbook.randomness import normal, stream

# --- the loss


def literal_sign() -> tuple[float, float]:
    """(2) without l and mu = 1, minimised over A [12, 3] by 500 steps of 1: CKA with the others after, and before."""
    others, a = normal((12, 4), stream(0, "others")), normal((12, 3), stream(0, "own"))
    before = float(_cka(a, others))
    for _ in range(500):
        a = a - torch.func.grad(_cka)(a, others)
    return float(_cka(a, others)), before


def representations_averaged() -> tuple[float, float]:
    """A = (u, v) and B = (u, -v) have one kernel: CKA of A with the mean of A and B, and with the mean of kernels."""
    a = _directions(2)
    b = a * torch.tensor([1.0, -1.0], dtype=torch.float64)
    return float(_cka(a, (a + b) / 2)), float(_cka(a, torch.cat([a, b], 1) / math.sqrt(2)))


def common_offset() -> tuple[float, float]:
    """Uncorrelated directions u and v, each plus 5 at every image: (1) as printed, and centred."""
    a, b = _directions(2).split(1, dim=1)
    return float(_cka(a + 5, b + 5, centre=False)), round(float(_cka(a + 5, b + 5)), 12)


def invertible_maps() -> tuple[float, float]:
    """A = (u, v), B = u: CKA after the invertible map diag(10, 1) of A, and before."""
    a = _directions(2)
    return float(_cka(a * torch.tensor([10.0, 1.0], dtype=torch.float64), a[:, :1])), float(_cka(a, a[:, :1]))


def initialisations() -> tuple[float, float]:
    """100 images as unit vectors, linear networks of width 20: CKA of two random initialisations; invariance has 1."""
    first, second = (normal((100, 20), stream(0, "initialisation", client=k)) for k in (0, 1))
    return float(_cka(first, second)), 1.0


def finite_images() -> tuple[float, float]:
    """Two independent representations [L, d] in the proportion 5000 to 2048: their CKA, and what they share."""
    first, second = (normal((500, 205), stream(0, "independent", client=k)) for k in (0, 1))
    return float(_cka(first, second)), 0.0


def function_lost() -> tuple[float, float]:
    """A = (10 u, v), the label is the sign of v: 1 - CKA after v is deleted, and the accuracy that goes with it."""
    a = _directions(2) * torch.tensor([10.0, 1.0], dtype=torch.float64)
    guessed = ((a[:, 0] > 0) == (a[:, 1] > 0)).double().mean()  # by the sign of u, all that is left
    return 1 - float(_cka(a, a[:, :1])), 1 - float(guessed)


def distance_to_itself() -> tuple[float, float]:
    """(1), 'the distance', of A and A."""
    a = normal((10, 3), stream(0, "own"))
    return float(_cka(a, a)), 0.0


def triangle() -> tuple[float, float]:
    """1 - CKA for A = u, B = (u, v), C = v: from A to C, and by way of B."""
    b = _directions(2)
    a, c = b.split(1, dim=1)
    return 1 - float(_cka(a, c)), 2 - float(_cka(a, b)) - float(_cka(b, c))


def other_widths() -> tuple[float, float]:
    """Procrustes, |A|^2 + |B|^2 - 2 |A^T B|_*, of A [10, 2] and B = A Q [10, 3], Q with orthonormal rows: numbers."""
    a, q = normal((10, 2), stream(0, "own")), torch.linalg.qr(normal((3, 2), stream(0, "turn")))[0].mT
    b = a @ q
    distance = a.square().sum() + b.square().sum() - 2 * torch.linalg.matrix_norm(a.mT @ b, "nuc")
    return float(distance.abs() < 1e-12), 0.0


def correlation_by_gradient() -> tuple[float, float]:
    """Mean squared canonical correlation of A [30, 3] with B: after 200 steps of its gradient by A, and before."""
    a, b = normal((30, 3), stream(0, "own")), normal((30, 3), stream(0, "others"))

    def correlation(a: Tensor) -> Tensor:
        first, second = (torch.linalg.qr(x - x.mean(0))[0] for x in (a, b))
        return (first.mT @ second).square().sum() / 3

    before = float(correlation(a))
    for _ in range(200):
        a = a + torch.func.grad(correlation)(a)
    return float(correlation(a)), before


def same_kernel_other_model() -> tuple[float, float]:
    """Linear models W and W Q, Q a turn by 90 degrees, 1,000 images: relative distance where CKA is 1, and 0."""
    w, x = normal((3, 2), stream(0, "weights")), normal((1000, 3), stream(0, "images"))
    other = w @ torch.tensor([[0.0, 1.0], [-1.0, 0.0]], dtype=torch.float64)
    return float((w - other).norm() / w.norm() * _cka(x @ w, x @ other)), 0.0


def narrow_client() -> tuple[float, float]:
    """Others use four directions equally, the client has width 1: its best CKA, found by 500 steps of ascent."""
    others, a = _directions(4), normal((8, 1), stream(0, "own"))
    for _ in range(500):
        a = a + torch.func.grad(_cka)(a, others)
    return float(_cka(a, others)), 1.0


def scaled_outputs() -> tuple[float, float]:
    """All outputs a tenth as long: share of the printed loss that is left, and of BYOL's, which is of unit vectors."""
    p, z = normal((5, 3), stream(0, "prediction")), normal((5, 3), stream(0, "target"))
    cosine = torch.nn.functional.cosine_similarity
    printed = (p / 10 - z / 10).square().sum() / (p - z).square().sum()
    return float(printed), float((2 - 2 * cosine(p / 10, z / 10)).sum() / (2 - 2 * cosine(p, z)).sum())


# --- the others


def own_kernel() -> tuple[float, float]:
    """Five clients with nothing in common: CKA of one with (2)'s sum over j = 1..N, and with the others' sum."""
    u = _directions(5)
    return float(_cka(u[:, :1], u)), round(float(_cka(u[:, :1], u[:, 1:])), 12)


def weight_by_length() -> tuple[float, float]:
    """Uniform w, client 1's outputs ten times longer, directions apart: its share of CKA with Kbar over another's."""
    u = _directions(3)
    mean = u * torch.tensor([10.0, 1.0, 1.0], dtype=torch.float64)
    return float(_cka(u[:, :1], mean) / _cka(u[:, 1:2], mean)), 1.0


def learnt_weights() -> tuple[float, float]:
    """w of client 1 'learnt' from 1 - CKA(K_1, Kbar), three clients, the others alike: its weight on itself; 1/N."""
    own, *others = (normal((12, 3), stream(0, "client", client=k)) for k in range(3))
    grid = [k / 100 for k in range(101)]
    kernels = [torch.cat([math.sqrt(w) * own, *(math.sqrt((1 - w) / 2) * x for x in others)], 1) for w in grid]
    return max(zip((float(_cka(own, k)) for k in kernels), grid, strict=True))[1], 1 / 3


ERRATA: tuple[Erratum, ...] = (
    ("(2) minimises l + mu CKA, CKA 1 for equal kernels: CKA after descent; at least before", literal_sign),
    ("Theorem 4.7, one round, mu and eta as allowed: L_E' - L_0; at most", theorem.theorem_fails),
    ("mu 0.5, L 5000 (5.1) against Theorem 4.7 with P = L_2 = R = 1: mu; at most", theorem.mu_allowed),
    ("3.2 averages representations, two of one kernel: CKA with that; with the kernels'", representations_averaged),
    ("(1) is not centred: u and v uncorrelated, plus 5 each: (1); centred, as 'CKA' says", common_offset),
    ("'significant margin', Table 3, 100 clients: points above FedEMA; deviation, at least", practice.margin_within),
    ("CKA's 'invariance to .. invertible linear transformations', diag(10, 1): CKA; before", invertible_maps),
    ("'invariance to random initializations': CKA of two linear networks on 100 images", initialisations),
    ("'sensitive to .. functional behavior': 1 - CKA after the label's direction goes; accuracy lost", function_lost),
    ("CKA 'distance between A_i and A_j': of A and A", distance_to_itself),
    ("d a 'distance metric', 1 - CKA: from u to v; at most by way of (u, v)", triangle),
    ("'Procrustes .. cannot compare' other dimensions: pairs of widths 2 and 3 it finds equal", other_widths),
    ("'CCA .. not suitable' for gradients: correlation after 200 steps; at most before", correlation_by_gradient),
    ("'meaningfully capture the similarity', L to d as 5000 to 2048: CKA of independent ones", finite_images),
    ("'without any constraints': best CKA of a client of width 1, others use 4 directions", narrow_client),
    ("mu to infinity, RAD arbitrary: 'local models become identical': distance of W and W Q", same_kernel_other_model),
    ("'representations of other clients', sum over all j: CKA with nobody alike, N = 5", own_kernel),
    ("'weight given to the j-th client' 1/n: CKA with Kbar, ten times longer outputs; equal", weight_by_length),
    ("w 'learnt in the training pipeline' from 1 - CKA: weight on oneself; 1/N, at most", learnt_weights),
    ("l 'similar to' central SSL: squared error of outputs / 10 as a share; BYOL's", scaled_outputs),
    ("Algorithm 1 'At Server' computes A_j: numbers needed of a client; sent by 3.2", practice.weights_at_the_server),
    ("Algorithm 1, 100 clients, 10 sampled: models W(1) that round 2 has; needs", practice.undefined_models),
    ("Algorithm 1, K_i once 'for each local epoch': share of SGD steps with (2)'s gradient", practice.stale_kernel),
    ("RAD sent 'in each global training round': MB to a client in 200 rounds; once", practice.sent_again),
    ("Phi(x; W), batch norm in training mode: change with another image of the batch", practice.batch_dependence),
    ("'privacy preserving', one linear layer: error of weights solved from A and X", practice.weights_from_outputs),
    ("Lemma 4.6 as stated, same two clients: rise of the loss; at most", theorem.lemma_fails),
    ("A.2, '= trace': change of CKA where K = Kbar grows; of the trace", theorem.trace_for_alignment),
    ("A.2 counts one step from t - 1 to t, E = 5: change of the trace; at most", theorem.steps_between),
    ("A.2, w of either sign: change of the trace; at most", theorem.weights_below_zero),
    ("A.2 drops the bars of ||L_E||, SimSiam's loss: |L_E|; at most L_E", theorem.negative_loss),
    ("Lemma 4.5 'reduces', x^2 / 2 at its minimum, noise 1: mean loss; at most L_0", theorem.rises_at_minimum),
    ("Lemma 4.5, E 'local epochs' of 50 steps: mean loss at the minimum; at most", theorem.steps_not_epochs),
    ("Lemma 4.5 'under the Assumption 4.2' alone, |x|: loss; at most", theorem.smoothness_needed),
    ("Lemma 4.5 with a target that moves, gradient 0: loss; at most", theorem.target_moves),
    ("A.1, third line, g = +-1: E ||g||^2; Var + E[||g||]^2", theorem.variance_of_norm),
    ("Assumption 4.1 for (2), 'mild': growth of CKA's curvature towards A = 0; at most", theorem.curvature_unbounded),
    ("'convergence .. is guaranteed', mu = 0.5: mean |grad L|^2 that (6) leaves, T to infinity", theorem.floor_stays),
    ("the same, Table 1, Tiny-ImageNet: points above FedU; both deviations, at least", practice.overlap),
    ("'slightly worse than .. central BYOL', Tiny-ImageNet: points; 'significant' ones", practice.slightly_worse),
    ("Tables 1, 2, CIFAR-100, Hetero-SSFL: accuracy, disjoint classes; at most i.i.d.", practice.easier_disjoint),
    ("Table 2 'equal number of classes on all clients': difference in that to Table 1", practice.equal_classes),
    ("5.1, 'a fraction of classes is sampled', 1 of 100: classes that no client has", practice.classes_lost),
    ("compared 'with baselines': images of a client that theirs lack, as a share of its own", practice.more_images),
    ("'1000 neurons as the classifier', CIFAR-10: outputs; classes", practice.outputs_of_the_probe),
    ("data 'as suggested by .. LEAF': of the three, in LEAF", practice.data_of_leaf),
    ("2.3, 'very different .. not updated', FedU: parts of encoder, predictor updated; of", practice.fedu_updates),
)  # fmt: skip
errata_table = partial(errata_text, ERRATA)


def _directions(count: int) -> Tensor:
    """Orthonormal columns of sum 0, [8, count], count <= 7: Walsh functions."""
    rows, columns = torch.arange(8)[:, None], torch.arange(1, count + 1)
    both = rows & columns
    signs = 1 - 2 * ((both ^ (both >> 1) ^ (both >> 2)) & 1)
    return signs.to(torch.float64) / math.sqrt(8)


def _cka(a: Tensor, b: Tensor, centre: bool = True) -> Tensor:
    """(1), by default of representations whose rows have mean 0. Shapes: ``a`` [L, d1], ``b`` [L, d2]."""
    if centre:
        a, b = a - a.mean(0), b - b.mean(0)
    return (b.mT @ a).square().sum() / ((a.mT @ a).norm() * (b.mT @ b).norm())
