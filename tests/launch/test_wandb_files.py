"""Offline bundles read back record by record, and W&B trouble that costs a note and nothing else."""

from __future__ import annotations

import json
import logging
import math
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from launch.live_wandb import LiveWandb
from launch.metrics import MetricsFile
from launch.store import Store, pack_measurements, read_json, write_json
from launch.wandb_files import export_job, export_sweep, group_name, history, phase_axis, wants_live

WARM = "little: {arm.noise: 0.1, arm.warm: true}"  # three warm-up steps, then five


def records(path: Path):
    """The records of a W&B transaction log: LevelDB's log format, 32 KiB blocks of pieces, after a header."""
    from wandb.proto import wandb_internal_pb2

    data, position, piece = path.read_bytes(), 7, b""
    assert data[:4] == b":W&B"
    while position + 7 <= len(data):
        rest = 32768 - position % 32768
        if rest < 7:
            position += rest
            continue
        _, length, kind = struct.unpack("<LHB", data[position:position + 7])
        piece += data[position + 7:position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # a whole record, or its last piece
            record, piece = wandb_internal_pb2.Record.FromString(piece), b""
            yield record.WhichOneof("record_type"), record


def plain(items) -> dict:
    return {"/".join([item.key, *item.nested_key]).strip("/"): json.loads(item.value_json) for item in items}


def log_metrics(job, store) -> None:
    """Metrics files as the job's phases leave them: a loss at each step, and a value that is no number at step 1."""
    for phase in job.phases:
        file = MetricsFile(store.phase(phase.key).folder / "metrics.jsonl", 0)
        for step in range(phase.config.trainer.max_steps):
            file.log_metrics({"loss": step + 0.5, "rate": math.nan if step == 1 else 0.1}, step)
        file.finalize("success")


COMPOSED: dict[tuple[str, ...], list] = {}  # by command line; the same in every test


def measured(project, *words: str) -> SimpleNamespace:
    """The jobs of one arm with two phases, as if they had run."""
    project.replace("little: {arm.noise: 0.1}", WARM)
    store = Store(project.root / "store")
    if words not in COMPOSED:
        COMPOSED[words] = project.jobs("job.arm=little", *words)
    jobs = COMPOSED[words]
    for job in jobs:
        log_metrics(job, store)
        store.run(job.key).finish(pack_measurements({"accuracy": 0.75, "worst": math.inf, "curve": [1.0, 2.0]}))
    return SimpleNamespace(jobs=jobs, store=store, root=project.root)


class Screen:
    def __init__(self):
        self.notes: list[str] = []

    def note(self, line: str) -> None:
        self.notes.append(line)


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """No account: an empty home folder and no key."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT", "WANDB_DIR"):
        monkeypatch.delenv(name, raising=False)


def test_a_sweep_leaves_one_offline_run_a_job_with_every_step_once_and_one_for_its_claims(project, offline):
    import wandb

    sweep = measured(project, "seed=0")
    job, = sweep.jobs
    folder = sweep.root / "report"
    write_json(folder / "claims.json", [{"id": "T1", "says": "less", "verdict": "reproduced", "reason": "why"}])
    screen = Screen()
    try:
        export_sweep(sweep.jobs, sweep.store, folder, screen)
        export_sweep(sweep.jobs, sweep.store, folder, screen)  # nothing is left to export
    finally:
        wandb.teardown()
    assert screen.notes == []
    bundles = {path.name: list(records(path)) for path in sweep.store.path.rglob("*.wandb")}
    assert set(bundles) == {f"run-{job.key}.wandb", f"run-{group_name(job.config)}-report.wandb"}
    check_job(job, bundles[f"run-{job.key}.wandb"])
    check_report(job, bundles[f"run-{group_name(job.config)}-report.wandb"])
    assert read_json(sweep.store.run(job.key).folder / "wandb.json") == {"id": job.key, "group": group_name(job.config)}


def check_job(job, found) -> None:
    run, = (record.run for kind, record in found if kind == "run")
    assert (run.run_id, run.run_group, run.job_type) == (job.key, group_name(job.config), "little")
    assert run.display_name == job.name == "little seed=0" and run.project == "reprise"
    config = plain(run.config.update)
    assert config["arm"] == {"noise": 0.1, "warm": True} and config["objective"]["noise"] == 0.1
    assert "hydra" not in config
    steps = [plain(record.history.item) for kind, record in found if kind == "history"]
    assert [step["_step"] for step in steps] == list(range(8))
    for number, step in enumerate(steps):
        phase, own = ("warm_up", number) if number < 3 else ("fit", number - 3)
        expected = {f"{phase}/loss": own + 0.5} | ({f"{phase}/rate": 0.1} if own != 1 else {})
        assert {name: value for name, value in step.items() if not name.startswith("_")} == expected
    summary: dict = {}
    for kind, record in found:
        if kind == "summary":
            summary |= plain(record.summary.update)
    assert summary["accuracy"] == 0.75 and "worst" not in summary and "curve" not in summary
    assert [record.exit.exit_code for kind, record in found if kind == "exit"] == [0]


def check_report(job, found) -> None:
    run, = (record.run for kind, record in found if kind == "run")
    assert (run.run_group, run.job_type) == (group_name(job.config), "report")
    logged = [plain(record.history.item) for kind, record in found if kind == "history"]
    assert any("claims" in name for entry in logged for name in entry)


class FakeRun:
    def __init__(self):
        self.logged, self.summary, self.finished = [], {}, 0

    def log(self, values, step=None):
        self.logged.append((step, values))

    def finish(self):
        self.finished += 1


@pytest.fixture
def fake(monkeypatch, offline):
    """A W&B that remembers what it is opened with."""
    opened = []

    def init(**settings):
        opened.append(SimpleNamespace(run=FakeRun(), **settings))
        return opened[-1].run

    module = SimpleNamespace(init=init, Settings=lambda **settings: settings, Table=lambda **settings: settings,
                             Image=lambda path: path)
    monkeypatch.setitem(sys.modules, "wandb", module)
    return SimpleNamespace(opened=opened, module=module)


def test_only_jobs_without_a_bundle_are_exported(project, fake):
    sweep = measured(project, "seed=0,1")
    write_json(sweep.store.run(sweep.jobs[0].key).folder / "wandb.json", {})
    export_sweep(sweep.jobs, sweep.store, sweep.root / "report", Screen())
    assert [(item.id, item.job_type) for item in fake.opened] == [
        (sweep.jobs[1].key, "little"), (f"{group_name(sweep.jobs[0].config)}-report", "report")]
    assert {item.group for item in fake.opened} == {group_name(sweep.jobs[0].config)}
    assert all(item.mode == "offline" and item.run.finished == 1 for item in fake.opened)


def test_with_the_logger_off_nothing_is_exported(project, fake):
    sweep = measured(project, "seed=0", "logger=none")
    export_sweep(sweep.jobs, sweep.store, sweep.root, Screen())
    assert fake.opened == [] and read_json(sweep.store.run(sweep.jobs[0].key).folder / "wandb.json") is None


def raising(*arguments, **settings):
    raise ConnectionError("no\nnetwork")


@pytest.mark.parametrize("broken", ["init", "Settings", "log", "summary", "finish", "missing"])
def test_trouble_with_wandb_is_one_note_and_the_job_is_tried_again_later(project, fake, monkeypatch, broken):
    sweep = measured(project, "seed=0")
    if broken == "missing":
        monkeypatch.setitem(sys.modules, "wandb", None)
    elif broken in ("init", "Settings"):
        setattr(fake.module, broken, raising)
    elif broken == "summary":
        monkeypatch.setattr("launch.wandb_files.unpack_measurements", raising)
    else:
        monkeypatch.setattr(FakeRun, broken, raising)
    screen = Screen()
    export_sweep(sweep.jobs, sweep.store, sweep.root, screen)
    note, = screen.notes
    assert note.startswith("nothing more is sent to W&B (") and "\n" not in note
    assert note.endswith("the results are complete without it")
    assert read_json(sweep.store.run(sweep.jobs[0].key).folder / "wandb.json") is None
    if broken in ("log", "summary"):
        assert fake.opened[0].run.finished == 1


def test_a_full_disk_on_wandbs_side_is_a_note(project, fake, monkeypatch):
    sweep = measured(project, "seed=0")

    def full(self, *arguments, **settings):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "mkdir", full)
    screen = Screen()
    export_sweep(sweep.jobs, sweep.store, sweep.root, screen)
    assert len(screen.notes) == 1 and "No space left on device" in screen.notes[0]


def test_the_history_of_a_job_that_was_resumed_has_each_step_once(project):
    sweep = measured(project, "seed=0")
    job, = sweep.jobs
    path = sweep.store.phase(job.phases[1].key).folder / "metrics.jsonl"
    path.write_text(path.read_text() + '{"step": 3, "loss": 9.0}\n{"step": 4, "lo')
    steps = list(history(job, sweep.store))
    assert [step for step, _ in steps] == list(range(8))
    assert dict(steps)[6]["fit/loss"] == 9.0


def test_a_phase_without_a_metrics_file_leaves_a_gap(project):
    sweep = measured(project, "seed=0")
    job, = sweep.jobs
    (sweep.store.phase(job.phases[0].key).folder / "metrics.jsonl").unlink()
    assert [step for step, _ in history(job, sweep.store)] == [3, 4, 5, 6, 7]


def test_a_single_phase_needs_no_prefix(project):
    jobs = project.jobs("seed=0")
    assert phase_axis(jobs[0].phases) == {"fit": ("", 0)}


def test_the_group_is_the_experiment_its_scale_and_the_variant(project):
    assert group_name(project.jobs("seed=0", "experiment=tiny/smoke")[0].config).startswith("tiny-smoke-seed=_0_-")
    assert group_name(project.jobs("logger=none")[0].config) == "tiny-cpu"


@pytest.mark.parametrize("mode, key, live", [
    ("online", "x" * 40, True), ("online", "", False), ("offline", "x" * 40, False), ("none", "x" * 40, False),
])
def test_metrics_are_sent_live_only_when_asked_for_and_with_a_key(offline, monkeypatch, mode, key, live):
    monkeypatch.setenv("WANDB_API_KEY", key)
    assert wants_live(SimpleNamespace(logger=SimpleNamespace(mode=mode))) == live


def test_a_job_that_was_sent_live_gets_its_summary_without_its_history_again(project, fake, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    sweep = measured(project, "seed=0", "logger=online")
    export_job(sweep.jobs[0], sweep.store)
    opened, = fake.opened
    assert opened.mode == "online" and opened.resume == "allow" and opened.id == sweep.jobs[0].key
    assert opened.run.logged == [] and opened.run.summary == {"accuracy": 0.75}


def test_live_metrics_are_put_on_the_jobs_axis():
    run = FakeRun()
    logger = LiveWandb(lambda: run, prefix="fit/", offset=3)
    logger.log_metrics({"loss": 0.5, "epoch": 0}, 2)
    logger.log_metrics({"epoch": 0}, 3)
    logger.finalize("success")
    assert run.logged == [(5, {"fit/loss": 0.5})] and run.finished == 1


@pytest.mark.parametrize("start", [raising, FakeRun])
def test_live_trouble_is_one_warning_and_then_silence(monkeypatch, caplog, start):
    monkeypatch.setattr(FakeRun, "log", raising)
    caplog.set_level(logging.WARNING, logger="reprise")
    logger = LiveWandb(start)
    for step in range(5):
        logger.log_metrics({"loss": 0.5}, step)
    logger.finalize("success")
    assert len(caplog.records) == 1 and "W&B is switched off for this job" in caplog.text
