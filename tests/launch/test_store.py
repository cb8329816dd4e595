"""Files are written whole or not at all, damage is found, and a key has one worker at a time."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from launch import PROJECT
from launch.errors import UserError
from launch.store import (
    Entry,
    StorageFull,
    Store,
    file_digest,
    pack_measurements,
    read_json,
    unpack_measurements,
    write_atomic,
    write_json,
)


class Killed(BaseException):
    """Stands for a kill: nothing after it runs."""


def kill(*arguments, **settings):
    raise Killed


def full(*arguments, **settings):
    raise OSError(errno.ENOSPC, "No space left on device")


def visible(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".tmp"))


def test_a_file_is_written_with_the_folders_above_it(tmp_path):
    write_atomic(tmp_path / "a" / "b" / "file", "grün")
    assert (tmp_path / "a" / "b" / "file").read_bytes() == "grün".encode()
    assert os.listdir(tmp_path / "a" / "b") == ["file"]


@pytest.mark.parametrize("moment", ["replace", "fsync"])
def test_a_kill_before_the_rename_leaves_the_old_file(tmp_path, monkeypatch, moment):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr(f"launch.store.os.{moment}", kill)
    with pytest.raises(Killed):
        write_atomic(path, b"new and longer")
    assert path.read_bytes() == b"old" and visible(tmp_path) == ["file"]
    monkeypatch.undo()
    write_atomic(path, b"newest")
    assert path.read_bytes() == b"newest" and os.listdir(tmp_path) == ["file"]


def test_the_content_is_on_the_disk_before_the_name_points_to_it(tmp_path, monkeypatch):
    calls = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr("launch.store.os.fsync", lambda file: (calls.append("fsync"), fsync(file)))
    monkeypatch.setattr("launch.store.os.replace", lambda old, new: (calls.append("replace"), replace(old, new)))
    write_atomic(tmp_path / "file", b"x" * 100)
    assert calls == ["fsync", "replace"]


@pytest.mark.parametrize("moment", ["replace", "fsync"])
def test_a_full_disk_is_one_line_with_the_cure_and_leaves_no_rest(tmp_path, monkeypatch, moment):
    path = tmp_path / "file"
    write_atomic(path, b"old")
    monkeypatch.setattr(f"launch.store.os.{moment}", full)
    with pytest.raises(StorageFull) as caught:
        write_atomic(path, b"new")
    line = str(caught.value)
    assert line.startswith(f"no space left for {path}; free some and give the same command") and "\n" not in line
    assert isinstance(caught.value, UserError)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file"]


def test_another_disk_error_is_not_called_a_full_disk(tmp_path, monkeypatch):
    def broken(*arguments):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("launch.store.os.replace", broken)
    with pytest.raises(OSError, match="Input/output"):
        write_atomic(tmp_path / "file", b"new")


def test_json_holds_numpy_values_and_paths_and_reads_back(tmp_path):
    write_json(tmp_path / "x.json", {"a": np.float32(0.5), "b": np.arange(3), "c": tmp_path, "d": [1, None]})
    assert read_json(tmp_path / "x.json") == {"a": 0.5, "b": [0, 1, 2], "c": str(tmp_path), "d": [1, None]}


@pytest.mark.parametrize("content", [None, b"", b"{", b"\xff\xfe", b"\x00" * 20])
def test_json_that_is_missing_or_damaged_reads_as_nothing(tmp_path, content):
    if content is not None:
        (tmp_path / "x.json").write_bytes(content)
    assert read_json(tmp_path / "x.json") is None


@pytest.fixture
def entry(tmp_path) -> Entry:
    return Store(tmp_path / "store").phase("abc")


def test_an_entry_is_done_only_once_its_marker_is_written(entry, monkeypatch):
    written = []

    def stop_at_marker(path, content, durable=True):
        if path.name == "done.json":
            raise Killed
        written.append(path.name)
        write_atomic(path, content, durable)

    monkeypatch.setattr("launch.store.write_atomic", stop_at_marker)
    with pytest.raises(Killed):
        entry.finish({"weights.pt": b"12345", "config.yaml": "a: 1"})
    assert written == ["weights.pt", "config.yaml"] and not entry.is_done() and entry.info() == {}
    monkeypatch.undo()
    entry.finish({"weights.pt": b"12345", "config.yaml": "a: 1"}, {"seconds": 2.5})
    assert entry.is_done() and entry.info()["seconds"] == 2.5


def test_the_marker_holds_sizes_and_digests(entry):
    entry.finish({"weights.pt": b"12345"})
    digest = hashlib.sha256(b"12345").hexdigest()
    kept = json.loads((entry.folder / "done.json").read_text())["files"]
    assert kept == {"weights.pt": {"bytes": 5, "sha256": digest}}
    assert file_digest(entry.folder / "weights.pt") == digest


def test_a_truncated_or_missing_file_makes_an_entry_unfinished(entry):
    entry.finish({"weights.pt": b"12345", "other": b"1"})
    (entry.folder / "weights.pt").write_bytes(b"1234")
    assert not entry.is_done() and entry.damaged_files() == ["weights.pt"]
    (entry.folder / "weights.pt").unlink()
    assert not entry.is_done() and entry.damaged_files() == ["weights.pt"]


def test_a_flipped_bit_is_found_by_the_digest(entry):
    entry.finish({"weights.pt": b"12345", "other": b"1"})
    assert entry.damaged_files() == []
    (entry.folder / "weights.pt").write_bytes(b"12355")
    assert entry.is_done() and entry.damaged_files() == ["weights.pt"]


@pytest.mark.parametrize("content", [b"", b"{\"files\": {", b"\x00\x00"])
def test_a_damaged_marker_makes_an_entry_unfinished(entry, content):
    entry.finish({"weights.pt": b"12345"})
    (entry.folder / "done.json").write_bytes(content)
    assert not entry.is_done() and entry.info() == {}


def test_a_reset_entry_keeps_its_files_and_can_be_finished_again(entry):
    entry.finish({"weights.pt": b"12345"})
    entry.reset()
    assert not entry.is_done() and (entry.folder / "weights.pt").read_bytes() == b"12345"
    entry.finish({"weights.pt": b"67"})
    assert entry.is_done() and entry.damaged_files() == []


def test_the_status_of_an_entry_is_what_it_said_last(entry):
    assert entry.status() == {}
    entry.report(state="running", step=3)
    entry.report(state="failed", error="E: x")
    status = entry.status()
    assert (status["state"], status["error"], status["pid"]) == ("failed", "E: x", os.getpid()) and "step" not in status


def test_measurements_come_back_bit_for_bit(tmp_path):
    values = {
        "third": 1 / 3, "small": 5e-324, "nan": float("nan"), "inf": float("inf"), "minus": float("-inf"), "zero": -0.0,
        "numpy": np.float64(0.1), "count": 3, "flag": np.bool_(True), "scalar_array": np.array(2.5),
        "curve": np.array([1 / 3, np.nan, np.inf, -np.inf, -0.0]),
        "single": np.arange(6, dtype=np.float32).reshape(2, 3) / 7,
        "labels": np.array([[3, 1]], dtype=np.int16), "empty": np.empty((0, 4)), "list": [1.5, 2.5],
        "dir/name with space": np.ones(2),
    }
    store = Store(tmp_path)
    store.run("k").finish(pack_measurements(values))
    found = unpack_measurements(store.run("k"))
    assert set(found) == set(values)
    for name, value in values.items():
        if np.ndim(value) == 0:
            assert isinstance(found[name], float)
            assert np.float64(found[name]).tobytes() == np.float64(value).tobytes() or np.isnan(value), name
        else:
            wanted = np.asarray(value)
            assert (found[name].dtype, found[name].shape) == (wanted.dtype, wanted.shape), name
            assert found[name].tobytes() == wanted.tobytes(), name


def test_measurements_without_arrays_or_scalars_come_back(tmp_path):
    for key, values in (("a", {"x": 1.0}), ("b", {"y": np.ones(2)}), ("c", {})):
        entry = Store(tmp_path).run(key)
        entry.finish(pack_measurements(values))
        assert set(unpack_measurements(entry)) == set(values)


def test_a_pickled_object_among_measurements_is_not_loaded(tmp_path):
    entry = Store(tmp_path).run("k")
    entry.finish(pack_measurements({"x": np.array([object()], dtype=object)}))
    with pytest.raises(ValueError, match="allow_pickle"):
        unpack_measurements(entry)


def test_damaged_measurements_are_named(tmp_path):
    entry = Store(tmp_path).run("k")
    entry.finish(pack_measurements({"x": 1.0}))
    (entry.folder / "measurements.json").write_text('{"x": 2.0}\n')
    with pytest.raises(ValueError, match=f"{entry.folder}/measurements.json is damaged"):
        unpack_measurements(entry)


OTHER_PROCESS = """
import sys
from filelock import FileLock, Timeout
from launch.store import Store
store = Store(sys.argv[1])
try:
    with FileLock(store.path / "locks" / "k.lock", timeout=0.05):
        print("free")
