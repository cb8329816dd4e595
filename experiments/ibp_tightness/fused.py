"""What all parts of this experiment share because one job carries every seed and every radius of an arm."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from experiments.measurement import Trained


def as_list(values: float | Sequence[float]) -> list:
    """A single value as a list of one."""
    return [values] if isinstance(values, float | int) else list(values)


def one_radius(eps: float | Sequence[float]) -> float:
    """The radius of an arm that has a single one. Raises ValueError for several."""
    radii = as_list(eps)
    if len(radii) != 1:
        raise ValueError(f"arm.eps is {radii}; this arm takes one radius")
    return float(radii[0])


def fused_shape(trained: Trained) -> tuple[int, int]:
    """The leading axes of every measurement of a job: seeds and radii."""
    return len(trained.seeds), len(as_list(trained.config.arm.eps))


def absent(function: Callable, trained: Trained) -> dict[str, np.ndarray]:
    """NaN for every metric that a measurement function declares: an arm of another kind does not have it."""
    return dict.fromkeys(function.metric_names, np.full(fused_shape(trained), np.nan))
