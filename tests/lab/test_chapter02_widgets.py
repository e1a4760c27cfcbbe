"""Chapter 2's widgets: gradients against autograd, bytes against the ledger, every control at both ends."""

import re

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from torch.func import grad

from fedbook.experiment import plan
from fedbook.lab import chapter02_tradeoff as tradeoff
from fedbook.lab import chapter02_widgets as widgets
from fedbook.lab.chapter02_paper import WEIGHTS
from fedbook.lab.controls import choice, log_slider, slider
from fedbook.lab.explore import Explorer
from fedbook.learning.encoders import encoder
from fedbook.learning.online import byol_loss, online
from fedbook.papers.hetero_ssfl import PAPER
from fedbook.papers.hetero_ssfl.cka import ceiling, gram, gram_cka

MU = {"mu": 0.5, "width": 4, "sign": "distance"}
SET = {"images": 300.0, "width": 32, "clients": 5, "architecture": "cnn_m"}
SETTINGS = PAPER.defaults() | dict(PAPER.profiles["quick"])


def cell(method, few, **varied):
    runs = [{"seed": i, "metrics": {"probe_few": v, "alignment_test": v / 2, "self_loss": 2 - v}}
            for i, v in enumerate((few - 0.1, few, few + 0.1))]  # fmt: skip
    return {"method": method, "varied": varied, "tuned": {}, "runs": runs}


def table(*cells):
    return {"problem": "digits", "cells": list(cells), "settings": SETTINGS}


BY_MU = table(*(cell("hetero-ssfl", few, mu=mu) for mu, few in ((8.0, 0.6), (0.0, 0.7), (0.5, 0.8))))
BY_SIZE = table(*(cell(m, few, alignment_samples=n, alignment_source="holdout")
                  for m, few in (("hetero-ssfl", 0.7), ("local-ssl-plus-rad", 0.8)) for n in (30, 300)),
                cell("hetero-ssfl", 0.1, alignment_samples=300, alignment_source="noise"))  # fmt: skip


@pytest.fixture(scope="module")
def draw_mu():
    return widgets.mu_drawer(BY_MU)


@pytest.fixture(scope="module")
def draw_set():
    return widgets.set_drawer(BY_SIZE)


# --- mu


@pytest.mark.parametrize("sign", ["distance", "paper"])
def test_steps_descend_the_written_loss(sign):
    """The closed forms against autograd of the package's losses, three values of mu at once."""
    client, others = tradeoff.neighbours(0)
    mus = torch.tensor([0.0, 0.5, 20.0], dtype=torch.float64)
    start, aims = client.drawn(4)
    path = tradeoff.descend(client, 4, mus, others, sign)
    for i, mu in enumerate(mus.tolist()):

        def loss(w, mu=mu):
            c = gram_cka(gram(torch.tanh(client.images @ w)), others)
            own = byol_loss(torch.tanh(client.first @ w), aims)
            return own + mu * (1 - c if sign == "distance" else c), (own, c)

        w = start
        for t in range(tradeoff.STEPS + 1):
            slope, (own, c) = grad(loss, has_aux=True)(w)
            if t in (0, 1, 10, tradeoff.STEPS):
                assert float(path.loss[t, i]) == pytest.approx(float(own), rel=1e-8)
                assert float(path.similarity[t, i]) == pytest.approx(float(c), rel=1e-8)
            if t < tradeoff.STEPS:
                w = w - tradeoff.LR / (1 + mu) * slope
        assert torch.allclose(path.last[i], w, atol=1e-8)


def test_what_the_picture_is_for():
    """More mu: more alignment and more own loss; the printed sign drives apart; nobody passes the ceiling."""
    client, others = tradeoff.neighbours(0)
    mus = torch.tensor([0.0, 0.3, 3.0, 100.0], dtype=torch.float64)
    for width in widgets.WIDTHS:
        path = tradeoff.descend(client, width, mus, others)
        end = path.similarity[-1]
        assert float(end[0]) + 0.1 < float(end[1]) < float(end[2]) and float(path.loss[-1, 3]) > float(path.loss[-1, 0])
        assert float(path.similarity.max()) <= float(ceiling(others, width)) + 1e-9
        printed = tradeoff.descend(client, width, mus, others, "paper").similarity[-1]
        assert float(printed[2]) < float(printed[0]) - 0.1


def test_the_others_trained_alone_on_other_digits():
    client, others = tradeoff.neighbours(0)
    assert others.shape == (tradeoff.IMAGES,) * 2 and client.first.shape == (tradeoff.PRIVATE, 64)
    assert torch.linalg.eigvalsh(others).min() > -1e-9 and client.first.dtype == others.dtype == torch.float64
    assert not torch.equal(client.first, client.other)


