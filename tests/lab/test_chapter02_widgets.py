"""Chapter 2's widgets: gradients against autograd, bytes against the ledger, every control at both ends."""

import pytest
import torch
from torch.func import grad

from fedbook.experiment import plan
from fedbook.lab import chapter02_tradeoff as tradeoff
from fedbook.lab import chapter02_widgets as widgets
from fedbook.learning.online import byol_loss
from fedbook.papers.hetero_ssfl import PAPER
from fedbook.papers.hetero_ssfl.cka import gram, gram_cka

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
