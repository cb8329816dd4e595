"""Margins and components of each kind of claim against values worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.claims import fit_slope, kind_of, margins_of
from experiments.measurement import ACROSS, Run, Runs

DIM, RATE = "model.latent_dim", "arm.rate"


def claim(kind: str, **spec) -> dict:
    return {"id": "C", "says": "so it is", "paper": {"where": "Fig. 1"}, kind: spec}


def curve(values: dict[str, list[float]], seeds: int = 1, axis: str = DIM, steps=(3, 10, 20)) -> Runs:
    """One run per arm, step and seed; seed s adds s to every value."""
    return Runs([
        Run(arm, seed, {"bound": value + seed}, {axis: step})
        for arm, row in values.items()
        for step, value in zip(steps, row, strict=True)
        for seed in range(seeds)
    ])


def flat(**arms: list[float]) -> Runs:
    return Runs([Run(arm, seed, {"bound": value}) for arm, row in arms.items() for seed, value in enumerate(row)])


@pytest.mark.parametrize(
    ("spec", "margin"),
    [
        ({"greater": "a", "than": "b"}, 5 - 2),
        ({"less": "b", "than": "a"}, 5 - 2),
        ({"greater": "b", "than": "a"}, 2 - 5),
        ({"greater": "a", "than": "b", "by": 1}, 5 - (2 + 1)),
        ({"greater": "a", "than": "b", "factor": 2}, 5 - 2 * 2),
        ({"greater": "a", "than": "b", "factor": 2, "by": 0.5}, 5 - (2 * 2 + 0.5)),
        ({"less": "b", "than": "a", "factor": 0.5, "by": 0.25}, (0.5 * 5 - 0.25) - 2),
    ],
)
def test_compare_subtracts_factor_and_by_on_the_side_that_makes_it_harder(spec, margin):
    found = margins_of(claim("compare", metric="bound", **spec), flat(a=[5.0], b=[2.0]))
    assert found.margins == {0: pytest.approx(margin)}
    assert found.terms == {0: {"a": 5.0, "b": 2.0}}
    assert not found.inclusive


def test_compare_pairs_arms_within_each_seed():
    found = margins_of(claim("compare", metric="bound", greater="a", than="b"), flat(a=[5, 1, 9], b=[2, 3, 3]))
    assert found.margins == {0: 3, 1: -2, 2: 6}


def test_compare_over_the_grid_takes_the_mean_or_the_worst_pair():
    runs = curve({"a": [1, 5, 9], "b": [0, 2, 10]})  # differences 1, 3, -1
    mean = margins_of(claim("compare", metric="bound", greater="a", than="b"), runs)
    worst = margins_of(claim("compare", metric="bound", greater="a", than="b", over="worst"), runs)
    assert (mean.margins, mean.terms) == ({0: 1}, {0: {"a": 5, "b": 4}})
    assert (worst.margins, worst.terms) == ({0: -1}, {0: {"a": 9, "b": 10}})


def test_only_the_worst_over_the_grid_has_a_component_for_each_pair():
    runs = curve({"a": [1, 5, 9], "b": [0, 2, 10]})
    mean = margins_of(claim("compare", metric="bound", greater="a", than="b"), runs)
    worst = margins_of(claim("compare", metric="bound", greater="a", than="b", over="worst"), runs)
    less = margins_of(claim("compare", metric="bound", less="b", than="a", over="worst", at={DIM: 10}), runs)
    assert mean.components == {0: {"a over b": 1}}
    assert worst.components == {
        0: {"a over b at latent_dim=3": 1, "a over b at latent_dim=10": 3, "a over b at latent_dim=20": -1}
    }
    assert less.components == {0: {"b under a": 3}}


def test_pairs_of_unlike_points_are_named_by_both_and_names_that_repeat_get_a_number():
    runs = Runs([Run("a", 0, {"bound": 5.0}), Run("b", 0, {"bound": 2.0}, {"f.x": 1, "g.x": 2}),
                 Run("b", 0, {"bound": 3.0}, {"g.x": 1, "f.x": 2})])
    found = margins_of(claim("compare", metric="bound", greater="a", than="b", over="worst"), runs)
    assert found.components == {0: {"a over b at x=1, x=2": 3, "a over b at x=1, x=2 (2)": 2}}


def test_compare_leaves_out_and_reports_grid_points_that_one_arm_never_has():
    runs = Runs([run for run in curve({"a": [1, 5, 9], "b": [0, 2, 10]}) if (run.arm, run.point[DIM]) != ("b", 20)])
    found = margins_of(claim("compare", metric="bound", greater="a", than="b", over="worst"), runs)
    assert found.margins == {0: 1}
    assert found.remarks == ["a at latent_dim=20 is without a partner"]


def test_compare_at_a_grid_point_and_across_grid_points_metrics_and_derived_values():
    runs = Runs([*curve({"a": [1, 5, 9], "b": [0, 2, 10]}), Run(ACROSS, 0, {"gap": 7.0})])
    at = claim("compare", metric="bound", greater="a", than="b", at={DIM: 10})
    apart = claim("compare", metric="bound", greater={"arm": "a", "at": {DIM: 20}}, than={"arm": "a", "at": {DIM: 3}})
    derived = claim("compare", metric="bound", greater={"metric": "gap"}, than="b", over="worst")
    assert margins_of(at, runs).margins == {0: 3}
    assert margins_of(apart, runs).margins == {0: 8}
    assert margins_of(apart, runs).terms == {0: {"a at latent_dim=20": 9, "a at latent_dim=3": 1}}
    assert margins_of(derived, runs).margins == {0: -3}
    assert margins_of(derived, runs).terms == {0: {"gap": 7, "b": 10}}


def test_compare_of_one_point_with_a_second_axis_pairs_on_the_axis_left_open():
    points = [(dim, rate) for dim in (3, 10) for rate in (0.1, 0.2)]
    value = {(3, 0.1): 1.0, (3, 0.2): 2.0, (10, 0.1): 4.0, (10, 0.2): 9.0}
    runs = Runs([Run("a", 0, {"bound": value[point]}, dict(zip((DIM, RATE), point, strict=True))) for point in points])
    sides = {"greater": {"arm": "a", "at": {DIM: 10}}, "than": {"arm": "a", "at": {DIM: 3}}}
    found = margins_of(claim("compare", metric="bound", over="worst", **sides), runs)
    assert found.margins == {0: 3.0}  # 4 - 1 at rate 0.1, 9 - 2 at rate 0.2; never 4 - 2


@pytest.mark.parametrize(
    ("bound", "worst", "mean", "inclusive"),
    [
        ({"above": 0.5}, -0.25, 0.25, False),
        ({"at_least": 0.5}, -0.25, 0.25, True),
        ({"below": 1.0}, -0.25, 0.25, False),
        ({"at_most": 1.0}, -0.25, 0.25, True),
        ({"within": [0.5, 1.0]}, -0.25, 0.25, True),
    ],
)
def test_threshold_measures_the_worst_value_or_the_mean_value(bound, worst, mean, inclusive):
    runs = flat(a=[0.25], b=[1.25])
    for over, margin in ((None, worst), ("worst", worst), ("mean", mean)):
        extra = {"over": over} if over else {}
        found = margins_of(claim("threshold", metric="bound", arm="all", **bound, **extra), runs)
        assert found.margins == {0: pytest.approx(margin)}
        assert found.inclusive is inclusive
        assert found.terms == {0: {"a": 0.25, "b": 1.25}}


def test_threshold_has_a_component_for_each_arm_and_grid_point_unless_it_takes_the_mean():
    runs = curve({"a": [1, 5], "b": [0, 2]}, steps=(3, 10))
    worst = margins_of(claim("threshold", metric="bound", arm="all", below=4), runs)
    mean = margins_of(claim("threshold", metric="bound", arm="all", below=4, over="mean"), runs)
    assert worst.components == {
        0: {"a at latent_dim=3": 3, "a at latent_dim=10": -1, "b at latent_dim=3": 4, "b at latent_dim=10": 2}
    }
    assert (worst.margins, mean.components) == ({0: -1}, {0: {"bound": 2}})


def test_threshold_selects_arms_grid_points_and_derived_values():
    runs = Runs([*curve({"a": [1, 5, 9], "b": [0, 2, 10]}), Run(ACROSS, 0, {"gap": 7.0})])
    assert margins_of(claim("threshold", metric="bound", arm="a", above=0), runs).margins == {0: 1}
    assert margins_of(claim("threshold", metric="bound", arm=["a", "b"], above=0), runs).margins == {0: 0}
    assert margins_of(claim("threshold", metric="bound", arm="b", above=0, at={DIM: 20}), runs).margins == {0: 10}
    assert margins_of(claim("threshold", metric="gap", at_most=6.5), runs).margins == {0: -0.5}
    assert margins_of(claim("threshold", metric="bound", arm="b", below=8), runs).terms == {0: {"b": 10}}


@pytest.mark.parametrize(
    ("spec", "margin"),
    [
        ({"direction": "rising"}, 1),
        ({"direction": "falling"}, -3),
        ({"direction": "rising", "by": 2}, -1),
        ({"direction": "rising", "factor": 1.5}, 3 - 1.5 * 2),
    ],
)
def test_trend_is_as_good_as_its_smallest_step(spec, margin):
    along_arms = claim("trend", metric="bound", arms=["a", "b", "c"], **spec)
    along_axis = claim("trend", metric="bound", arm="a", axis=DIM, **spec)
    by_arms = margins_of(along_arms, flat(c=[6.0], a=[2.0], b=[3.0]))
    by_axis = margins_of(along_axis, curve({"a": [6, 2, 3]}, steps=(20, 3, 10)))
    assert by_arms.margins == by_axis.margins == {0: pytest.approx(margin)}
    assert by_arms.terms == {0: {"a": 2, "b": 3, "c": 6}}
    assert by_axis.terms == {0: {"latent_dim=3": 2, "latent_dim=10": 3, "latent_dim=20": 6}}


def test_trend_has_a_component_for_each_step_and_a_slope_has_one():
    runs = curve({"a": [2, 3, 7]}, seeds=2)
    spec = {"metric": "bound", "arm": "a", "axis": DIM}
    rising = margins_of(claim("trend", **spec, direction="rising"), runs)
    slope = margins_of(claim("trend", **spec, slope={"scale": "linear", "within": [0, 1]}), runs)
    falling = claim("trend", metric="bound", arms=["a", "b", "c"], direction="falling")
    arms = margins_of(falling, flat(a=[5], b=[4], c=[9]))
    steps = {"latent_dim=10 over latent_dim=3": 1, "latent_dim=20 over latent_dim=10": 4}
    assert rising.components == {0: steps, 1: steps}
    assert [list(named) for named in slope.components.values()] == [["slope"], ["slope"]]
    assert (arms.components, arms.margins) == ({0: {"b under a": 1, "c under b": -5}}, {0: -5})


def test_a_falling_trend_by_a_factor_needs_each_step_to_shrink_by_it():
    found = margins_of(
        claim("trend", metric="bound", arms=["a", "b", "c"], direction="falling", factor=0.5), flat(a=[8], b=[3], c=[1])
    )
    assert found.margins == {0: pytest.approx(min(0.5 * 8 - 3, 0.5 * 3 - 1))}


def test_trend_fixes_other_axes_with_at_and_averages_over_those_left_open():
    value = {(3, 0.1): 1.0, (3, 0.2): 8.0, (10, 0.1): 4.0, (10, 0.2): 7.0}
    runs = Runs([Run("a", 0, {"bound": v}, {DIM: dim, RATE: rate}) for (dim, rate), v in value.items()])
    spec = {"metric": "bound", "arm": "a", "axis": DIM, "direction": "rising"}
    assert margins_of(claim("trend", **spec, at={RATE: 0.2}), runs).margins == {0: -1}
    assert margins_of(claim("trend", **spec), runs).margins == {0: (4 + 7) / 2 - (1 + 8) / 2}


@pytest.mark.parametrize(
    ("scale", "law", "slope"),
    [
        ("loglog", lambda x: 3.0 * x**-0.7, -0.7),
        ("semilogy", lambda x: 2.0 * math.exp(0.4 * x), 0.4),
        ("linear", lambda x: 5.0 - 1.5 * x, -1.5),
    ],
)
def test_the_slope_of_an_exact_law_is_its_exponent(scale, law, slope):
    steps = (1, 2, 4, 8)
    runs = curve({"a": [law(x) for x in steps]}, steps=steps)
    within = [slope - 0.1, slope + 0.3]
    spec = {"metric": "bound", "arm": "a", "axis": DIM, "slope": {"scale": scale, "within": within}}
    found = margins_of(claim("trend", **spec), runs)
    assert found.terms[0]["slope"] == pytest.approx(slope)
    assert found.margins == {0: pytest.approx(0.1)}
    assert found.inclusive


def test_the_slope_of_noisy_points_agrees_with_numpy():
    x, y = np.array([1.0, 2.0, 5.0, 9.0]), np.array([3.0, 2.0, 8.0, 4.0])
    assert fit_slope(x, y, "linear") == pytest.approx(np.polyfit(x, y, 1)[0])
    assert fit_slope(x, y, "loglog") == pytest.approx(np.polyfit(np.log(x), np.log(y), 1)[0])


def test_a_logarithm_of_a_negative_value_leaves_the_seed_undecided():
    spec = {"metric": "bound", "arm": "a", "axis": DIM, "slope": {"scale": "loglog", "within": [0, 1]}}
    assert math.isnan(margins_of(claim("trend", **spec), curve({"a": [1, -1, 2]})).margins[0])


@pytest.mark.parametrize(("a", "b", "margin"), [(1, -math.inf, math.inf), (-math.inf, 1, -math.inf)])
def test_a_diverged_arm_gives_an_infinite_margin(a, b, margin):
    found = margins_of(claim("compare", metric="bound", greater="a", than="b"), flat(a=[a], b=[b]))
    assert found.margins == {0: margin}


@pytest.mark.parametrize(("a", "b"), [(math.nan, 1), (1, math.nan), (-math.inf, -math.inf)])
@pytest.mark.parametrize("over", ["mean", "worst"])
def test_a_margin_that_is_not_a_number_stays_in_the_table(a, b, over):
    found = margins_of(claim("compare", metric="bound", greater="a", than="b", over=over), flat(a=[a, 2], b=[b, 1]))
    assert math.isnan(found.margins[0])
    assert found.margins[1] == 1


def test_seeds_that_lack_a_run_a_grid_point_or_a_metric_are_left_out_by_name():
    compare = claim("compare", metric="bound", greater="a", than="b")
    without_run = margins_of(compare, flat(a=[1, 2, 3], b=[0, 0]))
    assert (without_run.margins, without_run.missing) == ({0: 1, 1: 2}, {"no run of b": [2]})
    full = curve({"a": [1, 5, 9], "b": [0, 2, 10]}, seeds=3)
    broken = Runs([run for run in full if (run.arm, run.seed, run.point[DIM]) != ("b", 1, 10)])
    without_point = margins_of(compare, broken)
    assert list(without_point.margins) == [0, 2]
    assert without_point.missing == {"no run of b at latent_dim=10": [1]}
    without_metric = margins_of(compare, Runs([*flat(a=[1, 2]), Run("b", 0, {}), Run("b", 1, {"bound": 0.0})]))
    assert (without_metric.margins, without_metric.missing) == ({1: 2}, {"no bound of b": [0]})


def test_absent_arms_derived_values_axes_and_arrays_are_reported_not_raised():
    runs = Runs([Run("a", 0, {"bound": 1.0, "curve": np.zeros(3)}), Run("a", 1, {"bound": 1.0, "curve": np.zeros(3)})])
    expected = {
        "no run of b": claim("compare", metric="bound", greater="a", than="b"),
        "no gap of all arms together": claim("threshold", metric="gap", above=0),
        "fewer than two values of model.latent_dim for a": claim(
            "trend", metric="bound", arm="a", axis=DIM, direction="rising"
        ),
        "no single number in curve of a": claim("threshold", metric="curve", arm="a", above=0),
    }
    for text, absent in expected.items():
        found = margins_of(absent, runs)
        assert (found.margins, found.missing) == ({}, {text: [0, 1]})


def test_two_runs_in_place_of_one_are_not_mixed():
    found = margins_of(claim("threshold", metric="bound", arm="a", above=0), Runs([*flat(a=[1.0]), *flat(a=[2.0])]))
    assert found.missing == {"2 runs in place of one of a": [0]}


def test_a_claim_needs_exactly_one_kind():
    with pytest.raises(ValueError, match="exactly one of compare, threshold, trend"):
        kind_of({"id": "C", "compare": {}, "trend": {}})
