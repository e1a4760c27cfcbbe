"""Chapter 4's figures and tables say the numbers of their inputs, and what they read from a run is the run's."""

import math
from dataclasses import replace

import pytest
import torch

from fedbook.federation import Rounds, tree_map
from fedbook.federation.history import Record
from fedbook.lab import chapter04_budget as budget
from fedbook.lab import chapter04_figures as figures
from fedbook.papers.dp2_fedsam import Config, DP2FedSAM
from fedbook.papers.dp2_fedsam.problem import PersonalSettings, personal_problem
from fedbook.papers.dp2_fedsam.sharpness import gaussian_rise
from fedbook.privacy.sampled import paper_sigma
from fedbook.randomness import stream

SEEDS = (0, 3)
CONFIG = Config(
    rounds=3, client_rate=1.0, head_epochs=2, body_epochs=2, batch_size=5, lr_body=0.2, lr_head=0.3, momentum=0.5,
    lr_decay=0.9, sam_radius=0.1, clip_norm=math.inf,
)  # fmt: skip


def problem(**changes):
    settings = PersonalSettings(clients=6, train_samples=240, own_share=0.2, model="mlp16")
    return personal_problem("digits", replace(settings, **changes), SEEDS, dtype=torch.float64)


SMALL, UNEVEN = problem(), problem(partition="dirichlet", alpha=1.0)


def started(method, data=SMALL, rounds=2, **changes):
    """A run that has done ``rounds`` rounds and has one more to go."""
    algorithm = DP2FedSAM(replace(CONFIG, **changes), data.model, method)
    made = Rounds(algorithm, data.federation(), rounds + 1, seeds=SEEDS)
    for _ in range(rounds):
        made.step()
    return made


# --- what a run holds


@pytest.mark.parametrize("data", [SMALL, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("method", ["p-fedsam", "fedavg"])
def test_client_updates_are_what_the_next_round_sums(method, data):
    """Without clip and noise and with everybody in the cohort the next round moves phi by their mean."""
    rounds, everybody = started(method, data), torch.arange(6)
    before, clients = rounds.server["shared"], tree_map(torch.clone, rounds.clients)
    found = [figures.client_updates(data, rounds, slot, everybody) for slot in (0, 1)]
    assert not any(bool((old != new).any()) for old, new in zip(leaves(clients), leaves(rounds.clients), strict=True))
    some = figures.client_updates(data, rounds, 1, torch.tensor([4, 1]))
    assert torch.allclose(some, found[1][[4, 1]], rtol=0, atol=1e-12)
    record = rounds.step()
    for slot in (0, 1):
        moved = torch.cat([(rounds.server["shared"][n] - before[n])[slot].flatten() for n in before])
        assert torch.allclose(found[slot].mean(0), moved, rtol=0, atol=1e-12)
        lengths = found[slot].norm(dim=1)
        assert record.trace["update_norm"][slot] == pytest.approx(float(lengths.mean()))
    assert not torch.allclose(found[0], found[1], atol=1e-3)


def leaves(tree):
    return [x for value in tree.values() for x in (leaves(value) if isinstance(value, dict) else [value])]


@pytest.mark.parametrize("method", ["p-fedsam", "fedavg"])
def test_client_loss_is_the_mean_of_the_clients_losses(method):
    rounds = started(method, UNEVEN)
    loss, shared = figures.client_loss(UNEVEN, rounds, 1)
    slow = []
    for k, rows in enumerate(UNEVEN.train[1].lists()):
        own = tree_map(lambda p, k=k: p[1, k], rounds.clients["all"]["own"]) if method == "p-fedsam" else {}
        logits = UNEVEN.model.apply({**shared, **own}, UNEVEN.x[rows])
        slow.append(torch.nn.functional.cross_entropy(logits, UNEVEN.y[rows]))
    assert float(loss(shared)) == pytest.approx(float(torch.stack(slow).mean()), abs=1e-12)
    rise = gaussian_rise(loss, shared, 0.3, 8, stream(0, "rise"))
    assert float(rise.mean) > 3 * float(rise.error) > 0


# --- what clients send


def record(t, mean, square):
    return Record(t, {}, {"update_norm": mean, "update_norm_squared": square}, [3, 3], [0, 0], [0, 0], 0.0)


# --- budgets


@pytest.mark.parametrize(("n", "epsilon"), [(500, 1.0), (500, 2.0), (1000, 1.0), (1000, 2.0)])
def test_theorem_2_gives_back_its_budget_and_its_condition_fails(n, epsilon):
    asked = paper_sigma(epsilon, 1 / n, 0.05, 200)
    promise = budget.theorem2_epsilon(asked.sigma, 0.05, 200, 1 / n)
    assert promise.epsilon == pytest.approx(epsilon) and promise.order == pytest.approx(asked.order)
    assert promise.holds is asked.holds is False


# Specification of the chapter, section 4.3: columns N = 500 and 1000, each at epsilon 1 and 2.
