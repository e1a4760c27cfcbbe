"""The embedding in the hyperbolic plane and the Laplacian features, against independent computations."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch

from fedbook.data import Taxonomy, wordnet_embedding, wordnet_mammals
from fedbook.geometry import Hyperboloid
from fedbook.papers.prirfed.embedding import laplacian_features, sector_layout, softmax_loss, train_embedding

H = Hyperboloid()


def binary_tree(levels):
    names = [f"w{i}" for i in range(2**levels - 1)]
    return Taxonomy.from_edges("binary", names, [(i, (i - 1) // 2) for i in range(1, len(names))])


def some_points(count, seed=0, size=3):
    w = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, size - 1)))
    return torch.cat([(1 + w.square().sum(1, keepdim=True)).sqrt(), w], 1)


def reconstruction(x, pairs):
    """Mean average precision, over the words, of their ancestors among all words by distance; an ancestor's mean rank
    among those that are none. Source: Nickel and Kiela 2017, section 4.1."""
    distance = H.dist(x[:, None], x[None]).fill_diagonal_(math.inf)
    ancestor = torch.zeros(len(x), len(x), dtype=torch.bool)
    ancestor[pairs[:, 0], pairs[:, 1]] = True
    ancestor = ancestor.gather(1, distance.argsort(1)).double()  # by rank
    place, hits, count = torch.arange(1, len(x) + 1), ancestor.cumsum(1), ancestor.sum(1)
    precision = (ancestor * hits / place).sum(1)[count > 0] / count[count > 0]
    return float(precision.mean()), float(((place - hits + 1) * ancestor).sum() / count.sum())


def naive_loss(x, pairs):
    """The loss by loops and acosh, from its definition."""
    ancestors = {}
    for u, v in pairs.tolist():
        ancestors.setdefault(u, set()).add(v)
    total = 0
    for u, v in pairs.tolist():
        near = {w: -torch.acosh(x[u, 0] * x[w, 0] - x[u, 1:] @ x[w, 1:]) for w in range(len(x)) if w != u}
        others = [near[w] for w in near if w == v or w not in ancestors[u]]
        total = total - near[v] + torch.logsumexp(torch.stack(others), 0)
    return total / len(pairs)


def test_loss_and_gradient_by_their_definition():
    tree = binary_tree(4)
    x = some_points(15).requires_grad_()
    loss, gradient = softmax_loss(x.detach(), tree.pairs)
    expected = naive_loss(x, tree.pairs)
    assert float(loss) == pytest.approx(float(expected.detach()), rel=1e-12)
    (slope,) = torch.autograd.grad(expected, x)
    assert torch.allclose(gradient, H.gradient(x.detach(), slope), atol=1e-10)
    assert torch.allclose(H.project(x.detach(), gradient), gradient)
    along = H.project(x.detach(), some_points(15, seed=1))
    ahead, behind = (naive_loss(H.exp(x.detach(), t * along), tree.pairs) for t in (1e-5, -1e-5))
    assert float(H.inner(x, gradient, along).sum()) == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-6)


def test_training_finds_a_small_tree_and_always_the_same():
    tree = binary_tree(5)
    start = some_points(31) * torch.tensor([1.0, 0.1, 0.1])
    start = H.nearest(start)
    x = train_embedding(tree, radius=8.0, steps=300)
    assert H.check_point(x)[0] and float(torch.asinh(x[:, 1:].norm(dim=1)).max()) <= 8 + 1e-9
    assert torch.equal(x, train_embedding(tree, radius=8.0, steps=300))
    assert reconstruction(x, tree.pairs)[0] > 0.99
    drawn = sector_layout(tree, 8.0)
    assert float(softmax_loss(x, tree.pairs)[0]) < 0.95 * float(softmax_loss(drawn, tree.pairs)[0])
    assert torch.allclose(train_embedding(tree, radius=3.0, steps=0), sector_layout(tree, 3.0), atol=1e-12)
    other = train_embedding(tree, radius=8.0, steps=300, start=start)
    assert reconstruction(start, tree.pairs)[0] < 0.6 < reconstruction(other, tree.pairs)[0]


def test_the_stored_embedding_is_good():
    tree, x = wordnet_mammals(), wordnet_embedding()
    precision, rank = reconstruction(x, tree.pairs)
    assert precision == pytest.approx(0.911, abs=0.0015) and rank == pytest.approx(1.32, abs=0.01)
    distance = torch.asinh(x[:, 1:].norm(dim=1))
    assert float(distance[tree.index("primate")]) == pytest.approx(4.278, abs=1e-3)
    assert float(distance.median()) == pytest.approx(12, abs=1e-6) and float(distance[tree.root]) < 0.1


def test_the_features_solve_the_eigenproblem():
    tree = wordnet_mammals()
    f = laplacian_features(tree).numpy()
    adjacency = np.zeros((1180, 1180))
    for u, v in tree.pairs.tolist():
        adjacency[u, v] = adjacency[v, u] = 1
    degree = adjacency.sum(1)
    laplacian = np.diag(degree) - adjacency
    assert np.allclose(f.T @ (degree[:, None] * f), 1180 * np.eye(3), atol=1e-8)  # also the scale
    assert np.allclose(degree @ f, 0, atol=1e-8)  # not the constant vector
    values = (f * (laplacian @ f)).sum(0) / 1180
    assert np.allclose(laplacian @ f, degree[:, None] * f * values, atol=1e-9)
    assert np.allclose(values, [0.13568897, 0.16771196, 0.18890135], atol=1e-7)
    # the smallest ones: by the symmetric problem of D^-1/2 L D^-1/2
    root = 1 / np.sqrt(degree)
    all_values = scipy.linalg.eigvalsh(root[:, None] * laplacian * root)
    assert np.allclose(all_values[1:4], values, atol=1e-9) and abs(all_values[0]) < 1e-12
    assert (f[np.abs(f).argmax(0), range(3)] > 0).all()
    assert np.allclose(f.std(0), 0.3, atol=0.07)  # about the paper's kernel width
    assert np.allclose(laplacian_features(tree, size=1).numpy(), f[:, :1], atol=1e-8)
