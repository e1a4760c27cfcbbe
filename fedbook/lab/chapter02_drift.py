"""A small real run of Hetero-SSFL in which every quantity of its convergence theory is measured.

Three clients whose networks (64 - hidden - d, tanh, then a linear predictor) differ in both widths, digits of two
classes each, BYOL's loss of two fixed views plus mu (1 - CKA) on alignment images of all classes. The target network
is renewed once a round: within a round the loss is one function of the weights, as the theory needs; the renewal is a
change of the loss that the theory leaves out. No batch normalisation; float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad, vmap

from fedbook.data import digits
from fedbook.lab.chapter02_descent import Constants, largest_curvature, lemma_4_5, lemma_4_6
from fedbook.lab.results import text_table
from fedbook.learning.online import byol_loss
from fedbook.papers.hetero_ssfl.cka import centred_gram, gram, gram_cka, mean_gram
from fedbook.randomness import normal, stream

PIXELS, HIDDEN, WIDTHS = 64, (12, 16, 10), (4, 6, 9)
MOMENTUM = 0.9  # m, of the target network, once a round


class Client(NamedTuple):
    """A network 64 - ``hidden`` - ``width`` with a linear predictor, and ``views`` [2, n, 64] of its images."""

    hidden: int
    width: int
    views: Tensor

    def outputs(self, theta: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Projection and prediction [B, d] of images [B, 64]."""
        h, d = self.hidden, self.width
        w, b, out, p = theta.split([PIXELS * h, h, h * d, d * d])
        projection = (x @ w.view(PIXELS, h) + b).tanh() @ out.view(h, d)
        return projection, projection @ p.view(d, d)

    def ssl(self, theta: Tensor, target: Tensor, views: Tensor) -> Tensor:
        """BYOL's loss of views [2, B, 64], the mean of both directions."""
        both = ((self.outputs(theta, views[i])[1], self.outputs(target, views[1 - i])[0]) for i in (0, 1))
        return sum(byol_loss(*pair) for pair in both) / 2


@dataclass(frozen=True)
class Problem:
    """Shapes: ``alignment`` [L, 64], ``starts`` a theta [P_k] for each client."""

    clients: tuple[Client, ...]
    alignment: Tensor
    starts: tuple[Tensor, ...]

    def representation(self, k: int, theta: Tensor) -> Tensor:
        """A_k, client k's predictions of the alignment images, [L, d_k]."""
        return self.clients[k].outputs(theta, self.alignment)[1]

    def loss(self, k: int, theta: Tensor, target: Tensor, mean: Tensor, mu: float) -> Tensor:
        """Client k's loss for a mean kernel [L, L]."""
        client = self.clients[k]
        return client.ssl(theta, target, client.views) + mu * (1 - gram_cka(gram(self.representation(k, theta)), mean))


