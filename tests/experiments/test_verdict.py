"""The judge: its intervals against scipy, its advice against published sample sizes, its reasons word for word."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

from experiments.measurement import ACROSS, Run, Runs
from experiments.verdict import (
    CONTRADICTED,
    INCONCLUSIVE,
    NOT_TESTED,
    REPRODUCED,
    decide,
    decide_jointly,
    judge,
    judge_all,
    seeds_for_power,
)

INF, NAN = math.inf, math.nan


def claim(kind: str = "compare", spec: dict | None = None, **extra) -> dict:
    spec = spec or {"metric": "score", "greater": "new", "than": "old"}
    return {"id": "C1", "says": "new is better", "paper": {"where": "Table 1", "new": 0.9}, kind: spec, **extra}


def arms(**values: list[float]) -> Runs:
    return Runs([Run(arm, seed, {"score": v}) for arm, row in values.items() for seed, v in enumerate(row)])


def decided(*margins: float, **how):
    return decide(dict(enumerate(margins)), **how)


@pytest.mark.parametrize(
    ("margins", "verdict"),
    [
        ((0.5, 0.6, 0.4), REPRODUCED),
        ((-0.5, -0.6, -0.4), CONTRADICTED),
        ((0.5, -0.2, 0.4), INCONCLUSIVE),
        ((0.5, 0.1), INCONCLUSIVE),
    ],
)
def test_the_interval_is_that_of_the_one_sample_t_test(margins, verdict):
    found = decided(*margins)
    reference = stats.ttest_1samp(margins, 0.0)
    assert found.interval == pytest.approx(list(reference.confidence_interval(0.95)))
    assert (found.verdict != INCONCLUSIVE) == (reference.pvalue < 0.05)
    assert found.verdict == verdict


@pytest.mark.parametrize(("effect", "seeds"), [(1.0, 10), (0.8, 15), (0.5, 34), (0.3, 90), (0.2, None)])
def test_the_advised_number_of_seeds_is_that_of_the_sample_size_tables(effect, seeds):
    """Two-sided one-sample t test, alpha 0.05, power 0.8; the table's 199 for an effect of 0.2 is beyond 100."""
    assert seeds_for_power(3 * effect, 3.0, beyond=1) == seeds
    assert seeds_for_power(-3 * effect, 3.0, beyond=1) == seeds


def test_the_advised_number_of_seeds_decides_in_four_of_five_repetitions():
    draws = np.random.default_rng(5).normal(1.2, 1.0, (2000, seeds_for_power(1.2, 1.0, beyond=3)))
    assert 0.78 < (stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05).mean() < 0.90


def test_reasons_of_decided_claims_give_mean_interval_and_seeds_in_favour():
    above, below = decided(0.5, 0.6, 0.4).reason, decided(-0.5, -0.6, -0.4).reason
    assert above == "mean margin +0.5, 95 % interval [0.252, 0.748], 3 of 3 seeds in favour"
    assert below == "mean margin -0.5, 95 % interval [-0.748, -0.252], 0 of 3 seeds in favour"


def test_reasons_of_inconclusive_claims_say_the_direction_and_how_many_more_seeds():
    needed = seeds_for_power(0.08, np.std([0.1, 0.2, 0.05, -0.1, 0.15], ddof=1), beyond=5) - 5
    text = f"4 of 5 seeds in favour; about {needed} more seeds would probably decide, in favour"
    assert decided(0.1, 0.2, 0.05, -0.1, 0.15).reason.endswith(text)
    assert decided(-0.1, -0.2, -0.05, 0.1, -0.15).reason.endswith("would probably decide, against")
    assert "more than 100 seeds: the effect is within the noise" in decided(1.0, -1.0, 0.01).reason
    assert "more than 100 seeds: the effect is within the noise" in decided(1.0, -1.0).reason


def test_two_seeds_are_judged_with_a_remark_on_the_width():
    found = decided(1.0, 1.1)
    assert found.verdict == REPRODUCED
    assert "two seeds: the interval is 12.7 standard errors" in found.reason


