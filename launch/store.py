"""Where finished phases and runs are kept, each in a folder named by its key.

Files are written whole or not at all: a temporary file in the same folder, fsync, rename. ``done.json`` comes last and
holds the size and SHA-256 of the other files, so a folder with it is complete and a damaged file is found when it is
read. A lock a key makes two processes that want the same result take turns; the system drops it when a process dies.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from launch.errors import UserError

DONE = "done.json"
NEEDED_BYTES = 64 * 1024**2


class StorageFull(UserError):
    """The disk that holds the store has no room; nothing already stored is lost."""


def write_atomic(path: Path, content: bytes | str, durable: bool = True) -> None:
    """Write a file whole or not at all; durable: it is on the disk when this returns.

    Raises StorageFull with one line when the disk is full.
    """
    data = content.encode() if isinstance(content, str) else content
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageFull(f"no space left for {path}", cure="free some and give the same command: finished work"
                              " is kept and the run goes on from its last checkpoint") from error
        raise


def write_json(path: Path, value: Any) -> None:
    """Write plain data as indented JSON, atomically."""
    write_atomic(path, json.dumps(value, indent=1, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return str(value)


def read_json(path: Path) -> Any | None:
    """The content of a JSON file, or None when it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Entry:
    """One folder of the store: a phase or the measurements of a job."""

    folder: Path

    @property
    def key(self) -> str:
        return self.folder.name

    def is_done(self) -> bool:
        """Whether the entry is complete: its files are all there with the recorded sizes."""
        kept = self._kept()
        return kept is not None and all(
            (self.folder / name).is_file() and (self.folder / name).stat().st_size == one["bytes"]
            for name, one in kept.items()
        )

    def _kept(self) -> dict[str, dict[str, Any]] | None:
        done = read_json(self.folder / DONE)
        return done["files"] if isinstance(done, dict) and "files" in done else None

    def damaged_files(self) -> list[str]:
        """Files of a finished entry that are missing or differ from what was written."""
        return [name for name, one in (self._kept() or {}).items()
                if not (self.folder / name).is_file() or file_digest(self.folder / name) != one["sha256"]]

    def finish(self, files: Mapping[str, bytes | str], info: Mapping[str, Any] | None = None) -> None:
        """Write the files, then the marker that makes the entry complete."""
        for name, content in files.items():
            write_atomic(self.folder / name, content)
        kept = {name: {"bytes": (self.folder / name).stat().st_size, "sha256": file_digest(self.folder / name)}
                for name in files}
        write_json(self.folder / DONE, {"files": kept, **(info or {})})
        (self.folder / "error.txt").unlink(missing_ok=True)

    def info(self) -> dict[str, Any]:
        return read_json(self.folder / DONE) or {}

    def reset(self) -> None:
        """Forget that the entry was finished; its files stay until they are overwritten."""
        (self.folder / DONE).unlink(missing_ok=True)

    def status(self) -> dict[str, Any]:
        """What the job last said of itself: state, phase, step, max_steps, error."""
        return read_json(self.folder / "status.json") or {}

    def report(self, **status: Any) -> None:
        """Say how far the job is; other processes read it."""
        text = json.dumps({**status, "pid": os.getpid(), "at": time.time()}, indent=1)
        write_atomic(self.folder / "status.json", text, durable=False)


class Store:
    """The store at a path: ``phases/<key>`` and ``runs/<key>``."""

    def __init__(self, path: str | Path):
        self.path = Path(path).expanduser().resolve()

    def phase(self, key: str) -> Entry:
        return Entry(self.path / "phases" / key)

    def run(self, key: str) -> Entry:
        return Entry(self.path / "runs" / key)

    def prune_empty(self) -> None:
        """Remove folders that hold no file, the store itself too when it holds none."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):  # not empty
                os.rmdir(folder)

    @contextlib.contextmanager
    def lock(self, key: str) -> Iterator[None]:
        """Hold the key's lock; waits while another process computes the same thing."""
        from filelock import FileLock

        folder = self.path / "locks"
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / f"{key}.lock"):
            yield

    def require_writable(self) -> None:
        """Raise a UserError when nothing could be stored here; leaves no trace."""
        existing = require_writable(self.path, "the store", "store.path")
        free = shutil.disk_usage(existing).free
        if free < NEEDED_BYTES:
            raise StorageFull(f"only {free / 1024**2:.0f} MB left for the store {self.path}", where="store.path",
                              cure="free some or choose another disk with store.path=FOLDER")


def require_writable(folder: Path, name: str, key: str) -> Path:
    """Raise a UserError when the folder cannot be made or written; the nearest folder that exists. Leaves no trace."""
    existing = next(parent for parent in [folder, *folder.parents] if parent.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
        raise UserError(f"cannot write to {name} {folder}", where=key, cure=f"choose another with {key}=FOLDER")
    return existing


def pack_measurements(values: Mapping[str, Any]) -> dict[str, bytes | str]:
    """Scalars as JSON and arrays as npz: the files of a run's entry."""
    scalars = {name: float(value) for name, value in values.items() if np.ndim(value) == 0}
    arrays = {name: np.asarray(value) for name, value in values.items() if np.ndim(value) > 0}
    buffer = BytesIO()
    np.savez(buffer, **arrays)
    return {"measurements.json": json.dumps(scalars, indent=1) + "\n", "arrays.npz": buffer.getvalue()}


def unpack_measurements(entry: Entry) -> dict[str, Any]:
    """The measurements of a finished entry. Raises ValueError naming a damaged file."""
    damaged = entry.damaged_files()
    if damaged:
        raise ValueError(f"{entry.folder / damaged[0]} is damaged")
    scalars = json.loads((entry.folder / "measurements.json").read_text())
    with np.load(entry.folder / "arrays.npz", allow_pickle=False) as arrays:
        return {**scalars, **{name: arrays[name] for name in arrays.files}}
