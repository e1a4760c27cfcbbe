"""Bad arguments of the public functions around the federation core: refused, by the argument's name, never a result.

One row a function: a call that works, then values that must not. Exchanges, rounds, federations and cohorts have
tables of their own beside their tests.
"""

import math
from dataclasses import fields

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedbook import experiment, papers
from fedbook.federation import Everyone, Poisson, Rows
from fedbook.federation.local import Batches, epochs, local_steps, sgd
from fedbook.federation.loop import Turn
from fedbook.learning.models import cross_entropy, model, stack
from fedbook.papers.fedavg import Config, algorithm
from fedbook.partition import Partition
from fedbook.randomness import normal, stream, torch_seed

PAPER = papers.paper("fedavg")
NET = model("linear", (1, 4, 4), 3)
SPLIT = Partition.from_lists([[0, 1, 2], [3], [4, 5]])
DATA = Rows({"x": torch.zeros(6, 1, 4, 4), "y": torch.zeros(6).long()}, SPLIT.table, SPLIT.sizes)
RNGS = [stream(0, "batches", 0, k) for k in range(3)]
BATCHES = epochs(DATA, [stream(0, "batches", 0, k) for k in range(3)], 2, 2)
CARRY = {"theta": stack([NET.init(stream(0, "init"))] * 3)}
STEP = sgd(cross_entropy(NET.apply), 0.1)
NAN, INF = math.nan, math.inf

GAP = torch.ones(3, 2, 1, dtype=torch.bool)
GAP[1, 0] = False  # a client that pauses

TABLE = {
    normal: (
        {"shape": (2, 3), "rng": stream(0, "x"), "like": torch.zeros(1)},
        {"shape": [3, "ab", (-1,), (2.0,), (True,)], "rng": [None, 0, "x"], "like": [3.0, torch.zeros(1).long()]},
    ),
    torch_seed: ({"rng": stream(0, "x")}, {"rng": [None, 5]}),
    model: (
        {"name": "cnn", "shape": (1, 8, 8), "classes": 4},
        {"name": ["resnet", None], "shape": [(8, 8), 8, (1, 8, 0), (1, 2.0, 8), (1, 3, 8), "abc"]},
    ),
    NET.init: ({"rng": stream(0, "init"), "dtype": torch.float64}, {"rng": [None, 0]}),
    epochs: (
        {"data": DATA, "rngs": RNGS, "num_epochs": 1, "batch_size": 2},
        {"rngs": [RNGS[:2], [], [*RNGS, RNGS[0]]], "num_epochs": [-1, 1.0, NAN, True], "batch_size": [-1, 2.0, "4"],
         "data": [Rows(DATA.samples, DATA.table, DATA.sizes * 0)]},
    ),
    Batches: (
        {"index": torch.zeros(3, 2, 1).long(), "real": torch.ones(3, 2, 1).bool(), "extra": {"e": torch.zeros(3, 2)}},
        {"index": [torch.zeros(3, 2).long(), torch.zeros(3, 2, 1), [[[0]]]], "real": [torch.ones(3, 2, 2).bool(),
         torch.ones(3, 2, 1), GAP],
         "extra": [{"e": torch.zeros(2, 3)}, {"e": 3}]},
    ),
    local_steps: (
        {"step": STEP, "carry": CARRY, "data": DATA, "batches": BATCHES, "how": "vmap", "chunk": 2},
        {"how": ["ray", None, 1], "chunk": [0, -1, 1.5, True],
         "carry": [{"theta": torch.zeros(2, 3)}, {"theta": torch.tensor(1.0)}, {"theta": 3}]},
    ),
    algorithm: ({"method": "fedavg", "config": Config(), "model": NET}, {"method": ["fedprox", None, 3]}),
    papers.paper: ({"name": "fedavg"}, {"name": ["fedprox", None]}),
    experiment.pick_device: ({"word": "cpu"}, {"word": ["tpu", None, 0]}),
    experiment.plan: (
        {"paper": PAPER, "method": "fedavg", "problem": "digits", "profile": "quick", "changes": {"lr": "0.5"},
         "seeds": (0,), "device": "cpu"},
        {"method": ["sgd", 3], "problem": ["letters", 3], "profile": ["huge", None], "seeds": [(-1,), (0.5,),
         ("a",)], "device": ["tpu", 1],
         "changes": [{"speed": 1}, {"lr": "fast"}, {"lr": "nan"}, {"rounds": 2.5}, {"clients": "0"},
         {"model": "vit"}, {"lr": None}]},
    ),
    Turn(0, (0,), 4).cohort: ({"sampler": Everyone()}, {"sampler": [None, 3, "everyone"], "purpose": ["", 3]}),
    Poisson: ({"rate": 0.5}, {"rate": [-0.1, 1.1, NAN, "0.5"]}),
}  # fmt: skip