except Timeout:
    print("taken")
with store.lock("other"):
    print("other free", flush=True)
if "die" in sys.argv:
    import os
    lock = store.lock("k")
    lock.__enter__()
    os._exit(9)
"""


def other_process(store: Store, *words: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(store.path), *words], capture_output=True,
                          text=True, cwd=PROJECT, timeout=60)
    return done.stdout.splitlines()


def test_a_lock_keeps_other_processes_out_of_its_key_alone(tmp_path):
    store = Store(tmp_path / "store")
    with store.lock("k"):
        assert other_process(store) == ["taken", "other free"]
    with store.lock("k"):
        pass  # free again


def test_a_process_that_dies_leaves_no_lock_behind(tmp_path):
    store = Store(tmp_path / "store")
    with store.lock("other"):
        pass
    assert other_process(store, "die") == ["free", "other free"]
    with store.lock("k"):
        pass


def test_pruning_removes_only_folders_without_files(tmp_path):
    store = Store(tmp_path / "store")
    (store.path / "runs" / "a" / "deep").mkdir(parents=True)
    store.phase("b").finish({"x": b"1"})
    store.prune_empty()
    assert sorted(path.name for path in store.path.rglob("*")) == ["b", "done.json", "phases", "x"]


def test_pruning_a_store_that_holds_nothing_removes_it(tmp_path):
    store = Store(tmp_path / "store")
    (store.path / "launches" / "x").mkdir(parents=True)
    store.prune_empty()
    assert not store.path.exists() and tmp_path.exists()


def test_asking_whether_a_store_is_writable_leaves_no_trace(tmp_path):
    Store(tmp_path / "a" / "b").require_writable()
    assert list(tmp_path.iterdir()) == []


def test_a_store_path_may_start_at_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Store("~/store").path == tmp_path / "store"
