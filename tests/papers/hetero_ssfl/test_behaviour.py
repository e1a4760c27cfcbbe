"""Hetero-SSFL's reductions, what is remembered and what crosses, what a client is compared with, and edges."""

import math
from dataclasses import replace
from functools import lru_cache

import pytest
import torch

from fedbook.federation import run, tree_map
from fedbook.federation.tree import leaves
from fedbook.papers.hetero_ssfl import HeteroSSFL
from fedbook.randomness import stream
from tests.papers.by_hand import gap
from tests.papers.hetero_ssfl.small import PLAIN, SMALL, client, problem, rounds_of


def trained(config, data=SMALL, **options):
    return run(rounds_of(config, data, **options))


@lru_cache
def plain(shares=True):
    """One run that several tests compare with."""
    return trained(PLAIN, shares=shares)


def trainable(clients):
    """All but running statistics."""
    return {
        word: {part: {n: p for n, p in theta.items() if "running" not in n} for part, theta in state.items()}
        for word, state in clients.items()
    }


def shown(rounds, data, k, slot=0):
    """What client k makes of the alignment set, computed anew and centred: so it is sent."""
    net, c = rounds.algorithm.nets[data.assigned[k]], rounds.algorithm.config
    weight = None if c.statistics == "eval" else torch.ones(len(data.alignment), dtype=data.x.dtype)
    theta = client(rounds.clients, data, k, slot=slot)
    a = net.represent(theta, data.views.plain(data.alignment), c.layer, weight)[0]
    return a - a.mean(0)


def uploaded(rounds, data, k, slot=0):
    return client({w: {"a": a} for w, a in rounds.server["uploads"].items()}, data, k, "a", slot)


# --- the start, and mu = 0


@pytest.mark.parametrize(
    ("bank", "changes"), [(5, {"statistics": "train"}), (0, {"loss": "simsiam", "cohort": 3, "rounds": 1})], ids=str
)
def test_mu_0_is_local_training_bit_for_bit(bank, changes):
    data, config = problem(bank=bank), replace(PLAIN, mu=0.0, **changes)
    a, b = trained(config, data), trained(config, data, shares=False)
    assert gap(a.clients, b.clients) == 0 and not b.server and b.bytes.total["rounds"]["up"] == [0]
    c = trained(replace(config, mu=0.7), data, shares=False)
    assert gap(b.clients, c.clients) == 0  # nor does mu matter to clients that are alone
    assert gap(trained(replace(config, mu=0.7), data).clients, b.clients) > 1e-4


# --- who does not train


@pytest.mark.parametrize("changes", [{}, {"statistics": "eval", "layer": "encoder"}, {"send": "kernels"}], ids=str)
def test_who_does_not_train_stays_as_it_was(changes):
    rounds, absent = rounds_of(replace(PLAIN, cohort=2, rounds=3, **changes)), 0
    for t in range(3):
        rounds._set_up()
        before, table = (tree_map(torch.clone, x) for x in (rounds.clients, rounds.server["uploads"]))
        rounds.step()
        there = rounds.algorithm.config.sampler(5).draw(5, stream(0, "cohort", t)).tolist()
        old = {w: {"a": a} for w, a in table.items()}
        for k in range(5):
            parts = [gap(client(rounds.clients, SMALL, k, part), client(before, SMALL, k, part))
                     for part in ("theta", "target")]  # fmt: skip
            parts.append(float((uploaded(rounds, SMALL, k) - client(old, SMALL, k, "a")).abs().max()))
            assert all(d > 0 for d in parts) if k in there else all(d == 0 for d in parts)
            absent += k not in there
            a = shown(rounds, SMALL, k)  # what the server remembers is what the client would send now
            a = a @ a.T if rounds.algorithm.up_kernels else a
            assert float((uploaded(rounds, SMALL, k) - a).abs().max()) < 1e-11
    assert absent == 9


# --- what crosses


@pytest.mark.parametrize(("length", "cheaper"), [(16, (True, True)), (60, (False, True)), (110, (False, False))])
def test_what_is_sent_changes_the_bytes_and_nothing_else(length, cheaper):
    """Literal accounts: 4 bytes a number, 12 columns of three clients and 9 of two, a triangle L (L + 1) / 2."""
    config = replace(PLAIN, cohort=3, alignment_batch=0, rounds=1)
    data, single = (problem(alignment_source="noise", alignment_samples=length, dtype=d)
                    for d in (torch.float64, torch.float32))  # fmt: skip
    runs = {send: trained(replace(config, send=send), data) for send in ("kernels", "representations", "cheaper")}
    for other in ("representations", "cheaper"):
        assert gap(runs["kernels"].clients, runs[other].clients) < 1e-10
    triangle, columns = 4 * length * (length + 1) // 2, {"mlp": 12, "cnn_s:9": 9}
    widths = [columns[word] for word in data.assigned]
    for send, (up, down) in {"kernels": (True, True), "representations": (False, False), "cheaper": cheaper}.items():
        found = trained(replace(config, send=send), single)
        for t, record in enumerate(found.history):
            there = found.algorithm.config.sampler(5).draw(5, stream(0, "cohort", t)).tolist()
            each = [triangle if up else 4 * length * widths[k] for k in there]
            assert record.bytes_up == [sum(each)]
            assert record.bytes_down == [3 * (triangle if down else 4 * length * sum(widths))]
        total = found.bytes.total["setup"]
        assert total["down"] == [5 * length * 64]  # the images, a byte a pixel, once
        assert total["up"] == [sum(triangle if up else 4 * length * w for w in widths)]
        assert set(found.bytes.by_exchange) == {"alignment", "train"}
    assert sorted(cheaper) == sorted([length < 2 * 9, length < 2 * 54 - 1])  # as small as it can be


