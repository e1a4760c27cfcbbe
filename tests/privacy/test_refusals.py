"""Every public function of fedbook.privacy refuses nonsense by the argument's name, never with a figure.

What kind of nonsense follows from a parameter's annotation; the limits of each, where they differ, stand in LIMITS.
"""

import inspect
import math

import pytest
import torch

from fedbook import privacy
from fedbook.randomness import stream

RNG, ROWS, SCORES = stream(0, "noise"), {"w": torch.ones(2, 3)}, torch.linspace(0, 1, 10)
GOOD = {
    "accountant": None, "adjacency": "zero_out", "batch": 3, "bound": 1.0, "confidence": 0.9, "conversion": "classic",
    "count": 3, "delta": 0.01, "epsilon": 1.0, "first_seed": 0, "like": ROWS, "mu": 1.0, "noise_multiplier": 1.0,
    "order": 3, "p": 0.3, "points": 5, "rate": 0.1, "rng": RNG, "rounds": 5, "runs": 4,
    "run_with": lambda seeds: torch.zeros(len(seeds)), "run_without": lambda seeds: torch.zeros(len(seeds)),
    "sampler": "poisson", "std": 1.0, "total": ROWS, "update": ROWS, "with_canary": SCORES, "without": SCORES,
}  # fmt: skip
NONSENSE = {
    "float": [math.nan, "1", None, True],
    "int": [1.5, "x", None, True],
    "str": ["nonsense", 3],
    "Tensor": [None, 3.0, torch.zeros(0), torch.zeros(3, 3), torch.tensor([0.0, math.nan]), torch.arange(5)],
    "Mapping[str, Tensor]": [None, {}, [torch.ones(2)], {"w": torch.ones(2).long()}, {1: torch.ones(2)}],
    "np.random.Generator": [None, 5],
    "Runs": [None, 3, lambda seeds: torch.zeros(99), lambda seeds: torch.full((len(seeds),), math.nan)],
}
LIMITS = {
    "bound": [0.0, -1.0], "confidence": [0.0, 1.0], "count": [-1], "delta": [1.0, -0.1], "epsilon": [-1.0, math.inf],
    "first_seed": [-1, 2**63], "noise_multiplier": [-1.0], "order": [0], "p": [1.1], "points": [1], "rate": [-0.1, 1.1],
    "rounds": [-1], "runs": [1], "std": [-1.0, math.inf], "mu": [-1.0],
}  # fmt: skip
FUNCTIONS = [getattr(privacy, name) for name in privacy.__all__ if inspect.isfunction(getattr(privacy, name))]
CASES = [
    pytest.param(function, name, value, id=f"{function.__name__}-{name}-{number}")
    for function in FUNCTIONS
    for name, parameter in inspect.signature(function).parameters.items()
    for number, value in enumerate(NONSENSE.get(parameter.annotation, []) + LIMITS.get(name, []))
]


def good(function):
    chosen = {name: GOOD[name] for name in inspect.signature(function).parameters if GOOD.get(name) is not None}
    return chosen


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_the_good_call_works(function):
    function(**good(function))


@pytest.mark.parametrize(("function", "name", "value"), CASES)
def test_nonsense_is_refused_by_name(function, name, value):
    with pytest.raises((TypeError, ValueError), match=f"^(scores of )?{name}.*: got"):
        function(**good(function) | {name: value})


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: privacy.calibrate_sampled(101.0, 0.1, 0.1, 9), "epsilon"),
        (lambda: privacy.paper_sigma(2 * math.log(10), 0.1, 0.1, 1), "epsilon"),
        (lambda: privacy.clip({"w": torch.ones(2, 3), "b": torch.ones(3)}, 1.0), "update"),
        (lambda: privacy.clip({"w": torch.tensor(1.0)}, 1.0), "update"),
        (lambda: privacy.clip({"w": torch.tensor([[math.nan]])}, math.inf), r"update\['w'\]"),
        (lambda: privacy.row_norm({"w": torch.tensor([[math.nan]])}), r"update\['w'\]"),
        (lambda: privacy.release_sum(ROWS, bound=math.inf, noise_multiplier=1.0, rng=RNG), "bound"),
        (
            lambda: privacy.release_sum({"w": torch.tensor([math.nan])}, bound=1.0, noise_multiplier=1.0, rng=RNG),
            "total",
        ),
        (lambda: privacy.ClientGaussian(1.0)({"w": torch.tensor([math.nan])}, [RNG]), r"message\['w'\]"),
        (lambda: privacy.ClientGaussian(1.0)(ROWS, [RNG]), "rngs"),
        (lambda: privacy.ClientGaussian(math.inf), "std"),
        (lambda: privacy.Clip(0.0), "bound"),
    ],
)
def test_what_does_not_fit_together_is_refused_too(call, name):
    with pytest.raises((TypeError, ValueError), match=f"^{name}.*: got"):
        call()