def test_mu_picture(axes, draw_mu):
    sentence = draw_mu(axes, **MU)
    client, others = tradeoff.neighbours(0)
    path = tradeoff.descend(client, 4, torch.tensor([0.5], dtype=torch.float64), others)
    lines = {line.get_label(): line.get_xydata() for line in axes[0].lines}
    assert np.allclose(lines["50 steps at this μ"], torch.stack([path.similarity[:, 0], path.loss[:, 0]], 1))
    assert len(lines["where other μ end"]) == len(widgets.FRONT)
    assert lines["most that width d can"][0, 0] == pytest.approx(float(ceiling(others, 4)))
    told = [float(v) for v in re.search(r"from (\S+) to (\S+) and CKA from (\S+) to (\S+) ", sentence).groups()]
    expected = (path.loss[0], path.loss[-1], path.similarity[0], path.similarity[-1])
    assert told == [float(f"{float(v):.2f}") for v in expected]
    assert sentence.endswith("The real run with μ = 0.5: CKA 0.40, own loss 1.20, 80.0 % with 5 labels a class.")
    texts = {text.get_text(): text.get_fontweight() for text in axes[1].texts}
    assert texts == {"0: 70.0 %": "normal", "0.5: 80.0 %": "bold", "8: 60.0 %": "normal"}
    assert "real run with μ = 0:" in draw_mu(axes, **(MU | {"mu": 0.02}))
    assert "real run with μ = 8:" in draw_mu(axes, **(MU | {"mu": 50.0}))


def test_without_tables_one_panel():
    ax = Figure().subplots()
    assert "real run" not in widgets.mu_drawer()(ax, **MU) and "real runs" not in widgets.set_drawer()(ax, **SET)


# --- the alignment set


@pytest.mark.parametrize(
    ("images", "width", "clients", "kinds"),
    [(24, 4, 3, ("representations", "factor")), (24, 6, 4, ("representations", "kernel")), (10, 8, 3, ("kernel",) * 2)],
)
def test_bytes_are_the_ledgers(images, width, clients, kinds):
    """A round of Hetero-SSFL with ``send=cheaper``, and the alignment set in the set-up."""
    changes = {"architectures": "mlp", "width": width, "clients": clients, "alignment_samples": images,
               "alignment_batch": 0, "classes_per_client": 4, "train_samples": 60, "test_samples": 20,
               "local_epochs": 1, "lr": 0.1, "model": "mlp"}  # fmt: skip
    run = plan(PAPER, "hetero-ssfl", "digits", changes=changes, device="cpu").rounds(every=100)
    run.evaluate = None
    record, found = run.step(), widgets.exchanged(images, width, clients, "mlp")
    assert record.bytes_up == [clients * found.up] and record.bytes_down == [clients * found.down]
    assert (found.up, found.down) == tuple(getattr(found, kind) for kind in kinds)
    totals = run.bytes.total
    setup = sum(totals[part]["down"][0] for part in totals) - record.bytes_down[0]
    assert setup == clients * found.once
    weights = plan(PAPER, "fedbyol", "digits", changes=changes, device="cpu").rounds(every=100)
    weights.evaluate = None
    record = weights.step()
    assert record.bytes_up == record.bytes_down == [clients * found.weights]


def test_weights_are_the_networks():
    for word in ("cnn_s", "cnn_m", "mlp"):
        for width in (5, 32):
            net = online(encoder(word, (1, 8, 8), width, "batch_norm"))
            parts = (net.encoder.module, net.predictor.module)
            count = sum(t.numel() for part in parts for t in part.state_dict().values())
            assert widgets.weight_count(word, width) == count
    for word, count in WEIGHTS.items():
        assert widgets.BACKBONES[word] == (count, 512)
    assert encoder("resnet18", (3, 32, 32), 8).feature_width == 512


def test_set_picture(axes, draw_set):
    sentence = draw_set(axes, **SET)
    assert "L = 300, d = 32, N = 5: 38.4 kB up (representations) and 180.6 kB down (the kernel)" in sentence
    assert (
        "weights of cnn_m are 348.8 kB each way, 3.19 times as much in all; the images themselves 19.2 kB" in sentence
    )
    assert sentence.endswith(
        "Nearest real runs: Hetero-SSFL 70.0 at L = 300, local SSL + alignment set 80.0 at L = 300."
    )
    lines = {line.get_label(): line.get_xydata() for line in axes[0].lines}
    assert lines["sent up"].tolist() == [[300, 38_400]] and lines["sent down"].tolist() == [[300, 180_600]]
    at = lines["kernel, either way"]
    assert at[-1].tolist() == [10_000, 4 * 10_000 * 10_001 / 2]
    assert lines["all representations, down"][0].tolist() == [10, 4 * 10 * 5 * 32]
    assert "at L = 30," in draw_set(axes, **(SET | {"images": 50.0}))
    assert "up (the kernel) and 1.6 kB down (the kernel)" in draw_set(axes, **(SET | {"images": 28.0}))


# --- every corner of every control


def test_sweeps(draw_mu, draw_set):
    first = Explorer(
        draw_mu, (1, 2, (10.5, 4.2)), None,
        {"mu": log_slider("μ  weight of alignment", 0.01, 100.0, 0.5), "width": choice("d  width", widgets.WIDTHS, 4),
         "sign": choice("loss", tradeoff.SIGNS, "distance")}, None,
    )  # fmt: skip
    second = Explorer(
        draw_set, (1, 2, (10.5, 4.2)), None,
        {"images": log_slider("L  alignment images", 10, 10_000, 300), "width": choice("d  width", (8, 32, 512), 32),
         "clients": slider("K  clients", 2, 100, 1, 5),
         "architecture": choice("weights of", list(widgets.BACKBONES), "cnn_m")}, None,
    )  # fmt: skip
    assert len(first.sweep()) == 8 and len(second.sweep()) == 13
