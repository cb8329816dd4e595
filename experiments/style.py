"""The look shared by every figure: one palette, one font size, seeds as a mean line with a band.

The palette is Okabe and Ito's, which stays distinct for colour-blind readers.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, PURPLE = "#0072B2", "#E69F00", "#009E73", "#CC79A7"
SKY, RED, YELLOW, BLACK, GREY = "#56B4E9", "#D55E00", "#F0E442", "#000000", "#8C8C8C"
PALETTE = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED, YELLOW, BLACK)


@contextmanager
def figure_style() -> Iterator[None]:
    """Apply the shared style to the figures drawn inside; the Agg canvas, so that no display is needed."""
    import matplotlib

    settings = {
        "font.size": 9,
        "axes.titlesize": 10,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "grid.alpha": 0.25,
        "legend.frameon": False,
        "figure.dpi": 120,
        "svg.hashsalt": "reprise",
        "axes.prop_cycle": matplotlib.cycler(color=PALETTE),
    }
    with matplotlib.rc_context(settings):
        yield


def plot_seeds(axes: Axes, x: np.ndarray, y: np.ndarray, **line) -> None:
    """Plot the mean over seeds with a min-max band. x: (points,); y: (seeds, points)."""
    y = np.atleast_2d(y)
    (drawn,) = axes.plot(x, y.mean(axis=0), **line)
    if len(y) > 1:
        axes.fill_between(x, y.min(axis=0), y.max(axis=0), color=drawn.get_color(), alpha=0.2, linewidth=0)


def panel_letter(axes: Axes, letter: str) -> None:
    """Write ``(a)`` at the top left, outside the panel."""
    axes.text(-0.02, 1.04, f"({letter})", transform=axes.transAxes, fontweight="bold", ha="right")
