"""The image problem: settings, held-out images, one split a seed, and personal accuracy by brute force."""

import pytest
import torch

from fedbook import data
from fedbook.federation.tree import tree_map
from fedbook.learning import problems
from fedbook.learning.models import stack
from fedbook.papers.fedavg.problem import ImageSettings, image_problem
from fedbook.randomness import stream

SMALL = {"clients": 6, "model": "linear"}


def rows_of(x):
    return {row.tobytes() for row in x.flatten(1).numpy()}


@pytest.mark.parametrize(
    ("make", "word"),
    [
        (lambda: image_problem("letters"), "name"),
        (lambda: image_problem("digits", {"clients": 3}), "settings"),
        (lambda: image_problem("digits", ImageSettings(**SMALL), seeds=(-1,)), "seed"),
        (lambda: image_problem("digits", ImageSettings(**SMALL, train_samples=1439)), "train_samples"),
        (lambda: image_problem("digits", ImageSettings(**SMALL, test_samples=360)), "test_samples"),
        (lambda: image_problem("digits", ImageSettings(**SMALL, train_samples=5)), "num_clients|train|clients"),
        (lambda: image_problem("digits", ImageSettings(**SMALL, classes_per_client=11)), "classes_per_client"),
    ],
)
def test_impossible_problems_are_refused_by_name(make, word):
    with pytest.raises((TypeError, ValueError), match=word):
        make()


def test_pixels_are_scaled_by_the_training_pixels_with_any_number_of_threads():
    problem = image_problem("digits", ImageSettings(**SMALL), dtype=torch.float64)
    assert abs(float(problem.x.mean())) < 1e-12 and abs(float(problem.x.std()) - 1) < 1e-12
    raw = data.load("digits", dtype=torch.uint8)
    mean, deviation = raw.train_x.double().mean(), raw.train_x.double().std()
    assert torch.allclose(problem.test_x, (raw.test_x.double() - mean) / deviation, rtol=0, atol=1e-12)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        assert torch.equal(image_problem("digits", ImageSettings(**SMALL), dtype=torch.float64).x, problem.x)
    finally:
        torch.set_num_threads(before)


def test_validation_images_are_a_tenth_of_the_training_images_and_no_others():
    raw = data.load("digits", dtype=torch.uint8)
    judged = image_problem("digits", ImageSettings(**SMALL, judge="validation"))
    assert len(judged.test_y) == 143 and len(judged.y) == 1438 - 143
    mean, deviation = (float(v) for v in problems.pixel_moments(raw.train_x))
    assert (mean, deviation) != (0.0, 1.0)
    train, test = rows_of(judged.x), rows_of(judged.test_x)
    assert not train & test and len(train) + len(test) == len(rows_of(torch.cat([judged.x, judged.test_x])))
    raw_test = rows_of(raw.test_x)  # no held-out image is a test image: compare the pixels themselves
    scale, shift = judged.x.max() - judged.x.min(), judged.x.min()
    back = ((torch.cat([judged.x, judged.test_x]) - shift) / scale * int(raw.train_x.max())).round().to(torch.uint8)
    assert rows_of(back) == rows_of(raw.train_x) and not rows_of(back) & raw_test
    again = image_problem("digits", ImageSettings(**SMALL, judge="validation"), seeds=(5,))
    assert torch.equal(again.test_x, judged.test_x)  # held out alike for every seed
    assert len(image_problem("digits", ImageSettings(**SMALL, judge="validation", test_samples=359)).test_y) == 143


def test_each_seed_has_its_own_split_of_the_same_images():
    problem = image_problem("digits", ImageSettings(**SMALL, train_samples=300, test_samples=50), seeds=(3, 4))
    alone = image_problem("digits", ImageSettings(**SMALL, train_samples=300, test_samples=50), seeds=(4,))
    assert (
        torch.equal(problem.x, alone.x)
        and torch.equal(problem.test_x, alone.test_x)
        and problem.x.shape == (300, 1, 8, 8)
    )
    assert problem.partitions[1] == alone.partitions[0] and problem.partitions[0] != problem.partitions[1]
    assert problem.federation().splits == 2 and problem.federation(pooled=True).sizes.tolist() == [[300], [300]]
    counts = problem.label_counts()
    assert counts.shape == (2, 6, 10)
    for s, partition in enumerate(problem.partitions):
        partition.check(300, complete=True)
        for k in range(6):
            assert counts[s, k].tolist() == [int((problem.y[partition.client(k)] == c).sum()) for c in range(10)]


def models(problem, seeds, clients):
    theta = stack([problem.model.init(stream(s, "init", client=k)) for s in range(seeds) for k in range(clients)])
    return tree_map(lambda x: x.view(seeds, clients, *x.shape[1:]), theta)


@pytest.mark.parametrize("test_samples", [0, 12])  # among twelve images some class is missing
def test_personal_accuracy_is_the_brute_force_over_clients(test_samples):
    problem = image_problem("digits", ImageSettings(**SMALL, test_samples=test_samples), seeds=(0, 1))
    theta = models(problem, 2, 6)
    found = problem.evaluation()({}, {"all": {"theta": theta}})
    present = problem.test_y.bincount(minlength=10) > 0
    assert bool(present.all()) == (test_samples == 0)
    for s, partition in enumerate(problem.partitions):
        own, everything, losses = [], [], []
        for k in range(6):
            logits = problem.model.apply(tree_map(lambda x, s=s, k=k: x[s, k], theta), problem.test_x)
            right = (logits.argmax(1) == problem.test_y).double()
            labels = [int(c) for c in problem.y[partition.client(k)] if present[c]]  # its mixture, class by class
            if labels:
                own.append(sum(float(right[problem.test_y == c].mean()) for c in labels) / len(labels))
            everything.append(float(right.mean()))
            losses.append(float(torch.nn.functional.cross_entropy(logits, problem.test_y)))
        assert float(found["accuracy"][s]) == pytest.approx(sum(own) / len(own), abs=1e-12)
        assert float(found["accuracy_all"][s]) == pytest.approx(sum(everything) / 6, abs=1e-12)
        assert float(found["loss"][s]) == pytest.approx(sum(losses) / 6, rel=1e-5)


def test_global_accuracy_is_that_of_the_server_and_memory_chunks_do_not_show():
    problem = image_problem("digits", ImageSettings(**SMALL), seeds=(0, 1))
    theta = tree_map(lambda x: x[:, 0], models(problem, 2, 1))
    found = problem.evaluation()({"theta": theta}, {})
    hits, losses = problem._judge(theta, chunk=7)
    assert torch.equal(hits.double().mean(1), found["accuracy"]) and torch.allclose(
        losses.double().mean(1), found["loss"]
    )
    for s in range(2):
        logits = problem.model.apply(tree_map(lambda x, s=s: x[s], theta), problem.test_x)
        assert float(found["accuracy"][s]) == float((logits.argmax(1) == problem.test_y).double().mean())
