"""Sweeps from the command line to their results: failures and retries, axes of one's own, reruns, loggers that fail."""

from __future__ import annotations

import json
import os

import pytest
from omegaconf import OmegaConf

from launch.store import read_json

ADVERSARIAL = ("-m", "experiment=adversarial/smoke")
THREE = "job.arm=fc10_1,fc10_1e-2,svm"
SVM = ("experiment=adversarial/smoke", "arm.loss=hinge", "arm.decay=[]")  # one run, that of the arm svm


@pytest.fixture
def finished(smoke, tmp_path):
    """A copy of the store of adversarial's smoke sweep, complete."""
    return smoke("adversarial")[0].copy_to(tmp_path)


@pytest.fixture
def three(compose):
    """The jobs of three linear models by arm."""
    return {job.arm: job for job in compose("experiment=adversarial/smoke", THREE)}


def test_a_failed_job_stops_no_other_and_is_the_only_one_retried(three, place, smoke, command, same):
    words = (*ADVERSARIAL, THREE, *place.words)
    broken = place.phase(three["fc10_1e-2"]).folder
    broken.parent.mkdir(parents=True)
    broken.write_text("a file where the phase's folder belongs")

    ended = command(*words)
    assert ended.status == 1 and "1 of the jobs failed" in ended.out
    assert "fc10_1e-2 seed=0" in table_text(ended.out) and "FileExistsError" in table_text(ended.out)
    log = place.run(three["fc10_1e-2"]).folder / "log.txt"
    assert f"log of fc10_1e-2 seed=0: {log}\n" in ended.out
    assert "Traceback" in log.read_text() and "FileExistsError" in log.read_text()
    assert place.run(three["fc10_1"]).is_done() and place.run(three["svm"]).is_done()
    assert not place.results.exists() and not (place.store / "reports").exists()

    broken.unlink()
    before = place.finished_at()
    ended = command(*words)
    assert (ended.status, ended.err) == (0, "") and ", 1 to compute" in ended.out
    assert before.items() <= place.finished_at().items()
    assert len(list((place.store / "reports" / "adversarial" / "smoke").iterdir())) == 1
    whole = smoke("adversarial")[0].measurements()
    same(place.measurements(), {job.key: whole[job.key] for job in three.values()})


def test_an_arm_that_raises_is_reported_with_its_own_message(finished, command):
    words = (*ADVERSARIAL, "+sweep.arms.two_decays={arm.decay:[1.0,2.0]}", "job.arm=svm,two_decays", *finished.words)
    before = finished.finished_at()
    for _ in range(2):
        ended = command(*words)
        assert ended.status == 1 and ended.err == "" and ", 1 to compute" in ended.out
        assert "[1/1]" in ended.out and "decay [1.0, 2.0] needs one value for each of the 1 layers" in ended.out
        assert finished.finished_at() == before
    assert not finished.results.exists()


def test_a_shared_phase_that_fails_is_tried_once_for_all_jobs_that_need_it(compose, place, command):
    other = "+sweep.arms.ae_other={arm.hidden:[400],arm.decay:[0.0,1e-2],arm.autoencode:true}"
    words = ("experiment=adversarial/smoke", other, "job.arm=ae400_10,ae_other,svm")
    one, another, svm = compose(*words)
    assert one.phases[0].key == another.phases[0].key != svm.phases[0].key
    broken = place.phase(one, 0).folder
    broken.parent.mkdir(parents=True)
    broken.write_text("a file where the phase's folder belongs")
    ended = command("-m", *words, *place.words)
    assert ended.status == 1 and "2 of the jobs failed" in ended.out and place.run(svm).is_done()
    assert table_text(ended.out).count("its phase 'autoencode' failed: FileExistsError") == 2


def table_text(out: str) -> str:
    """The text in a printed table's cells, lines of a cell joined."""
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in out.splitlines() if line.startswith("│")]
    return " ".join(" ".join(column) for column in zip(*rows, strict=True))


def test_a_sweep_over_the_experiments_axes_reports_into_the_store(place, command):
    """Seeds and a grid axis: other values of the experiment's own axes."""
    words = ("-m", "experiment=vae/smoke", "model.latent_dim=3,5", "seed=0,1", "job.arm=aevb,wake_sleep")
    ended = command(*words, *place.words)
    assert (ended.status, ended.err) == (0, "") and not place.results.exists()
    folder, = (place.store / "reports" / "vae" / "smoke").iterdir()
    assert {"figure.png", "claims.json", "table.md", "provenance.json"} <= {path.name for path in folder.iterdir()}
    rows = json.loads((folder / "measurements.json").read_text())
    found = [(row["arm"], row["point"]["model.latent_dim"], row["seed"]) for row in rows if row["arm"] != "across"]
    assert found == [(arm, size, seed) for arm in ("aevb", "wake_sleep") for size in (3, 5) for seed in (0, 1)]
    by_seed = {row["seed"]: row["values"]["elbo_test"] for row in rows if row["arm"] == "aevb"}
    assert by_seed[0] != by_seed[1]


