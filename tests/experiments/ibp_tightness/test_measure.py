"""Accuracies of constructed and trained classifiers, in their order, and exact against local tightness."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.ibp_tightness.compare import embedding_gain, equal_regions
from experiments.ibp_tightness.measure import accuracy, certifies, exact_agreement, trained_tightness
from experiments.ibp_tightness.objective import Classifier
from experiments.measurement import Run, Runs
from models.box_mlp import BoxMlp

RADII = [1e-4, 0.05]


@pytest.fixture(scope="module")
def ibp(digits, fit, trained):
    learner = Classifier(BoxMlp(64, 16, 3, 10, init="shi", seeds=[0, 1]), "box", [0, 1], RADII, 150, balance=0.0,
                         lr=1e-2, curve_points=3)
    data = digits([0, 1])
    fit(learner, data, 150)
    return trained(learner, data, [0, 1], RADII)


def test_accuracies_stand_in_their_order(ibp):
    found = accuracy(ibp, images=60, intervals="crown", at_once=25)
    assert all(value.shape == (2, 2) and np.isfinite(value).all() for value in found.values())
    assert (found["clean"] >= found["attacked"]).all() and (found["attacked"] >= found["certified"]).all()
    assert (found["certified"] >= np.maximum(found["certified_ibp"], found["certified_crown"])).all()
    assert (found["certified"][:, 0] >= found["certified"][:, 1]).all()
    assert (found["clean"][:, 0] > 0.7).all() and (found["certified"][:, 1] > 0.1).all()


def test_measuring_in_parts_changes_nothing(ibp):
    whole, parts = (accuracy(ibp, images=30, intervals="ibp", at_once=count) for count in (30, 7))
    for name in whole:
        np.testing.assert_allclose(whole[name], parts[name], rtol=1e-6)


def test_clean_accuracy_is_that_of_the_network(ibp):
    found = accuracy(ibp, images=None, intervals="ibp", at_once=500)["clean"]
    x, labels = ibp.data.test.x, ibp.data.test.y
    for replica in range(4):
        right = ibp.objective.model(x.expand(4, -1, -1))[replica].argmax(1) == labels
        assert found.flatten()[replica] == pytest.approx(right.double().mean().item())


def test_tightness_comes_with_its_start_and_its_curve(ibp):
    found = trained_tightness(ibp)
    assert found["curve"].shape == (2, 2, 4) and np.array_equal(found["curve_steps"][0, 0], [0, 50, 100, 150])
    np.testing.assert_array_equal(found["curve"][..., 0], found["tau_start"])
    np.testing.assert_array_equal(found["curve"][..., -1], found["tau"])
    assert (found["tau"][:, 1] > 2 * found["tau_start"][:, 1]).all() and (found["tau_margin"] <= 1).all()


def test_local_tightness_is_near_the_exact_one(ibp):
    found = exact_agreement(ibp, images=1)
    assert found["exact_tau"].shape == (2, 2) and (found["exact_tau"] <= 1).all()
    np.testing.assert_allclose(found["exact_ratio"][:, 0], 1.0, atol=0.02)  # nearly every unit is stable
    assert np.isnan(exact_agreement(ibp, images=0)["exact_ratio"]).all()


def test_a_certificate_needs_every_other_margin_below_zero():
    margins = torch.tensor([[[0.0, -1.0, -0.1], [-1.0, 0.0, 0.1], [0.0, -2.0, 0.0]]])
    labels = torch.tensor([[0, 1, 2]])
    assert certifies(margins, labels).tolist() == [[True, False, False]]


def embed_run(arm, tau, radius):
    return Run(arm, 0, {"embed_tau": np.array(tau), "embed_radius": np.array(radius)}, {"arm.eps": 0.01})


def test_the_gain_of_an_embedding_is_the_smallest_over_widths():
    runs = Runs([embed_run("boxed", [0.4, 0.2], [5.0, 9.0]), embed_run("plain", [0.3, 0.19], [9.0, 10.0])])
    found = embedding_gain(runs, boxed="boxed", plain="plain")
    assert found["embed_tau_gain"] == pytest.approx(0.01) and found["embed_radius_gain"] == pytest.approx(1.0)
    assert np.isnan(embedding_gain(runs[:1], boxed="boxed", plain="plain")["embed_tau_gain"])


def test_equal_regions_compares_two_arms_at_their_own_points():
    table = (("small", 0.1, 0.3), ("small", 0.01, 0.1), ("whole", 0.1, 0.9), ("whole", 0.01, 0.25))
    runs = Runs([Run(arm, 0, {"tau": tau}, {"arm.eps": eps}) for arm, eps, tau in table])
    points = {"small_at": {"arm.eps": 0.1}, "whole_at": {"arm.eps": 0.01}}
    assert equal_regions(runs, small="small", whole="whole", **points)["region_ratio"] == pytest.approx(1.2)
    assert np.isnan(equal_regions(runs, small="small", whole="none", **points)["region_ratio"])
