"""Measurements of small runs against plain recomputation, and what is compared across runs."""

import lightning
import numpy as np
import pytest
import torch

from data.digits import Digits
from experiments.measurement import Run, Runs, Trained
from experiments.vae.bound import lower_bound, standard_normal
from experiments.vae.compare import capacity, catch_up, equal_cost
from experiments.vae.marginal import marginal_curve
from experiments.vae.measure import bound_curve, bound_spread, cost, gradient_variance
from experiments.vae.objective import TEST_BOUND, Learner
from experiments.vae.plane import free_energy_identity, latent_manifold
from models.gaussian_vae import GaussianVAE

SEEDS = (0, 5)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


def train(algorithm, latent=2, snapshots=0, steps=20):
    data = Digits(batch_size=50, seed=list(SEEDS), train_size=1500, limit_train=100, binarize=True)
    model = GaussianVAE(64, latent, 12, seeds=SEEDS)
    learner = Learner(model, algorithm, SEEDS, [0.02, 0.1], selection_fraction=0.5, max_steps=steps, train_size=100,
                      evaluations=4, evaluated_pictures=40, snapshots=snapshots)
    trainer = lightning.Trainer(max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(learner, datamodule=data)
    return Trained(learner.eval(), data, None, SEEDS, None)


@pytest.fixture(scope="module")
def plane():
    return train("aevb")


@pytest.fixture(scope="module")
def mcem():
    return train("mcem", snapshots=2)


def test_final_bound_is_that_of_the_chosen_replica(plane):
    values, learner = bound_curve(plane), plane.objective
    x = plane.data.test.x[:40].expand(4, -1, -1)
    noise = standard_normal(SEEDS, 20, TEST_BOUND, (40, 2)).repeat_interleave(2, 0)
    every = lower_bound(learner.model, x, noise).mean(1).detach()
    np.testing.assert_allclose(values["elbo_by_rate"].ravel(), every, rtol=1e-5)
    chosen = every[learner.replicas_of(learner.chosen())]
    np.testing.assert_allclose(values["elbo_test"], chosen, rtol=1e-5)
    assert np.all(values["curve_test"][:, -1] == values["elbo_test"])
    assert values["curve_points"][0, [0, -1]].tolist() == [0, 1000]


def test_area_lies_between_the_ends_of_a_rising_curve_and_worst_gain_is_of_the_worst_rate(plane):
    values, learner = bound_curve(plane), plane.objective
    curve = values["curve_test"][:, 1:]
    assert np.all((curve.min(1) < values["area_test"]) & (values["area_test"] < curve.max(1)))
    ends = learner.bounds(plane.data, 20)[0] - learner.bound_train[0]
    np.testing.assert_allclose(values["worst_gain"], ends.view(2, 2).amin(1))


def test_spread_is_that_of_independent_evaluations_of_one_sample(plane):
    learner = plane.objective
    spread = bound_spread(plane, repeats=200)["elbo_spread"]
    model = learner.model.pick(learner.replicas_of(learner.chosen()))
    x = plane.data.test.x[:40].expand(2, -1, -1)
    with torch.no_grad():
        single = torch.stack([lower_bound(model, x, torch.randn(2, 40, 2)) for _ in range(200)])
    np.testing.assert_allclose(spread, single.var(0).sum(1).sqrt() / 40, rtol=0.25)


def test_score_gradient_has_the_larger_variance_and_ratio_is_theirs(plane):
    values = gradient_variance(plane, repeats=20, pictures=10)
    ratio = values["gradient_variance_score"] / values["gradient_variance_reparameterised"]
    np.testing.assert_allclose(values["gradient_variance_ratio"], ratio)
    assert ratio.min() > 1


def test_identity_holds_and_manifold_has_its_pictures(plane):
    values = free_energy_identity(plane, pictures=5, samples=2000, grid=121)
    assert values["free_energy_gap"].max() < 0.15 and values["posterior_gap"].min() > 0
    manifold = latent_manifold(plane, side=3)["manifold"]
    learner = plane.objective
    model = learner.model.pick(learner.replicas_of(learner.chosen()))
    centre = model.mean_picture(torch.zeros(2, 1, 2)).detach()
    np.testing.assert_allclose(manifold[:, 1, 1], centre[:, 0], rtol=1e-5)


def test_marginal_curve_ends_at_the_final_estimate_for_every_algorithm(mcem):
    values = marginal_curve(mcem, pictures=8, samples=10, burn_in=10)
    assert values["marginal_points"][0, -1] == 1000
    assert values["marginal_train"].shape == values["marginal_points"].shape
    assert np.all(values["marginal_test"][:, -1] == values["log_likelihood_test"])
    assert np.all(np.isfinite(values["marginal_train"])) and set(values["marginal_rate"]) <= {0.02, 0.1}


def test_what_a_run_does_not_have_is_nan(mcem, plane):
    for function, settings in ((bound_curve, {}), (bound_spread, {"repeats": 2}),
                               (gradient_variance, {"repeats": 2, "pictures": 2}),
                               (free_energy_identity, {"pictures": 2, "samples": 2, "grid": 5})):
        values = function(mcem, **settings)
        assert set(values) == set(function.metric_names)
        assert all(value.shape == (2,) and np.isnan(value).all() for value in values.values())
    assert np.isnan(marginal_curve(plane, pictures=2, samples=2, burn_in=2)["log_likelihood_test"]).all()
    assert cost(mcem)["gradients_per_point"].tolist() == [16, 16]


def run(arm, size, **values):
    return Run(arm, 0, values, {"model.latent_dim": size})


def test_capacity_gain_is_the_largest_size_against_the_best_smaller_one():
    table = Runs([run("aevb", size, elbo_test=bound) for size, bound in ((3, -20.0), (20, -19.4), (10, -19.0))])
    assert capacity(table, "model.latent_dim", "aevb")["capacity_gain"] == pytest.approx(-0.4)
    assert np.isnan(capacity(table[:1], "model.latent_dim", "aevb")["capacity_gain"])


def test_budget_to_match_is_where_the_faster_curve_crosses_the_slower_ones_end():
    points = np.array([0.0, 100.0, 10000.0, 100000.0])
    fast = run("aevb", 3, curve_points=points, curve_test=np.array([-50.0, -30.0, -20.0, -19.0]))
    slow = run("wake_sleep", 3, elbo_test=-25.0)
    runs = Runs([fast, slow])
    assert catch_up(runs, "model.latent_dim", "aevb", "wake_sleep")["budget_to_match"] == pytest.approx(1000 / 100000)
    never = Runs([fast, run("wake_sleep", 3, elbo_test=-18.0)])
    assert catch_up(never, "model.latent_dim", "aevb", "wake_sleep")["budget_to_match"] == 1.0


def test_equal_cost_compares_with_the_dearer_curve_at_fewer_points():
    cheap = run("aevb_many", 3, marginal_points=np.array([100.0, 10000.0]), log_likelihood_test=-20.0,
                gradients_per_point=2.0)
    dear = run("mcem_many", 3, marginal_points=np.array([100.0, 10000.0]), marginal_test=np.array([-26.0, -18.0]),
               gradients_per_point=20.0)
    gain = equal_cost(Runs([cheap, dear]), "aevb_many", "mcem_many")["equal_cost_gain"]
    assert gain == pytest.approx(-20.0 - (-22.0))  # half way in log(points): 1000
    assert np.isnan(equal_cost(Runs([cheap]), "aevb_many", "mcem_many")["equal_cost_gain"])
