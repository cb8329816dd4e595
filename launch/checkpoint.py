"""Checkpoints that survive a kill at any moment and resume to the same numbers.

A checkpoint is Lightning's own plus the phase's key, the number of batches done and the state of every random number
generator. Its file name carries its SHA-256, so a truncated or foreign file is found before it is trusted, and the one
before it is taken instead. Saving happens between batches, in the loop and never in a signal handler.
"""

from __future__ import annotations

import hashlib
import logging
import random
import re
import time
from io import BytesIO
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch

from launch.store import write_atomic

log = logging.getLogger("reprise")
NAME = re.compile(r"step-(\d+)-([0-9a-f]{12})\.ckpt")
KEPT = 2


class Checkpoint(L.Callback):
    """Save every so many seconds or steps, keep the last two, and put generators back after a resume.

    folder: where the phase's checkpoints lie; key: the phase's key; started: batches that the resumed checkpoint
    had done (0 for a fresh start).
    """

    def __init__(self, folder: Path, key: str, every_seconds: float, every_steps: int | None):
        self.folder, self.key = folder, key
        self.every_seconds, self.every_steps = every_seconds, every_steps
        self.batches_done = 0
        self._generators: dict[str, Any] | None = None
        self._spent_before = 0.0
        self._started = self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        """Wall time of the phase so far, the part before a resume included."""
        return self._spent_before + time.monotonic() - self._started

    def on_train_batch_start(self, trainer, module, batch, batch_idx) -> None:
        if self._generators is not None:  # now, since making the data loader has drawn from torch's generator
            restore_generators(self._generators)
            self._generators = None

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx) -> None:
        self.batches_done += 1
        by_step = self.every_steps and self.batches_done % self.every_steps == 0
        if by_step or time.monotonic() - self._last > self.every_seconds:
            self.save(trainer)

    def save(self, trainer: L.Trainer) -> None:
        """Write a checkpoint of this moment and drop those before the last two."""
        content = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)  # on every rank: may gather
        if trainer.is_global_zero:
            write_checkpoint(self.folder, self.batches_done, content)
        self._last = time.monotonic()

    def on_save_checkpoint(self, trainer, module, checkpoint) -> None:
        checkpoint["reprise"] = {"key": self.key, "batches": self.batches_done, "seconds": self.seconds,
                                 "generators": read_generators()}

    def on_load_checkpoint(self, trainer, module, checkpoint) -> None:
        self.batches_done = checkpoint["reprise"]["batches"]
        self._spent_before = checkpoint["reprise"]["seconds"]
        self._generators = checkpoint["reprise"]["generators"]


def write_checkpoint(folder: Path, step: int, content: dict[str, Any]) -> Path:
    """Write a checkpoint whose name holds its digest; keep it and the one before, drop later ones (passed over)."""
    buffer = BytesIO()
    torch.save(content, buffer)
    data = buffer.getvalue()
    path = folder / f"step-{step:09d}-{hashlib.sha256(data).hexdigest()[:12]}.ckpt"
    write_atomic(path, data)
    others = [item for item in checkpoints(folder) if item != path]
    kept = [item for item in others if item.name < path.name][1 - KEPT:]
    for item in others:
        if item not in kept:
            item.unlink(missing_ok=True)
    return path


def checkpoints(folder: Path) -> list[Path]:
    """The folder's checkpoints, oldest first; files with other names are not ours."""
    return sorted(path for path in folder.glob("step-*.ckpt") if NAME.fullmatch(path.name))


def last_good(folder: Path, key: str) -> tuple[Path, int] | None:
    """The newest checkpoint that is whole and belongs to the phase, with its batch count.

    Damaged or foreign ones are named in a warning and passed over.
    """
    for path in reversed(checkpoints(folder)):
        problem, batches = _inspect(path, key)
        if problem is None:
            return path, batches
        log.warning("checkpoint %s is %s: passed over", path, problem)
    return None


def _inspect(path: Path, key: str) -> tuple[str | None, int]:
    data = path.read_bytes()
    if not hashlib.sha256(data).hexdigest().startswith(NAME.fullmatch(path.name).group(2)):
        return "truncated or damaged", 0
    try:
        ours = torch.load(BytesIO(data), map_location="cpu", weights_only=True)["reprise"]
        owner, batches = ours["key"], int(ours["batches"])
    except Exception as error:  # whatever a foreign file makes torch raise, the answer is the same
        return f"not a checkpoint of this harness ({type(error).__name__})", 0
    return (None if owner == key else f"of another phase ({owner}, expected {key})"), batches


def read_generators() -> dict[str, Any]:
    """The state of Python's, numpy's and torch's generators as plain data and tensors."""
    kind, words, position, has_gauss, gauss = np.random.get_state()
    version, state, gauss_next = random.getstate()
    found = {
        "python": [version, list(state), gauss_next],
        "numpy": [kind, words.tolist(), int(position), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
    }
    if torch.cuda.is_available():
        found["cuda"] = torch.cuda.get_rng_state_all()
    return found


def restore_generators(state: dict[str, Any]) -> None:
    """Put the generators back to a state of ``read_generators``."""
    version, words, gauss_next = state["python"]
    random.setstate((version, tuple(words), gauss_next))
    kind, words, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.array(words, dtype=np.uint32), position, has_gauss, gauss))
    torch.set_rng_state(state["torch"].cpu())
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all([item.cpu() for item in state["cuda"]])
