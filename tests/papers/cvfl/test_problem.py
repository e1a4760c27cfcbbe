"""Vertical problems: who holds what, which samples are judged, what is measured."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score
from torch.func import functional_call

from fedbook import data
from fedbook.federation import Rounds
from fedbook.federation.loop import run
from fedbook.papers.cvfl import CVFL, Config
from fedbook.papers.cvfl.problem import PROBLEMS, VerticalSettings, f1, vertical_problem


def test_four_parties_hold_the_quadrants_of_each_image():
    problem = vertical_problem("digits", VerticalSettings())
    assert problem.parts["parties"].shape == (4, 1438, 1, 4, 4)
    images = data.load("digits", dtype=torch.uint8)
    top = torch.cat([problem.parts["parties"][0], problem.parts["parties"][1]], -1)
    whole = torch.cat([top, torch.cat([problem.parts["parties"][2], problem.parts["parties"][3]], -1)], -2)
    pixels = images.train_x.float()
    assert torch.allclose(whole, (pixels - pixels.mean()) / pixels.std(), atol=1e-5)
    assert torch.equal(problem.y, images.train_y)


def test_every_party_has_the_same_sample_in_the_same_row():
    problem = vertical_problem("digits", VerticalSettings(parties=3))
    for labels in (True, False):
        federation = problem.federation(labels)
        for word, group in federation.groups.items():
            for member in range(len(group.ids)):
                rows = group.table[0, member]
                assert torch.equal(group.samples["x"][rows], problem.parts[word][member])
                assert not labels or torch.equal(group.samples["y"][rows], problem.y)
            assert labels == ("y" in group.samples)
    pooled = problem.pooled().groups["all"]
    for word, part in problem.parts.items():
        assert torch.equal(pooled.samples[f"x/{word}"].movedim(1, 0), part)


def test_one_party_alone_keeps_its_own_features_and_nothing_else():
    together = vertical_problem("breast_cancer", VerticalSettings(parties=4))  # 8, 8, 7 and 7 columns
    for m in (1, 4):
        alone = vertical_problem("breast_cancer", VerticalSettings(parties=4, only_party=m))
        [(part, test_part)] = zip(alone.parts.values(), alone.test_parts.values(), strict=True)
        [whole] = [x for word, x in together.parts.items() if m - 1 in together.members[word]]
        [judged] = [x for word, x in together.test_parts.items() if m - 1 in together.members[word]]
        row = (m - 1) % 2
        assert torch.equal(part, whole[row : row + 1]) and torch.equal(test_part, judged[row : row + 1])
        rounds = Rounds(CVFL(Config(rounds=2, batch_size=20), alone, "central"), alone.pooled(), 2, seeds=[0, 1],
                        evaluate=alone.evaluation())  # fmt: skip
        assert len(run(rounds).history[-1].metrics["accuracy"]) == 2
    with pytest.raises(ValueError, match=r"only_party: got 5.* in \[1, 4\]"):
        vertical_problem("digits", VerticalSettings(only_party=5))


def test_held_out_samples_judge_instead_of_the_test_samples():
    test, held = (vertical_problem("digits", VerticalSettings(judge=word)) for word in ("test", "validation"))
    assert len(held.y) + len(held.test_y) == len(test.y)
    for name in ("series", "solids"):  # which are made in the size that is asked for
        sizes = {"train_samples": 40, "test_samples": 20, "tower": "linear"}
        made = vertical_problem(name, VerticalSettings(judge="validation", **sizes))
        assert (len(made.y), len(made.test_y)) == (36, 4)
    few = vertical_problem("digits", VerticalSettings(train_samples=100, test_samples=50))
    assert (len(few.y), len(few.test_y)) == (100, 50)


def test_the_evaluation_is_the_joint_model_on_test_samples():
    problem = vertical_problem("breast_cancer", VerticalSettings(parties=4, embedding=5), dtype=torch.float64)
    algorithm = CVFL(Config(rounds=3, batch_size=20, lr=0.5), problem)
    rounds = run(Rounds(algorithm, problem.federation(), 3, seeds=[0, 1], evaluate=problem.evaluation(chunk=7)))
    for slot in range(2):
        h = []
        for word, part in problem.test_parts.items():
            for m, x in enumerate(part):
                own = {k: v[slot, m] for k, v in rounds.clients[word]["theta"].items()}
                h.append(functional_call(problem.towers[word].module, own, (x,)))
        theta0 = {k: v[slot] for k, v in rounds.server["theta0"].items()}
        logits = torch.cat(h, 1) @ theta0["0.weight"].T + theta0["0.bias"]
        found = {name: values[slot] for name, values in rounds.history[-1].metrics.items()}
        assert found["accuracy"] == (logits.argmax(1) == problem.test_y).double().mean()
        assert abs(found["loss"] - torch.nn.functional.cross_entropy(logits, problem.test_y)) < 1e-12
        assert abs(found["f1"] - f1(logits.argmax(1), problem.test_y)) < 1e-12


def test_problems_that_do_not_fit_say_why():
    with pytest.raises(ValueError, match="problem"):
        vertical_problem("imagenet")
    with pytest.raises(TypeError, match="settings"):
        vertical_problem("digits", {"parties": 4})
    with pytest.raises(ValueError, match="embedding"):
        vertical_problem("digits", VerticalSettings(fusion="logits"))
    with pytest.raises(ValueError, match="parties: got 9"):
        vertical_problem("digits", VerticalSettings(parties=9))
    with pytest.raises(ValueError, match="train_samples"):
        vertical_problem("digits", VerticalSettings(train_samples=10_000))
    assert all(isinstance(words, str) and words for words in PROBLEMS.values())


@settings(max_examples=40)
@given(st.integers(1, 40), st.sampled_from([0.0, 0.1, 0.5, 1.0]), st.sampled_from([0.0, 0.2, 1.0]), st.integers(0, 99))
def test_f1_is_scikit_learn_s(count, share, positive, seed):
    rng = np.random.default_rng(seed)
    predicted = torch.from_numpy((rng.random((2, 3, count)) < share).astype(np.int64))
    truth = torch.from_numpy((rng.random((2, 3, count)) < positive).astype(np.int64))
    scores = f1(predicted, truth)
    for i, j in np.ndindex(2, 3):
        assert float(scores[i, j]) == pytest.approx(f1_score(truth[i, j], predicted[i, j], zero_division=0), rel=1e-12)
