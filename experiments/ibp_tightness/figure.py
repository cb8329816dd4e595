"""Four panels: tightness at initialisation over width and over depth, after training over the radius, and embeddings.

After figures of Mao et al. (arXiv 2306.10426), sections 3 and 5. It reads stored measurements alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.ibp_tightness.tightness import gaussian_tightness
from experiments.measurement import Runs
from experiments.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, figure_style, panel_letter, plot_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXIS = "arm.eps"
METHODS = {"ibp": ("IBP", BLUE), "sabr_04": ("SABR 0.4", SKY), "sabr_01": ("SABR 0.1", GREEN), "pgd": ("PGD", ORANGE)}
EMBEDDINGS = (("embed_ibp", "embed", "IBP-trained", BLUE), ("embed_standard", "embed", "standard", GREY),
              ("embed_standard", "pca", "PCA", PURPLE))


def draw(runs: Runs, claims: list[dict]) -> Figure:
    """The figure of a table of runs; what an absent arm would show stays empty."""
    from matplotlib.figure import Figure

    with figure_style():
        figure = Figure(figsize=(11, 7.6), layout="constrained")
        panels = figure.subplots(2, 2).flatten()
        _draw_width(panels[0], runs)
        _draw_depth(panels[1], runs)
        _draw_radius(panels[2], runs)
        _draw_embedding(panels[3], runs)
        for letter, axes in zip("abcd", panels, strict=True):
            panel_letter(axes, letter)
        figure.supxlabel(_verdicts(claims), fontsize=7, color=GREY)
    return figure


def _verdicts(claims: Sequence[dict]) -> str:
    texts = [f"{claim['id']} {claim['verdict']}" for claim in claims]
    count = 6
    return "\n".join("    ".join(texts[start : start + count]) for start in range(0, len(texts), count))


def _stack(runs: Runs, arm: str, metric: str) -> np.ndarray:
    """An array-valued metric of one arm, (seeds, ...); empty where the arm is missing."""
    return runs.values(metric, arm)


def _draw_width(axes: Axes, runs: Runs) -> None:
    """Dots on the closed form, the ReLU network's local tightness sqrt(2) above."""
    tau = _stack(runs, "random", "init_width")
    if tau.ndim == 3:
        widths = _stack(runs, "random", "init_widths")[0]
        fine = np.geomspace(widths[0], widths[-1], 60)
        theory = np.array([gaussian_tightness(width) for width in fine])
        for column, (label, colour) in enumerate((("linear", BLUE), ("ReLU, local", ORANGE))):
            factor = math.sqrt(2) ** column
            axes.plot(fine, factor * theory, color=colour, linewidth=1, linestyle="-" if not column else "--",
                      label="closed form" if not column else r"$\sqrt{2}$ times it")
            _dots(axes, widths, tau[..., column], colour, f"{label}, measured")
        axes.legend(fontsize=7)
    axes.set(xscale="log", yscale="log", xlabel="width", ylabel=r"tightness $\tau$",
             title="two layers, at initialisation")


def _dots(axes: Axes, x: np.ndarray, y: np.ndarray, colour: str, label: str, **marks) -> None:
    """Every seed as a dot; y (seeds, points)."""
    axes.plot(np.tile(x, len(y)), y.ravel(), **{"marker": "o", "markersize": 3.5, "linestyle": "none", "color": colour,
                                                "label": label, **marks})


def _draw_depth(axes: Axes, runs: Runs) -> None:
    """Perceptrons with their line, and the authors' convolutional networks beside what the authors found."""
    tau = _stack(runs, "random", "init_depth")
    if tau.ndim == 3:
        depths = _stack(runs, "random", "init_depths")[0]
        slope = np.polyfit(depths, np.log(tau[..., 0].mean(0)), 1)
        axes.plot(depths, np.exp(np.polyval(slope, depths)), color=BLUE, linewidth=1,
                  label=f"fitted line: a factor {math.exp(-slope[0]):.1f} each layer")
        _dots(axes, depths, tau[..., 0], BLUE, "perceptron, linear")
        _dots(axes, depths, tau[..., 1], ORANGE, "perceptron, ReLU, local")
        _draw_convolutional(axes, runs)
        axes.legend(fontsize=7)
    axes.set(yscale="log", xlabel="layers", ylabel=r"tightness $\tau$", title="deeper networks, at initialisation")