@pytest.mark.parametrize(("margin", "side"), [(0.3, "in favour of"), (-0.3, "against")])
def test_one_seed_is_never_a_verdict(margin, side):
    found = decided(margin)
    assert (found.verdict, found.interval) == (INCONCLUSIVE, None)
    assert found.reason == f"one seed only; its margin {margin:+.3g} points {side} the claim"


@pytest.mark.parametrize(
    ("margins", "inclusive", "verdict"),
    [
        ((0.2, 0.2), False, REPRODUCED),
        ((-0.2, -0.2, -0.2), True, CONTRADICTED),
        ((0.0, 0.0), False, INCONCLUSIVE),
        ((0.0, 0.0), True, REPRODUCED),
        ((0.0, 0.0, 0.1), True, INCONCLUSIVE),
        ((0.0,), True, INCONCLUSIVE),
    ],
)
def test_equal_margins_are_decided_by_their_sign(margins, inclusive, verdict):
    assert decided(*margins, inclusive=inclusive).verdict == verdict


@pytest.mark.parametrize(
    ("margins", "inclusive", "verdict"),
    [
        ((0.2,), False, REPRODUCED),
        ((-0.2,), False, CONTRADICTED),
        ((0.0,), True, REPRODUCED),
        ((0.0,), False, CONTRADICTED),
        ((0.1, 9.0), False, REPRODUCED),
        ((0.1, -0.1), False, INCONCLUSIVE),
        ((NAN,), False, INCONCLUSIVE),
        ((INF,), False, REPRODUCED),
    ],
)
def test_exact_claims_are_decided_by_value(margins, inclusive, verdict):
    found = decided(*margins, inclusive=inclusive, exact=True)
    assert (found.verdict, found.interval) == (verdict, None)
    assert ("should not depend on the seed" in found.reason) == (len(set(margins)) > 1)


@pytest.mark.parametrize(
    ("margins", "verdict"),
    [
        ((INF, INF, INF), REPRODUCED),
        ((-INF, -INF), CONTRADICTED),
        ((INF, INF, INF, INF, 0.1), REPRODUCED),
        ((INF, 0.9, 0.95), INCONCLUSIVE),
        ((-INF, 0.1, 0.12, 0.11, 0.1), INCONCLUSIVE),
        ((INF, -INF, 1.0), INCONCLUSIVE),
    ],
)
def test_infinite_margins_count_as_larger_than_any_finite_one(margins, verdict):
    found = decided(*margins)
    assert (found.verdict, found.interval) == (verdict, None)


def test_a_diverged_baseline_decides_and_a_value_that_is_not_a_number_does_not():
    diverged = judge(claim(), arms(new=[1.0, 2.0, 3.0], old=[-INF, -INF, -INF]), "cpu")
    undecided = judge(claim(), arms(new=[1.0, 2.0, 3.0], old=[0.0, NAN, 2.01]), "cpu")
    assert (diverged.verdict, diverged.ours) == (REPRODUCED, {"new": 2.0, "old": -INF})
    assert (undecided.verdict, undecided.seeds) == (INCONCLUSIVE, [0, 1, 2])
    assert undecided.reason == "seed 1 undecided: the margin is not a number; of the rest 2 of 2 seeds in favour"


def test_missing_runs_are_named_and_leave_the_other_seeds_to_decide():
    partly = judge(claim(), arms(new=[1.0, 2.0, 3.0, 4.0], old=[0.0, 1.1, 2.05]), "cpu")
    assert (partly.verdict, partly.seeds) == (REPRODUCED, [0, 1, 2])
    assert partly.reason.endswith("3 of 3 seeds in favour; left out: no run of old (seed 3)")
    wholly = judge(claim(), arms(new=[1.0, 2.0]), "cpu")
    assert (wholly.verdict, wholly.seeds, wholly.ours) == (INCONCLUSIVE, [], {})
    assert wholly.reason == "nothing to judge: no run of old (seeds 0, 1)"
    metric = judge(claim(spec={"metric": "loss", "greater": "new", "than": "old"}), arms(new=[1.0], old=[0.0]), "cpu")
    assert metric.reason == "nothing to judge: no loss of new (seed 0); no loss of old (seed 0)"
    assert judge(claim(), Runs([]), "cpu").reason == "nothing to judge: no runs"


