"""The figure draws what the table of runs holds, with one seed and with arms missing."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.ibp_tightness.figure import draw
from experiments.measurement import Run, Runs

RADII = (0.01, 0.1)
LEVELS = {"ibp": 0.5, "sabr_04": 0.4, "sabr_01": 0.3, "pgd": 0.05}
CLAIMS = [{"id": f"claim_{place}", "verdict": "reproduced"} for place in range(8)]


def classifier(arm, seed, eps, tau):
    values = {"tau": tau + 0.01 * seed, "tau_start": 0.02, "clean": 0.9, "certified": 0.6}
    return Run(arm, seed, values, {"arm.eps": eps})


def random_networks(seed):
    column = np.array([1.0, 2.0])
    values = {"init_widths": np.array([8.0, 64.0]), "init_width": np.outer([0.4, 0.1], column),
              "init_depths": np.array([2.0, 3.0]), "init_depth": np.outer([1e-1, 1e-2], column),
              "cnn_layers": np.array([2.0, 13.0]), "cnn": np.outer([1e-1, 1e-17], column),
              "cnn_published": np.outer([1e-1, 2e-17], column)}
    return Run("random", seed, values, {"arm.eps": 0.1})


def autoencoders(arm, seed):
    names = ("embed_tau", "embed_radius", "pca_tau", "pca_radius")
    return Run(arm, seed, {"embed_widths": np.array([10.0, 40.0]), **dict.fromkeys(names, np.array([0.4, 0.2]))},
               {"arm.eps": 0.01})


def table(seeds):
    runs = [classifier(arm, seed, eps, level * eps * 10)
            for arm, level in LEVELS.items() for eps in RADII for seed in seeds]
    runs += [classifier(arm, seed, 0.1, 0.06) for arm in ("standard", "standard_shi") for seed in seeds]
    runs += [random_networks(seed) for seed in seeds]
    return Runs([*runs, *(autoencoders(arm, seed) for arm in ("embed_ibp", "embed_standard") for seed in seeds)])


@pytest.mark.parametrize("seeds", [[0], [0, 1, 2]])
def test_four_panels_hold_every_curve(seeds):
    panels = draw(table(seeds), CLAIMS).axes
    lines = {line.get_label(): line for line in panels[2].lines}
    np.testing.assert_allclose(lines["IBP (90, 60)"].get_ydata(), np.array([0.05, 0.5]) + 0.01 * np.mean(seeds))
    assert len(panels[2].lines) == 4 + 2 + 1 and panels[2].get_xscale() == "log"
    assert [line.get_label() for line in panels[3].lines] == ["IBP-trained", "standard", "PCA"]
    assert len(panels[0].lines) == 4 and panels[1].get_yscale() == "log"
    assert [axes.texts[-1].get_text() for axes in panels[:4]] == ["(a)", "(b)", "(c)", "(d)"]


@pytest.mark.parametrize("missing", ["ibp", "standard", "random", "embed_standard", "all"])
def test_missing_arms_leave_their_place_empty(missing):
    runs = [run for run in table([0]) if run.arm != missing and missing != "all"]
    figure = draw(Runs(runs), CLAIMS)
    figure.canvas.draw_idle()
    assert len(figure.axes) == 5