def _draw_convolutional(axes: Axes, runs: Runs) -> None:
    layers, tau, theirs = (_stack(runs, "random", name) for name in ("cnn_layers", "cnn", "cnn_published"))
    _dots(axes, layers[0], tau[..., 0], GREEN, "authors' CNNs, linear", marker="s", markersize=4)
    _dots(axes, layers[0], tau[..., 1], GREEN, "authors' CNNs, local", marker="s", markersize=4, fillstyle="none")
    _dots(axes, layers[0], theirs[:1, :, 0], BLACK, "as published", marker="x", markersize=6)
    _dots(axes, layers[0], theirs[:1, :, 1], BLACK, "_", marker="x", markersize=6)


def _draw_radius(axes: Axes, runs: Runs) -> None:
    """Tightness after training over the radius; standard training, which has none, as a level."""
    for arm, (label, colour) in METHODS.items():
        radii = runs.select(arm=arm).axis(AXIS)
        if radii:
            tau = np.stack([runs.values("tau", arm, {AXIS: radius}) for radius in radii], 1)
            plot_seeds(axes, radii, tau, color=colour, marker="o", markersize=3, linewidth=1.3,
                       label=f"{label}{_accuracies(runs, arm, radii[-1])}")
    for arm, label, dashes in (("standard_shi", "standard, IBP's start", "--"), ("standard", "standard", "-")):
        radii = runs.select(arm=arm).axis(AXIS)
        if radii:
            axes.axhline(runs.values("tau", arm).mean(), color=GREY, linewidth=1.2, linestyle=dashes,
                         label=f"{label}{_accuracies(runs, arm, radii[-1])}")
    start = runs.values("tau_start", "standard")
    if len(start):
        axes.axhline(start.mean(), color=GREY, linewidth=1, linestyle=":", label="before training")
    axes.set(xscale="log", xlabel=r"radius $\epsilon$ in training", ylabel=r"local tightness $\tau$",
             title="after training")
    if axes.lines:
        axes.set_ylim(bottom=0)
        axes.legend(fontsize=7, title="% correct, certified at the largest radius", title_fontsize=7)


def _accuracies(runs: Runs, arm: str, radius: float) -> str:
    shown = [100 * runs.values(name, arm, {AXIS: radius}).mean() for name in ("clean", "certified")]
    return f" ({shown[0]:.0f}, {shown[1]:.0f})"


def _draw_embedding(axes: Axes, runs: Runs) -> None:
    """Left axis, full lines: tightness. Right axis, dashed: radius of the box by interval bounds."""
    right = axes.twinx()
    for arm, prefix, label, colour in EMBEDDINGS:
        tau = _stack(runs, arm, f"{prefix}_tau")
        if tau.ndim == 2:
            widths = _stack(runs, arm, "embed_widths")[0]
            plot_seeds(axes, widths, tau, color=colour, marker="o", markersize=3, linewidth=1.3, label=label)
            plot_seeds(right, widths, _stack(runs, arm, f"{prefix}_radius"), color=colour, marker="s", markersize=3,
                       linewidth=1.1, linestyle="--")
    axes.set(xlabel="width", ylabel=r"tightness $\tau$ (full)", title="linear autoencoders of rank-40 data")
    right.set_ylabel("box radius over input radius (dashed)")
    right.grid(False)
    right.spines["right"].set_visible(True)
    if axes.lines:
        axes.legend(fontsize=7, loc="upper center")
