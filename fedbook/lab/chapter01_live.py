"""Chapter 1's live panel, FedSC against FedAvg+SC, and what a round's exchange of matrices costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from fedbook import arguments
from fedbook.lab import live
from fedbook.lab.chapter01_widgets import DELTA, MU, digits, settings_of
from fedbook.learning.encoders import Encoder, encoder, predictor
from fedbook.learning.evaluation import knn_predict
from fedbook.papers.description import own_settings
from fedbook.papers.fedsc import run_on
from fedbook.papers.fedsc.matrix_privacy import matrix_epsilon
from fedbook.papers.fedsc.problem import Embedded, PretrainingProblem, PretrainingSettings, pretraining_problem

# --- the algorithm live

ROUNDS, JUDGED_EVERY = 60, 5
METHODS = {"FedSC": "fedsc", "FedAvg+SC": "fedavg-sc"}
COEFFICIENTS = {"falls from 1 to 0.2": "schedule", "q (aligned)": "q"}
SIGMAS = (0.0, 0.1, 0.3, 1.0, 3.0)


class Step(NamedTuple):
    """After a round: the global loss L and the gap, kNN accuracy (None: not judged in this round), and what runs."""

    loss: float
    gap: float
    knn: float | None
    words: str


class LiveRuns(live.LiveRuns):
    """FedSC on digits, one digit a client, live: kNN accuracy and L by round."""

    before = "Before, at their last"

    @property
    def plots(self) -> tuple[live.Plot, ...]:
        """kNN accuracy, where it was judged, and L."""
        ends, accuracy = (0, ROUNDS), "kNN accuracy, test images"
        return (
            live.Plot(lambda t, s: [] if s.knn is None else [(t, s.knn)], "round", accuracy, ends, (0.7, 1.0)),
            live.Plot(lambda t, s: [(t, s.loss)], "round", "global loss L", ends, look={"marker": ""}),
        )

    def start(self, method: str, coefficient: str, local_epochs: int, sigma: float) -> Iterator[tuple[int, Step]]:
        """Round after round (t, Step) of Algorithm 1. FedAvg+SC has neither coefficient nor noise.

        epsilon in the words is that of the matrices of all rounds at ``DELTA``; the encoders go out in clear.
        Raises: TypeError, ValueError.
        """
        name = arguments.one_of("method", method, METHODS.values())
        local_epochs, sigma = arguments.integer("local_epochs", local_epochs, 1), arguments.real("sigma", sigma, 0.0)
        changes = {"coefficient": coefficient, "local_epochs": local_epochs, "sigma": sigma}
        problem, settings = digits(), settings_of(name, rounds=ROUNDS, **changes)
        run = run_on(problem, name, settings, [0])
        run.evaluate = None  # judged here, and more seldom
        words = f"{name}, E = {local_epochs}"
        if name == "fedsc":
            words += f", {'α = q' if coefficient == 'q' else 'α falls'}, σ = {sigma:g}"
            if sigma:
                smallest = int(problem.partitions[0].sizes.min())
                words += f" (ε = {matrix_epsilon(sigma, MU, smallest, ROUNDS, DELTA):.2g})"
        return self.remember(words, _steps(run, problem, words))

    def numbers(self, steps: live.Steps) -> str:
        return f"{live.newest(steps, 'knn')[1]:.3f}, L {steps[-1][1].loss:.2f}"

    def sentence(self, history: live.Steps) -> str:
        t, last = history[-1]
        return f"After {t} rounds of {last.words}: kNN {self.numbers(history)}, gap {last.gap:.2f}"


def _steps(run: Any, problem: PretrainingProblem, words: str) -> Iterator[tuple[int, Step]]:
    for record in run:
        t, theta = record.t + 1, {name: p[0] for name, p in run.server["theta"].items()}
        objective = problem.objective(theta, 0, MU)
        accuracy = knn(problem, problem.embed(theta)) if t == 1 or t % JUDGED_EVERY == 0 else None
        yield t, Step(objective["loss"], objective["gap"], accuracy, words)


def knn(problem: PretrainingProblem, seen: Embedded) -> float:
    """Accuracy of the nearest neighbours' vote in the representation, as the runs' metric of that name."""
    y, k = problem.y[problem.seen], min(problem.settings.neighbours, len(problem.seen))
    found = knn_predict(seen.train_z, y, seen.test_z, k=k, num_classes=len(problem.classes), weights="softmax")
    return float((found == problem.test_y).double().mean())


# --- what the exchange costs


class Cost(NamedTuple):
    """What one client and round exchange, in bytes one way, and compute, in seconds of this machine (None: not run).

    ``triangle``: R's upper triangle, as it is sent; ``full``: all H^2 entries; ``encoder``: its weights.
    ``matrix_s``: Algorithm 2; ``training_s``: E local epochs.
    """

    words: str
    width: int
    triangle: int
    full: int
    encoder: int
    matrix_s: float | None
    training_s: float | None


def exchange_cost(model: str = "mlp", width: int = 16, seed: int = 0, rounds: int = 3) -> Cost:
    """Measured on digits, ten clients, the quick profile's settings: the least of ``rounds`` rounds after a first one.

    Seconds are this process's, for a client: a tenth of what all of them take. Raises: TypeError, ValueError.
    """
    rounds, width = arguments.integer("rounds", rounds, 1), arguments.integer("width", width, 1)
    settings = settings_of("fedsc", model=model, width=width)
    problem = pretraining_problem("digits", own_settings(PretrainingSettings, settings), [seed])
    run = run_on(problem, "fedsc", settings, [seed])
    run.evaluate = None
    taken = {name: _clock(run.algorithm, name) for name in ("upload_matrix", "train")}
    for _ in range(rounds + 1):
        run.step()
    matrix_s, training_s = (min(seconds[1:]) / settings["clients"] for seconds in taken.values())
    return Cost(f"{model}, digits", width, *_bytes(problem.encoder), matrix_s, training_s)


def paper_cost() -> Cost:
    """Bytes at the paper's scale: Fixup ResNet-20, eight times as wide, H = 512, on CIFAR-10."""
    net = encoder("fixup_resnet20_x8", (3, 32, 32), 512)
    return Cost("the paper's ResNet-20 x8", net.width, *_bytes(net), None, None)


