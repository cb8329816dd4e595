"""The paper's figure 2 (right) as panels a to f, then weights, surrogates, label laws and real data as panels g to l.

Dots are simulations (mean over seeds, bars of one standard error), solid lines the theory, nothing between dots. The
dashed line is the full sample. Blue keeps easy examples, red hard ones, black is random.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from experiments import style
from experiments.measurement import Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

EASY, EASIER, RANDOM, HARDER, HARD = style.BLUE, style.SKY, style.BLACK, style.ORANGE, style.RED
LAWS = {"misspec": "f1", "misspec2": "f2"}


@dataclass(frozen=True)
class Curve:
    """An arm, its colour and label; hollow ones differ from the filled one of that colour as the panel's title says."""

    arm: str
    color: str
    label: str
    hollow: bool = False


@dataclass(frozen=True)
class Panel:
    """title; curves; full: the arm of the full sample; at: the rest of the grid point."""

    title: str
    curves: tuple[Curve, ...]
    full: str
    at: Mapping[str, Any]


FAMILY = (Curve("easy", EASY, "easy (α = -1)"), Curve("easy_half", EASIER, "α = -0.5"), Curve("random", RANDOM, "random"),
          Curve("hard_half", HARDER, "α = 0.5"), Curve("hard", HARD, "hard (α = 1)"))
SIDE = (
    Panel("filled: weights 1, hollow: 1 / probability\nf1, λ = 0.001",
          (*FAMILY[:2], *FAMILY[3:], *(Curve(f"unbiased_{curve.arm}", curve.color, curve.label, hollow=True)
                                       for curve in (*FAMILY[:2], *FAMILY[3:]))),
          "full", {"arm.labels": "misspec", "arm.ridge": 0.001}),
    Panel("N / p = 36.85, perfect surrogate\nf1, λ = 0.001",
          (Curve("tall_easy", EASY, "easy"), Curve("tall_random", RANDOM, "random"), Curve("tall_hard", HARD, "hard")),
          "tall_full", {"arm.labels": "misspec", "arm.ridge": 0.001}),
    Panel("N / p = 36.85, filled: perfect surrogate, hollow: weak\nf1, λ = 0.01",
          (Curve("tall_easy", EASY, "easy"), Curve("tall_hard", HARD, "hard"),
           Curve("tall_weak_easy", EASY, "easy, weak", hollow=True), Curve("tall_weak_hard", HARD, "hard, weak", hollow=True)),
          "tall_full", {"arm.labels": "misspec", "arm.ridge": 0.01}),
    Panel("N / p = 36.85, well-specified labels\nlogistic, λ = 0.001",
          (Curve("tall_logistic_random", RANDOM, "random"), Curve("tall_logistic_hard", HARD, "hard")),
          "tall_logistic_full", {"arm.labels": "logistic", "arm.ridge": 0.001}),
)
REAL = {
    "digits": (Curve("digits_random", RANDOM, "random"), Curve("digits_easy", EASY, "easy, strong surrogate"),
               Curve("digits_hard", HARD, "hard, strong"), Curve("digits_weak_hard", HARDER, "hard, weak"),
               Curve("digits_hard_unbiased", HARD, "hard, strong, unbiased", hollow=True)),
    "noisy": (Curve("noisy_random", RANDOM, "random"), Curve("noisy_hard_half", HARD, "α = 0.5, strong surrogate"),
              Curve("noisy_weak_hard_half", HARDER, "α = 0.5, weak"),
              Curve("noisy_hard_half_unbiased", HARD, "α = 0.5, strong, unbiased", hollow=True)),
    "images": (Curve("images_random", RANDOM, "random"), Curve("images_easy", EASY, "easy, strong surrogate"),
               Curve("images_hard", HARD, "hard, strong"), Curve("images_weak_hard", HARDER, "hard, weak"),
               Curve("images_hard_unbiased", HARD, "hard, strong, unbiased", hollow=True)),
}
TITLES = {"digits": "digits, odd or even", "noisy": "digits, 15 % of training labels wrong",
          "images": "features of an image folder"}