def test_scales_without_the_runs_scale_are_not_tested_with_the_reason_given():
    runs = arms(new=[1.0, 1.1], old=[0.0, 0.0])
    bare = judge(claim(scales=["gpu", "paper"]), runs, "cpu")
    told = judge(claim(scales=["gpu"], why_not="needs long contexts"), runs, "smoke")
    assert (bare.verdict, bare.reason, bare.margins) == (NOT_TESTED, "the claim is tested at gpu, paper", {})
    assert (told.verdict, told.reason) == (NOT_TESTED, "needs long contexts")
    assert judge(claim(scales=["cpu"]), runs, "cpu").verdict == REPRODUCED
    assert judge(claim(), runs, "anywhere").verdict == REPRODUCED


def test_a_verdict_is_plain_json_in_the_documented_order():
    threshold = claim("threshold", {"metric": "gap", "at_least": 1.0}, exact=True)
    gaps = [Run(ACROSS, seed, {"gap": 1.0}) for seed in (0, 1)]
    runs = Runs([*arms(new=[1.0, 2.0], old=[0.12344, -INF]), *gaps])
    first, second = (verdict.as_json() for verdict in judge_all([claim(), threshold], runs, "cpu"))
    order = ["id", "says", "paper", "where", "ours", "interval", "seeds", "verdict", "reason", "margins"]
    assert list(first) == list(second) == order
    assert json.loads(json.dumps(first, allow_nan=False)) == first
    assert first["ours"] == {"new": 1.5, "old": "-inf"}
    assert first["margins"] == {"0": pytest.approx(1 - 0.12344), "1": "inf"}
    assert (second["ours"], second["verdict"], second["where"]) == ({"gap": 1.0}, REPRODUCED, "Table 1")
    assert second["paper"] == {"where": "Table 1", "new": 0.9}


def test_ours_is_the_mean_over_seeds_to_four_digits():
    assert judge(claim(), arms(new=[0.123456, 0.2], old=[1234.56, 1.0]), "cpu").ours == {"new": 0.1617, "old": 617.8}


def test_a_contradicted_band_says_when_the_means_over_seeds_lie_in_it():
    found = judge(claim("threshold", {"metric": "score", "arm": "a", "within": [-1, 1]}), arms(a=[3, -3.1, 2]), "cpu")
    assert found.verdict == CONTRADICTED
    assert found.reason.endswith("the means over seeds satisfy the claim, single seeds do not")


CLEAR, WIDE, BELOW, UNSURE = (3.0, 3.1, 2.9), (9.0, 12.0, 3.0), (-3.0, -3.1, -2.9), (-1.0, 2.0, -1.2)
ALONE = (-1.0, -1.2, -0.6)  # below zero at 95 %, not at 95 % for two


def jointly(*components: tuple[float, ...], **how):
    return decide_jointly(
        {seed: dict(zip("abcdef", row, strict=False)) for seed, row in enumerate(zip(*components, strict=True))}, **how
    )


@pytest.mark.parametrize(
    ("components", "verdict"),
    [
        ((CLEAR, WIDE), INCONCLUSIVE),
        ((CLEAR, CLEAR, CLEAR), REPRODUCED),
        ((CLEAR, BELOW), CONTRADICTED),
        ((UNSURE, BELOW), CONTRADICTED),
        ((CLEAR, UNSURE), INCONCLUSIVE),
        ((ALONE,), CONTRADICTED),
        ((ALONE, CLEAR), INCONCLUSIVE),
    ],
)
def test_a_conjunction_needs_every_interval_above_zero_or_one_below_it_for_all_together(components, verdict):
    tests = [stats.ttest_1samp(margins, 0.0) for margins in components]
    lows = [test.confidence_interval(0.95).low for test in tests]
    highs = [test.confidence_interval(1 - 0.05 / len(tests)).high for test in tests]
    found = jointly(*components)
    expected = REPRODUCED if min(lows) > 0 else CONTRADICTED if min(highs) < 0 else INCONCLUSIVE
    assert found.verdict == verdict == expected
    assert found.interval == pytest.approx(list(tests[int(np.argmin(lows))].confidence_interval(0.95)))


