"""Tables 1, 2 and 4 of the paper as one page, with a strip of adversarial examples like its Figures 5 and 6."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from experiments import style
from experiments.adversarial.attack import predict
from experiments.adversarial.tables import arms_of, rebuild
from experiments.measurement import ACROSS, Run, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

NAMES = {  # in the order of the page
    "fc10_1e-4": "FC10(1e-4)", "fc10_1e-2": "FC10(1e-2)", "fc10_1": "FC10(1)", "svm": "SVM", "fc100_10": "FC100-10",
    "fc100_100_10": "FC100-100-10", "fc200_200_10": "FC200-200-10", "ae400_10": "AE400-10",
    "p1_fc100_100_10": "FC100-100-10 (P1)", "p1_fc123_456_10": "FC123-456-10 (P1)",
    "p2_fc100_100_10": "FC100-100-10' (P2)",
}
PAPER = {  # mean distortions of Table 1
    "fc10_1e-4": 0.062, "fc10_1e-2": 0.1, "fc10_1": 0.14, "fc100_100_10": 0.058, "fc200_200_10": 0.065,
    "ae400_10": 0.086,
}
SHOWN = "fc100_100_10"  # the model of the strip
COLUMNS = 10


def draw(runs: Runs, claims: list[dict]) -> Figure:
    """Distortions, transfer between architectures, transfer between halves, and examples."""
    from matplotlib.figure import Figure

    with style.figure_style():
        figure = Figure(figsize=(10.5, 12.2), layout="constrained")
        top, middle, bottom = figure.subfigures(3, 1, height_ratios=[3.1, 5.4, 3.7], hspace=0.03)
        _draw_distortions(top.subplots(), runs)
        left, right = middle.subfigures(1, 2, width_ratios=[6.2, 4.3])
        _draw_transfer(left.subplots(), runs)
        _draw_halves(right.subplots(2, 1, height_ratios=[3, 5]), runs)
        _draw_strip(bottom, runs)
    return figure


def _draw_distortions(axes: Axes, runs: Runs) -> None:
    arms, table = _table(runs, "distortions", halves=False)
    style.panel_letter(axes, "a")
    axes.set_title("Mean distortion of adversarial examples, over the same images")
    if not len(table):
        return
    places = np.arange(len(arms))
    for row, (label, color) in enumerate((("L-BFGS, in the box", style.BLUE), ("fast gradient sign", style.ORANGE))):
        at, values = places + 0.36 * (row - 0.5), table[:, row]
        mean, spread = values.mean(0), np.abs(np.stack([values.min(0), values.max(0)]) - values.mean(0))
        axes.bar(at, mean, 0.34, color=color, label=label, yerr=spread, error_kw={"lw": 1, "capsize": 2})
        for x, height in zip(at, mean, strict=True):
            axes.text(x, height / 2, f"{height:.3f}", ha="center", va="center", color="white", fontsize=7.5)
    known = [place for place, arm in enumerate(arms) if arm in PAPER]
    axes.plot(
        [place - 0.18 for place in known], [PAPER[arms[place]] for place in known], "D", color=style.BLACK,
        markersize=5, markerfacecolor="white", label="paper, L-BFGS on MNIST",
    )
    axes.set_xticks(places, [NAMES.get(arm, arm) for arm in arms])
    axes.set_ylabel("root mean square change")
    axes.grid(axis="x", visible=False)
    axes.legend(loc="upper right", ncols=3)
    axes.set_ylim(0, 1.25 * max(np.nanmax(table), *(PAPER[arms[place]] for place in known), 0.0))


def _draw_transfer(axes: Axes, runs: Runs) -> None:
    arms, cells = _table(runs, "transfer", halves=False, square=True)
    _, noise = _table(runs, "noise", halves=False)
    style.panel_letter(axes, "b")
    if not len(cells):
        return
    levels = next(run.values["noise_levels"] for run in runs.select(arm=ACROSS) if np.ndim(run.values["noise_levels"]))
    labels = [NAMES.get(arm, arm) for arm in arms]
    rows = [*labels, *(f"noise, std {level:g}" for level in levels)]
    _heat_map(axes, cells.mean(0), noise.mean(0), rows, labels)
    axes.set_title(f"Misclassified, % ({_images(runs, 'shared_images', 'cell_halfwidth')})")
    axes.set_ylabel("examples made for")
    axes.set_xlabel("fed to")


def _draw_halves(panels: np.ndarray, runs: Runs) -> None:
    arms, plain = _table(runs, "half_transfer", halves=True, square=True)
    _, amplified = _table(runs, "half_amplified", halves=True, square=True)
    _, noise = _table(runs, "half_noise", halves=True)
    style.panel_letter(panels[0], "c")
    if not len(plain):
        return
    labels = [NAMES.get(arm, arm) for arm in arms]
    short = [label.replace(" ", "\n") for label in labels]
    titles = ("Models of two halves, as found, %", f"amplified to {_mean(runs, 'amplified_rms'):.3f} after clamping, %")
    for axes, cells, title in zip(panels, (plain, amplified), titles, strict=True):
        below = noise.mean(0)[None] if cells is amplified else np.empty((0, len(arms)))
        rows = [*labels, "noise of that size"][: len(labels) + len(below)]
        _heat_map(axes, cells.mean(0), below, rows, short)
        axes.set_title(title)


def _heat_map(axes: Axes, cells: np.ndarray, below: np.ndarray, rows: list[str], columns: list[str]) -> None:
    """Shares as percentages; the rows ``below`` stand apart under a gap."""
    gap = np.full((1 if len(below) else 0, cells.shape[1]), np.nan)
    values = 100 * np.concatenate([cells, gap, below])
    axes.imshow(values, cmap="inferno", vmin=0, vmax=100, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if np.isfinite(value):
            color = "black" if value > 60 else "white"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", color=color, fontsize=8.5)
    places = [row for row in range(len(values)) if np.isfinite(values[row]).any()]
    axes.set_yticks(places, rows)
    tall = any("\n" in name for name in columns)
    axes.set_xticks(range(len(columns)), columns, rotation=0 if tall else 35, ha="center" if tall else "right",
                    rotation_mode="default" if tall else "anchor", fontsize=7.5 if tall else None)
    axes.grid(False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)


def _draw_strip(figure: SubFigure, runs: Runs) -> None:
    """One attacked image of each class: original, adversarial, ten times their difference."""
    run = _shown_run(runs)
    panels = figure.subplots(3, COLUMNS)
    for axes in panels.flat:
        axes.axis("off")
    if run is None:
        return
    chosen = _one_of_each_class(run)
    clean, changed = (np.asarray(run.values[name])[chosen] for name in ("images", "adversarial"))
    answers = predict(rebuild(run), torch.as_tensor(changed)).numpy()
    labels = np.asarray(run.values["labels"])[chosen]
    for column in range(len(chosen)):
        pictures = (clean[column], changed[column], 10 * (changed[column] - clean[column]))
        titles = (f"{int(labels[column])}", f"read as {int(answers[column])}", "")
        for row, (pixels, title) in enumerate(zip(pictures, titles, strict=True)):
            looks = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1} if row == 2 else {"cmap": "gray", "vmin": 0, "vmax": 1}
            panels[row, column].imshow(_square(pixels), **looks)
            panels[row, column].set_title(title, fontsize=8.5, pad=3)
    for row, name in enumerate(("original", "adversarial", "10 x difference")):
        panels[row, 0].text(-0.12, 0.5, name, transform=panels[row, 0].transAxes, rotation=90, ha="right", va="center")
    figure.suptitle(f"(d)  Adversarial examples for {NAMES.get(run.arm, run.arm)}", fontsize=10)


def _table(runs: Runs, name: str, halves: bool, square: bool = False) -> tuple[list[str], np.ndarray]:
    """A derived table of all seeds that have the same models, (seeds, ..., models), models in the page's order.

    square: the axis before the last one counts models too. Without such a table: no arms and an empty array.
    """
    by_seed = [runs.select(seed=seed) for seed in runs.seeds]
    widest = max((arms_of(of_seed, halves) for of_seed in by_seed), key=len, default=[])
    found = [of_seed.values(name)[0] for of_seed in by_seed
             if arms_of(of_seed, halves) == widest and _has_array(of_seed, name)]
    if not found:
        return [], np.empty(0)
    order = sorted(range(len(widest)), key=lambda place: (_rank(widest[place]), widest[place]))
    table = np.stack(found)[..., order]
    return [widest[place] for place in order], table[..., order, :] if square else table


def _rank(arm: str) -> int:
    return list(NAMES).index(arm) if arm in NAMES else len(NAMES)


def _has_array(runs: Runs, name: str) -> bool:
    return any(np.ndim(run.values.get(name, 0.0)) > 0 for run in runs.select(arm=ACROSS))


def _images(runs: Runs, count: str, halfwidth: str) -> str:
    return f"{_mean(runs, count):.0f} images a seed, 95 % interval of a cell within ±{100 * _mean(runs, halfwidth):.0f}"


def _mean(runs: Runs, name: str) -> float:
    return float(np.nanmean(runs.values(name)))


def _shown_run(runs: Runs) -> Run | None:
    arms = [SHOWN, *runs.arms]
    return next((run for arm in arms for run in runs.select(arm=arm) if "adversarial" in run.values), None)


def _one_of_each_class(run: Run) -> list[int]:
    """Rows of the first image of each class that was changed successfully, at most ``COLUMNS``."""
    labels, changed = np.asarray(run.values["labels"]), np.isfinite(run.values["distances"])
    firsts = [np.flatnonzero(changed & (labels == label)) for label in np.unique(labels)]
    return [int(rows[0]) for rows in firsts if len(rows)][:COLUMNS]


def _square(pixels: np.ndarray) -> np.ndarray:
    side = round(np.sqrt(pixels.size))
    return pixels.reshape(side, side) if side * side == pixels.size else pixels.reshape(1, -1)