def test_a_sweep_over_another_key_judges_each_value_by_itself(place, command):
    words = (*ADVERSARIAL, "job.arm=svm", "objective.svm_c=0.1,1.0", *place.words)
    ended = command(*words)
    assert (ended.status, ended.err) == (0, "") and "2 runs in 2 jobs" in ended.out
    reports = {path.name.split("-")[0]: path for path in (place.store / "reports" / "adversarial" / "smoke").iterdir()}
    assert len(reports) == 2 and all(len(read_json(path / "provenance.json")["runs"]) == 1 for path in reports.values())
    errors = {json.loads((path / "measurements.json").read_text())[0]["key"] for path in reports.values()}
    assert len(errors) == 2


def test_rerun_all_computes_again_what_is_stored(three, finished, smoke, command, same):
    before = finished.finished_at()
    ended = command(*SVM, "store.rerun=all", *finished.words)
    assert (ended.status, ended.err) == (0, "") and ", 1 to compute" in ended.out
    again = {path for path, time in finished.finished_at().items() if before[path] != time}
    assert again == {f"runs/{three['svm'].key}/done.json", f"phases/{three['svm'].phases[0].key}/done.json"}
    same(finished.measurements(), smoke("adversarial")[0].measurements())


def test_rerun_stale_computes_again_only_what_other_sources_made(three, finished, command):
    words = (*SVM, *finished.words)
    assert ", 0 to compute" in command(*words, "store.rerun=stale").out
    path = finished.run(three["svm"]).folder / "done.json"
    done = read_json(path)
    done["provenance"]["sources"]["experiments/adversarial/lbfgs.py"] = "0" * 12
    path.write_text(json.dumps(done))
    assert ", 0 to compute" in command(*words).out
    assert ", 1 to compute" in command(*words, "store.rerun=stale").out
    assert ", 0 to compute" in command(*words, "store.rerun=stale").out


def test_a_damaged_measurement_is_named_and_computed_again(three, finished, smoke, command, same):
    path = finished.run(three["svm"]).folder / "arrays.npz"
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    ended = command(*SVM, *finished.words)
    assert ended.status == 0 and ", 1 to compute" in ended.out
    assert f"note: {path} is damaged" in " ".join(ended.out.split())
    same(finished.measurements(), smoke("adversarial")[0].measurements())


def test_one_run_prints_its_measurements_and_touches_no_results(finished, command):
    ended = command("experiment=adversarial/smoke", "arm.decay=[1.0]", *finished.words)
    assert (ended.status, ended.err) == (0, "") and not finished.results.exists()
    assert ", 0 to compute" in ended.out, "the arm fc10_1 has the same settings"
    assert "success: 1" in ended.out and "error_test: 0." in ended.out and f"stored in {finished.store}" in ended.out


def test_one_run_with_settings_of_its_own_is_computed(place, command):
    ended = command("experiment=adversarial/smoke", "arm.decay=[0.5]", "seed=3", *place.words)
    assert (ended.status, ended.err) == (0, "") and ", 1 to compute" in ended.out
    config = OmegaConf.load(next(place.store.glob("runs/*/config.yaml")))
    assert (config.seed, list(config.objective.decay)) == (3, [0.5]) and not place.results.exists()


def report_of(place):
    """The one report in a store."""
    folder, = (place.store / "reports" / "adversarial" / "smoke").iterdir()
    return folder


def test_wandb_that_cannot_be_imported_costs_a_note(finished, command_line, tmp_path):
    (tmp_path / "stub").mkdir()
    (tmp_path / "stub" / "wandb.py").write_text("raise ImportError('no wandb here')\n")
    path = os.pathsep.join(filter(None, [str(tmp_path / "stub"), os.environ.get("PYTHONPATH")]))
    ended = command_line(*ADVERSARIAL, "job.arm=svm", *finished.words[:2], "logger=offline", PYTHONPATH=path)
    assert (ended.status, ended.err) == (0, "") and ", 0 to compute" in ended.out
    assert "note: nothing more is sent to W&B" in ended.out and "no wandb here" in ended.out
    assert (report_of(finished) / "claims.json").exists()


def test_a_folder_that_wandb_cannot_write_costs_a_note(finished, command):
    (finished.store / "wandb").write_text("a file where the folder belongs")
    ended = command(*ADVERSARIAL, "job.arm=svm", *finished.words[:2], "logger=offline")
    assert (ended.status, ended.err) == (0, "") and "note: nothing more is sent to W&B" in ended.out
    assert (report_of(finished) / "claims.json").exists()


def test_offline_bundles_are_written_once(three, finished, command):
    words = (*ADVERSARIAL, "job.arm=svm", *finished.words[:2], "logger=offline")
    assert command(*words).err == ""
    bundles = sorted(path.name for path in (finished.store / "wandb" / "wandb").glob("offline-run-*"))
    assert any(name.endswith(three["svm"].key) for name in bundles) and len(bundles) == 2  # the run and the report
    assert command(*words).status == 0
    assert sorted(path.name for path in (finished.store / "wandb" / "wandb").glob("offline-run-*")) == bundles
