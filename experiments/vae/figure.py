"""The figure: the paper's figure 2 (bounds against training points), figure 3 (log p(x)), and the measured extras."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from experiments.measurement import Runs
from experiments.style import BLUE, GREEN, GREY, ORANGE, PURPLE, figure_style, panel_letter, plot_seeds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

AXIS = "model.latent_dim"
COLOURS = {"aevb": BLUE, "wake_sleep": ORANGE, "mcem": GREEN}
LABELS = {"aevb": "AEVB", "wake_sleep": "wake-sleep", "mcem": "Monte Carlo EM"}
PARTS = {"train": "--", "test": "-"}


def draw(runs: Runs, claims: list[dict]) -> Figure:
    """Top: one panel for each N_z. Bottom: figure 3 twice, the step sizes, the manifold, identity and variance."""
    from matplotlib.figure import Figure

    sizes = _shared_sizes(runs)
    with figure_style():
        figure = Figure(figsize=(13, 7), layout="constrained")
        top, bottom = figure.add_gridspec(2, 1, height_ratios=(1.1, 1))
        panels = _row(figure, top.subgridspec(1, max(1, len(sizes))))
        few, many, rates, plane = _row(figure, bottom.subgridspec(1, 5, width_ratios=(1, 1, 1, 1, 0.9)))[:4]
        _draw_all_bounds(panels, runs, sizes)
        _draw_marginals(few, many, runs)
        _draw_step_sizes(rates, runs, sizes)
        _draw_manifold(plane, runs)
        identity, variance = _split_last(figure)
        _draw_identity(identity, runs)
        _draw_variance(variance, runs, sizes)
        for letter, axes in zip("abcdefghijklm", figure.axes, strict=False):
            panel_letter(axes, letter)
        verdicts = [f"{claim['id']} {claim['verdict']}" for claim in claims]
        half = (len(verdicts) + 1) // 2
        figure.supxlabel("\n".join("    ".join(part) for part in (verdicts[:half], verdicts[half:])), fontsize=7,
                         color=GREY)
    return figure


def _row(figure: Figure, grid) -> list[Axes]:
    return [figure.add_subplot(cell) for cell in grid]


def _split_last(figure: Figure) -> list[Axes]:
    """Replace the last panel by two, one above the other."""
    last = figure.axes[-1]
    halves = last.get_subplotspec().subgridspec(2, 1)
    last.remove()
    return _row(figure, halves)


def _shared_sizes(runs: Runs) -> list:
    return (runs.select(arm="aevb") or runs.select(arm="wake_sleep")).axis(AXIS)


def _draw_all_bounds(panels: Sequence[Axes], runs: Runs, sizes: list) -> None:
    for axes, size in zip(panels, sizes, strict=False):
        _draw_bounds(axes, runs, size)
        _write_difference(axes, runs, size)
    limits = [limit for axes in panels if (limit := _bound_limits(axes))]
    for axes in panels if limits else ():
        axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    panels[0].set_ylabel("lower bound (nats per data point)")
    if sizes:
        panels[0].legend(fontsize=8, loc="center right")


def _draw_bounds(axes: Axes, runs: Runs, size: int) -> None:
    for arm in ("aevb", "wake_sleep"):
        for part, dashes in PARTS.items():
            y = runs.values(f"curve_{part}", arm, {AXIS: size})
            if len(y):
                x = runs.values("curve_points", arm, {AXIS: size})[0]
                plot_seeds(axes, x[1:], y[:, 1:], color=COLOURS[arm], linestyle=dashes, linewidth=1.4,
                           label=f"{LABELS[arm]} ({part})")
    axes.set(xscale="log", xlabel="training points evaluated", title=f"$N_z$ = {size}")


def _write_difference(axes: Axes, runs: Runs, size: int) -> None:
    ends = [runs.values("elbo_test", arm, {AXIS: size}) for arm in ("aevb", "wake_sleep")]
    if len(ends[0]) and len(ends[0]) == len(ends[1]):
        difference = ends[0] - ends[1]
        axes.text(0.97, 0.06, f"AEVB minus wake-sleep, test, at the end:\n{difference.mean():+.2f} nat "
                  f"(seeds {difference.min():+.2f} to {difference.max():+.2f})",
                  transform=axes.transAxes, ha="right", fontsize=8)


def _bound_limits(axes: Axes) -> tuple[float, float] | None:
    """From AEVB's bound after a few updates, as the paper's axis cuts off the first bounds, to the best bound."""
    curves = {line.get_label(): line.get_ydata() for line in axes.lines}
    test = curves.get("AEVB (test)")
    if test is None:
        return None
    low, high = test[min(2, len(test) - 1)], max(np.max(curve) for curve in curves.values())
    return low, high + 0.05 * (high - low)


def _draw_marginals(few: Axes, many: Axes, runs: Runs) -> None:
    _draw_three(few, runs, "few")
    _draw_three(many, runs, "many")
    ends = [axes.get_ylim() for axes in (few, many)]
    for axes in (few, many):
        axes.set_ylim(min(low for low, _ in ends), max(high for _, high in ends))
    few.set_ylabel("estimated log p(x) (nats)")
    if many.lines:
        many.legend(fontsize=7, loc="upper left")


def _draw_three(axes: Axes, runs: Runs, amount: str) -> None:
    """Figure 3: estimated log p(x) of the three algorithms trained on ``few`` or ``many`` pictures."""
    for algorithm, colour in COLOURS.items():
        arm = f"{algorithm}_{amount}"
        for part, dashes in PARTS.items():
            y = runs.values(f"marginal_{part}", arm)
            if y.ndim == 2:
                plot_seeds(axes, runs.values("marginal_points", arm)[0], y, color=colour, linestyle=dashes,
                           marker="o", markersize=2.5, linewidth=1.2, label=f"{LABELS[algorithm]} ({part})")
    axes.set(xscale="log", xlabel="training points evaluated", title=f"{amount} training pictures")


def _draw_step_sizes(axes: Axes, runs: Runs, sizes: list) -> None:
    """How far the final test bound of every step size and seed is below zero; diverged runs stand out."""
    columns = len(sizes) * 2
    for place, size in enumerate(sizes):
        for side, arm in enumerate(("aevb", "wake_sleep")):
            values = runs.values("elbo_by_rate", arm, {AXIS: size})
            for rate in range(values.shape[1] if values.ndim == 2 else 0):
                x = rate + (2 * place + side - columns / 2 + 0.5) * 0.75 / columns
                axes.plot(np.full(len(values), x), -values[:, rate], "o", markersize=3, color=COLOURS[arm], alpha=0.7)
    axes.set(yscale="log", title="every step size", xlabel="Adagrad step size", ylabel="minus final test bound (nats)")
    rates = next((run.values["step_sizes"] for run in runs if np.ndim(run.values.get("step_sizes", 0))), [])
    axes.set_xticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    axes.invert_yaxis()


def _draw_manifold(axes: Axes, runs: Runs) -> None:
    axes.axis("off")
    axes.set_title("latent plane, $N_z$ = 2")
    pictures = runs.values("manifold", "plane")
    if pictures.ndim != 4:  # no such arm
        return
    rows, columns, pixels = pictures.shape[1:]
    side = round(pixels ** 0.5)
    framed = np.pad(pictures[0].reshape(rows, columns, side, side), ((0, 0), (0, 0), (1, 1), (1, 1)))
    height = side + 2
    axes.imshow(framed.transpose(0, 2, 1, 3).reshape(rows * height, columns * height), cmap="gray_r", vmin=0, vmax=1)


def _draw_identity(axes: Axes, runs: Runs) -> None:
    names = {"free_energy_gap": "error of\nthe identity", "posterior_gap": "KL from q to\nthe posterior"}
    for place, (metric, colour) in enumerate(zip(names, (BLUE, GREY), strict=True)):
        values = runs.values(metric, "plane")
        if len(values):
            _bar(axes, place, values, colour, 0.6)
    axes.axhline(0.05, color=PURPLE, linewidth=1, linestyle=":")
    axes.set(title="free energy", ylabel="nats")
    axes.set_xticks(range(len(names)), list(names.values()), fontsize=8)


def _draw_variance(axes: Axes, runs: Runs, sizes: list) -> None:
    kinds = {"reparameterised": BLUE, "score": GREY}
    for place, size in enumerate(sizes):
        for side, (kind, colour) in enumerate(kinds.items()):
            values = runs.values(f"gradient_variance_{kind}", "aevb", {AXIS: size})
            if len(values):
                _bar(axes, place + 0.36 * (side - 0.5), values, colour, 0.34, label=kind if place == 0 else None)
    axes.set(yscale="log", title="gradient variance", xlabel="$N_z$")
    axes.set_xticks(range(len(sizes)), sizes)
    if axes.patches:
        axes.set_ylim(top=axes.get_ylim()[1] * 30)
        axes.legend(fontsize=7, loc="upper left", borderpad=0)


def _bar(axes: Axes, x: float, values: np.ndarray, colour: str, width: float, label: str | None = None) -> None:
    axes.bar(x, values.mean(), width, color=colour, label=label)
    axes.plot(np.full(len(values), x), values, ".", color="black", markersize=2)
