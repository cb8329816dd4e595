"""Tables across models, with networks whose answers are known beforehand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import binomtest
from torch import nn

from experiments.adversarial.attack import distortion
from experiments.adversarial.tables import Table, amplify, arms_of, distortions, half_transfer, transfer, wilson
from experiments.measurement import Run, Runs
from models.mlp import Mlp


def reader(pixel: int) -> Mlp:
    """Answers 1 when one pixel of four is above one half."""
    model = Mlp(4, [], 2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.layers[0].weight[1, pixel] = 2.0
        model.layers[0].bias[1] = -1.0
    return model


def run(arm: str, pixel: int, half: float = 0.0, distances=(0.1, 0.1, 0.1), changes: float = 0.2) -> Run:
    """Three black images of label 0, whose pixel ``pixel`` was raised to 0.4 + ``changes``."""
    adversarial = np.zeros((3, 4), dtype=np.float32)
    adversarial[:, pixel] = 0.4 + changes
    model = reader(pixel)
    return Run(arm, 0, {
        "half": half, "widths": np.array([4.0, 2.0]), "images": np.zeros((3, 4), dtype=np.float32),
        "weights": nn.utils.parameters_to_vector(model.parameters()).detach().numpy(),
        "labels": np.zeros(3, dtype=np.int64), "adversarial": adversarial,
        "distances": np.array(distances), "fgsm_distances": np.array([0.2, np.nan, 0.4]),
    })


WHOLE = Runs([run("b", 1), run("a", 0), run("c", 1)])


def test_a_cell_is_the_share_that_the_fed_model_misclassifies_and_the_diagonal_is_one():
    table = transfer(WHOLE, noise=[0.0, 0.1])
    assert arms_of(WHOLE, halves=False) == ["a", "b", "c"]
    np.testing.assert_array_equal(table["transfer"], [[1, 0, 0], [0, 1, 1], [0, 1, 1]])
    assert table["transfer_mean"] == pytest.approx(2 / 6)
    np.testing.assert_array_equal(table["noise"], np.zeros((2, 3)))
    assert table["noise_rms"][0] == 0 and 0 < table["noise_rms"][1] < 0.1, "clamping halves noise on black images"


def test_only_images_that_all_models_classify_and_lose_are_counted():
    runs = Runs([run("a", 0, distances=(0.1, np.nan, 0.3)), run("b", 1, distances=(0.2, 0.2, 0.6))])
    values = distortions(runs, deep="a", weak="b", strong="missing", coded="a")
    assert values["shared_images"] == 2
    assert values["distortion_deep"] == pytest.approx(0.2) and values["distortion_weak"] == pytest.approx(0.4)
    assert math.isnan(values["distortion_strong"])
    np.testing.assert_allclose(values["distortions"], [[0.2, 0.4], [0.3, 0.3]])


def test_halves_have_a_table_of_their_own_with_amplified_examples():
    runs = Runs([*WHOLE, run("p1", 0, half=1.0), run("p2", 2, half=2.0)])
    values = half_transfer(runs, made_for="p1", fed_to="p2", rms=0.1)
    np.testing.assert_array_equal(values["half_transfer"], np.eye(2))
    np.testing.assert_array_equal(values["half_amplified"], np.zeros((2, 2)))  # 0.6 / 2 = rms 0.3 is shrunk to 0.1
    assert values["amplified_rms"] == pytest.approx(0.1, rel=1e-5)
    assert values["other_half_error"] == 0 and values["other_half_noise"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("measure, settings", [
    (distortions, {"deep": "a", "weak": "b", "strong": "c", "coded": "d"}), (transfer, {}),
    (half_transfer, {"made_for": "p1", "fed_to": "p2"}),
])
def test_without_the_models_every_declared_value_is_not_a_number(measure, settings):
    for runs in (Runs([]), Runs([run("p1", 0, half=1.0)])):
        values = measure(runs, **settings)
        assert set(values) == set(measure.metric_names) and all(math.isnan(value) for value in values.values())


def test_amplified_changes_have_the_wanted_size_before_clamping_and_less_after():
    generator = torch.Generator().manual_seed(0)
    clean = torch.rand(50, 16, generator=generator)
    changed = (clean + 0.01 * torch.randn(50, 16, generator=generator)).clamp(0, 1)
    larger = amplify(clean, changed, 0.1)
    sizes = distortion(clean, larger)
    assert larger.min() >= 0 and larger.max() <= 1
    assert (sizes < 0.1 + 1e-6).all() and sizes.min() < 0.099
    grey = torch.full((5, 16), 0.5)
    sizes = distortion(grey, amplify(grey, grey + 0.01 * clean[:5], 0.1))
    torch.testing.assert_close(sizes.float(), torch.full((5,), 0.1))


def test_matched_noise_has_each_images_wanted_size_after_clamping():
    clean = torch.rand(3, 40, generator=torch.Generator().manual_seed(0))
    table = Table((), (), np.arange(3), clean, torch.zeros(3), seed=0)
    sizes = torch.tensor([0.05, 0.1, 0.2], dtype=torch.float64)
    noise = table.matched_noise(sizes, 4, 0)
    torch.testing.assert_close(distortion(clean.repeat(4, 1), noise), sizes.repeat(4), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("hits, count", [(0, 25), (7, 50), (160, 160)])
def test_intervals_are_wilsons(hits, count):
    low, high = wilson(np.array(hits / count), count)
    reference = binomtest(hits, count).proportion_ci(method="wilson")
    np.testing.assert_allclose([low, high], reference, atol=1e-6)
