"""The messages of the check of claims: every documented form passes, each mistake is named with the valid names."""

from __future__ import annotations

import subprocess
import sys

import pytest

from experiments.claim_check import validate_claims

DIM = "model.latent_dim"
KNOWN = {
    "arms": {"aevb", "wake_sleep", "mcem"},
    "metrics": {"elbo_test", "elbo_train"},
    "derived": {"transfer_gap"},
    "axes": {DIM: [3, 10, 20], "arm.kind": ["tied", "free"], "arm.one": [1]},
}


def problems(**changes) -> list[str]:
    good = {
        "id": "V1",
        "says": "better",
        "paper": {"where": "Fig. 2", "value": "curves only", "unverified": True},
        "compare": {"metric": "elbo_test", "greater": "aevb", "than": "wake_sleep"},
    }
    merged = {key: value for key, value in {**good, **changes}.items() if value is not None}
    return validate_claims([merged], **KNOWN)


def compare(**spec) -> dict:
    return {"compare": {"metric": "elbo_test", "greater": "aevb", "than": "wake_sleep", **spec}}


def other(kind: str, **spec) -> dict:
    return {"compare": None, kind: spec}


def trend(**spec) -> dict:
    return other("trend", metric="elbo_test", arm="aevb", axis=DIM, **spec)


GOOD = [
    {},
    {"scales": ["cpu", "gpu"], "why_not": "needs the large corpus", "exact": True},
    compare(by=-0.5, factor=2, over="worst", at={DIM: 10}),
    compare(greater={"metric": "transfer_gap"}),
    compare(than={"arm": "mcem", "metric": "elbo_train", "at": {"arm.kind": "tied"}}),
    other("threshold", metric="elbo_test", arm="all", within=[0, 1]),
    other("threshold", metric="elbo_test", arm=["aevb", "mcem"], at_least=-20, over="mean", at={DIM: 3}),
    other("threshold", metric="transfer_gap", above=0),
    other("trend", metric="elbo_test", arms=["mcem", "wake_sleep", "aevb"], direction="rising", by=0.1),
    trend(slope={"scale": "loglog", "within": [0.4, 0.6]}, at={"arm.kind": "free"}),
]


@pytest.mark.parametrize("changes", GOOD)
def test_every_documented_form_is_accepted(changes):
    assert problems(**changes) == []