# an argument of another name in the message, where the message speaks of the setting a user knows
NAMES = {
    "num_epochs": "local_epochs", "parameters": "parameters", "name": "model|paper", "word": "device",
    "carry": "carry 'theta'",
    "extra": "extra 'e'", "seeds": "seed", "changes": "--set|lr|rounds|clients|model",
}  # fmt: skip

CASES = [
    (function, argument, value)
    for function, (_, bad) in TABLE.items()
    for argument, values in bad.items()
    for value in values
]


@pytest.mark.parametrize("function", TABLE, ids=lambda f: f.__qualname__)
def test_the_good_call_works(function):
    function(**TABLE[function][0])


@pytest.mark.parametrize(("function", "argument", "value"), CASES, ids=lambda part: getattr(part, "__qualname__", None))
def test_a_bad_argument_is_refused_by_its_name(function, argument, value):
    with pytest.raises((TypeError, ValueError), match=f"^({NAMES.get(argument, argument)})") as caught:
        function(**TABLE[function][0] | {argument: value})
    assert "got" in str(caught.value) and "allowed" in str(caught.value)


anything = st.one_of(
    st.integers(-3, 3),
    st.floats(),
    st.booleans(),
    st.none(),
    st.sampled_from(["size", "fixed", "iid", "x", ""]),
    st.just([1]),
)


KINDS = list(dict.fromkeys(kind for name in papers.NAMES for kind in papers.paper(name).settings))
EACH = [(kind, field) for kind in KINDS for field in fields(kind)]


@given(place=st.sampled_from(EACH), value=anything)
def test_settings_hold_only_values_of_their_type_or_refuse_by_name(place, value):
    kind, field = place
    try:
        made = kind(**{field.name: value})
    except (TypeError, ValueError) as error:
        assert str(error).startswith(f"{field.name}: got ")
        return
    kept = getattr(made, field.name)
    if type(field.default) is bool:
        assert isinstance(kept, bool)
        return
    right = {int: int, str: str, float: (int, float)}[type(field.default)]
    assert isinstance(kept, right) and not isinstance(kept, bool)
    finite = isinstance(kept, str) or math.isfinite(kept) or field.metadata["limits"].get("infinite")
    assert finite and (isinstance(kept, str) or kept >= 0)


@pytest.mark.parametrize(("kind", "field"), EACH, ids=lambda part: getattr(part, "__qualname__", None) or part.name)
def test_the_first_value_beyond_a_setting_is_refused_by_its_name(kind, field):
    """Generated from the one line of each setting; what it allows at its ends is taken."""
    limits, choices, whole = field.metadata["limits"], field.metadata["choices"], isinstance(field.default, int)
    beyond = [object(), None]
    if isinstance(field.default, str):
        beyond += ["no such word"] if choices else []
        ends = choices
    elif isinstance(field.default, bool):
        beyond, ends = [*beyond, 1, "true"], [True, False]
    else:
        low, high = limits.get("minimum"), limits.get("maximum", 2**31 - 1 if whole else 1e38)
        near = (lambda x, to: x + (1 if to > x else -1)) if whole else math.nextafter
        beyond += [NAN, True, near(high, INF)] if "below" not in limits else [NAN, True, limits["below"]]
        beyond += [limits["above"]] if low is None else [near(low, -INF)]
        ends = [low] if low is not None else []
    for value in beyond:
        with pytest.raises((TypeError, ValueError), match=f"^{field.name}: got .*; allowed is "):
            kind(**{field.name: value})
    for value in ends:
        if (field.name, value) != ("noise_by", "clients"):  # only with another setting too
            assert getattr(kind(**{field.name: value}), field.name) == value


def test_compare_refuses_what_would_be_no_table():
    for change, word in (({"methods": []}, "methods"), ({"methods": "fedavg"}, "methods"), ({"seeds": 0}, "seeds"),
                         ({"vary": {"lr": [1]}, "tune": {"lr": [1]}}, "vary"), ({"vary": {"lr": []}},
                         "lr")):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=f"^{word}: got"):
            experiment.compare(**({"paper": PAPER, "methods": ["fedavg"], "problem": "digits"} | change))
