"""The embedding in the hyperbolic plane and the Laplacian features, against independent computations."""

import math

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.metrics import average_precision_score

from fedbook.data import Taxonomy, wordnet_embedding, wordnet_mammals
from fedbook.geometry import Hyperboloid
from fedbook.papers.prirfed.embedding import (
    from_disk,
    laplacian_features,
    reconstruction,
    sector_layout,
    softmax_loss,
    to_disk,
    train_embedding,
)

H = Hyperboloid()


def binary_tree(levels):
    names = [f"w{i}" for i in range(2**levels - 1)]
    return Taxonomy.from_edges("binary", names, [(i, (i - 1) // 2) for i in range(1, len(names))])


def some_points(count, seed=0, size=3):
    w = torch.from_numpy(np.random.default_rng(seed).normal(size=(count, size - 1)))
    return torch.cat([(1 + w.square().sum(1, keepdim=True)).sqrt(), w], 1)


def test_the_two_models_of_the_plane_are_one():
    x = some_points(50, size=4)
    p = to_disk(x)
    assert bool((p.norm(dim=1) < 1).all()) and torch.allclose(from_disk(p), x, atol=1e-12)
    assert torch.allclose(from_disk(to_disk(x[None])), x[None], atol=1e-12)  # leading axes
    # the ball's own formula of the distance
    a, b = p[:, None], p[None]
    ball = torch.acosh(1 + 2 * (a - b).square().sum(-1) / (1 - a.square().sum(-1)) / (1 - b.square().sum(-1)))
    assert torch.allclose(ball, H.dist(x[:, None], x[None]), atol=1e-7)
    with pytest.raises(ValueError, match="p: the largest length is 1; allowed is less than 1"):
        from_disk(torch.tensor([[0.6, 0.8]], dtype=torch.float64))


def test_the_drawing_has_a_sector_for_every_subtree():
    tree = binary_tree(5)
    x = sector_layout(tree, 4.0)
    assert torch.allclose(torch.acosh(x[:, 0]), tree.depth.double(), atol=1e-9)  # levels 0..4, radius 4
    angle = torch.atan2(x[:, 2], x[:, 1]) % (2 * math.pi)
    leaves = angle[tree.depth == 4].sort().values
    assert torch.allclose(leaves.diff(), torch.full((15,), math.pi / 8, dtype=torch.float64), atol=1e-12)
    for node in range(1, 15):  # a node lies in the middle of its children's angles
        assert float(angle[2 * node + 1] + angle[2 * node + 2]) / 2 == pytest.approx(float(angle[node]), abs=1e-12)
    # sectors by number of leaves; an unequal tree with the large one in the middle
    edges = [(1, 0), (2, 0), (3, 0), (4, 2), (5, 2), (6, 2)]
    unequal = sector_layout(Taxonomy.from_edges("toy", list("abcdefg"), edges), 2.0)
    angle = torch.atan2(unequal[:, 2], unequal[:, 1]) % (2 * math.pi)
    assert sorted(round(float(a) / math.pi, 6) for a in angle[[1, 2, 3]]) == [0.2, 0.8 + 0.2, 1.8]


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
    assert H.check_tangent(x.detach(), gradient)[0]
    along = H.project(x.detach(), some_points(15, seed=1))
    ahead, behind = (naive_loss(H.exp(x.detach(), t * along), tree.pairs) for t in (1e-5, -1e-5))
    assert float(H.inner(x, gradient, along).sum()) == pytest.approx(float(ahead - behind) / 2e-5, rel=1e-6)


def test_reconstruction_by_scikit_learn():
    tree = binary_tree(5)
    x = some_points(31)
    found = reconstruction(x, tree.pairs)
    distance = H.dist(x[:, None], x[None]).numpy()
    labels = np.zeros((31, 31), bool)
    labels[tree.pairs[:, 0], tree.pairs[:, 1]] = True
    precision, ranks = [], []
    for word in range(31):
        others = np.arange(31) != word
        if labels[word].any():
            precision.append(average_precision_score(labels[word][others], -distance[word][others]))
            negative = distance[word][others & ~labels[word]]
            ranks += [1 + int((negative < d).sum()) for d in distance[word][labels[word]]]
    assert found.precision == pytest.approx(np.mean(precision), abs=1e-12)
    assert found.rank == pytest.approx(np.mean(ranks), abs=1e-12)
    perfect = Taxonomy.from_edges("star", ["root", "a", "b", "c"], [(1, 0), (2, 0), (3, 0)])
    assert reconstruction(sector_layout(perfect, 5.0), perfect.pairs) == (1.0, 1.0)


def test_training_finds_a_small_tree_and_always_the_same():
    tree = binary_tree(5)
    start = some_points(31) * torch.tensor([1.0, 0.1, 0.1])
    start = H.nearest(start)
    x = train_embedding(tree, radius=8.0, steps=300)
    assert H.check_point(x)[0] and float(torch.asinh(x[:, 1:].norm(dim=1)).max()) <= 8 + 1e-9
    assert torch.equal(x, train_embedding(tree, radius=8.0, steps=300))
    assert reconstruction(x, tree.pairs).precision > 0.99
    drawn = sector_layout(tree, 8.0)
    assert float(softmax_loss(x, tree.pairs)[0]) < 0.95 * float(softmax_loss(drawn, tree.pairs)[0])
    assert torch.allclose(train_embedding(tree, radius=3.0, steps=0), sector_layout(tree, 3.0), atol=1e-12)
    other = train_embedding(tree, radius=8.0, steps=300, start=start)
    assert reconstruction(start, tree.pairs).precision < 0.6 < reconstruction(other, tree.pairs).precision


def test_the_stored_embedding_is_good():
    tree, x = wordnet_mammals(), wordnet_embedding()
    found = reconstruction(x, tree.pairs)
    assert found.precision == pytest.approx(0.911, abs=0.0015) and found.rank == pytest.approx(1.32, abs=0.01)
    distance = torch.asinh(x[:, 1:].norm(dim=1))
    assert float(distance[tree.index("primate")]) == pytest.approx(4.278, abs=1e-3)
    assert float(distance.median()) == pytest.approx(12, abs=1e-6) and float(distance[tree.root]) < 0.1


def test_a_short_training_of_the_mammals_is_on_its_way():
    tree = wordnet_mammals()
    before = reconstruction(sector_layout(tree, 12.0), tree.pairs)
    after = reconstruction(train_embedding(tree, steps=40), tree.pairs)
    assert before.precision < 0.35 and after.precision > 0.45 and after.rank < before.rank / 3
    stored = wordnet_embedding()
    again = train_embedding(tree, steps=3, lr=1e-4, start=stored)  # the stored one rests
    assert float(H.dist(stored, again).max()) < 0.01
    assert abs(float(softmax_loss(stored, tree.pairs)[0]) - float(softmax_loss(again, tree.pairs)[0])) < 1e-3


def test_moderate_radii_cannot_hold_the_mammals():
    """n words around a root that is nearer than their siblings need the radius 2 log(n / pi)."""
    n = 887
    radius = 2 * math.log(n / math.pi)
    angle = torch.tensor([0.0, 2 * math.pi / n], dtype=torch.float64)
    assert radius == pytest.approx(11.3, abs=0.02)
    for distance, sibling_is_further in ((radius + 0.01, True), (radius - 0.01, False)):
        r = torch.tensor(distance, dtype=torch.float64)
        x = torch.stack([r.cosh().expand(2), r.sinh() * angle.cos(), r.sinh() * angle.sin()], 1)
        assert (float(H.dist(x[0], x[1])) > distance) == sibling_is_further
    tree = wordnet_mammals()
    assert len(tree.names) - len(set(tree.edges[:, 1].tolist())) == n


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


X, TREE = some_points(3), binary_tree(2)
BAD = {
    "to_disk": (to_disk, ("x",), (None, "x", math.nan, torch.ones(3, dtype=torch.int64), torch.ones(2, 1))),
    "from_disk": (from_disk, ("p",), (None, 0.5, torch.tensor([math.nan, 0.0]), torch.tensor(0.5))),
    "layout": (lambda t: sector_layout(t, 1.0), ("taxonomy",), (None, "x", X)),
    "radius": (lambda r: sector_layout(TREE, r), ("radius",), (None, "x", math.nan, math.inf, -1.0, 0.0, 17.0)),
    "loss points": (lambda x: softmax_loss(x, TREE.pairs), ("x",), (None, "x", X[0], X * math.nan, X + 1)),
    "loss pairs": (
        lambda p: softmax_loss(X, p),
        ("pairs",),
        (None, [[1, 0]], torch.ones(1, 2), torch.tensor([[1, 3]]), torch.tensor([[-1, 0]]), torch.ones(0, 2).long()),
    ),
    "reconstruction": (lambda x: reconstruction(x, TREE.pairs), ("x",), (None, X[:, :1], 2 * X)),
    "reconstruction pairs": (lambda p: reconstruction(X, p), ("pairs",), (None, torch.tensor([1, 0]))),
    "training": (train_embedding, ("taxonomy",), (None, "mammals")),
    "training radius": (lambda r: train_embedding(TREE, radius=r), ("radius",), (None, "x", -1.0, math.inf, 17)),
    "training steps": (lambda n: train_embedding(TREE, steps=n), ("steps",), (None, "x", -1, 2.0)),
    "training lr": (lambda a: train_embedding(TREE, lr=a), ("lr",), (None, "x", 0.0, math.nan)),
    "training start": (
        lambda x: train_embedding(TREE, start=x),
        ("start",),
        ("x", X[:2], X.long(), X * math.inf, X + 1),
    ),
    "features": (laplacian_features, ("taxonomy",), (None, "x")),
    "features size": (lambda n: laplacian_features(TREE, n), ("size",), (None, "x", 0, -1, 3, 1.0)),
}


@pytest.mark.parametrize("call, words, values", BAD.values(), ids=BAD)
def test_nonsense_is_refused_by_name(call, words, values):
    for value in values:
        with pytest.raises((TypeError, ValueError), match=f"^{words[0]}: got"):
            call(value)
