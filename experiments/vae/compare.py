"""What is compared across the runs of one seed: latent sizes of one algorithm, and two algorithms along their curves.

Source: Kingma and Welling (arXiv 1312.6114), figure 2. NaN where a run that is needed is not there.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.measurement import Runs, Value, derived


@derived("capacity_gain")
def capacity(runs: Runs, axis: str, arm: str) -> dict[str, float]:
    """Test bound with the most latent dimensions minus the best with fewer: far below zero means overfitting."""
    sizes = runs.select(arm=arm).axis(axis)
    bounds = [float(runs.values("elbo_test", arm, {axis: size})[0]) for size in sizes]
    return {"capacity_gain": bounds[-1] - max(bounds[:-1]) if len(bounds) > 1 else np.nan}


@derived("budget_to_match")
def catch_up(runs: Runs, axis: str, faster: str, slower: str) -> dict[str, float]:
    """The part of the budget after which ``faster`` is at the final test bound of ``slower``, mean over the grid.

    Interpolated in log(points); 1 when it gets there at the end only, or not at all.
    """
    parts = []
    for size in runs.select(arm=slower).axis(axis):
        lead, behind = (runs.select(arm=arm, at={axis: size}) for arm in (faster, slower))
        if len(lead) and len(behind):
            parts.append(_crossing(lead[0].values, float(behind[0].values["elbo_test"])))
    return {"budget_to_match": float(np.mean(parts)) if parts else np.nan}


def _crossing(curve: Mapping[str, Value], level: float) -> float:
    """First fraction of the budget at which the curve is at the level, linear in log(points)."""
    x, y = np.log(curve["curve_points"][1:]), curve["curve_test"][1:]
    above = np.flatnonzero(y >= level)
    if not len(above):
        return 1.0
    after = above[0]
    if after == 0:
        return float(np.exp(x[0] - x[-1]))
    weight = (level - y[after - 1]) / (y[after] - y[after - 1])
    return float(np.exp(x[after - 1] + weight * (x[after] - x[after - 1]) - x[-1]))


@derived("equal_cost_gain")
def equal_cost(runs: Runs, cheap: str, dear: str) -> dict[str, float]:
    """Final test log likelihood (nats) of ``cheap`` minus that of ``dear`` after as many network gradients.

    The curve of ``dear`` is interpolated in log(points).
    """
    pair = [runs.select(arm=arm) for arm in (cheap, dear)]
    if not all(len(found) for found in pair):
        return {"equal_cost_gain": np.nan}
    less, more = (found[0].values for found in pair)
    points = less["marginal_points"][-1] * less["gradients_per_point"] / more["gradients_per_point"]
    there = np.interp(np.log(points), np.log(more["marginal_points"]), more["marginal_test"])
    return {"equal_cost_gain": float(less["log_likelihood_test"] - there)}
