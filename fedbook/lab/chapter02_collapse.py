"""Why training on positive pairs alone does not end in one constant output, though that has the least loss there is.

What keeps training away from it shows in a linear model with exact means: views x + e and x + e' of a sample with
E x x^T = X and E e e^T = X', online network W, predictor P, target network A, loss 1/2 E |P W (x + e) - A (x + e')|^2.
If X, X', W, P and A share singular vectors at the start, they always do, and each direction of the data is a system of
three numbers (w, p, a) of its own. The model is that of Tian, Chen, Ganguli 2021, "Understanding self-supervised
learning dynamics without contrastive pairs"; this reduction needs neither X = I nor A a multiple of W. All float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad

from fedbook.lab.chapter02_theory import Sides
from fedbook.papers.hetero_ssfl.cka import cka_gradient, gram, gram_cka, mean_gram
from fedbook.randomness import normal, stream

VARIANTS = ("both", "no predictor", "no stop-gradient")
SIGNAL, NOISE = (1.5, 1.0, 0.6, 0.1), (0.1, 0.3, 0.2, 0.1)  # of each direction: E (x.v)^2 and E (e.v)^2
ONLINE, PREDICTOR = (0.4, 0.5, 0.3, 0.6), (0.5, 0.3, 0.4, 0.5)  # where each direction starts
OUTPUTS, INPUTS = 5, 6


# --- the linear model


class Linear(NamedTuple):
    """Shapes: ``signal`` X, ``noise`` X' [n, n]; ``online`` W, ``target`` A [d, n]; ``predictor`` P [d, d]."""

    signal: Tensor
    noise: Tensor
    online: Tensor
    predictor: Tensor
    target: Tensor


def random_linear(seed: int = 0) -> Linear:
    """Any matrices, nothing symmetric but X and X'."""
    rng = stream(seed, "linear model")
    x, e = normal((INPUTS, INPUTS), rng), normal((INPUTS, INPUTS), rng)
    w, p, a = (0.5 * normal(s, rng) for s in ((OUTPUTS, INPUTS), (OUTPUTS, OUTPUTS), (OUTPUTS, INPUTS)))
    return Linear(x @ x.T / INPUTS, e @ e.T / (4 * INPUTS), w, p, a)


def velocity(
    model: Linear, variant: str = "both", target_rate: float = math.inf, decay: float = 0.0, predictor_rate: float = 1.0
) -> tuple[Tensor, Tensor, Tensor]:
    """d/dt of (W, P, A): minus the gradient, weight ``decay`` on W and P, A' = ``target_rate`` (W - A).

    ``variant``: "both" the predictor and the stop-gradient, "no predictor" (P = I), "no stop-gradient" (A = W, and the
    gradient passes through it). An infinite rate: A is W (SimSiam).
    """
    variant, rate, decay, alpha = _rates(variant, target_rate, decay, predictor_rate)
    signal, total, w = model.signal, model.signal + model.noise, model.online
    p = torch.eye(len(w), dtype=w.dtype) if variant == "no predictor" else model.predictor
    a = w if rate == math.inf else model.target
    miss = a @ signal - p @ w @ total  # minus the gradient in P W
    online = p.T @ miss - decay * w
    if variant == "no stop-gradient":
        online = online + p @ w @ signal - w @ total
    predictor = torch.zeros_like(p) if variant == "no predictor" else alpha * miss @ w.T - decay * p
    return online, predictor, online if rate == math.inf else rate * (w - a)


