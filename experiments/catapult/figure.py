"""The figure: test error over the learning rate, one catapult in time, and what the rates and the width do.

First row: figure 4 of the paper, with x in units of the critical rate. Second row: figure 3, the loss and the kernel
along its two top directions at four rates (figure 5 for the network). Third row: the end of the kernel, the height of
the spike, and the spike over the width (figures 2 and 8). A rate is drawn where every seed converged; the critical rate
itself, at which nothing is claimed, is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from experiments import style
from experiments.measurement import Run, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CRITICAL = 2.0  # learning rate times eigenvalue at which a linear model stops converging
LOOKS = {
    "net": {"label": "$f$", "color": style.BLUE, "marker": "o"},
    "quadratic": {"label": r"$f_{\mathrm{quad}}$", "color": style.ORANGE, "marker": "s"},
    "linear": {"label": r"$f_{\mathrm{lin}}$", "color": style.GREEN, "marker": "^"},
}
SETS = {"teacher": "Gaussian teacher, two layers", "digits": "images, two layers", "conv": "images, convolutional"}
RATES = {  # of the two clusters, in units of the eigenvalues' geometric mean: label and colour
    1.5: (r"$\eta<2/\lambda_1$", style.GREEN), 2.0: (r"$2/\lambda_1<\eta<2/\lambda_2$", style.ORANGE),
    2.6: (r"$\eta>2/\lambda_2$", style.BLUE), 4.3: (r"$\eta>4/\lambda_1$", style.RED),
}
WIDTHS = ("narrow", "medium", "wide")


def draw(runs: Runs, claims: list[dict]) -> Figure:
    """Three rows of three panels from measurements alone; arms that are missing leave their panels empty."""
    from matplotlib.figure import Figure

    with style.figure_style():
        figure = Figure(figsize=(10.5, 9.0), layout="constrained")
        panels = figure.subplots(3, 3)
        for letter, axes in zip("abcdefghi", panels.flat, strict=True):
            style.panel_letter(axes, letter)
        for axes, (arm, title) in zip(panels[0], SETS.items(), strict=True):
            _draw_errors(axes, runs, arm, title)
        _draw_dynamics(panels[1], runs)
        _draw_over_rates(panels[2, 0], runs, "kernel_end", r"largest eigenvalue, end / start ($\lambda/\lambda_0$)")
        _draw_over_rates(panels[2, 1], runs, "rise", "highest loss / first")
        _draw_widths(panels[2, 2], runs)
    return figure


def _draw_errors(axes: Axes, runs: Runs, arm: str, title: str) -> None:
    means: list[float] = []
    for kind, looks in LOOKS.items():
        x, y = _curve(runs, arm, kind, "best_error")
        if len(x):
            style.plot_seeds(axes, x, y, markersize=4, **looks)
            means += y.mean(0).tolist()
    axes.axvline(1, color=style.GREY, linestyle="--", linewidth=1)
    axes.set_title(title)
    axes.set_xlabel(r"learning rate $\eta/\eta_{\mathrm{crit}}$")
    axes.set_ylabel("best test loss")
    if means:
        lowest, usual = min(means), float(np.median(means))
        axes.set_ylim(0.8 * lowest, min(1.7 * usual, axes.get_ylim()[1]))  # past its best rate the loss grows at will
    if means and arm == "teacher":
        axes.legend(loc="upper left")


def _draw_dynamics(panels: np.ndarray, runs: Runs) -> None:
    """One seed's runs at each of four rates: the quadratic model drawn through, the network dashed.

    The seed is that with the largest ratio of the two eigenvalues, between whose critical rates there is most room.
    """
    clusters = runs.select(arm="clusters")
    seed = max(clusters, key=lambda run: run.values["top_start"] / run.values["second_start"]).seed if clusters else 0
    names = {"loss_curve": "training loss", "top_curve": r"$\lambda_1(t)/n$", "second_curve": r"$\lambda_2(t)/n$"}
    for axes, (metric, name) in zip(panels, names.items(), strict=True):
        for rate, (label, color) in RATES.items():
            for kind, line in (("quadratic", "-"), ("net", "--")):
                for run in clusters.select(seed=seed, at={"model.kind": kind, "arm.rate": rate}):
                    _draw_history(axes, run, metric, color=color, linestyle=line, label=label if line == "-" else None)
        axes.set_xlabel("step")
        axes.set_title(f"{name}, two clusters (seed {seed})")
    panels[0].set_yscale("log")
    if panels[0].get_legend_handles_labels()[0]:
        panels[0].legend(title=r"$f_{\mathrm{quad}}$; dashed $f$", fontsize=7.5, title_fontsize=7.5)
    for axes in panels[1:]:
        axes.set_ylim(0, 1.25 * max((run.values["top_start"] for run in clusters.select(seed=seed)), default=1.0))


def _draw_history(axes: Axes, run: Run, metric: str, **looks) -> None:
    """A curve over descent steps until the run ends or diverges."""
    alive = np.isfinite(run.values["loss_curve"])
    steps = float(run.values["block"]) * np.arange(len(alive))
    axes.plot(steps[alive], np.asarray(run.values[metric])[alive], linewidth=1.3, **looks)


def _draw_over_rates(axes: Axes, runs: Runs, metric: str, name: str) -> None:
    for arm, line in (("teacher", "-"), ("digits", ":")):
        for kind in ("net", "quadratic"):
            x, y = _curve(runs, arm, kind, metric)
            if len(x):
                looks = LOOKS[kind] | {"label": f"{LOOKS[kind]['label']}, {SETS[arm].split(',')[0]}"}
                style.plot_seeds(axes, x, y, markersize=4, linestyle=line, **looks)
    axes.axvline(1, color=style.GREY, linestyle="--", linewidth=1)
    axes.set_xlabel(r"learning rate $\eta/\eta_{\mathrm{crit}}$")
    axes.set_title(name)
    if metric == "rise":
        axes.set_yscale("log")
    else:
        x = np.linspace(1, 2.1, 50)
        axes.plot(x, 1 / x, color=style.BLACK, linewidth=1)
        axes.annotate(r"$2/\eta$, the most at rest", (1.35, 0.76), fontsize=8)
    if metric == "rise" and axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7.5, loc="lower right")


def _draw_widths(axes: Axes, runs: Runs) -> None:
    for kind in ("net", "quadratic"):
        found = [(arm, runs.values("rise", arm, {"model.kind": kind})) for arm in WIDTHS]
        found = [(arm, values) for arm, values in found if len(values)]
        if found:
            width = [float(runs.values("width", arm)[0]) for arm, _ in found]
            style.plot_seeds(axes, np.array(width), np.stack([values for _, values in found], 1), markersize=4,
                             **LOOKS[kind])
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    ticks = sorted({run.values["width"] for arm in WIDTHS for run in runs.select(arm=arm)})
    axes.set_xticks(ticks, [f"{tick:.0f}" for tick in ticks])
    axes.set_xlabel("width $m$")
    axes.set_title("highest loss / first, 20 points")
    if axes.get_legend_handles_labels()[0]:
        axes.legend()


def _curve(runs: Runs, arm: str, kind: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Rates over the critical one (points,) and values (seeds, points), where every seed converged."""
    chosen = runs.select(arm=arm, at={"model.kind": kind})
    rates = chosen.axis("arm.rate")
    if not rates:
        return np.empty(0), np.empty((0, 0))
    values = np.stack([chosen.values(metric, arm, {"arm.rate": rate}) for rate in rates], 1)
    kept = np.isfinite(values).all(0) & (np.array(rates) != CRITICAL)
    return np.array(rates)[kept] / CRITICAL, values[:, kept]