def test_the_reason_of_a_conjunction_names_its_weakest_component():
    near = (0.5, 0.6, 0.4)
    assert jointly(CLEAR, near).reason == f"weakest: b, {decided(*near).reason}"
    assert jointly(BELOW, CLEAR).reason == f"weakest: a, {decided(*BELOW).reason}"
    unsure = decided(*WIDE).reason.replace("decide,", "decide it,")
    assert jointly(CLEAR, WIDE).reason == f"weakest: b, {unsure}"


def test_a_contradicted_conjunction_says_by_what_when_that_is_not_the_weakest():
    found = jointly(UNSURE, CLEAR, BELOW, BELOW)
    assert found.reason.startswith("weakest: a, mean margin -0.0667, 95 % interval [-4.52, 4.39], 1 of 3 seeds")
    assert found.reason.endswith(f"; contradicted by c, {decided(*BELOW).reason}; contradicted as well: d")
    assert "more seeds" not in found.reason


def test_what_is_below_zero_only_by_itself_is_said_to_be_so_with_the_seeds_it_takes_together():
    alone, together = (seeds_for_power(np.mean(ALONE), np.std(ALONE, ddof=1), 3, many) for many in (1, 6))
    assert alone < together
    assert jointly(*[CLEAR] * 5, ALONE).reason.endswith(
        "below zero alone but not at the level of 6 components together; "
        f"about {together - 3} more seeds would probably decide it, against"
    )


def test_an_undecided_component_is_the_weakest():
    found = jointly(UNSURE, (NAN, 1.0, 1.1))
    assert (found.verdict, found.interval) == (INCONCLUSIVE, None)
    assert found.reason.startswith("weakest: b, seed 0 undecided: the margin is not a number")


def test_seeds_that_suffice_for_several_comparisons_have_the_power_they_promise():
    seeds = seeds_for_power(1.2, 1.0, beyond=3, comparisons=4)
    draws = np.random.default_rng(6).normal(1.2, 1.0, (2000, seeds))
    assert 0.78 < (stats.ttest_1samp(draws, 0.0, axis=1).pvalue < 0.05 / 4).mean() < 0.90


@pytest.mark.parametrize(
    ("components", "how", "verdict"),
    [
        ((CLEAR, (0.0, 0.0, 0.0)), {"inclusive": True}, REPRODUCED),
        ((CLEAR, (0.0, 0.0, 0.0)), {}, INCONCLUSIVE),
        ((CLEAR, (INF, INF, INF)), {}, REPRODUCED),
        ((CLEAR, (-INF, -INF, -INF)), {}, CONTRADICTED),
        ((CLEAR, (NAN, 1.0, 1.1)), {}, INCONCLUSIVE),
        ((BELOW, (NAN, 1.0, 1.1)), {}, CONTRADICTED),
        (((1.0,), (2.0,)), {}, INCONCLUSIVE),
        (((1.0,), (2.0,)), {"exact": True}, REPRODUCED),
        (((1.0,), (-2.0,)), {"exact": True}, CONTRADICTED),
        (((1.0, 1.0), (0.1, -0.1)), {"exact": True}, INCONCLUSIVE),
        (((1.0, 1.0), (0.0, 0.0)), {"exact": True, "inclusive": True}, REPRODUCED),
    ],
)
def test_equal_infinite_undecided_and_exact_margins_count_by_component(components, how, verdict):
    assert jointly(*components, **how).verdict == verdict


def test_a_trend_reports_the_worst_margin_of_each_seed_and_the_interval_of_its_weakest_step():
    spec = {"metric": "score", "arms": ["a", "b", "c"], "direction": "rising"}
    runs = arms(a=[0.0, 0.1, 0.0, 0.2], b=[1.0, 1.2, 2.5, 1.1], c=[3.0, 3.1, 3.2, 2.9])
    found = judge(claim("trend", spec), runs, "cpu")
    steps = np.subtract(runs.values("score", "b"), runs.values("score", "a"))
    assert found.verdict == REPRODUCED
    assert list(found.margins.values()) == pytest.approx([1.0, 1.1, 0.7, 0.9])
    assert found.interval == pytest.approx(list(stats.ttest_1samp(steps, 0.0).confidence_interval(0.95)))
    assert found.reason.startswith("weakest: b over a, mean margin +1.38")
