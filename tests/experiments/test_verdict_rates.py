"""How often the judge errs and how often it finds an effect, over simulated trials, against t theory."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from experiments.measurement import Run, Runs
from experiments.verdict import CONTRADICTED, REPRODUCED, decide_jointly, judge

TRIALS = 400
PAIR = {"compare": {"metric": "score", "greater": "new", "than": "old"}}


def verdict(kind: dict, **arms: np.ndarray) -> str:
    claim = {"id": "C1", "says": "it is so", "paper": {"where": "Table 1"}, **kind}
    runs = [Run(arm, seed, {"score": value}) for arm, row in arms.items() for seed, value in enumerate(row)]
    return judge(claim, Runs(runs), "cpu").verdict


Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]
SHAPES: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "t3": lambda rng, shape: rng.standard_t(3, size=shape),
    "uniform": lambda rng, shape: rng.uniform(-1, 1, size=shape),
}


def verdicts(new: np.ndarray, old: np.ndarray) -> list[str]:
    """The verdict of each trial; both arrays have shape (trials, seeds)."""
    return [verdict(PAIR, new=a, old=b) for a, b in zip(new, old, strict=True)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seeds", [3, 5])
def test_arms_of_equal_distribution_are_seldom_told_apart(seeds, shape):
    new, old = SHAPES[shape](np.random.default_rng(11), (2, TRIALS, seeds))
    found = verdicts(new, old)
    assert found.count(REPRODUCED) <= 0.05 * TRIALS
    assert found.count(CONTRADICTED) <= 0.05 * TRIALS


@pytest.mark.parametrize("shape", SHAPES)
def test_an_effect_of_two_deviations_of_the_paired_difference_is_found_with_five_seeds(shape):
    rng = np.random.default_rng(12)
    seed_effect, difference = SHAPES[shape](rng, (2, TRIALS, 5))
    deviation = {"normal": 1.0, "t3": math.sqrt(3.0), "uniform": math.sqrt(1 / 3)}[shape]
    found = verdicts(10 * seed_effect + difference + 2 * deviation, 10 * seed_effect)
    assert found.count(REPRODUCED) >= 0.8 * TRIALS
    assert found.count(CONTRADICTED) == 0


def test_an_effect_of_two_deviations_of_each_unpaired_arm_is_found_less_often():
    """Independent arms differ by sqrt(2) deviations of an arm: the effect is 1.41, and t theory gives the power."""
    new, old = np.random.default_rng(13).normal(size=(2, TRIALS, 5))
    power = verdicts(new + 2.0, old).count(REPRODUCED) / TRIALS
    theory = stats.nct.sf(stats.t.isf(0.025, 4), 4, math.sqrt(2) * math.sqrt(5))
    assert power == pytest.approx(theory, abs=3 * math.sqrt(theory * (1 - theory) / TRIALS))


def trend_verdicts(values: np.ndarray) -> list[str]:
    """The verdict of each trial on "each arm is above the one before it"; values of shape (trials, arms, seeds)."""
    names = "abcde"[: values.shape[1]]
    rising = {"trend": {"metric": "score", "arms": list(names), "direction": "rising"}}
    return [verdict(rising, **dict(zip(names, trial, strict=True))) for trial in values]


def levels(*heights: float) -> np.ndarray:
    return np.array(heights)[:, None]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("heights", [(0, 0, 0, 0, 0), (0, 50, 100, 100, 150)])
def test_null_steps_alone_or_among_large_ones_seldom_decide_a_trend(shape, heights):
    found = trend_verdicts(SHAPES[shape](np.random.default_rng(14), (TRIALS, 5, 5)) + levels(*heights))
    assert found.count(REPRODUCED) <= 0.05 * TRIALS
    assert found.count(CONTRADICTED) <= 0.05 * TRIALS


@pytest.mark.parametrize("heights", [(0, 0, 0), (50, 0, 50)])
def test_null_pairs_alone_or_among_large_ones_seldom_decide_a_worst_case_with_three_seeds(heights):
    draws = np.random.default_rng(15).normal(size=(TRIALS, 2, 3, 3))
    margins = draws[:, 0] - draws[:, 1] + levels(*heights)
    found = [decide_jointly({seed: dict(zip("abc", row, strict=True)) for seed, row in enumerate(trial.T)}).verdict
             for trial in margins]
    assert found.count(REPRODUCED) <= 0.05 * TRIALS
    assert found.count(CONTRADICTED) <= 0.05 * TRIALS


def test_a_trend_that_rises_slowly_is_seldom_contradicted():
    """Steps of half a deviation of an arm; the smallest of four noisy steps is below zero in most seeds."""
    draws = np.random.default_rng(16).normal(size=(TRIALS, 5, 5)) + 0.5 * levels(*range(5))
    assert np.mean(np.diff(draws, axis=1).min(axis=1) < 0) > 0.8
    assert trend_verdicts(draws).count(CONTRADICTED) <= 0.05 * TRIALS


@pytest.mark.parametrize("fall", [3.0, 3.0 * math.sqrt(2.0)])
def test_one_falling_step_among_rising_ones_is_found_as_often_as_the_corrected_t_test_can(fall):
    """A fall of 3 deviations of an arm, or of the step itself (a difference of two arms), with five seeds."""
    draws = np.random.default_rng(17).normal(size=(TRIALS, 5, 5)) + levels(0, 3, 6, 6 - fall, 9 - fall)
    power = trend_verdicts(draws).count(CONTRADICTED) / TRIALS
    theory = stats.nct.sf(stats.t.isf(0.025 / 4, 4), 4, fall / math.sqrt(2.0) * math.sqrt(5))
    assert power == pytest.approx(theory, abs=3 * math.sqrt(theory * (1 - theory) / TRIALS))


def test_a_trend_with_clear_steps_is_reproduced():
    """Each of four steps of three deviations of the step has power 0.998 by t theory."""
    draws = np.random.default_rng(18).normal(size=(TRIALS, 5, 5)) + 3 * math.sqrt(2.0) * levels(*range(5))
    assert trend_verdicts(draws).count(REPRODUCED) >= 0.95 * TRIALS