# --- the reference: weights, without oneself, normalised, other kernels


class Watched(HeteroSSFL):
    """Keeps what each client compared itself with."""

    def compared_with(self, local):
        found = super().compared_with(local)
        kept = self.__dict__.setdefault("kept", {})
        for r, k in enumerate(local.clients.tolist()):
            x = found[r]
            kept[k] = x if self.down_kernels else x @ x.T
        return found


def counted(k, normalise):
    if not normalise:
        return k
    h = torch.eye(len(k), dtype=k.dtype) - 1 / len(k)
    return h @ k @ h / (h @ k @ h).norm()


GIVEN = (0.5, 0.2, 0.05, 0.25, 0.0)


def expected_weights(word):
    if word == "uniform":
        return [0.2] * 5
    if word == "samples":
        return [n / 110 for n in SMALL.partitions[0].sizes.tolist()]  # 20 of the 130 are the alignment set
    if word == "resources":
        sizes = {w: sum(p.numel() for p in net.module.parameters()) for w, net in SMALL.encoders.items()}
        each = [sizes[w] for w in SMALL.assigned]
        return [n / sum(each) for n in each]
    return list(GIVEN)


@pytest.mark.parametrize("send", ["kernels", "representations", "cheaper"])
@pytest.mark.parametrize("normalise", [False, True])
@pytest.mark.parametrize("exclude_self", [False, True])
@pytest.mark.parametrize("weights", ["uniform", "samples", "resources", "given"])
def test_the_mean_kernel_by_hand(weights, exclude_self, normalise, send):
    word = ",".join(map(str, GIVEN)) if weights == "given" else weights
    config = replace(PLAIN, weights=word, exclude_self=exclude_self, normalise=normalise, send=send, local_epochs=0)
    rounds = rounds_of(config, kind=Watched, total=1)
    kernels = [counted(a @ a.T, normalise) for a in (shown(rounds, SMALL, k) for k in range(5))]
    run(rounds)
    w = expected_weights(weights)
    assert sum(w) == pytest.approx(1, abs=1e-12)
    for k in range(5):
        mean = sum(w[j] * kernels[j] for j in range(5) if not (exclude_self and j == k))
        found = rounds.algorithm.kept[k]
        assert float((found - mean).abs().max()) < 1e-11 * float(mean.abs().max())


@pytest.mark.parametrize("send", ["kernels", "representations"])
def test_a_client_that_says_the_same_of_every_image_adds_no_rounding_noise(send):
    config = replace(PLAIN, normalise=True, send=send, local_epochs=0)
    rounds = rounds_of(config, kind=Watched, total=1)
    theta = rounds.clients["mlp"]["theta"]
    theta["predictor.second.weight"][:, 0] *= 1e-16  # beside the bias: a few last bits that differ
    theta["predictor.second.bias"][:, 0] = 0.1
    kernels = [counted(a @ a.T, True) for a in (shown(rounds, SMALL, k) for k in range(1, 5))]
    mean = sum(kernels) / 5
    run(rounds)
    assert float((rounds.algorithm.kept[1] - mean).abs().max()) < 1e-11 * float(mean.abs().max())


def louder(rounds, factor, word="mlp"):
    """The first client's predictor made to speak louder: its representations, and nothing else about them."""
    for name in ("predictor.second.weight", "predictor.second.bias"):
        rounds.clients[word]["theta"][name][:, 0] *= factor
    return rounds


# --- edges


@pytest.mark.parametrize("send", ["kernels", "representations"])
@pytest.mark.parametrize(
    ("what", "layer"), [("predictor", "predictor"), ("projector", "projector"), ("all", "predictor")]
)
def test_constant_representations_are_finite(what, layer, send):
    """A client, or all, whose last layer is zero: CKA is 0 there, with gradient 0."""
    config, results = replace(PLAIN, layer=layer, send=send), []
    for mu in (0.7, 0.0):
        rounds = rounds_of(replace(config, mu=mu), total=1)
        for state in rounds.clients.values():
            part = "projector" if what == "projector" else "predictor"
            state["theta"][f"{part}.second.weight"][:, : None if what == "all" else 1] = 0.0
            for name in (
                "projector.second.bias",
                "predictor.second.bias",
            ):  # a vector of rounding noise has a direction
                state["theta"][name][:, : None if what == "all" else 1] = 0.3
        run(rounds)
        assert all(bool(x.isfinite().all()) for _, x in leaves(rounds.clients)) and rounds.stopped is None
        assert math.isfinite(rounds.history[0].trace["loss"][0])
        results.append(rounds.clients)
    assert (gap(*map(trainable, results)) < 1e-3) == (what == "all")  # nothing to align with, at first


@pytest.mark.parametrize("send", ["kernels", "cheaper"])
def test_kernels_that_overflow_end_the_run_and_are_no_error(send):
    """Representations of 1e9 are numbers to work with in float32, their kernels are not: the client's, the server's."""
    rounds = rounds_of(replace(PLAIN, mu=0.0, send=send, rounds=3, lr=0.0), problem(dtype=torch.float32))
    rounds.step()
    assert rounds.algorithm.down_kernels and rounds.algorithm.up_kernels == (send == "kernels")
    louder(rounds, 1e9)
    run(rounds)
    assert rounds.diverged and "representations grew without bound" in rounds.stopped
    assert len(rounds.history) == (1 if send == "kernels" else 2)