def digits_problem(samples: int = 40, images: int = 40, seed: int = 0) -> Problem:
    """``samples`` digits of each client's two classes together, two noisy views of each, and L alignment ``images``."""
    data, rng = digits(), stream(seed, "drift problem")
    order = torch.from_numpy(rng.permutation(len(data.train_x)))
    x, y = data.train_x.flatten(1).double()[order], data.train_y[order]
    alignment, x, y = x[:images], x[images:], y[images:]
    clients, starts = [], []
    for k, (h, d) in enumerate(zip(HIDDEN, WIDTHS, strict=True)):
        own = x[y // 2 == k][:samples]
        clients.append(Client(h, d, own + 0.3 * normal((2, *own.shape), rng)))
        w, out, p = (normal((i, o), rng) / i**0.5 for i, o in ((PIXELS, h), (h, d), (d, d)))
        starts.append(torch.cat([w.flatten(), torch.zeros(h, dtype=w.dtype), out.flatten(), p.flatten()]))
    return Problem(tuple(clients), alignment, tuple(starts))


class State(NamedTuple):
    """When a round begins: all clients' weights and targets [P_k], and the mean kernel they are sent, [L, L]."""

    thetas: list[Tensor]
    targets: list[Tensor]
    mean: Tensor


@dataclass(frozen=True)
class Run:
    """What each round did, [T, K] of each client or [T]; ``lr``, ``mu``, ``steps`` E, ``weights`` [K] as given.

    ``before`` the loss at the round's start, ``trained`` after the local steps, ``swapped`` with the new mean kernel.
    ``trace`` |tr(K_k (Kbar(t) - Kbar(t-1)))| and ``cka`` CKA's change, both at the new K_k. ``delta`` the farthest a
    prediction moved, ``lengths`` lr sum |g|, ``moved`` |theta(t) - theta(t-1)|, ``slopes`` sum |grad L|^2,
    ``steepest`` the largest |g|, ``variance`` the largest E |g - grad L|^2. ``norm`` R [T]. ``shift``
    |Kbar(t) - Kbar(t-1)|, ``centred`` |H Kbar(t-1) H|, ``turned`` the distance of the two centred unit kernels, [T].
    ``states`` where each round begins and where the last ends; ``paths`` a round's weights by client, [E + 1, P_k].
    """

    lr: float
    mu: float
    steps: int
    weights: Tensor
    before: Tensor
    trained: Tensor
    swapped: Tensor
    trace: Tensor
    cka: Tensor
    delta: Tensor
    lengths: Tensor
    moved: Tensor
    slopes: Tensor
    steepest: Tensor
    variance: Tensor
    norm: Tensor
    shift: Tensor
    centred: Tensor
    turned: Tensor
    states: list[State]
    paths: list[list[Tensor]]

    @property
    def images(self) -> int:
        return len(self.states[0].mean)

    @property
    def trace_bound(self) -> Tensor:
        """2 R^3 L^2 sum w_k delta_k, at least every ``trace``, [T]. Source: Lemma 4.6's proof, before its last step."""
        return 2 * self.norm**3 * self.images**2 * (self.delta @ self.weights)

    @property
    def cka_bounds(self) -> dict[str, Tensor]:
        """Bounds on |``cka``|, each at least the one before it: name -> [T]."""
        last = 4 * self.norm * self.images * (self.delta @ self.weights) / self.centred
        return {"unit kernels": self.turned, "kernels": 2 * self.shift / self.centred, "representations": last}

    @property
    def renewed(self) -> Tensor:
        """What the renewal of the target adds to the loss between two rounds, [T - 1, K]."""
        return self.before[1:] - self.swapped[:-1]

    def constants(self, smoothness: float = 1.0) -> Constants:
        """The largest of each constant in the whole run; L1 as given (:func:`smoothness` measures it)."""
        lipschitz = float((self.delta / self.moved).max())
        largest = (float(x.max()) for x in (self.steepest, self.norm))
        return Constants(smoothness, float(self.variance.max()), lipschitz, *largest, self.images)

    def paper_bound(self, printed: bool = False) -> float:
        """Lemma 4.6 for ``trace``, the constants measured over the whole run; ``printed``: without the factor E."""
        return lemma_4_6(1.0, self.lr, 1 if printed else self.steps, self.constants())

    def lemma(self, smoothness: Tensor) -> Tensor:
        """Lemma 4.5's bound on ``trained`` - ``before``, constants those of the round and client. [T, K] to [T, K]"""
        smooth = smoothness
        each = zip(self.slopes.flatten(), smooth.flatten().tolist(), self.variance.flatten().tolist(), strict=True)
        bounds = [lemma_4_5(s, self.lr, self.steps, Constants(one, variance)) for s, one, variance in each]
        return torch.stack(bounds).view_as(self.slopes)

    def theorem(self, smoothness: Tensor) -> Tensor:
        """Theorem 4.7's (repaired) bound on ``swapped`` - ``before``: :meth:`lemma` + mu ``paper_bound``. [T, K]"""
        return self.lemma(smoothness) + self.mu * self.paper_bound()


def run(
    problem: Problem,
    rounds: int = 12,
    steps: int = 5,
    lr: float = 0.2,
    mu: float = 0.5,
    batch: int = 0,
    weights: Sequence[float] = (1.0, 1.0, 1.0),
    seed: int = 0,
) -> Run:
    """Hetero-SSFL with everybody in each round and plain SGD on ``batch`` samples (0: all); weights over their sum.

    Source: Hetero-SSFL, Algorithm 1.
    """
    samples = problem.clients[0].views.shape[1]
    batch = batch or samples
    everyone, thetas, targets = range(len(problem.clients)), list(problem.starts), list(problem.starts)
    a = [problem.representation(k, thetas[k]) for k in everyone]
    mean = mean_gram(a, weights)  # refuses wrong weights
    states, paths, rows = [], [], []
    for t in range(rounds):
        states.append(State(thetas, targets, mean))
        rng = stream(seed, "drift batches", t)
        done = [_train(problem, k, states[-1], mu, lr, steps, batch, rng) for k in everyone]
        paths.append([d.path for d in done])
        thetas = [d.path[-1] for d in done]
        new = [problem.representation(k, thetas[k]) for k in everyone]
        old_mean, mean = mean, mean_gram(new, weights)
        losses = torch.stack([
            torch.stack([problem.loss(k, thetas[k], targets[k], m, mu) for k in everyone]) for m in (old_mean, mean)
        ])  # fmt: skip
        agreement = [torch.stack([gram_cka(gram(x), m) for x in new]) for m in (old_mean, mean)]
        one, two = (centred_gram(m) for m in (old_mean, mean))
        rows.append({
            "before": torch.stack([d.loss for d in done]), "trained": losses[0], "swapped": losses[1],
            "trace": torch.stack([(gram(x) * (mean - old_mean)).sum().abs() for x in new]),
            "cka": agreement[1] - agreement[0],
            "delta": torch.stack([(x - y).norm(dim=1).max() for x, y in zip(new, a, strict=True)]),
            "moved": torch.stack([(x - y).norm() for x, y in zip(thetas, states[-1].thetas, strict=True)]),
            "lengths": torch.stack([d.length for d in done]), "slopes": torch.stack([d.slopes for d in done]),
            "steepest": torch.stack([d.steepest for d in done]), "variance": torch.stack([d.variance for d in done]),
            "norm": torch.stack([x.norm(dim=1).max() for x in (*a, *new)]).max(),
            "shift": (mean - old_mean).norm(), "centred": one.norm(),
            "turned": (two / two.norm() - one / one.norm()).norm(),
        })  # fmt: skip
        a = new
        targets = [MOMENTUM * x + (1 - MOMENTUM) * y for x, y in zip(targets, thetas, strict=True)]
    shares = torch.tensor([float(w) for w in weights], dtype=torch.float64)
    columns = {name: torch.stack([row[name] for row in rows]) for name in rows[0]}
    return Run(
        lr, mu, steps, shares / shares.sum(), states=[*states, State(thetas, targets, mean)], paths=paths, **columns
    )


def smoothness(problem: Problem, run: Run, iterations: int = 20) -> Tensor:
    """L1, measured: the largest |curvature| of each client's loss at the E + 1 weights that a round passes. [T, K]

    From below, as these are points and power iteration stops.
    """
    clients, states = range(len(problem.clients)), run.states[:-1]

    def curvature(k: int) -> Tensor:
        def loss(theta: Tensor, target: Tensor, mean: Tensor) -> Tensor:
            return problem.loss(k, theta, target, mean, run.mu)

        passed = torch.stack([path[k] for path in run.paths])  # [T, E + 1, P_k]
        given = (torch.stack([s.targets[k] for s in states]), torch.stack([s.mean for s in states]))
        many = (x.repeat_interleave(passed.shape[1], 0) for x in given)
        return largest_curvature(loss, passed.flatten(0, 1), *many, iterations=iterations).view(passed.shape[:2])

    return torch.stack([curvature(k).amax(1) for k in clients], 1)


def constants_table(run: Run, smoothness: Tensor) -> str:
    """The theorem's constants as text: the largest in the first, the second and the last round, and in the whole run.

    Shapes: ``smoothness`` [T, K], what :func:`smoothness` returns.
    """
    smooth = smoothness
    rounds = sorted({0, min(1, len(smooth) - 1), len(smooth) - 1})
    values = {
        "R, longest representation": run.norm,
        "P, longest gradient": run.steepest.amax(1),
        "L2, move of a representation / of the weights": (run.delta / run.moved).amax(1),
        "sigma^2, variance of a gradient": run.variance.amax(1),
    } | {f"L1, curvature, client {k + 1}": column for k, column in enumerate(smooth.T)}
    rows = [["largest", *(f"round {t + 1}" for t in rounds), "whole run"]]
    rows += [[name, *(f"{float(x):.3g}" for x in (*v[rounds], v.max()))] for name, v in values.items()]
    known = run.constants(float(smooth.max()))
    edge = f"2 / L1 = {2 / known.smoothness:.2g}; step size {run.lr:g}"
    return f"{text_table(rows)}\nL = {run.images} images: G = L2 P R^3 L^2 = {known.drift:.3g}; {edge}"


class _Trained(NamedTuple):
    path: Tensor  # [E + 1, P]
    loss: Tensor  # at the start
    length: Tensor
    slopes: Tensor
    steepest: Tensor
    variance: Tensor


def _train(problem: Problem, k: int, state: State, mu: float, lr: float, steps: int, batch: int, rng) -> _Trained:
    """E local steps. All samples' gradients are taken each time, so the exact gradient and variance come along."""
    client, target, theta = problem.clients[k], state.targets[k], state.thetas[k]
    samples = client.views.shape[1]
    each = vmap(grad(lambda w, view: client.ssl(w, target, view[:, None])), (None, 1))
    pull = grad(lambda w: mu * (1 - gram_cka(gram(problem.representation(k, w)), state.mean)))
    start, length, slopes, steepest, variance = problem.loss(k, theta, target, state.mean, mu), 0.0, 0.0, [], []
    path = [theta]
    for _ in range(steps):
        own, shared = each(theta, client.views), pull(theta)
        exact = own.mean(0) + shared
        spread = (own - own.mean(0)).square().sum(1).mean()
        variance.append(spread * (samples - batch) / (batch * (samples - 1)))  # of a batch without replacement
        step = own[torch.from_numpy(rng.permutation(samples)[:batch])].mean(0) + shared
        theta = theta - lr * step
        path.append(theta)
        length, slopes = length + lr * step.norm(), slopes + exact.square().sum()
        steepest.append(step.norm())
    return _Trained(torch.stack(path), start, length, slopes, torch.stack(steepest).max(), torch.stack(variance).max())
