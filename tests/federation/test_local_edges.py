"""Local work at its edges: clients without a step, draws beside the batches, and chunks through a whole run."""

import pytest
import torch

from fedbook.federation import Rows
from fedbook.federation.local import Batches, Step, local_steps
from fedbook.randomness import normal, stream

ADD = Step(
    direction=lambda carry, batch: (batch["e"] * batch["weight"].sum(), batch["e"]),
    update=lambda carry, d: carry.add_(d),
)
STEPS = [2, 0, 3, 1, 0]


def edge_batches():
    real = torch.zeros(3, 5, 2, dtype=torch.bool)
    for r, n in enumerate(STEPS):
        real[:n, r] = True
    return Batches(torch.zeros(3, 5, 2, dtype=torch.long), real, {"e": normal((3, 5), stream(0, "e"))})


@pytest.mark.parametrize("how", ["vmap", "loop"])
@pytest.mark.parametrize("chunk", [1, 2, None])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_clients_without_steps_stay_and_others_take_their_own_draws(how, chunk, dtype):
    batches = edge_batches()
    data = Rows({"x": torch.zeros(1, dtype=dtype)}, torch.zeros(5, 1).long(), torch.ones(5).long())
    start = torch.arange(5.0, dtype=dtype)
    batches = Batches(batches.index, batches.real, {"e": batches.extra["e"].to(dtype)})
    out, loss = local_steps(ADD, start, data, batches, how=how, chunk=chunk)
    assert start.tolist() == [0, 1, 2, 3, 4] and out.dtype == loss.dtype == dtype
    for r, n in enumerate(STEPS):
        own = batches.extra["e"][:n, r]
        assert torch.allclose(out[r], r + 2 * own.sum(), rtol=0, atol=1e-6)
        assert torch.allclose(loss[r], own.mean() if n else torch.zeros((), dtype=dtype), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["weight", "e"])
def test_a_name_that_a_batch_has_already_is_refused(name):
    batches, rows = edge_batches(), {"x": torch.zeros(1), name: torch.zeros(1)}
    with pytest.raises(ValueError, match=f"samples: got .'{name}'"):
        local_steps(ADD, torch.zeros(5), Rows(rows, torch.zeros(5, 1).long(), torch.ones(5).long()), batches)


def test_nobody_at_all():
    none = Batches(torch.zeros(3, 0, 2).long(), torch.zeros(3, 0, 2).bool())
    for how in ("vmap", "loop"):
        out, loss = local_steps(
            ADD, torch.zeros(0, 4), Rows({"x": torch.zeros(1)}, torch.zeros(0, 1), torch.zeros(0)), none, how=how
        )
        assert out.shape == (0, 4) and loss.shape == (0,)
