"""Measurements of one model: what is kept for each candidate image, and how the scalars follow from it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from data.digits import Digits
from experiments.adversarial.attack import Adversarial, MinimalChange
from experiments.adversarial.measure import candidates, compare_free, compare_methods, examples, network
from experiments.adversarial.objective import Classifier
from experiments.adversarial.tables import rebuild
from experiments.measurement import Run, Trained
from models.mlp import Mlp

QUICK = MinimalChange(halvings=6)


def trained(hidden: list[int], seed: int = 0, half: str | None = None) -> Trained:
    """A network that knows its digits roughly: ten full-batch L-BFGS iterations."""
    data = Digits(batch_size=None, half=half)
    data.setup()
    torch.manual_seed(seed)
    model = Mlp(64, hidden, 10)
    solver = torch.optim.LBFGS(model.parameters(), max_iter=10, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data.train.x), data.train.y)
        loss.backward()
        return loss

    solver.step(closure)
    objective = Classifier(model, decay=[0.0] * len(model.layers))
    return Trained(objective.eval(), data, OmegaConf.create({"data": {"half": half}}), (seed,), lambda name: objective)


@pytest.fixture(scope="module")
def measured() -> tuple[Trained, dict]:
    job = trained([12])
    return job, examples(job, QUICK, images=30, free_images=5)


def test_the_network_is_rebuilt_from_its_measured_weights():
    job = trained([12, 7])
    values = network(job)
    images = job.data.test.x[:20]
    with torch.no_grad():
        torch.testing.assert_close(rebuild(Run("a", 0, values))(images), job.objective.model(images))
    wrong = (job.objective.model(job.data.test.x).argmax(1) != job.data.test.y).double().mean()
    assert values["error_test"] == pytest.approx(float(wrong)) and values["half"] == 0.0


def test_models_of_one_seed_see_the_same_candidates_and_other_seeds_others():
    same = [candidates(trained(hidden, half=half), 40)[1] for hidden, half in (([], None), ([5], "second"))]
    other = candidates(trained([], seed=1), 40)[1]
    assert torch.equal(*same) and not torch.equal(same[0], other)
    assert len(same[0].unique(dim=0)) > 35


def test_only_correctly_classified_candidates_are_attacked_and_the_others_are_left_clean(measured):
    job, values = measured
    answers = job.objective.model(torch.from_numpy(values["images"])).argmax(1).numpy()
    correct = answers == values["labels"]
    assert 0 < correct.sum() < 30, "the model was meant to make a mistake"
    np.testing.assert_array_equal(values["correct"].astype(bool), correct)
    np.testing.assert_array_equal(np.isnan(values["distances"]), ~correct)
    np.testing.assert_array_equal(values["adversarial"][~correct], values["images"][~correct])
    assert values["attacked"] == correct.sum()


def test_kept_examples_fool_the_model_and_have_the_kept_distortion(measured):
    job, values = measured
    correct = values["correct"].astype(bool)
    changed = values["adversarial"][correct]
    fooled = job.objective.model(torch.from_numpy(changed)).argmax(1).numpy() != values["labels"][correct]
    assert values["success"] == 1.0 and fooled.all()
    sizes = np.sqrt(np.mean((changed.astype(float) - values["images"][correct]) ** 2, axis=1))
    np.testing.assert_allclose(values["distances"][correct], sizes, rtol=1e-9)
    assert values["distortion"] == pytest.approx(sizes.mean())


def made(distances: list[float], found: list[bool], pixels: list[list[float]] | None = None) -> Adversarial:
    images = torch.tensor(pixels) if pixels else torch.zeros(len(found), 2)
    return Adversarial(images, torch.tensor(found), torch.tensor(distances, dtype=torch.float64))


def test_methods_are_compared_only_where_both_succeed():
    minimal, sign = made([1, 2, 9, 4], [True, True, False, True]), made([2, 1, 5, 7], [True, True, True, False])
    values = compare_methods(minimal, sign)
    assert values["success"] == values["fgsm_success"] == 0.75
    assert values["distortion"] == pytest.approx(7 / 3) and values["fgsm_distortion"] == pytest.approx(8 / 3)
    assert values["fgsm_ratio"] == pytest.approx((2 + 1) / (1 + 2)) and values["smaller_share"] == 0.5


def test_the_box_is_compared_over_the_images_attacked_without_it():
    boxed = made([3, 5, 100], [True, False, True])
    free = made([2, 1], [True, True], [[0.0, 1.0], [0.5, 1.001]])
    values = compare_free(boxed, free)
    assert values["box_distortion"] == 3 and values["free_distortion"] == 2 and values["box_cost"] == 1.5
    assert values["outside_share"] == 0.5
