"""What the alignment term does to clients: they come together, or, with the printed sign, apart."""

from dataclasses import replace

import pytest
import torch

from fedbook.federation import run, tree_map
from fedbook.papers.hetero_ssfl.cka import linear_cka
from fedbook.papers.hetero_ssfl.problem import aligned_problem
from tests.papers.hetero_ssfl.small import PLAIN, rounds_of
from tests.papers.hetero_ssfl.small import SETTINGS as SMALL

CONFIG = replace(PLAIN, rounds=6, momentum=0.9, weight_decay=0.0, target_decay=0.9, alignment_batch=0)
SETTINGS = replace(SMALL, train_samples=220, test_samples=20, partition="classes", bank=0, alignment_samples=60)


def shown(rounds, data, slot=0):
    """What every client makes of the alignment set, by the statistics of all of it."""
    found, x = [], data.views.plain(data.alignment)
    for word, state in rounds.clients.items():
        for place in range(data.assigned.count(word)):
            theta = tree_map(lambda p, i=place: p[slot, i], state["theta"])
            weight = torch.ones(len(x), dtype=x.dtype)
            found.append(rounds.algorithm.nets[word].represent(theta, x, "predictor", weight)[0].double())
    return found


def agreement(each):
    """The mean unbiased CKA of two clients."""
    pairs = [float(linear_cka(a, b, unbiased=True)) for i, a in enumerate(each) for b in each[:i]]
    return sum(pairs) / len(pairs)


@pytest.mark.slow
def test_the_term_alone_brings_clients_together_and_none_collapses():
    """mu so large that the self-supervised loss hardly counts: every round brings all nearer to the mean kernel."""
    data = aligned_problem("digits", replace(SETTINGS, partition="iid"), dtype=torch.float64)
    rounds, towards = rounds_of(replace(CONFIG, mu=300.0, lr=5e-4, momentum=0.0), data), []
    rounds._set_up()
    start, h = agreement(shown(rounds, data)), torch.eye(60, dtype=torch.float64) - 1 / 60
    for _ in range(CONFIG.rounds + 1):
        centred = [h @ a @ a.T @ h for a in shown(rounds, data)]
        mean = sum(centred) / 5
        towards.append(sum(float((k * mean).sum() / (k.norm() * mean.norm())) for k in centred) / 5)
        if rounds.t < CONFIG.rounds:
            rounds.step()
    assert all(b > a for a, b in zip(towards, towards[1:], strict=False)), towards
    assert agreement(shown(rounds, data)) > start + 0.1
    assert all(float(a.std(0).mean()) > 0.1 for a in shown(rounds, data))


@pytest.mark.slow
def test_alignment_rises_and_the_printed_sign_lowers_it():
    """Digits, two classes a client, two seeds, small networks: what the term does to pairwise CKA, not to accuracy."""
    seeds, found = (0, 1), {}
    data = aligned_problem("digits", replace(SETTINGS, train_samples=260, bank=8), seeds)
    config = replace(CONFIG, local_epochs=2, momentum=0.9, mu=0.5, alignment_batch=40)
    for name, changes in (("local", {}), ("aligned", {}), ("printed", {"proximal": "paper"})):
        rounds = run(rounds_of(replace(config, **changes), data, seeds, shares=name != "local"))
        found[name] = [agreement(shown(rounds, data, slot)) for slot in range(2)]
    for slot in range(2):
        assert found["aligned"][slot] > found["local"][slot] + 0.3, found
        assert found["printed"][slot] < found["local"][slot], found