def mode_velocity(
    modes: tuple[Tensor, Tensor, Tensor],
    variant: str = "both",
    target_rate: float = math.inf,
    decay: float = 0.0,
    predictor_rate: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """d/dt of (w, p, a) of each direction, [r] each; the arguments as in :func:`velocity`.

    p' = alpha w (s a - (s + n) p w) - decay p and w' = p (s a - (s + n) p w) - decay w, with signal s and noise n.
    """
    variant, rate, decay, alpha = _rates(variant, target_rate, decay, predictor_rate)
    w, p, a = modes
    s, n = (torch.tensor(v, dtype=torch.float64) for v in (SIGNAL, NOISE))
    a = w if rate == math.inf else a
    if variant == "no predictor":
        online, predictor = s * (a - w) - n * w - decay * w, 0 * p
    elif variant == "no stop-gradient":
        online = -(s * (1 - p) ** 2 + n * (1 + p**2) + decay) * w
        predictor = alpha * w**2 * (s - (s + n) * p) - decay * p
    else:
        online = p * (s * a - (s + n) * p * w) - decay * w
        predictor = alpha * w * (s * a - (s + n) * p * w) - decay * p
    return online, predictor, online if rate == math.inf else rate * (w - a)


class Course(NamedTuple):
    """``times`` [S + 1]; of each direction ``online`` w, ``predictor`` p and ``target`` a, [S + 1, r]."""

    times: Tensor
    online: Tensor
    predictor: Tensor
    target: Tensor


def mode_course(time: float = 60.0, steps: int = 600, **rates) -> Course:
    """The three numbers of each direction over time; ``rates`` as in :func:`mode_velocity`."""
    w, p = (torch.tensor(v, dtype=torch.float64) for v in (ONLINE, PREDICTOR))
    p = torch.ones_like(p) if rates.get("variant") == "no predictor" else p
    times, path = march(lambda *modes: mode_velocity(modes, **rates), (w, p, w), time, steps)
    return Course(times, *path)


def matrix_course(time: float = 60.0, steps: int = 600, seed: int = 0, **rates) -> Course:
    """The same from full matrices with the same start in random common singular vectors, U^T W(t) V and U^T P(t) U."""
    rng, r = stream(seed, "singular vectors"), len(SIGNAL)
    u, v = (torch.linalg.qr(normal((size, r), rng)).Q for size in (OUTPUTS, INPUTS))
    signal, noise, w, p = (torch.tensor(x, dtype=torch.float64).diag() for x in (SIGNAL, NOISE, ONLINE, PREDICTOR))
    data, online = (v @ signal @ v.T, v @ noise @ v.T), u @ w @ v.T
    predictor = torch.eye(OUTPUTS, dtype=torch.float64) if rates.get("variant") == "no predictor" else u @ p @ u.T
    start = (online, predictor, online)
    times, (w, p, a) = march(lambda *state: velocity(Linear(*data, *state), **rates), start, time, steps)
    return Course(times, *((u.T @ m @ side).diagonal(dim1=1, dim2=2) for m, side in ((w, v), (p, u), (a, v))))


def flow_from_loss(variant: str = "both", seed: int = 0) -> tuple[Sides, Sides]:
    """Minus autograd's gradients in W and P of the loss by its definition, and :func:`velocity`. Equal.

    The loss is over all pairs of views of a finite set of samples and shifts with just these X and X'.
    """
    model = random_linear(seed)
    samples, shifts = (math.sqrt(INPUTS) * torch.linalg.cholesky(m).T for m in (model.signal, model.noise))
    views = samples[:, None] + torch.cat([shifts, -shifts])  # [samples, shifts, n]; shifts of mean 0

    def loss(w: Tensor, p: Tensor) -> Tensor:
        aim = w if variant == "no stop-gradient" else model.target
        one = views @ w.T if variant == "no predictor" else views @ w.T @ p.T
        away = one[:, :, None] - (views @ aim.T)[:, None]
        return 0.5 * away.square().sum(3).mean()

    slopes = grad(loss, (0, 1))(model.online, model.predictor)
    found = velocity(model, variant, math.inf if variant == "no stop-gradient" else 1.0)
    return tuple(Sides(-slope, speed) for slope, speed in zip(slopes, found, strict=False))


def rest_points(signal: float, noise: float, decay: float) -> tuple[float, float]:
    """Where a balanced direction (sqrt(alpha) w = p, a = w) stays: (p it must exceed to live, p where it ends).

    Roots of p (s - (s + n) p) = decay; for decay > 0 the collapse p = 0 is stable too, however strong the signal.
    NaN twice if s^2 < 4 decay (s + n): such a direction always dies.
    """
    inner = signal**2 - 4 * decay * (signal + noise)
    if inner < 0:
        return math.nan, math.nan
    return tuple((signal + sign * math.sqrt(inner)) / (2 * (signal + noise)) for sign in (-1, 1))


class Fates(NamedTuple):
    """``signal``, ``noise`` and both roots, ``least`` < ``rest``, of each direction [r]; ``ends`` of each start [F, r].

    ``dies`` and ``rests`` [F, r]: that end is at 0, at ``rest``, within 1e-6.
    """

    signal: Tensor
    noise: Tensor
    least: Tensor
    rest: Tensor
    ends: Tensor

    @property
    def dies(self) -> Tensor:
        return self.ends.abs() < 1e-6

    @property
    def rests(self) -> Tensor:
        return (self.ends - self.rest).abs() < 1e-6


def fates(decay: float = 0.1, factors: Sequence[float] = (0.9, 1.2), seed: int = 0) -> Fates:
    """Where balanced directions (w = p, a is w) end that start at each of ``factors`` times the smaller root.

    The chapter's directions that have a rest at this decay, and six random ones. By the flow of full (here diagonal)
    matrices; the cost grows as 1 / ``decay``.
    """
    rng = stream(seed, "directions")
    noise = torch.cat([torch.tensor(NOISE, dtype=torch.float64), torch.from_numpy(rng.uniform(0, 1, 6))])
    weakest = 2 * decay + 2 * (decay**2 + decay * noise[-6:]).sqrt()  # there s^2 = 4 decay (s + n)
    signal = torch.cat([torch.tensor(SIGNAL, dtype=torch.float64), weakest * torch.from_numpy(rng.uniform(1.1, 2, 6))])
    roots = [rest_points(s, n, decay) for s, n in zip(signal.tolist(), noise.tolist(), strict=True)]
    least, rest = torch.tensor(roots, dtype=torch.float64).T
    signal, noise, least, rest = (x[~least.isnan()] for x in (signal, noise, least, rest))
    start = torch.outer(torch.tensor(factors, dtype=torch.float64), least).flatten()
    data = signal.repeat(len(factors)).diag(), noise.repeat(len(factors)).diag()

    def speed(*state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return velocity(Linear(*data, *state), "both", decay=decay)

    fastest = float((signal**2 / (signal + noise)).max())  # at least 4 decay
    _, (path, *_) = march(speed, (start.diag(),) * 3, 30 / decay, math.ceil(20 * fastest / decay))
    return Fates(signal, noise, least, rest, path[-1].diagonal().view(len(factors), -1))


# --- the alignment term in the linear model


def scale_free_step(lr: float = 0.1, seed: int = 0) -> Sides:
    """|W + lr G|^2 after a step up the CKA of X W^T, and |W|^2 + lr^2 |G|^2: G is orthogonal to W. Equal."""
    client = linear_client(seed)
    w, slope = client.start, grad(client.cka)(client.start)
    return Sides((w + lr * slope).square().sum(), w.square().sum() + lr**2 * slope.square().sum())


class Shrinking(NamedTuple):
    """``times``, |W| ``length`` and its closed form ``law``, ``cka`` with the others, [S + 1] each."""

    times: Tensor
    length: Tensor
    law: Tensor
    cka: Tensor


def aligned_shrinking(
    mu: float = 0.5, noise: float = 0.2, decay: float = 0.1, time: float = 5.0, seed: int = 0
) -> Shrinking:
    """No predictor, A = W, X' = noise I, and the pull mu (1 - CKA): |W| still falls as exp(-(noise + decay) t).

    CKA rises all the same: the pull turns W, it does not lengthen it. mu = 0: no pull, CKA stays.
    """
    client = linear_client(seed)
    w, eye = client.start, torch.eye(INPUTS, dtype=torch.float64)
    model = Linear(client.images.T @ client.images / len(client.images), noise * eye, w, eye, w)

    def speed(w: Tensor) -> tuple[Tensor]:
        return (velocity(model._replace(online=w), "no predictor", decay=decay)[0] + mu * client.pull(w),)

    times, (path,) = march(speed, (w,), time, 200)
    law = w.norm() * torch.exp(-(noise + decay) * times)
    return Shrinking(times, path.flatten(1).norm(dim=1), law, torch.stack([client.cka(w) for w in path]))


def aligned_steps(
    lr: float = 0.1, mu: float = 0.5, noise: float = 0.2, decay: float = 0.1, time: float = 30.0, seed: int = 0
) -> Sides:
    """|W| after ``time`` / ``lr`` plain gradient steps, and what :func:`aligned_shrinking`'s law leaves of it then.

    Not equal: each step lengthens W (:func:`scale_free_step`), by more the shorter W is, and at some length that holds
    the balance. mu = 0: nothing does.
    """
    client = linear_client(seed)
    w = client.start
    for _ in range(round(time / lr)):
        w = w + lr * (mu * client.pull(w) - (noise + decay) * w)
    return Sides(w.norm(), client.start.norm() * math.exp(-(noise + decay) * time))


class LinearClient(NamedTuple):
    """``images`` [30, n], the ``others``' mean kernel of them, and where W [d, n] starts."""

    images: Tensor
    others: Tensor
    start: Tensor

    def cka(self, w: Tensor) -> Tensor:
        """CKA of the outputs X W^T with the others."""
        return gram_cka(gram(self.images @ w.T), self.others)

    def pull(self, w: Tensor) -> Tensor:
        """Its gradient in W [d, n], by the closed form."""
        return cka_gradient(self.images @ w.T, self.others).T @ self.images


def linear_client(seed: int = 0) -> LinearClient:
    """A linear client and two others of other widths."""
    rng = stream(seed, "linear clients")
    images = normal((30, INPUTS), rng)
    others = mean_gram([images @ normal((INPUTS, d), rng) for d in (3, 4)], [0.5, 0.5])
    return LinearClient(images, others, normal((OUTPUTS, INPUTS), rng))


# --- integration


def march(velocity: Callable, start: tuple[Tensor, ...], time: float, steps: int) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Classical Runge-Kutta of order four: the times [S + 1] and every part of the state at them, [S + 1, ...]."""
    h, state, path = time / steps, start, [start]

    def at(slopes: tuple[Tensor, ...], step: float) -> tuple[Tensor, ...]:
        return velocity(*(x + step * v for x, v in zip(state, slopes, strict=True)))

    for _ in range(steps):
        k1 = velocity(*state)
        k2 = at(k1, h / 2)
        k3 = at(k2, h / 2)
        k4 = at(k3, h)
        state = tuple(x + h / 6 * (a + 2 * b + 2 * c + d) for x, a, b, c, d in zip(state, k1, k2, k3, k4, strict=True))
        path.append(state)
    return h * torch.arange(steps + 1, dtype=torch.float64), tuple(
        torch.stack(part) for part in zip(*path, strict=True)
    )


def _rates(variant: str, target_rate: float, decay: float, predictor_rate: float) -> tuple[str, float, float, float]:
    rate = target_rate
    alpha = predictor_rate
    return variant, rate, decay, alpha
