"""Killed at any moment, interrupted, given damaged checkpoints or started twice: a job ends with the same numbers.

Every comparison is bit for bit with jobs that nothing disturbed, in a store of their own.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import signal
from pathlib import Path

import pytest
import torch

from launch.__main__ import main
from launch.checkpoint import Checkpoint, checkpoints
from launch.run import execute
from launch.store import Entry, Store, unpack_measurements

WORDS = ("experiment=vae/smoke", "arm.steps=300")  # one run of one phase, with random noise in every step
OFTEN = 10  # batches between checkpoints


@pytest.fixture(scope="module")
def job(compose):
    return compose(*WORDS, "job.single=true")[0]


@pytest.fixture(scope="module")
def undisturbed(job, new_place):
    """Where the job ran undisturbed."""
    place = new_place("undisturbed")
    assert execute(place.config(job, OFTEN))["error"] == ""
    return place


@pytest.fixture(scope="module")
def interrupted(job, new_place, start_process, stop_when):
    """Where the job was killed after at least 50 batches; it left two checkpoints. Only copies of it are used."""
    place = new_place("interrupted")
    process = start_process(execute, place.config(job, OFTEN))
    stop_when(lambda: newest(place, job) >= 50, process)
    assert len(checkpoints(place.phase(job).folder / "checkpoints")) >= 2
    return place


def newest(place, job) -> int:
    """Batches of the newest checkpoint of the job's phase, 0 without one."""
    found = checkpoints(place.phase(job).folder / "checkpoints")
    return max((int(path.name.split("-")[1]) for path in found), default=0)


def log_of(entry: Entry) -> str:
    return (entry.folder / "log.txt").read_text()


def test_the_command_line_killed_and_then_interrupted_goes_on(
    job, undisturbed, place, start_command_line, stop_when, command, same
):
    words = (*WORDS, *place.words, f"trainer.checkpoint_every_steps={OFTEN}", f"trainer.log_every_steps={OFTEN}")
    moments = sorted(random.Random(1).sample(range(OFTEN, 280), 2))
    killed = start_command_line(*words)
    stop_when(lambda: place.run(job).status().get("state") == "running" and newest(place, job) >= moments[0], killed)
    assert killed.returncode == -signal.SIGKILL
    stopped = start_command_line(*words)
    stop_when(lambda: newest(place, job) >= moments[1], stopped, signal.SIGINT)
    out, err = stopped.communicate()
    assert (stopped.returncode, err) == (130, "stopped; the same command goes on from the last checkpoints\n")
    assert command(*words).status == 0
    assert log_of(place.run(job)).count("goes on from batch") == 2
    same(place.measurements(), undisturbed.measurements())


def test_a_job_killed_at_many_moments_ends_the_same(job, undisturbed, place, start_process, stop_when, same):
    config = place.config(job, OFTEN)
    for moment in sorted(random.Random(2).sample(range(OFTEN, 290), 4)):
        process = start_process(execute, config)
        stop_when(lambda moment=moment: newest(place, job) >= moment, process)
    process = start_process(execute, config)
    stop_when(lambda: place.phase(job).is_done(), process)  # while it measures
    assert not place.run(job).is_done()
    assert execute(config)["error"] == ""
    same(place.measurements(), undisturbed.measurements())
    assert weights(place.phase(job)) == weights(undisturbed.phase(job))
    record = metrics(place.phase(job))
    steps = [entry["step"] for entry in record]
    assert steps == sorted(set(steps)) and all(entry in metrics(undisturbed.phase(job)) for entry in record)


def weights(phase: Entry) -> dict[str, bytes]:
    loaded = torch.load(phase.folder / "weights.pt", weights_only=True)
    return {name: value.numpy().tobytes() for name, value in loaded.items()}


def metrics(phase: Entry) -> list[dict]:
    """The phase's own record, a line for each logged step."""
    return [json.loads(line) for line in (phase.folder / "metrics.jsonl").read_text().splitlines()]


def truncate(folder: Path) -> Path:
    newest = checkpoints(folder)[-1]
    newest.write_bytes(newest.read_bytes()[:-1000])
    return newest


def put_one_of_another_phase(folder: Path) -> Path:
    content = torch.load(checkpoints(folder)[-1], weights_only=True)
    content["reprise"]["key"] = "0" * 16
    return put(folder, content)


def put_a_foreign_file(folder: Path) -> Path:
    return put(folder, {"state_dict": {}, "epoch": 3})


def put(folder: Path, content: dict) -> Path:
    """Save under a name with the right digest, newer than the others."""
    buffer = io.BytesIO()
    torch.save(content, buffer)
    path = folder / f"step-000000299-{hashlib.sha256(buffer.getvalue()).hexdigest()[:12]}.ckpt"
    path.write_bytes(buffer.getvalue())
    return path


