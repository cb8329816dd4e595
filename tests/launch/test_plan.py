"""What a plan says: batches, parameters, shared phases and minutes, without starting anything."""

from __future__ import annotations

import re
import sys

import pytest
from omegaconf import OmegaConf

from launch.errors import UserError
from launch.keys import Phase
from launch.plan import batch_text, compose_jobs, count_parameters, minutes_text, print_plan, shared_text
from launch.schema import Schema

WARM = ("    little: {arm.noise: 0.1, arm.warm: true}\n    much: {arm.noise: 3.0, arm.warm: true}\n"
        "    cold: {arm.noise: 1.0}\n")
ARMS = "    little: {arm.noise: 0.1}\n    much: {arm.noise: 3.0}\n"


def config(batch_size=None, **trainer):
    data = {} if batch_size == "no data" else {"batch_size": batch_size}
    return OmegaConf.merge(OmegaConf.structured(Schema), {"data": data, "trainer": trainer})


@pytest.mark.parametrize("size, trainer, text", [
    (96, {}, "96 x 1 x 1 = 96"),
    (96, {"devices": 8}, "12 x 1 x 8 = 96"),
    (96, {"devices": 4, "num_nodes": 2}, "12 x 1 x 8 = 96"),
    (96, {"devices": 4, "num_nodes": 2, "accumulate_grad_batches": 3}, "12 x 3 x 8 = 288"),
    (96, {"accumulate_grad_batches": 5}, "96 x 5 x 1 = 480"),
    (None, {"devices": 8}, "full batch"),
    ("no data", {}, "full batch"),
])
def test_the_batch_of_a_phase_is_spelt_out(size, trainer, text):
    assert batch_text(config(size, **trainer)) == text


def test_micro_times_accumulation_times_ranks_is_the_global_batch():
    for size, devices, nodes, accumulation in [(64, 2, 1, 1), (120, 4, 3, 2), (8, 8, 1, 7)]:
        text = batch_text(config(size, devices=devices, num_nodes=nodes, accumulate_grad_batches=accumulation))
        micro, steps, ranks, total = map(int, re.fullmatch(r"(\d+) x (\d+) x (\d+) = (\d+)", text).groups())
        assert (micro * steps * ranks, ranks, steps) == (total, devices * nodes, accumulation)


@pytest.mark.parametrize("size, trainer, ranks", [(100, {"devices": 3}, 3), (100, {"devices": 4, "num_nodes": 2}, 8)])
def test_a_batch_that_does_not_divide_among_the_ranks_is_refused(size, trainer, ranks):
    assert batch_text(config(size, **trainer)) == f"refused: 100 does not divide among {ranks} ranks"


PAPER_PARAMETERS = {  # weights and biases of fully connected networks on 784 pixels, from the widths in their names
    "fc10_1": 784 * 10 + 10,
    "svm": 784 * 10 + 10,
    "fc100_10": (784 * 100 + 100) + (100 * 10 + 10),
    "fc100_100_10": (784 * 100 + 100) + (100 * 100 + 100) + (100 * 10 + 10),
    "fc200_200_10": (784 * 200 + 200) + (200 * 200 + 200) + (200 * 10 + 10),
    "ae400_10": (784 * 400 + 400) + (400 * 10 + 10),
    "p1_fc123_456_10": (784 * 123 + 123) + (123 * 456 + 456) + (456 * 10 + 10),
}


def test_the_papers_networks_have_the_parameters_their_names_say(jobs_of):
    found = {job.arm: count_parameters(job.phases[-1]) for job in jobs_of("experiment=adversarial/paper", "seed=0")}
    assert {arm: found[arm] for arm in PAPER_PARAMETERS} == PAPER_PARAMETERS
    assert found["fc100_100_10"] == 89610


def test_parameters_are_counted_without_memory_for_them():
    made = OmegaConf.merge(OmegaConf.structured(Schema), {"model": {
        "_target_": "models.mlp.Mlp", "in_features": 10**6, "hidden": [10**6], "out_features": 10}})
    assert count_parameters(Phase("fit", made, "k", None)) == 10**12 + 10**6 + 10**7 + 10  # four terabytes in float32


def test_an_experiment_whose_objective_brings_its_own_network_has_no_model_to_count():
    assert count_parameters(Phase("fit", OmegaConf.structured(Schema), "k", None)) == 0


def test_phases_that_jobs_share_are_named_once_with_their_number(project):
    project.replace(ARMS, WARM)
    jobs = project.jobs()
    assert [[phase.name for phase in job.phases] for job in jobs] == [["warm_up", "fit"]] * 4 + [["fit"]] * 2
    key = {job.config.seed: job.phases[0].key for job in jobs[:2]}
    assert key[0] != key[1]
    said = [f"phase 'warm_up' ({key[seed]}) is computed once for 2 jobs" for seed in (0, 1)]
    assert shared_text(jobs) == "; ".join(said)


def test_without_shared_phases_the_plan_says_so(project):
    assert shared_text(project.jobs()) == "no phase is shared between jobs"


@pytest.mark.parametrize("words, text", [
    ((), "expected: 2.5 minutes (estimated) at cpu scale"),
    (("experiment=tiny/smoke",), "expected: 0.1 minutes (measured) at smoke scale"),
    (("experiment.scale=gpu",), "the experiment gives no minutes for gpu scale"),
])
def test_the_minutes_are_those_of_the_header(project, words, text):
    assert minutes_text(project.jobs(*words, "seed=0")[0].config) == text


def test_a_plan_is_printed_and_nothing_is_imported_started_or_written(project, monkeypatch, capsys):
    import launch.run

    monkeypatch.setattr(launch.run, "execute", lambda config: pytest.fail("a job was started"))
    project.replace(ARMS, WARM)
    before = sorted(project.root.rglob("*"))
    print_plan(["experiment=tiny"])
    shown = capsys.readouterr().out
    assert sorted(project.root.rglob("*")) == before
    assert "A tiny paper, cpu scale: 6 runs in 6 jobs, 0 of them already in" in shown
    assert "warm_up (3) -> fit (5)" in shown and "20 x 1 x 1 = 20" in shown
    assert "computed once for 2 jobs" in shown and "expected: 2.5 minutes (estimated)" in shown
    assert "experiments.tiny" not in sys.modules


def test_a_plan_counts_what_the_store_holds(project, capsys):
    from launch.store import Store

    job = project.jobs()[0]
    Store(project.root / "store").run(job.key).finish({})
    print_plan(["experiment=tiny"])
    assert "4 runs in 4 jobs, 1 of them already in" in capsys.readouterr().out


def test_composing_writes_nothing_and_refuses_bad_input(project):
    jobs, store = compose_jobs(["experiment=tiny"])
    assert len(jobs) == 4 and not store.path.exists()
    with pytest.raises(UserError, match="unknown key 'trainer.max_epoch'"):
        compose_jobs(["experiment=tiny", "+trainer.max_epoch=3"])
