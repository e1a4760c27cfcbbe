"""How clients with models of their own, or one global encoder, are judged on an :class:`AlignedProblem`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, linear

from fedbook import interrupts
from fedbook.federation.tree import Tree, tree_map
from fedbook.learning.evaluation import (
    FEW,
    Probe,
    bounded,
    effective_rank,
    few_labels,
    fewest,
    knn_predict,
    linear_probe,
)
from fedbook.learning.models import Parameters
from fedbook.learning.online import PREDICTOR, Online
from fedbook.papers.hetero_ssfl.cka import pairwise_cka
from fedbook.papers.hetero_ssfl.problem import AlignedProblem
from fedbook.randomness import stream

DRAWS = 3  # of the few labels
PROBES = ("probe", "probe_few")  # also told by architecture and by client


def evaluation(
    problem: AlignedProblem, nets: Mapping[str, Online], layer: str, initial: Callable[[int, int], Parameters]
) -> Callable[[Mapping[str, Tree], Mapping[str, Tree]], dict[str, Tensor]]:
    """``evaluate(server, clients)``: metrics [S] of a global encoder, or means over personal ones.

    Those of :func:`scores`, the probes also "NAME_by_architecture/WORD" and "NAME_by_client/NUMBER"; ``random_...``:
    the same of the encoders as they were drawn; ``alignment``: the mean unbiased CKA of two clients' representations of
    the alignment set, with running statistics, ``alignment_test``: of the test images; ``self_loss``: the
    self-supervised loss on one pair of views of all test images together, against the client's own target, or of a
    global encoder against itself (so these two do not compare); ``rank``: effective rank of the second moments of z.
    ``nets``: by architecture, "all" for a global encoder; ``initial(slot, client)``: parameters at the start.
    """
    views = problem.views.make_bank(problem.test_x, 2, "judged views")
    drawn: dict[tuple[int, int], dict[str, float]] = {}

    def before(slot: int, client: int, net: Online, own: Sequence[Tensor]) -> dict[str, float]:
        if (slot, client) not in drawn:
            theta = tree_map(lambda p: p.to(problem.x.device), initial(slot, client))
            train, test = (problem.features(net.encoder, theta, x) for x in (problem.x[problem.seen], problem.test_x))
            drawn[slot, client] = {f"random_{n}": v for n, v in scores(problem, train, test, own).items()}
        return drawn[slot, client]

    def one(slot: int, client: int, net: Online, state: Mapping[str, Tree], own: Sequence[Tensor]) -> dict[str, float]:
        theta = state["theta"]
        train, test = (problem.features(net.encoder, theta, x) for x in (problem.x[problem.seen], problem.test_x))
        metrics = scores(problem, train, test, own)
        if any(name.startswith(PREDICTOR) for name in theta):
            metrics |= inside(problem, net, state, test, views)
        return metrics | before(slot, client, net, own)

    def personal(slot: int, clients: Mapping[str, Tree]) -> dict[str, float]:
        metrics: dict[int, dict[str, float]] = {}
        representations: dict[int, list[Tensor]] = {}
        for word, state in clients.items():
            for place, k in enumerate(k for k, w in enumerate(problem.assigned) if w == word):
                own = {n: tree_map(lambda p, i=place: p[slot, i], state[n]) for n in ("theta", "target") if n in state}
                metrics[k] = one(slot, k, nets[word], own, [problem.own_classes(slot, k)])
                representations[k] = [represented(problem, nets[word], own["theta"], x, layer)
                                      for x in (problem.alignment, problem.test_x)]  # fmt: skip
        values = {name: _mean([row[name] for row in metrics.values()]) for name in next(iter(metrics.values()))}
        for prefix in ("", "random_"):
            if not math.isnan(values[f"{prefix}knn"]):  # then who has none has one class only
                name = f"{prefix}own_classes"
                values[name] = _mean_of_some([row[name] for row in metrics.values()])
        for name in (*PROBES, *(f"random_{probe}" for probe in PROBES)):
            for word in nets:
                rows = [metrics[k][name] for k in metrics if problem.assigned[k] == word]
                values[f"{name}_by_architecture/{word}"] = _mean(rows)
        values |= {f"{name}_by_client/{k}": metrics[k][name] for name in PROBES for k in sorted(metrics)}
        for name, place in (("alignment", 0), ("alignment_test", 1)):
            values[name] = mean_pair([representations[k][place] for k in sorted(representations)])
        return values

    def single(slot: int, theta: Parameters) -> dict[str, float]:
        every = [problem.own_classes(slot, k) for k in range(problem.partitions[slot].num_clients)]
        values = one(slot, -1, nets["all"], {"theta": theta}, every)
        word = problem.settings.model
        values |= {f"{n}_by_architecture/{word}": values[n] for n in (*PROBES, *(f"random_{p}" for p in PROBES))}
        return values | {"alignment": 1.0, "alignment_test": 1.0}

    def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
        rows = []
        for slot in range(len(problem.partitions)):
            if "theta" in server:
                rows.append(single(slot, tree_map(lambda p, s=slot: p[s], server["theta"])))
            else:
                rows.append(personal(slot, clients))
        return {name: torch.tensor([row[name] for row in rows], dtype=torch.float64) for name in rows[0]}

    return evaluate


def pixels(problem: AlignedProblem) -> Callable[[Mapping[str, Tree], Mapping[str, Tree]], dict[str, Tensor]]:
    """The control without an encoder: :func:`scores` of the pixels, for every seed."""

    def evaluate(server: Mapping[str, Tree], clients: Mapping[str, Tree]) -> dict[str, Tensor]:
        train, test = (problem.views.plain(x).flatten(1) for x in (problem.x[problem.seen], problem.test_x))
        metrics = scores(problem, train, test)
        return {n: torch.full((len(problem.partitions),), v, dtype=torch.float64) for n, v in metrics.items()}

    return evaluate


def scores(problem: AlignedProblem, train: Tensor, test: Tensor, own: Sequence[Tensor] = ()) -> dict[str, float]:
    """``knn``, ``probe``, ``probe_few`` and with sets of classes ``own_classes``: accuracies on the test images.

    ``probe``: all labels of the judged training images. ``probe_few``: 5 labels a class, mean of three draws.
    ``own_classes``: for each set in ``own`` a probe of these classes alone, on test images of these; the mean, NaN
    where no set has two classes. Nearest neighbours by cosine. With ``settings.probe`` "paper", ``probe`` and
    ``own_classes`` are fitted by Adam; few labels never, as a hundred epochs of it end far from a minimum there.
    Shapes: features [M, D], [n, D]. Features that are not finite give NaN.
    """
    names = ("knn", "probe", "probe_few", *(("own_classes",) if own else ()))
    if not bounded(train, test):
        return dict.fromkeys(names, math.nan)
    y, test_y, count = problem.y[problem.seen], problem.test_y, len(problem.classes)

    def exact(rows: Tensor | slice) -> Probe:
        return linear_probe(train[rows], y[rows], standardise=True, tolerance=1e-5)

    def asked(rows: Tensor | slice) -> Probe:
        return adam_probe(train[rows], y[rows]) if problem.settings.probe == "paper" else exact(rows)

    predictions = knn_predict(train, y, test, k=min(problem.settings.neighbours, len(y)), num_classes=count)
    draws = [few_labels(y, min(FEW, fewest(y)), seed=i) for i in range(DRAWS)]
    values = {
        "knn": float((predictions == test_y).double().mean()),
        "probe": asked(slice(None)).accuracy(test, test_y),
        "probe_few": sum(exact(rows).accuracy(test, test_y) for rows in draws) / DRAWS,
    }
    if not own:
        return values
    each = []
    for classes in own:
        mine, judged_on = torch.isin(y, classes), torch.isin(test_y, classes)
        if int(mine.sum()) == len(y):
            each.append(values["probe"])
        elif len(y[mine].unique()) > 1 and bool(judged_on.any()):
            each.append(asked(mine).accuracy(test[judged_on], test_y[judged_on]))
    return values | {"own_classes": _mean_of_some(each)}


def adam_probe(h: Tensor, labels: Tensor, epochs: int = 100, batch_size: int = 512, lr: float = 3e-3) -> Probe:
    """The paper's linear evaluation: Adam on the cross-entropy of minibatches, in a new order each epoch; no penalty.

    The paper's layer is "fully connected with 1000 neurons", for 10 classes too; here it has one for each class. With
    few samples the defaults are few steps (512 or fewer: a hundred of about 0.003 each) and stop far from a minimum.
    The layer starts as torch.nn.Linear draws it: uniform within 1/sqrt(inputs), always the same, like the order.
    Shapes: ``h`` [N, D] floating point, ``labels`` [N] integers of at least 0.
    Source: Makhija, Ho and Ghosh, Federated Self-supervised Learning for Heterogeneous Clients (2022), section 5;
    Kingma and Ba, Adam (2015).
    """
    classes, y = labels.unique(return_inverse=True)
    rng, reach = stream(0, "adam probe layers"), h.shape[1] ** -0.5
    weights, bias = (
        torch.from_numpy(rng.uniform(-reach, reach, size)).to(h).requires_grad_()
        for size in ((len(classes), h.shape[1]), (len(classes),))
    )
    optimiser, steps = torch.optim.Adam([weights, bias], lr), 0
    with torch.enable_grad():
        for epoch in range(epochs):
            order = torch.from_numpy(stream(0, "adam probe", epoch).permutation(len(h))).to(h.device)
            interrupts.point()
            for rows in order.split(batch_size):
                loss = cross_entropy(linear(h[rows], weights, bias), y[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                steps += 1
    weights, bias = weights.detach(), bias.detach()
    return Probe(weights, bias, classes, float(cross_entropy(linear(h, weights, bias), y)), steps)


@torch.no_grad()
def inside(
    problem: AlignedProblem, net: Online, state: Mapping[str, Tree], test: Tensor, views: Tensor
) -> dict[str, float]:
    """``self_loss`` and ``rank`` of a model; ``test``: its features of the test images, ``views`` [n, 2, C, H, W]."""
    theta, target = state["theta"], state.get("target", state["theta"])
    z = net.encoder.project(theta, test)
    flat = views.flatten(0, 1)
    h, followed = (problem.features(net.encoder, p, flat, plain=True) for p in (theta, target))
    rows = torch.ones(len(views), dtype=z.dtype, device=z.device)
    loss = net.objective_of_features({**theta, "target": target}, h, followed, rows)[0]
    rank = effective_rank(z.mT @ z / len(z)) if bounded(z) else math.nan
    return {"self_loss": float(loss), "rank": float(rank)}


@torch.no_grad()
def represented(problem: AlignedProblem, net: Online, theta: Mapping[str, Tensor], x: Tensor, layer: str) -> Tensor:
    """A client's representations [n, d] of images [n, C, H, W], by its running statistics."""
    return net.represent_features(theta, problem.features(net.encoder, theta, x), layer)[0]


def mean_pair(representations: Sequence[Tensor]) -> float:
    """The mean unbiased CKA of two of the representations [L, d_k]; NaN where there are no two, of
    fewer than two samples, or where one is not finite.
    """
    if len(representations) < 2 or len(representations[0]) < 2 or not bounded(*representations):
        return math.nan
    similarities = pairwise_cka(representations, unbiased=len(representations[0]) >= 4)
    p, q = torch.triu_indices(len(similarities), len(similarities), 1)
    return float(similarities[p, q].mean())


def _mean(values: Sequence[float]) -> float:
    """The mean; NaN with a NaN among them: who diverged is not left out."""
    return sum(values) / len(values)


def _mean_of_some(values: Sequence[float]) -> float:
    """The mean of the numbers among the values; NaN where there is none."""
    kept = [value for value in values if not math.isnan(value)]
    return sum(kept) / len(kept) if kept else math.nan
