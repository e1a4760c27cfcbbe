"""Chapter 6 compares papers: with the same settings and seed each problem gives the same images to the same clients."""

import pytest
import torch

from fedbook.papers.dp2_fedsam.problem import PersonalSettings, personal_problem
from fedbook.papers.fedavg.problem import ImageSettings, image_problem
from fedbook.papers.fedsc.problem import PretrainingSettings, pretraining_problem
from fedbook.papers.hetero_ssfl.problem import AlignedSettings, aligned_problem

SAME = {"partition": "dirichlet", "alpha": 0.3, "clients": 6, "train_samples": 300, "test_samples": 90}


@pytest.mark.parametrize("judge", ["test", "validation"])
def test_every_paper_splits_the_same_images_alike(judge):
    same, seeds = SAME | {"judge": judge}, (0, 3)
    one = image_problem("digits", ImageSettings(**same), seeds)
    personal = personal_problem("digits", PersonalSettings(**same, judged_on="common"), seeds)
    views = {"model": "mlp", "views": "digits"}
    encoders = pretraining_problem("digits", PretrainingSettings(**same, **views), seeds)
    aligned = aligned_problem("digits", AlignedSettings(**same, **views, alignment_source="noise"), seeds)
    for other in (encoders, aligned):
        assert other.partitions == one.partitions
    assert personal.train == one.partitions
    assert torch.equal(personal.x, one.x) and torch.equal(personal.test_x, one.test_x)
    assert torch.equal(encoders.x, aligned.x) and torch.equal(encoders.test_x, aligned.test_x)
    for other in (personal, encoders, aligned):
        assert torch.equal(other.y, one.y) and torch.equal(other.test_y, one.test_y)


def test_clients_are_judged_on_common_images_in_their_own_mixture_and_on_all():
    task = personal_problem("digits", PersonalSettings(**SAME, judged_on="common"), (0, 3))
    own, everything = [], []
    for slot in range(2):
        clients = []
        for k, rows in enumerate(task.train[slot].lists()):
            right = (task.test_y + k) % 7 < 4 + slot  # what the model below answers, in place of the label
            by_class = [right[task.test_y == c].double().mean() for c in range(10)]
            held = torch.bincount(task.y[rows], minlength=10).double()
            clients.append(sum(held[c] / len(rows) * by_class[c] for c in range(10)))
            everything.append(right.double().mean())
        own.append(torch.stack(clients).mean())

    def logits(server, clients, slot, ids, x):
        assert x.shape == (len(ids), *task.test_x.shape)
        right = (task.test_y + ids[:, None]) % 7 < 4 + slot
        answer = torch.where(right, task.test_y, (task.test_y + 1) % 10)
        return torch.nn.functional.one_hot(answer, 10).float()

    metrics = task.evaluation(logits, models=4)({}, {})
    assert metrics["accuracy"].tolist() == pytest.approx([float(v) for v in own])
    assert metrics["accuracy_all"].tolist() == pytest.approx(torch.stack(everything).view(2, 6).mean(1).tolist())
