"""Fits through the Trainer: convergence, resumed weights, the trained surrogate, and what is measured of them."""

from __future__ import annotations

from types import SimpleNamespace

import lightning
import numpy as np
import pytest
import torch

from data.digit_features import DigitFeatures
from data.gaussian_logistic import GaussianLogistic
from experiments.data_selection.measure import simulation, misclassified
from experiments.data_selection.objective import Subsampled
from models.logistic_regressions import LogisticRegressions

SEEDS, KEPT, RIDGE = [2, 3], [0.3, 1.0], [0.1, 0.01]


def gaussian(**options) -> GaussianLogistic:
    data = GaussianLogistic(**{"features": 15, "size": 200, "draws": 2, "seed": SEEDS} | options)
    data.setup()
    return data


def objective(features: int = 15, **options) -> Subsampled:
    settings = {"seed": SEEDS, "kept": KEPT, "ridge": RIDGE, "hardness": 1.0, "reweighted": False, "surrogate": [5.0, 0.0]}
    settings |= options
    model = LogisticRegressions(features, [settings["seed"], 2, settings["kept"], settings["ridge"]])
    return Subsampled(model, **settings)


def fit(module: Subsampled, data, steps: int) -> Subsampled:
    lightning.Trainer(max_steps=steps, max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, precision="64-true").fit(module, data)
    return module


def trained(module: Subsampled, data):
    return SimpleNamespace(objective=module, data=data)


def test_a_fit_has_converged_for_every_seed_draw_share_and_ridge():
    data = gaussian()
    module = fit(objective(), data, 11)
    values = simulation(trained(module, data), tolerance=1e-13)
    assert {name: value.shape for name, value in values.items()} == dict.fromkeys(("error", "kept", "residual"), (2, 2, 2))
    assert abs(values["kept"][:, 0, 0].mean() - 0.3) < 0.05 and (values["kept"][:, 1] == 1).all()


def test_an_unfinished_fit_is_an_error():
    data = gaussian()
    with pytest.raises(RuntimeError, match="more steps needed"):
        simulation(trained(fit(objective(), data, 3), data), tolerance=1e-9)


def test_weights_are_the_whole_state():
    data = gaussian()
    first, whole = fit(objective(), data, 4), fit(objective(), data, 8)
    second = objective()
    second.load_state_dict(first.state_dict())
    torch.testing.assert_close(fit(second, data, 4).model.weight, whole.model.weight, rtol=0, atol=1e-15)


def test_a_seed_s_solution_does_not_depend_on_its_company():
    together = fit(objective(), gaussian(), 11).model.weight[1]
    alone = fit(objective(seed=[3]), gaussian(seed=[3]), 11).model.weight[0]
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-12)


def test_weights_of_kept_samples_undo_the_probabilities():
    data = gaussian(size=4000)
    module = objective(reweighted=True, hardness=-0.5)
    chances = module.chances(data).flatten(0, 1)
    weights = module.sample_weights(chances)
    assert set(weights[:, 1].unique().tolist()) == {1.0}
    assert torch.equal(weights[weights > 0], (1 / chances)[weights > 0])
    assert weights[:, 0].mean().item() == pytest.approx(1, abs=0.1)


def test_smaller_shares_are_subsets_of_larger_ones():
    data = gaussian()
    module = objective(kept=[0.1, 0.3, 0.9])
    kept = module.sample_weights(module.chances(data).flatten(0, 1)) > 0
    assert bool((kept[:, 0] <= kept[:, 1]).all()) and bool((kept[:, 1] <= kept[:, 2]).all())


@pytest.mark.parametrize("hardness, nearer", [(1.0, True), (-1.0, False)])
def test_positive_exponents_keep_what_lies_near_the_surrogate_s_boundary(hardness, nearer):
    data = gaussian()
    module = objective(hardness=hardness)
    distance = torch.einsum("sdnp,sdp->sdn", data.train.x, data.truth).abs().flatten(0, 1)
    kept = module.sample_weights(module.chances(data).flatten(0, 1))[:, 0] > 0
    assert (distance[kept].mean() < distance.mean()) == nearer


def test_the_exact_error_is_that_of_a_large_test_sample():
    data = gaussian(draws=1, seed=SEEDS)
    module = Subsampled(LogisticRegressions(15, [SEEDS, 1, KEPT, RIDGE]), SEEDS, KEPT, RIDGE, 1.0, False, [5.0, 0.0])
    fit(module, data, 11)
    fresh = np.random.default_rng(9).standard_normal((400_000, 15))
    uniform = np.random.default_rng(10).random(len(fresh))
    label = uniform < data.law.probability(fresh @ data.truth[0, 0].numpy())
    theta = module.model.weight[0, 0, 0, 1].numpy()
    assert float(misclassified(module, data)[0, 0, 0, 1]) == pytest.approx(((fresh @ theta > 0) != label).mean(), abs=0.003)


def test_a_surrogate_trained_on_the_pool_is_inherited_and_used():
    options = {"features": 30, "size": 300, "pool": 200, "test": 300, "draws": 2, "seed": SEEDS}
    pool, data = DigitFeatures(**options, part="pool"), DigitFeatures(**options)
    pool.setup()
    data.setup()
    surrogate = objective(30, kept=[1.0], ridge=[0.01], hardness=0.0)
    fit(surrogate, pool, 11)
    module = objective(30)
    with pytest.raises(ValueError, match="set arm.pool"):
        module.chances(data)
    module.inherit(surrogate.state_dict())
    fit(module, data, 11)
    logits = torch.einsum("sdnp,sdp->sdn", data.train.x, surrogate.model.weight[:, :, 0, 0])
    chances = module.chances(data)[:, :, 0]
    assert bool((chances.argmax(-1) == logits.abs().argmin(-1)).all())
    assert simulation(trained(module, data), tolerance=1e-9)["error"].max() < 0.35
    module.inherit({"errors": torch.zeros(1)})
    assert torch.equal(module.trained_surrogate, surrogate.model.weight[:, :, 0, 0])
