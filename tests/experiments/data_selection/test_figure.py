"""The figure copes with everything, with one seed and with next to nothing."""

from __future__ import annotations

import io
from itertools import product

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from experiments.data_selection.figure import FAMILY, REAL, SIDE, draw
from experiments.measurement import Run, Runs

KEPT = (0.2, 0.4)


def table(seeds: int, arms: dict[str, tuple]) -> Runs:
    runs = []
    for (arm, (laws, ridges, solved)), seed in product(arms.items(), range(seeds)):
        shares = (1.0,) if arm.endswith("full") else KEPT
        for law, ridge, share in product(laws, ridges, shares):
            theory = 0.4 - 0.1 * share if solved else np.nan
            values = {"error": 0.4 - 0.1 * share + 0.01 * seed, "theory": theory, "theory_below": theory + 0.02,
                      "share_below": share - 0.1 if solved else np.nan}
            runs.append(Run(arm, seed, values, {"arm.labels": law, "arm.ridge": ridge, "arm.kept": share}))
    return Runs(runs)


def everything() -> dict[str, tuple]:
    main = {arm: (("misspec", "misspec2"), (0.1, 0.01, 0.001), True) for arm in ("full", *(c.arm for c in FAMILY))}
    side = {arm: ((panel.at["arm.labels"],), (panel.at["arm.ridge"],), True)
            for panel in SIDE for arm in (panel.full, *(curve.arm for curve in panel.curves)) if arm not in main}
    real = {arm: (("parity",), (0.01,), False) for name in REAL for arm in (f"{name}_full", *(c.arm for c in REAL[name]))}
    return main | side | real


def panels(runs: Runs) -> dict[str, object]:
    figure = draw(runs, [])
    FigureCanvasAgg(figure).print_png(io.BytesIO())
    return {axes.texts[0].get_text(): axes for axes in figure.axes if axes.texts}


def test_every_panel_shows_its_dots_and_lines():
    found = panels(table(3, everything()))
    assert list(found) == [f"({letter})" for letter in "abcdefghijklm"]
    assert found["(a)"].get_title() == "f1, λ = 0.1" and found["(f)"].get_title() == "f2, λ = 0.001"
    assert len(found["(a)"].containers) == 5 and len(found["(k)"].containers) == 5
    dots = found["(a)"].containers[0].lines[0]
    np.testing.assert_allclose(dots.get_xydata(), [[20, 0.39], [40, 0.37]])
    line = next(line for line in found["(a)"].lines if line.get_color() == FAMILY[0].color and len(line.get_xdata()) == 5)
    np.testing.assert_allclose(line.get_xdata(), [10, 20, 30, 40, 100])
    assert found["(k)"].get_title().endswith("best is random")


@pytest.mark.parametrize("arms", [{"random": (("misspec",), (0.1,), True)}, {}, {"digits_full": (("parity",), (0.01,), False)}])
def test_one_seed_and_missing_arms_are_drawn_as_far_as_they_go(arms):
    assert "(g)" in panels(table(1, arms))