BAD = [
    (compare(than="wake_sleeep"), "compare.than: unknown arm (nearest: wake_sleep), got 'wake_sleeep'"),
    (compare(greater="zzz"), "compare.greater: unknown arm (valid: aevb, mcem, wake_sleep), got 'zzz'"),
    (compare(metric="elbo_tst"), "unknown metric (nearest: elbo_test, elbo_train), got 'elbo_tst'"),
    (compare(metric="transfer_gap"), "metric transfer_gap is derived across arms and takes none, got 'aevb'"),
    (compare(greater={"metric": "elbo_test"}), "metric elbo_test is measured on each run and needs an arm"),
    (compare(greater={"arm": "aevb", "point": 1}), "unknown key (allowed: arm, metric, at), got 'point'"),
    (compare(metric=None), "compare.greater: has no metric"),
    (compare(at={"model.laten_dim": 3}), "compare.at: unknown axis (nearest: model.latent_dim), got 'model.laten_dim'"),
    (compare(at={DIM: 5}), "compare.at: unknown value of model.latent_dim (valid: 3, 10, 20), got 5"),
    (compare(at=[3]), "compare.at: must map axes to values, got [3]"),
    (compare(by="0.1"), "compare.by: must be a number, got '0.1'"),
    (compare(factor=True), "compare.factor: must be a number, got True"),
    (compare(over="best"), "compare.over: unknown value (valid: mean, worst), got 'best'"),
    (compare(better="aevb"), "compare: unknown key (allowed: metric, greater, less, than, by"),
    (compare(less="mcem"), "compare: needs `greater` or `less`, and `than`, got ['greater', 'less', 'than']"),
    (compare(than="aevb"), "compare.than: the same term on both sides, got 'aevb'"),
    (compare(than=3), "compare.than: unknown arm"),
    ({"compare": None}, "needs exactly one of compare, threshold, trend, got []"),
    ({"trend": {}}, "needs exactly one of compare, threshold, trend, got ['compare', 'trend']"),
    ({"compare": "aevb"}, "compare: must be a mapping, got 'aevb'"),
    ({"says": None}, "says: must be a text, got None"),
    ({"id": 1}, "id: must be a text, got 1"),
    ({"paper": {"value": 3}}, "paper: must be a mapping with `where`"),
    ({"paper": "Fig. 2"}, "paper: must be a mapping with `where`"),
    ({"scales": ["cpu", "gpus"]}, "scales: unknown scale (nearest: gpu, cpu), got 'gpus'"),
    ({"scales": "cpu"}, "scales: must be a list, got 'cpu'"),
    ({"why_not": "too large"}, "why_not: must be a text beside `scales`"),
    ({"exact": "yes"}, "exact: must be true or false, got 'yes'"),
    ({"sayz": "x"}, "claim: unknown key"),
    (other("threshold", metric="elbo_test", arm="aevb"), "threshold: needs exactly one of above"),
    (other("threshold", metric="elbo_test", above=1), "needs an arm"),
    (other("threshold", metric="elbo_test", arm=["aevb", "aevb"], above=1), "must name arms, each once"),
    (other("threshold", metric="transfer_gap", arm="aevb", above=1), "is derived across arms and takes none"),
    (other("threshold", metric="transfer_gap", above=1, at={DIM: 3}), "a derived metric has no grid point"),
    (other("threshold", metric="elbo_test", arm="aevb", within=[2, 1]), "with low <= high, got [2, 1]"),
    (other("threshold", metric="elbo_test", arm="aevb", within=0.5), "must be [low, high]"),
    (other("threshold", metric="elbo_test", arm="aevb", above="high"), "threshold.above: must be a number, got 'high'"),
    (trend(), "trend: needs either `direction` or `slope`, got []"),
    (trend(direction="up"), "trend.direction: unknown value (valid: rising, falling), got 'up'"),
    (trend(direction="rising", at={DIM: 3}), "trend.at: cannot fix the axis of the trend"),
    (trend(slope={"scale": "loglog"}), "trend.slope.within: must be [low, high]"),
    (trend(slope={"scale": "logxy", "within": [0, 1]}), "trend.slope.scale: unknown value (nearest: semilogy, loglog"),
    (trend(slope={"scale": "linear", "within": [0, 1]}, by=1), "trend.by: has no meaning beside `slope`"),
    (other("trend", metric="elbo_test", arm="aevb", axis="arm.one", direction="rising"), "two or more values, got [1]"),
    (other("trend", metric="elbo_test", arm="aevb", axis="dim", direction="rising"), "trend.axis: unknown axis"),
    (other("trend", metric="elbo_test", arm="aevb", direction="rising"), "trend: needs `arms`, or `arm` and `axis`"),
    (other("trend", metric="elbo_test", arms=["aevb"], direction="rising"), "list of two or more different arms"),
    (other("trend", metric="elbo_test", arms=["aevb", "mcm"], direction="rising"), "(nearest: mcem), got 'mcm'"),
    (
        other("trend", metric="elbo_test", arm="aevb", axis="arm.kind", slope={"scale": "linear", "within": [0, 1]}),
        "trend.axis: cannot fit a linear slope over these values, got ['tied', 'free']",
    ),
    (
        other("trend", metric="elbo_test", arms=["aevb", "mcem"], slope={"scale": "linear", "within": [0, 1]}),
        "trend.slope: needs `arm` and `axis`",
    ),
]


@pytest.mark.parametrize(("changes", "message"), BAD)
def test_each_problem_is_one_line_with_the_claim_the_value_and_the_valid_names(changes, message):
    lines = problems(**changes)
    assert any(message in line for line in lines), lines
    assert all(line.startswith(("claim V1: ", "claim 1: ")) and "\n" not in line for line in lines)
    assert len(lines) == len(set(lines)) <= 2


def test_duplicate_ids_and_claims_of_the_wrong_shape_are_named():
    good = {"id": "V1", "says": "s", "paper": {"where": "w"}, **compare()}
    lines = validate_claims([good, good, "text", {"says": "s"}], **KNOWN)
    assert "claim V1: id: is used by an earlier claim, got 'V1'" in lines
    assert "claim #3: must be a mapping, got 'text'" in lines
    assert "claim #4: id: must be a text, got None" in lines
    assert validate_claims({"V1": good}, **KNOWN)[0].startswith("claims: must be a list")


def test_the_check_and_the_judge_import_neither_torch_nor_scipy():
    modules = "experiments.claim_check, experiments.verdict"
    code = f"import sys, {modules}; print({{'torch', 'scipy', 'lightning'}} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
