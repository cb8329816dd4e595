"""Summaries over the learning rates of one seed, on tables made by hand."""

import math

import pytest

from experiments.catapult.regimes import convergence, divergence, generalisation, kernels, selectivity, spikes, widths
from experiments.measurement import Run, Runs

RATES = [1.0, 1.9, 2.2, 3.0, 3.4, 4.3]
REGIMES = {"lazy": [0, 1.9], "catapult": [2.2, 3.0], "edge": [3.4, 3.4]}
VALUES = {  # by kind, one value for each rate
    "rise": {"net": [1, 1, 4, 60, 90, 300], "quadratic": [1, 1.02, 5, 40, 80, math.inf],
             "linear": [1, 1, *[math.inf] * 4]},
    "end": {"net": [0.1, 0.01, 0.01, 0.02, 0.03, 0.5], "quadratic": [0.1, 0.01, 0.01, 0.02, 0.4, math.inf],
            "linear": [0.2, 0.01, *[math.inf] * 4]},
    "kernel_end": {"net": [1, 0.99, 0.8, 0.4, 0.5, 0.3], "quadratic": [1, 1.01, 0.7, 0.3, 0.1, math.inf],
                   "linear": [1, 1, *[math.inf] * 4]},
    "best_error": {"net": [0.5, 0.5, 0.4, 0.3, 0.2, 0.6], "quadratic": [0.5, 0.48, 0.45, 0.4, 0.5, math.inf],
                   "linear": [0.46, 0.45, *[math.inf] * 4]},
}


def table(arms=("teacher", "digits", "conv"), changed=None):
    runs = []
    for arm in arms:
        for kind in ("net", "quadratic", "linear"):
            for index, rate in enumerate(RATES):
                values = {"rate": rate * (1 + 1e-14)} | {name: by[kind][index] for name, by in VALUES.items()}
                values |= (changed or {}).get((arm, kind, rate), {})
                runs.append(Run(arm, 0, values, {"model.kind": kind, "arm.rate": rate}))
    return Runs(runs)


def test_convergence_takes_the_worst_end_of_each_regime():
    found = convergence(table(), ["teacher", "digits"], **REGIMES)
    assert found == {"linear_end_lazy": 0.2, "quadratic_end_catapult": 0.4, "net_end_catapult": 0.02,
                     "net_end_edge": 0.03}


def test_one_data_set_that_differs_decides():
    changed = {("digits", "net", 3.0): {"end": math.inf}}
    assert convergence(table(changed=changed), ["teacher", "digits"], **REGIMES)["net_end_catapult"] == math.inf
    assert convergence(table(changed=changed), ["teacher"], **REGIMES)["net_end_catapult"] == 0.02


def test_divergence_is_a_share_of_the_runs_in_its_range():
    changed = {("conv", "quadratic", 4.3): {"end": 0.1}, ("digits", "linear", 2.2): {"end": 0.5}}
    found = divergence(table(changed=changed), linear=[2.2, 4.3], quadratic=[3.4, 4.3])
    assert found["linear_diverged"] == pytest.approx(11 / 12)
    assert [found[f"{arm}_diverged"] for arm in ("teacher", "digits", "conv")] == [0.5, 0.5, 0.0]


def test_spikes_compare_the_two_models_either_way_round():
    found = spikes(table(), ["teacher"], **REGIMES)
    assert found["quadratic_rise_lazy"] == 1.02 and found["net_rise_lazy"] == 1
    assert found["quadratic_rise_catapult"] == 5 and found["net_rise_catapult"] == 4
    assert found["spike_ratio"] == pytest.approx(1.5)
    other = spikes(table(changed={("teacher", "net", 2.2): {"rise": 1.0}}), ["teacher"], **REGIMES)
    assert other["spike_ratio"] == pytest.approx(5)


def test_kernels_summarise_both_models_and_leave_divergence_out_of_the_sharpness():
    found = kernels(table(), ["teacher"], **REGIMES, strong=2.6)
    assert found["kernel_lazy"] == 0.99 and found["kernel_catapult"] == 0.4
    assert found["kernel_step"] == pytest.approx(0.8 / 0.99)
    assert found["kernel_step_edge"] == pytest.approx(0.5 / 0.4)
    assert found["kernel_sharpness"] == pytest.approx(2.2 * 0.8)


def test_gains_divide_by_the_best_without_a_catapult_of_the_model_or_the_linear_one():
    found = generalisation(table(), lazy=[0, 1.9], catapult=[2.2, 3.4])
    assert found["teacher_gain"] == pytest.approx(max(0.2, 0.4) / 0.45)
    assert found["teacher_gain"] == found["conv_gain"]


def test_selectivity_reads_the_two_rates_of_both_models():
    kept = {("clusters", kind, rate): {"top_kept": top, "second_kept": second}
            for kind, rate, top, second in (("net", 2.2, 0.8, 1.0), ("quadratic", 2.2, 0.9, 0.99),
                                            ("net", 3.0, 0.4, 0.7), ("quadratic", 3.0, 0.6, 0.3))}
    found = selectivity(table(["clusters"], kept), "clusters", between=2.2, above=3.0)
    assert found["between_first_over_second"] == pytest.approx(0.9 / 0.99)
    assert found["between_second"] == 0.99 and found["above_either"] == 0.7


def test_a_spike_that_follows_a_power_of_the_width_gives_its_exponent():
    runs = Runs([Run(arm, 0, {"width": width, "rise": 3 * width**power}, {"model.kind": kind})
                 for arm, width in (("a", 10.0), ("b", 40.0), ("c", 160.0))
                 for kind, power in (("net", 0.5), ("quadratic", 1.25))])
    found = widths(runs, ["a", "b", "c"])
    assert found["spike_slope_net"] == pytest.approx(0.5) and found["spike_slope_quadratic"] == pytest.approx(1.25)
    assert found["spike_growth"] == pytest.approx(2)


def test_what_is_missing_is_nan():
    for found in (convergence(Runs([]), ["teacher"], **REGIMES), spikes(Runs([]), ["a"], **REGIMES),
                  kernels(Runs([]), ["a"], **REGIMES, strong=2.6), generalisation(Runs([]), [0, 1], [2, 3]),
                  divergence(Runs([]), [2, 4], [4, 5]),
                  selectivity(Runs([]), "clusters", 2.0, 2.6), widths(Runs([]), ["a", "b"])):
        assert all(math.isnan(value) for value in found.values())