def cost_table(costs: Sequence[Cost]) -> str:
    """The costs as text, with shares of the encoder's bytes and of local training's seconds. Raises: TypeError."""
    if not isinstance(costs, Sequence) or not costs or not all(isinstance(cost, Cost) for cost in costs):
        raise arguments.wrong(TypeError, "costs", costs, "a list of what exchange_cost returned, at least one")
    wide = max(len("one client, one way"), *(len(cost.words) for cost in costs))
    lines = [f"{'one client, one way':<{wide}} {'H':>4} {'triangle kB':>11} {'all H^2 kB':>10} {'encoder kB':>10} "
             f"{'share':>7} | {'Algorithm 2 ms':>14} {'training ms':>11} {'share':>6}"]  # fmt: skip
    for c in costs:
        seconds = f"{'not run':>14}"
        if c.matrix_s is not None:
            seconds = f"{1e3 * c.matrix_s:14.2f} {1e3 * c.training_s:11.2f} {c.matrix_s / c.training_s:6.0%}"
        lines.append(f"{c.words:<{wide}} {c.width:4} {c.triangle / 1e3:11,.1f} {c.full / 1e3:10,.1f} "
                     f"{c.encoder / 1e3:10,.1f} {c.triangle / c.encoder:7.1%} | {seconds}")  # fmt: skip
    head = predictor(512, 1024)
    count = sum(p.numel() for p in head.module.parameters())
    lines.append(f"A predictor 512-1024-512, which BYOL and its kin send too, has {4 * count / 1e3:,.1f} kB.")
    return "\n".join(lines)


def _bytes(net: Encoder) -> tuple[int, int, int]:
    """Triangle, full matrix and encoder, float32."""
    h, weights = net.width, sum(p.numel() for p in net.module.parameters())
    return 4 * h * (h + 1) // 2, 4 * h * h, 4 * weights


def _clock(algorithm: Any, name: str) -> list[float]:
    """Seconds of this process that each call of the method ``name`` takes from now on."""
    method: Callable[[Any], Any] = getattr(algorithm, name)
    seconds: list[float] = []

    def timed(local: Any) -> Any:
        begun = time.process_time()
        reply = method(local)
        seconds.append(time.process_time() - begun)
        return reply

    setattr(algorithm, name, timed)
    return seconds
