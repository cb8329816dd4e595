"""The figure draws what the table of runs holds, with one seed and with arms missing."""

import numpy as np
import pytest

from experiments.measurement import Run, Runs
from experiments.vae.figure import draw

CLAIMS = [{"id": "V1", "verdict": "reproduced"}]


def bound_run(arm, seed, size, level):
    points = np.array([0.0, 100.0, 1000.0, 10000.0])
    curve = level + np.array([-20.0, -5.0, -1.0, 0.0]) + 0.1 * seed
    values = {"curve_points": points, "curve_test": curve, "curve_train": curve + 0.5, "elbo_test": curve[-1],
              "step_sizes": np.array([0.01, 0.1]), "elbo_by_rate": np.array([level, level - 400.0])}
    if arm == "aevb":
        values |= {"gradient_variance_reparameterised": 2.0, "gradient_variance_score": 300.0}
    return Run(arm, seed, values, {"model.latent_dim": size})


def marginal_run(algorithm, amount, seed):
    values = {"marginal_points": np.array([100.0, 1000.0]), "marginal_train": np.array([-30.0, -20.0]),
              "marginal_test": np.array([-31.0, -22.0])}
    return Run(f"{algorithm}_{amount}", seed, values, {"model.latent_dim": 3})


def plane_run(seed):
    values = {"free_energy_gap": 0.02, "posterior_gap": 0.1, "manifold": np.random.default_rng(0).random((3, 3, 64))}
    return Run("plane", seed, values, {"model.latent_dim": 2})


def table(seeds):
    bounds = [bound_run(arm, seed, size, level - size / 10) for seed in seeds for size in (3, 10)
              for arm, level in (("aevb", -19.0), ("wake_sleep", -20.0))]
    three = [marginal_run(algorithm, amount, seed) for seed in seeds for amount in ("few", "many")
             for algorithm in ("aevb", "wake_sleep", "mcem")]
    return Runs([*bounds, *three, *(plane_run(seed) for seed in seeds)])


def test_a_panel_for_each_size_has_four_curves_that_are_means_over_seeds():
    panels = [axes for axes in draw(table([0, 1]), CLAIMS).axes if axes.get_title().startswith("$N_z$")]
    assert [axes.get_title() for axes in panels] == ["$N_z$ = 3", "$N_z$ = 10"]
    lines = {line.get_label(): line for line in panels[1].lines}
    assert set(lines) == {"AEVB (train)", "AEVB (test)", "wake-sleep (train)", "wake-sleep (test)"}
    np.testing.assert_allclose(lines["wake-sleep (test)"].get_ydata(), -21.0 + np.array([-5, -1, 0]) + 0.05)
    assert panels[1].get_xscale() == "log" and "+1.00 nat" in panels[1].texts[0].get_text()


def test_the_marginal_panels_hold_three_algorithms():
    titled = {axes.get_title(): axes for axes in draw(table([0]), CLAIMS).axes}
    for title in ("few training pictures", "many training pictures"):
        assert len(titled[title].lines) == 6


@pytest.mark.parametrize("missing", ["aevb", "wake_sleep", "plane", "mcem_few", "all"])
def test_missing_arms_leave_their_place_empty(missing):
    runs = [run for run in table([0]) if run.arm != missing and missing != "all"]
    figure = draw(Runs(runs), CLAIMS)
    figure.canvas.draw_idle()
    assert figure.axes
