"""What the learning rates of one seed show together: the regimes of each kind of model and who generalises best.

A value without a data set's name is the worst over data sets, and all are the worst over the learning rates of a
regime, so that a threshold on one holds at all of them. c is the learning rate times the largest eigenvalue of the
initial kernel; a linear model diverges above 2. Where a data set, a kind or a regime is missing the value is NaN.
Source: Zhu et al., arXiv 2205.11787, sections 3 and 4, theorems 1 and 2, figure 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from experiments.measurement import Runs, derived

CRITICAL = 2.0  # c at eta_crit
KINDS = ("net", "quadratic")  # those with catapults
SETS = ("teacher", "digits", "conv")
Range = Sequence[float]


@derived("linear_end_lazy", "quadratic_end_catapult", "net_end_catapult", "net_end_edge")
def convergence(runs: Runs, arms: Sequence[str], lazy: Range, catapult: Range, edge: Range) -> dict[str, float]:
    """The largest last loss over the first, infinite where a run diverges.

    arms: data sets; lazy, catapult, edge: the lowest and the highest c of each regime. The edge is the part of the
    quadratic model's catapult regime in which a network of this width may diverge.
    """
    return {
        "linear_end_lazy": _over(max, runs, arms, "linear", "end", lazy),
        "quadratic_end_catapult": _over(max, runs, arms, "quadratic", "end", [catapult[0], edge[1]]),
        "net_end_catapult": _over(max, runs, arms, "net", "end", catapult),
        "net_end_edge": _over(max, runs, arms, "net", "end", edge),
    }


@derived("linear_diverged", "teacher_diverged", "digits_diverged", "conv_diverged")
def divergence(runs: Runs, linear: Range, quadratic: Range) -> dict[str, float]:
    """The share of runs that diverge: linear models of all data sets, and the quadratic models of each.

    linear, quadratic: the range of c past the largest rate at which each converges. A share is bounded, so that one
    seed in which no run diverges weighs as much as one in which they do.
    """
    return {
        "linear_diverged": _over(_share_infinite, runs, SETS, "linear", "end", linear),
        **{f"{arm}_diverged": _over(_share_infinite, runs, [arm], "quadratic", "end", quadratic) for arm in SETS},
    }


@derived("quadratic_rise_lazy", "quadratic_rise_catapult", "net_rise_lazy", "net_rise_catapult", "spike_ratio")
def spikes(runs: Runs, arms: Sequence[str], lazy: Range, catapult: Range, edge: Range) -> dict[str, float]:
    """Largest loss over the first: the largest for lazy rates, the smallest for catapults (the model's with the edge).

    spike_ratio: the network's over the quadratic model's, or its inverse, whichever is larger.
    """
    ratios = _pairs(runs, arms, "rise", catapult)
    return {
        "quadratic_rise_lazy": _over(max, runs, arms, "quadratic", "rise", lazy),
        "quadratic_rise_catapult": _over(min, runs, arms, "quadratic", "rise", [catapult[0], edge[1]]),
        "net_rise_lazy": _over(max, runs, arms, "net", "rise", lazy),
        "net_rise_catapult": _over(min, runs, arms, "net", "rise", catapult),
        "spike_ratio": _worst(max, [max(ratio, 1 / ratio) for ratio in ratios]),
    }


@derived("kernel_lazy", "kernel_catapult", "kernel_step", "kernel_step_edge", "kernel_sharpness")
def kernels(runs: Runs, arms: Sequence[str], lazy: Range, catapult: Range, edge: Range,
            strong: float) -> dict[str, float]:
    """The kernel's largest eigenvalue at the end over that at the start, of networks and quadratic models alike.

    kernel_lazy: the smallest for lazy rates; kernel_catapult: the largest for c from ``strong`` on.
    kernel_step: the largest ratio between neighbouring rates from the last lazy one through the catapults, below 1
    where the kernel ends lower at higher rates; kernel_step_edge: the same from the last of these through the edge.
    kernel_sharpness: the largest c times the end value over all catapults that converge, at most 2 at an equilibrium.
    """
    steps, edge_steps, sharpness = [], [], []
    for kind in KINDS:
        for arm in arms:
            curve = _curve(runs, arm, kind, "kernel_end", [lazy[1], edge[1]])
            ratios = [(c, later / value) for (_, value), (c, later) in pairwise(curve)]
            steps += [ratio for c, ratio in ratios if c <= catapult[1]]
            edge_steps += [ratio for c, ratio in ratios if c > catapult[1]]
            sharpness += [c * value for c, value in curve if c > CRITICAL and math.isfinite(value)]
    both = [(kind, arm) for kind in KINDS for arm in arms]
    return {
        "kernel_lazy": _worst(min, [v for k, a in both for _, v in _curve(runs, a, k, "kernel_end", lazy)]),
        "kernel_catapult": _worst(max, [
            v for k, a in both for _, v in _curve(runs, a, k, "kernel_end", [strong, catapult[1]])
        ]),
        "kernel_step": _worst(max, steps),
        "kernel_step_edge": _worst(max, edge_steps),
        "kernel_sharpness": _worst(max, sharpness),
    }


@derived("between_first_over_second", "between_second", "above_either")
def selectivity(runs: Runs, arm: str, between: float, above: float) -> dict[str, float]:
    """The kernel's end over its start along its two initial directions, of networks and quadratic models alike.

    between, above: the settings of ``arm.rate`` between the two critical rates and above both.
    between_first_over_second: the largest ratio of the two; between_second: the smallest along the second;
    above_either: the largest along either.
    """
    first, second, above_first, above_second = (
        [run.values[name] for kind in KINDS for run in runs.select(arm=arm, at={"model.kind": kind, "arm.rate": rate})]
        for rate in (between, above) for name in ("top_kept", "second_kept")
    )
    return {
        "between_first_over_second": _worst(max, [one / two for one, two in zip(first, second, strict=True)]),
        "between_second": _worst(min, second),
        "above_either": _worst(max, [*above_first, *above_second]),
    }


@derived("spike_growth", "spike_slope_net", "spike_slope_quadratic")
def widths(runs: Runs, arms: Sequence[str]) -> dict[str, float]:
    """The spike over the width; arms in order of width.

    spike_growth: the smallest ratio of the spike to that of the next narrower, of networks and quadratic models alike.
    spike_slope_net, spike_slope_quadratic: fitted exponents of the spike as a power of the width.
    """
    curves = {kind: [(run.values["width"], run.values["rise"]) for arm in arms
                     for run in runs.select(arm=arm, at={"model.kind": kind})] for kind in KINDS}
    growth = [later[1] / earlier[1] for curve in curves.values() for earlier, later in pairwise(curve)]
    slopes = {f"spike_slope_{kind}": _power(curve) for kind, curve in curves.items()}
    return {"spike_growth": _worst(min, growth), **slopes}


@derived("teacher_gain", "digits_gain", "conv_gain")
def generalisation(runs: Runs, lazy: Range, catapult: Range) -> dict[str, float]:
    """The best test error of catapults over the best of lazy rates and of the linear model at lazy rates.

    The larger ratio of the network and the quadratic model: below 1 both generalise better than without a catapult.
    """
    return {
        f"{arm}_gain": _worst(max, [_gain(runs, arm, kind, lazy, catapult) for kind in KINDS])
        for arm in SETS
    }


def _gain(runs: Runs, arm: str, kind: str, lazy: Range, catapult: Range) -> float:
    without = min(_best(runs, arm, kind, lazy), _best(runs, arm, "linear", lazy))
    return _best(runs, arm, kind, catapult) / without


def _curve(runs: Runs, arm: str, kind: str, metric: str, within: Range) -> list[tuple[float, float]]:
    """(c, value) of the runs of a data set and kind with c in a closed range, in order of c."""
    chosen = runs.select(arm=arm, at={"model.kind": kind})
    pairs = sorted((float(run.values["rate"]), float(run.values[metric])) for run in chosen)
    slack = 1e-9  # c went through a division by the eigenvalue and back
    return [(c, value) for c, value in pairs if within[0] - slack <= c <= within[1] + slack]


def _over(choose: Callable, runs: Runs, arms: Sequence[str], kind: str, metric: str, within: Range) -> float:
    return _worst(choose, [value for arm in arms for _, value in _curve(runs, arm, kind, metric, within)])


def _pairs(runs: Runs, arms: Sequence[str], metric: str, within: Range) -> list[float]:
    """The network's value over the quadratic model's, at every data set and rate."""
    return [net / quadratic for arm in arms for (_, net), (_, quadratic) in zip(
        _curve(runs, arm, "net", metric, within), _curve(runs, arm, "quadratic", metric, within), strict=False)]


def _best(runs: Runs, arm: str, kind: str, within: Range) -> float:
    return _worst(min, [value for _, value in _curve(runs, arm, kind, "best_error", within)])


def _power(curve: Sequence[tuple[float, float]]) -> float:
    """Exponent of y as a power of x by least squares; NaN for fewer than two points or one that is not finite."""
    if len(curve) < 2 or not np.isfinite(curve).all():
        return math.nan
    x, y = np.log(np.array(curve, dtype=float)).T
    return float(np.polyfit(x, y, 1)[0])


def _share_infinite(values: Sequence[float]) -> float:
    return float(np.isinf(values).mean())


def _worst(choose: Callable, values: Sequence[float]) -> float:
    """The smallest or largest; NaN for none of them or where one is NaN."""
    return math.nan if not len(values) or np.isnan(values).any() else float(choose(values))
