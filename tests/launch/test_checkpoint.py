"""Damaged and foreign checkpoints are passed over, generators continue exactly, and nothing is executed."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import pickle
import random
import zipfile

import lightning as L
import numpy as np
import pytest
import torch

from launch.checkpoint import (
    Checkpoint,
    checkpoints,
    last_good,
    read_generators,
    restore_generators,
    write_checkpoint,
)

KEY = "0123456789abcdef"


def content(step: int, key: str = KEY) -> dict:
    return {"state_dict": {"w": torch.full((3,), float(step))}, "reprise": {"key": key, "batches": step}}


def named(folder, step: int, data: bytes):
    """A file whose name holds its right digest, whatever it contains."""
    folder.mkdir(exist_ok=True)
    path = folder / f"step-{step:09d}-{hashlib.sha256(data).hexdigest()[:12]}.ckpt"
    path.write_bytes(data)
    return path


def saved(value) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


@pytest.fixture
def warnings(caplog):
    caplog.set_level(logging.WARNING, logger="reprise")
    return lambda: [record.getMessage() for record in caplog.records]


def test_the_newest_checkpoint_is_taken_with_its_batch_count(folder, warnings):
    write_checkpoint(folder, 5, content(5))
    newest = write_checkpoint(folder, 12, content(12))
    assert last_good(folder, KEY) == (newest, 12)
    assert torch.load(newest, weights_only=True)["state_dict"]["w"].tolist() == [12.0] * 3
    assert warnings() == []


def test_without_a_folder_or_a_checkpoint_there_is_none(folder):
    assert last_good(folder, KEY) is None
    folder.mkdir()
    assert last_good(folder, KEY) is None


def test_the_name_of_a_checkpoint_holds_its_step_and_digest(folder):
    path = write_checkpoint(folder, 7, content(7))
    assert path.name == f"step-000000007-{hashlib.sha256(path.read_bytes()).hexdigest()[:12]}.ckpt"


def test_only_the_last_two_are_kept(folder):
    paths = [write_checkpoint(folder, step, content(step)) for step in (1, 2, 9, 10, 100)]
    assert checkpoints(folder) == paths[-2:] == sorted(folder.iterdir())


def test_a_kill_while_saving_leaves_the_ones_before(folder, monkeypatch):
    paths = [write_checkpoint(folder, step, content(step)) for step in (1, 2)]

    def kill(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", kill)
    with pytest.raises(KeyboardInterrupt):
        write_checkpoint(folder, 3, content(3))
    assert checkpoints(folder) == paths and last_good(folder, KEY) == (paths[1], 2)


def flip(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1:]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:100], lambda data: b"", flip,
                                    lambda data: data + b"x", lambda data: b"\x00" * len(data)],
                         ids=["a byte short", "a stump", "empty", "a bit flipped", "a byte more", "zeros"])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(folder, warnings, damage):
    good, bad = write_checkpoint(folder, 4, content(4)), write_checkpoint(folder, 8, content(8))
    bad.write_bytes(damage(bad.read_bytes()))
    assert last_good(folder, KEY) == (good, 4)
    assert warnings() == [f"checkpoint {bad} is truncated or damaged: passed over"]


def test_all_damaged_is_a_fresh_start(folder, warnings):
    for step in (4, 8):
        path = write_checkpoint(folder, step, content(step))
        path.write_bytes(b"rubbish")
    assert last_good(folder, KEY) is None and len(warnings()) == 2


def test_a_checkpoint_of_another_phase_is_named_and_passed_over(folder, warnings):
    good = write_checkpoint(folder, 4, content(4))
    other = write_checkpoint(folder, 8, content(8, key="f" * 16))
    assert last_good(folder, KEY) == (good, 4)
    assert warnings() == [f"checkpoint {other} is of another phase ({'f' * 16}, expected {KEY}): passed over"]


@pytest.mark.parametrize("data", [
    random.Random(0).randbytes(2000), b"", saved({"state_dict": {}}), saved([1, 2]), saved({"reprise": 3}),
    saved({"reprise": {}}), saved({"reprise": {"key": KEY}}), saved({"reprise": {"key": KEY, "batches": "many"}}),
], ids=["random", "empty", "no node", "a list", "a number", "an empty node", "no count", "no number"])
def test_a_foreign_file_with_a_right_name_is_named_and_passed_over(folder, warnings, data):
    good = write_checkpoint(folder, 4, content(4))
    foreign = named(folder, 8, data)
    assert last_good(folder, KEY) == (good, 4)
    assert len(warnings()) == 1 and f"checkpoint {foreign} is not a checkpoint of this harness" in warnings()[0]


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self):
        return exec, (f"open({self.path!r}, 'w').close()",)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("pack", [saved, pickle.dumps])
def test_a_checkpoint_that_would_run_code_runs_none(folder, tmp_path, warnings, pack):
    good = write_checkpoint(folder, 4, content(4))
    mark = tmp_path / "executed"
    evil = named(folder, 8, pack({"reprise": {"key": KEY, "batches": 8}, "trap": Evil(str(mark))}))
    assert last_good(folder, KEY) == (good, 4)
    assert not mark.exists() and str(evil) in warnings()[0]


def test_files_with_other_names_are_neither_read_nor_removed(folder):
    folder.mkdir()
    (folder / "last.ckpt").write_text("mine")
    (folder / "step-000000009-xyz.ckpt").write_text("mine")
    for step in (1, 2, 3):
        write_checkpoint(folder, step, content(step))
    assert last_good(folder, KEY)[1] == 3
    assert {path.name for path in folder.iterdir()} > {"last.ckpt", "step-000000009-xyz.ckpt"}


def test_after_a_resume_the_passed_over_files_do_not_push_out_the_new_ones(folder, warnings):
    for step in (8, 9):
        write_checkpoint(folder, step, content(step)).write_bytes(b"rubbish")
    paths = [write_checkpoint(folder, step, content(step)) for step in (2, 4)]
    assert checkpoints(folder) == paths and last_good(folder, KEY) == (paths[1], 4)


def draws() -> list:
    return [random.random(), random.gauss(0, 1), np.random.rand(3).tolist(), np.random.standard_normal(3).tolist(),
            torch.rand(3).tolist(), torch.randn(5).tolist(), torch.randperm(7).tolist()]


def test_generators_go_on_exactly_where_they_were():
    random.seed(1), np.random.seed(2), torch.manual_seed(3)
    draws()  # leaves half-used pairs of normal numbers behind
    assert random.getstate()[2] is not None and np.random.get_state()[3] == 1
    buffer = io.BytesIO(saved(read_generators()))
    expected = [draws() for _ in range(3)]
    random.seed(9), np.random.seed(9), torch.manual_seed(9)
    restore_generators(torch.load(buffer, weights_only=True))
    assert [draws() for _ in range(3)] == expected


class Noise(L.LightningModule):
    """Remembers the random numbers of every step in a buffer."""

    def __init__(self, steps: int):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.register_buffer("seen", torch.zeros(steps, 3, dtype=torch.float64))

    def training_step(self, batch, index):
        where = int(self.trainer.global_step)
        self.seen[where] = torch.tensor([random.random(), np.random.rand(), float(torch.rand(1))], dtype=torch.float64)
        return (self.weight - self.seen[where].sum().float()).square().sum()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.1)


def fit(folder, steps: int, callback: Checkpoint, resume=None) -> Noise:
    L.seed_everything(11, verbose=False)
    module = Noise(12)
    loader = torch.utils.data.DataLoader(torch.zeros(100, 1), generator=torch.Generator())
    trainer = L.Trainer(accelerator="cpu", max_steps=steps, max_epochs=-1, logger=False, callbacks=[callback],
                        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    trainer.fit(module, loader, ckpt_path=resume, weights_only=True)
    return module


@pytest.mark.filterwarnings("ignore")
def test_a_run_resumed_from_its_file_sees_the_numbers_of_an_uninterrupted_one(folder):
    whole = fit(folder, 12, Checkpoint(folder, KEY, every_seconds=1e9, every_steps=None))
    assert checkpoints(folder) == []
    fit(folder, 9, Checkpoint(folder, KEY, every_seconds=1e9, every_steps=4))
    path, batches = last_good(folder, KEY)
    assert batches == 8 and zipfile.is_zipfile(path)
    callback = Checkpoint(folder, KEY, every_seconds=1e9, every_steps=4)
    again = fit(folder, 12, callback, resume=path)
    assert torch.equal(again.seen, whole.seen) and torch.equal(again.weight, whole.weight)
    assert callback.batches_done == 12 and [int(item.name[5:14]) for item in checkpoints(folder)] == [8, 12]


@pytest.mark.filterwarnings("ignore")
def test_the_seconds_of_a_phase_include_those_before_a_resume(folder, monkeypatch):
    clock = iter(float(number) for number in range(10**6))
    monkeypatch.setattr("launch.checkpoint.time.monotonic", lambda: next(clock))
    first = Checkpoint(folder, KEY, every_seconds=1e9, every_steps=2)
    saved_state: dict = {}
    first.on_save_checkpoint(None, None, saved_state)
    spent = saved_state["reprise"]["seconds"]
    second = Checkpoint(folder, KEY, every_seconds=1e9, every_steps=2)
    second.on_load_checkpoint(None, None, saved_state)
    assert spent > 0 and second.seconds > spent


def test_a_checkpoint_is_due_after_the_seconds_that_were_set(folder, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("launch.checkpoint.time.monotonic", lambda: now[0])
    callback = Checkpoint(folder, KEY, every_seconds=30.0, every_steps=None)
    saves = []
    monkeypatch.setattr(callback, "save", lambda trainer: (saves.append(callback.batches_done),
                                                           setattr(callback, "_last", now[0])))
    for second in range(1, 70):
        now[0] = float(second)
        callback.on_train_batch_end(None, None, None, None, 0)
    assert saves == [31, 62]