def draw(runs: Runs, claims: list[dict]) -> Figure:
    """Panels a to f: rows are ridges, columns label laws; g to j: synthetic variants; then real data."""
    from matplotlib.figure import Figure

    side = [*SIDE, *(panel for name in REAL if (panel := _real_panel(runs, name)))]
    with style.figure_style():
        figure = Figure(figsize=(15.5, 11.5), layout="constrained")
        left, right = figure.subfigures(1, 2, wspace=0.02, width_ratios=[1, 1.08])
        main = _main_panels(runs)
        cells = left.subplots(3, 2, sharex=True, sharey="col", squeeze=False)
        for index, axes in enumerate(cells.flat):
            _draw_panel(axes, runs, main[index] if index < len(main) else None, "abcdef"[index])
        _legend(cells[0, 0])
        rows = -(-len(side) // 2)
        for index, axes in enumerate(right.subplots(rows, 2, squeeze=False).flat):
            _draw_panel(axes, runs, side[index] if index < len(side) else None, "ghijklmn"[index])
            if axes.get_legend_handles_labels()[0]:
                axes.legend(fontsize=7, loc="upper right")
        figure.supxlabel("examples kept, %", fontsize=10)
        figure.supylabel("misclassified share of test examples", fontsize=10)
    return figure


def _main_panels(runs: Runs) -> list[Panel | None]:
    synthetic = runs.select(arm="random")
    ridges, laws = (synthetic.axis(name) for name in ("arm.ridge", "arm.labels"))
    return [Panel(f"{LAWS.get(law, law)}, λ = {ridge:g}", FAMILY, "full", {"arm.labels": law, "arm.ridge": ridge})
            if law else None
            for ridge in sorted(ridges, reverse=True) for law in (*laws, None)[:2]]


def _real_panel(runs: Runs, name: str) -> Panel | None:
    """The panel of a real data set, its title naming what is best where 40 % or the nearest share is kept."""
    full = runs.select(arm=f"{name}_full")
    if not len(full):
        return None
    at = {axis: full[0].point[axis] for axis in ("arm.labels", "arm.ridge")}
    curves = [curve for curve in REAL[name] if len(runs.select(arm=curve.arm))]
    shares = runs.select(arm=f"{name}_random").axis("arm.kept") or [1.0]
    share = min(shares, key=lambda kept: abs(kept - 0.4))
    means = {curve.label: np.mean(runs.values("error", curve.arm, {**at, "arm.kept": share})) for curve in curves}
    best = f"\nat {100 * share:.0f} %: best is {min(means, key=means.get)}" if means else ""
    return Panel(f"{TITLES[name]}, λ = {at['arm.ridge']:g}{best}", tuple(curves), f"{name}_full", at)


def _draw_panel(axes: Axes, runs: Runs, panel: Panel | None, letter: str) -> None:
    if panel is None:
        axes.axis("off")
        return
    style.panel_letter(axes, letter)
    axes.set_title(panel.title, fontsize=8.5)
    axes.set_xlim(0, 100)
    _draw_full(axes, runs.select(arm=panel.full, at=panel.at))
    for curve in panel.curves:
        _draw_theory(axes, runs.select(arm=curve.arm, at=panel.at), runs.select(arm=panel.full, at=panel.at), curve)
        _draw_dots(axes, runs.select(arm=curve.arm, at=panel.at), curve)


def _draw_full(axes: Axes, full: Runs) -> None:
    if len(full):
        theory = full.values("theory", full.arms[0])
        level = theory[0] if np.isfinite(theory).all() else full.values("error", full.arms[0]).mean()
        axes.axhline(level, color=style.GREY, linestyle="--", linewidth=1.2, zorder=1)


def _draw_theory(axes: Axes, runs: Runs, full: Runs, curve: Curve) -> None:
    """The line through every share solved, up to the full sample; nothing without a theory."""
    points = [(run.point["arm.kept"], run.values["theory"]) for run in (*runs, *full)]
    points += [(run.values["share_below"], run.values["theory_below"]) for run in runs]
    solved = np.array(sorted({point for point in points if np.isfinite(point).all()}))
    if len(runs) and len(solved):
        axes.plot(100 * solved[:, 0], solved[:, 1], color=curve.color, linewidth=1.2,
                  linestyle=(0, (4, 1.5)) if curve.hollow else "-", zorder=2)


def _draw_dots(axes: Axes, runs: Runs, curve: Curve) -> None:
    shares = runs.axis("arm.kept")
    if not shares:
        return
    values = [runs.values("error", curve.arm, {"arm.kept": share}) for share in shares]
    errors = [value.std(ddof=1) / np.sqrt(len(value)) if len(value) > 1 else 0.0 for value in values]
    axes.errorbar(100 * np.array(shares), [value.mean() for value in values], yerr=errors, fmt="o", color=curve.color,
                  markersize=4, markerfacecolor="white" if curve.hollow else curve.color, elinewidth=1, capsize=2,
                  label=curve.label, zorder=3)


def _legend(axes: Axes) -> None:
    from matplotlib.lines import Line2D

    handles, labels = axes.get_legend_handles_labels()
    extra = [Line2D([], [], color=style.GREY, linestyle="--"), Line2D([], [], color=style.GREY)]
    axes.legend([*handles, *extra], [*labels, "full sample", "theory"], fontsize=7, loc="upper right", ncols=2)
