"""The local metrics file: one history however often a run stops, and never the end of a run."""

from __future__ import annotations

import json
import math
import os

import pytest

from launch.metrics import MetricsFile, finite, read_metrics


def steps(path) -> list[int]:
    return [entry["step"] for entry in read_metrics(path)]


def log(path, which, keep_below: int = 0, **values) -> None:
    file = MetricsFile(path, keep_below)
    for step in which:
        file.log_metrics({"loss": step / 10, **values}, step)
    file.finalize("success")


def test_every_logged_step_is_one_line_of_json_without_the_epoch(tmp_path):
    path = tmp_path / "deep" / "metrics.jsonl"
    log(path, range(45), epoch=0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines == [{"step": step, "loss": step / 10} for step in range(45)]


def test_nothing_is_written_before_there_is_something_to_write(tmp_path):
    file = MetricsFile(tmp_path / "metrics.jsonl", 0)
    file.log_metrics({"epoch": 1}, 3)
    file.finalize("success")
    assert list(tmp_path.iterdir()) == []


def test_a_resume_cuts_what_lies_beyond_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log(path, range(0, 30))
    log(path, range(20, 40), keep_below=20)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == list(range(40))


def test_a_fresh_start_begins_a_fresh_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log(path, range(5))
    log(path, range(3), keep_below=0)
    assert steps(path) == [0, 1, 2]


def test_a_half_written_last_line_is_left_out_and_cleared_away_by_a_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log(path, range(5))
    path.write_text(path.read_text() + '{"step": 5, "lo')
    assert steps(path) == [0, 1, 2, 3, 4]
    log(path, [5, 6], keep_below=5)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == list(range(7))


@pytest.mark.parametrize("rubbish", [b"\x00" * 50 + b"\n", b"\xff\xfe\x80\n", b"5\n", b"[1]\n", b"{}\n", b"null\n"])
def test_rubbish_lines_are_left_out(tmp_path, rubbish):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1, "a": 2}\n' + rubbish + b'{"step": 3, "a": 4}\n')
    assert read_metrics(path) == [{"step": 1, "a": 2}, {"step": 3, "a": 4}]
    log(path, [], keep_below=2)
    assert read_metrics(path) == [{"step": 1, "a": 2}]


def test_values_of_one_step_are_joined_and_later_ones_count(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 2, "a": 1}\n{"step": 1, "a": 0}\n{"step": 2, "b": 3, "a": 5}\n')
    assert read_metrics(path) == [{"step": 1, "a": 0}, {"step": 2, "a": 5, "b": 3}]


def test_values_that_are_no_finite_numbers_are_kept_in_the_file(tmp_path):
    path = tmp_path / "metrics.jsonl"
    log(path, [1], bad=math.nan, huge=math.inf)
    entry, = read_metrics(path)
    assert math.isnan(entry["bad"]) and entry["huge"] == math.inf
    assert finite(entry) == {"step": 1, "loss": 0.1}


def test_a_kill_while_cutting_leaves_the_whole_old_file(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    log(path, range(30))
    before = path.read_text()

    def kill(old, new):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", kill)
    with pytest.raises(KeyboardInterrupt):
        MetricsFile(path, 10)
    assert path.read_text() == before


def test_a_file_that_cannot_be_written_does_not_end_the_run(tmp_path):
    (tmp_path / "taken").write_text("")
    log(tmp_path / "taken" / "metrics.jsonl", range(50))
    (tmp_path / "metrics.jsonl").mkdir()
    log(tmp_path / "metrics.jsonl", range(50), keep_below=3)


def test_a_full_disk_at_a_resume_does_not_end_the_run_and_keeps_the_old_lines(tmp_path, monkeypatch):
    path = tmp_path / "metrics.jsonl"
    log(path, range(30))

    def full(file):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    log(path, range(10, 40), keep_below=10)
    assert steps(path) == list(range(30))
