"""Theory lines through the Trainer, and simulation against theory at a finite size."""

from __future__ import annotations

from types import SimpleNamespace

import lightning
import numpy as np
import pytest
import torch

from data.gaussian_logistic import GaussianLogistic
from data.sets import Empty
from experiments.data_selection.measure import theory
from experiments.data_selection.objective import Subsampled
from experiments.data_selection.saddle import SolveFailed
from experiments.data_selection.theory import Lines
from models.logistic_regressions import LogisticRegressions

SHARES = [1.0, 0.8, 0.6, 0.4]


def lines(**options) -> Lines:
    settings = {"shares": SHARES, "ridge": [0.1, 0.01], "ratio": 4.0, "labels": "misspec", "norm": 5.0, "hardness": 0.5,
                "reweighted": False, "surrogate": [5.0, 0.0]}
    return Lines(torch.nn.Identity(), **settings | options)


def fit(module, data, steps: int):
    lightning.Trainer(max_steps=steps, max_epochs=-1, accelerator="cpu", logger=False, enable_checkpointing=False,
                      enable_progress_bar=False, enable_model_summary=False, precision="64-true").fit(module, data)
    return module


def test_a_line_resumes_from_its_state():
    whole, first, second = fit(lines(), Empty(), 4), fit(lines(), Empty(), 2), lines()
    second.load_state_dict(first.state_dict())
    assert torch.isfinite(whole.errors).all() and whole.residuals.max() < 1e-10
    assert torch.isfinite(first.errors[:, :2]).all() and torch.isnan(first.errors[:, 2:]).all()
    assert torch.equal(second.errors[:, :2], whole.errors[:, :2])


def test_simulation_and_theory_agree():
    """p = 50 and N = 200, mean of 40 data sets; finite p moves the errors by less than 0.01."""
    seeds, kept = list(range(40)), [0.4, 0.8]
    data = GaussianLogistic(features=50, size=200, seed=seeds)
    data.setup()
    model = LogisticRegressions(50, [seeds, 1, kept, [0.1, 0.01]])
    module = fit(Subsampled(model, seeds, kept, [0.1, 0.01], 0.5, False, [5.0, 0.0]), data, 10)
    solved = fit(lines(), Empty(), 4)
    values = theory(SimpleNamespace(objective=module, data=data, load_phase={"theory": solved}.get), ratio=4.0)
    assert {value.shape for value in values.values()} == {(40, 2, 2)}
    deviation = values["deviation"]
    assert np.abs(deviation.mean(0)).max() < 0.01 + 3 * deviation.std(0, ddof=1).max() / np.sqrt(40)
    assert (values["share_below"][:, 1] == 0.6).all() and np.ptp(values["theory"], axis=0).max() == 0
    np.testing.assert_allclose(values["theory_below"][0, 1], solved.errors[:, 2])


def test_without_a_theory_its_values_are_not_numbers():
    data = GaussianLogistic(features=5, size=50, seed=[0])
    data.setup()
    module = fit(Subsampled(LogisticRegressions(5, [[0], 1, [0.5], [0.1]]), [0], [0.5], [0.1], 0.0, False, [5.0, 0.0]), data, 5)
    assert all(np.isnan(value).all() for value in theory(SimpleNamespace(objective=module, data=data), ratio=0).values())


def test_a_failed_solve_stops_the_fit(monkeypatch):
    def fail(equations, start=None):
        raise SolveFailed("no saddle point")

    monkeypatch.setattr("experiments.data_selection.theory.Equations.solve", fail)
    with pytest.raises(SolveFailed):
        fit(lines(), Empty(), 4)


def test_shares_that_are_missing_or_unsolved_are_refused():
    solved = fit(lines(), Empty(), 2)
    with pytest.raises(ValueError, match="no theory for a kept share of 0.5"):
        solved.at(0.5)
    with pytest.raises(ValueError, match="needs 4 steps"):
        solved.at(0.6)
    with pytest.raises(ValueError, match="fall from 1.0"):
        lines(shares=[0.8, 1.0])
    with pytest.raises(ValueError, match="set it to the 4 shares"):
        fit(lines(), Empty(), 5)
