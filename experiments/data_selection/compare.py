"""Comparisons across the arms of one seed: how far ahead one arm is, and the best of two families of arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from experiments.measurement import Runs, derived


@derived("easy_lead", "easy_lead_theory")
def lead(runs: Runs, ahead: str, behind: Sequence[str], shares: Sequence[float], at: Mapping[str, Any]) -> dict[str, float]:
    """By how much the error of arm ``ahead`` is below that of the nearest arm of ``behind``, at the worst of the shares.

    at: the rest of the grid point. Simulation and theory; NaN where a run is missing.
    """
    return {name: min(_value(runs, arm, share, at, metric) - _value(runs, ahead, share, at, metric)
                      for share in shares for arm in behind)
            for name, metric in (("easy_lead", "error"), ("easy_lead_theory", "theory"))}


@derived("best_biased", "best_unbiased", "best_biased_theory", "best_unbiased_theory")
def best(runs: Runs, biased: Sequence[str], unbiased: Sequence[str], share: float, at: Mapping[str, Any]) -> dict[str, float]:
    """The smallest error among arms with weights 1 and among arms with weights 1 / probability, at one share."""
    families = {"best_biased": biased, "best_unbiased": unbiased}
    return {f"{name}{suffix}": min(_value(runs, arm, share, at, metric) for arm in arms)
            for name, arms in families.items() for suffix, metric in (("", "error"), ("_theory", "theory"))}


def _value(runs: Runs, arm: str, share: float, at: Mapping[str, Any], metric: str) -> float:
    chosen = runs.select(arm=arm, at={**at, "arm.kept": share})
    return float(chosen[0].values[metric]) if len(chosen) == 1 else float(np.nan)