def put_one_with_code(folder: Path) -> Path:
    """A pickle that would run a command when it is loaded without care."""
    return put(folder, {"reprise": Trap(folder / "trap")})


class Trap:
    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


@pytest.mark.parametrize(("damage", "said"), [
    (truncate, "truncated or damaged"),
    (put_one_of_another_phase, "of another phase (0000000000000000"),
    (put_a_foreign_file, "not a checkpoint of this harness"),
    (put_one_with_code, "not a checkpoint of this harness"),
])
def test_a_bad_checkpoint_is_named_and_passed_over(damage, said, job, interrupted, undisturbed, tmp_path, same):
    place = interrupted.copy_to(tmp_path)
    folder = place.phase(job).folder / "checkpoints"
    bad = damage(folder)
    good = [path for path in checkpoints(folder) if path != bad][-1]
    assert execute(place.config(job, OFTEN))["error"] == ""
    log = log_of(place.run(job))
    assert f"checkpoint {bad} is {said}" in log and f"({good.name})" in log
    assert not (folder / "trap").exists()
    same(place.measurements(), undisturbed.measurements())


def test_without_a_good_checkpoint_the_phase_starts_again(job, interrupted, undisturbed, tmp_path, same):
    place = interrupted.copy_to(tmp_path)
    for path in checkpoints(place.phase(job).folder / "checkpoints"):
        path.write_bytes(b"")
    assert execute(place.config(job, OFTEN))["error"] == ""
    assert log_of(place.run(job)).count("passed over") >= 2 and "goes on from" not in log_of(place.run(job))
    same(place.measurements(), undisturbed.measurements())
    assert metrics(place.phase(job)) == metrics(undisturbed.phase(job))


def test_two_processes_on_the_same_store_both_end_well(smoke, compose, place, start_process, same):
    words = ("-m", "experiment=adversarial/smoke", "job.arm=svm,ae400_10", *place.words)
    processes = [start_process(main, list(words)) for _ in range(2)]
    for process in processes:
        process.join(300)
    assert [process.exitcode for process in processes] == [0, 0]
    jobs = compose("experiment=adversarial/smoke", "job.arm=svm,ae400_10")
    for job in jobs:
        assert place.run(job).is_done() and not place.run(job).damaged_files()
        assert all(place.phase(job, index).is_done() for index in range(len(job.phases)))
    whole = smoke("adversarial")[0].measurements()
    same(place.measurements(), {job.key: whole[job.key] for job in jobs})


def test_workers_give_the_numbers_of_the_local_launcher(smoke, compose, place, command, same):
    arms = "job.arm=fc10_1,ae400_10,svm"
    ended = command("-m", "experiment=adversarial/smoke", arms, "launcher=workers", "launcher.workers=2", *place.words)
    assert (ended.status, ended.err) == (0, "")
    whole = smoke("adversarial")[0].measurements()
    same(place.measurements(), {job.key: whole[job.key] for job in compose("experiment=adversarial/smoke", arms)})


def test_a_copied_store_goes_on_elsewhere(job, interrupted, undisturbed, tmp_path, command, same):
    place = interrupted.copy_to(tmp_path)
    moved = tmp_path / "moved"
    shutil.move(place.store, moved)
    assert command(*WORDS, f"store.path={moved}", "logger=none").status == 0
    shutil.move(moved, place.store)
    assert "goes on from batch" in log_of(place.run(job))
    same(place.measurements(), undisturbed.measurements())


def test_random_numbers_drawn_in_a_step_go_on_where_they_stopped(project, tmp_path, monkeypatch, same):
    """``tiny`` draws its noise from torch's global generator, whose state is in the checkpoint."""
    job = project.jobs("job.arm=much", "seed=0", "trainer.checkpoint_every_steps=1")[0]
    whole, stopped = (Store(tmp_path / name) for name in ("whole", "stopped"))
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", fail_after(3, Checkpoint.save))
        assert run_in(stopped, job)["error"] == "RuntimeError: stopped on purpose"
    assert run_in(stopped, job)["error"] == run_in(whole, job)["error"] == ""
    assert "goes on from batch 3" in log_of(stopped.run(job.key))
    same({"run": unpack_measurements(stopped.run(job.key))}, {"run": unpack_measurements(whole.run(job.key))})
    assert weights(stopped.phase(job.phases[-1].key)) == weights(whole.phase(job.phases[-1].key))


def run_in(store: Store, job) -> dict:
    config = job.config.copy()
    config.store.path = str(store.path)
    return execute(config)


def fail_after(batches: int, save):
    """Checkpoint.save that raises once it has saved after so many batches."""
    def save_and_fail(self, trainer) -> None:
        save(self, trainer)
        if self.batches_done == batches:
            raise RuntimeError("stopped on purpose")

    return save_and_fail
