"""Descent of many models at once against the linear model's closed form and against plain loops, one run at a time."""

import warnings

import lightning
import pytest
import torch

from data.gaussian_teacher import GaussianTeacher
from experiments.catapult.objective import GradientDescent
from models.ntk_net import KINDS, TwoLayerNet
from models.taylor import TaylorModel

SEEDS, RATES, DIM, WIDTH = [0, 1], [1.0, 1.9, 2.6, 5.0], 12, 300


def make_data(seeds, start=0):
    data = GaussianTeacher(dim=DIM, train_size=8, test_size=6, seed=seeds)
    data.setup()
    data.start_batch = start
    return data


def make(seeds=tuple(SEEDS), kinds=KINDS, rates=tuple(RATES), steps=10, **changes):
    model = TwoLayerNet(kinds, DIM, WIDTH, seeds)
    return GradientDescent(model, rates, **({"unit": "top", "block": 4, "steps": steps} | changes))


def fit(descent, seeds=tuple(SEEDS), steps=10, checkpoint=None, start=0):
    trainer = lightning.Trainer(
        max_steps=steps, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, precision="64-true",
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(descent, datamodule=make_data(seeds, start), ckpt_path=checkpoint, weights_only=True)
    return trainer


@pytest.fixture(scope="module")
def trained() -> GradientDescent:
    descent = make(trace=True)
    fit(descent)
    return descent


def test_the_linear_model_loses_each_eigencomponent_at_its_own_rate(trained):
    data, kind = make_data(SEEDS), KINDS.index("linear")
    for s, seed in enumerate(SEEDS):
        start = TwoLayerNet("net", DIM, WIDTH, seed)
        features = start.features(data.train.x[None, :, s])
        values, vectors = torch.linalg.eigh(start.initial_kernel(features)[0])
        components = vectors.T @ (start.outputs(features)[0, 0, 0] - data.train.y[:, s])
        for c, rate in enumerate(RATES[:2]):
            shrink = (1 - rate * values / values[-1])[:, None] ** torch.arange(40)
            expected = 0.5 * (shrink * components[:, None]).square().sum(0)
            torch.testing.assert_close(trained.losses[s, kind, c], expected, rtol=1e-9, atol=1e-12)


def test_linear_models_diverge_above_the_critical_rate_and_quadratic_ones_above_twice_that(trained):
    alive = {kind: trained.alive[:, k].all(0).tolist() for k, kind in enumerate(KINDS)}
    assert alive["linear"] == [True, True, False, False] and alive["quadratic"] == [True, True, True, False]


def test_a_diverged_run_is_infinite_from_then_on_and_its_weights_stay(trained):
    s, k, c = 0, KINDS.index("linear"), 3
    losses = trained.losses[s, k, c]
    first = int(torch.isinf(losses).nonzero()[0])
    assert torch.isinf(losses[first:]).all() and losses[first - 1] <= 1e6 * losses[0] < 1e6 * losses[first - 1]
    longer = make(steps=14)
    fit(longer, steps=14)
    assert torch.equal(longer.model.u[s, k, c], trained.model.u[s, k, c]) and trained.model.u[s, k, c].isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_each_run_of_a_fit_equals_that_run_alone_in_a_plain_loop(trained, kind):
    seed, rate = 1, 1.9
    data, k = make_data([seed]), KINDS.index(kind)
    x, y = data.train.x.transpose(0, 1), data.train.y.T
    model = TwoLayerNet(kind, DIM, WIDTH, seed)
    features, alive = model.features(x), torch.ones(1, 1, 1, dtype=torch.bool)
    eta = rate / torch.linalg.eigvalsh(model.initial_kernel(features))[0, -1]
    for step in range(40):
        loss = model.losses(features, y, alive)
        torch.testing.assert_close(trained.losses[1, k, 1, step], loss[0, 0, 0], rtol=1e-10, atol=1e-13)
        model.u -= eta * model.u.grad
        model.v -= eta * model.v.grad
    error = (model.outputs(model.features(data.test.x.transpose(0, 1)))[0, 0, 0] - data.test.y[:, 0]).square().mean()
    torch.testing.assert_close(trained.test_errors[1, k, 1, -1], error)


def test_a_fit_resumed_in_the_middle_ends_with_the_same_curves(trained, tmp_path):
    half = make(trace=True)
    trainer = fit(half, steps=5)
    trainer.save_checkpoint(tmp_path / "half.ckpt")
    resumed = make(trace=True)
    fit(resumed, checkpoint=tmp_path / "half.ckpt", start=5)
    expected = trained.state_dict()
    assert all(torch.equal(value, expected[name]) for name, value in resumed.state_dict().items())


def test_kernel_values_start_at_the_eigenvalues_and_fall_below_the_edge_of_stability_after_a_catapult(trained):
    starts = trained.kernel_values[..., 0, :]
    torch.testing.assert_close(starts, trained.eigenvalues[:, None, None].expand_as(starts))
    k, c = KINDS.index("quadratic"), 2
    top = trained.kernel_values[:, k, c, -1, 0] / trained.eigenvalues[:, 0]
    assert (top * RATES[c] < 2.05).all() and (trained.losses[:, k, c].amax(-1) > 1.2 * trained.losses[:, k, c, 0]).all()


@pytest.mark.parametrize("unit", ["top", "middle", "second"])
def test_rates_are_multiples_of_the_inverse_of_an_eigenvalue(unit):
    descent = make(kinds="net", rates=[2.0], steps=1, unit=unit)
    fit(descent, steps=1)
    top, second = descent.eigenvalues.unbind(-1)
    eigenvalue = {"top": top, "middle": (top * second) ** 0.5, "second": second}[unit]
    torch.testing.assert_close(descent.rates[:, 0, 0], 2 / eigenvalue)


def test_any_module_is_trained_through_the_same_objective():
    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.u = torch.nn.Parameter(torch.randn(30, DIM, dtype=torch.float64))

        def forward(self, x):
            return torch.tanh(x @ self.u.T).sum(1) / 30**0.5

    descent = GradientDescent(TaylorModel(["net", "quadratic"], Plain, SEEDS), [0.5, 1.0], "top", 3, 2, trace=True)
    fit(descent, steps=2)
    assert descent.losses.isfinite().all() and (descent.losses[..., -1] < descent.losses[..., 0]).all()
    torch.testing.assert_close(descent.losses[:, 0, :, 0], descent.losses[:, 1, :, 0])


def test_an_unknown_unit_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="third.*top, middle, second"):
        make(unit="third")
