"""The local metrics file, written by every run: one JSON object a line, with the step.

It is the record that W&B bundles are made from (``launch/wandb_files.py``). After a resume, lines beyond the
checkpoint's step are cut off, so the file is one history without doubles.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only

from launch.store import StorageFull, write_atomic


class MetricsFile(Logger):
    """Append scalars to ``metrics.jsonl``; a full disk stops the file and never the run."""

    def __init__(self, path: Path, keep_below: int):
        super().__init__()
        self.path = path
        self._lines: list[str] = []
        self._alive = True
        try:
            if path.exists():
                kept = [entry for entry in read_metrics(path) if entry["step"] < keep_below]
                write_atomic(path, "".join(json.dumps(entry) + "\n" for entry in kept))
        except (OSError, StorageFull):
            self._alive = False

    @property
    def name(self) -> str:
        return "metrics"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: the config lies beside this file."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        values = {name: float(value) for name, value in metrics.items() if name != "epoch"}
        if values:
            self._lines.append(json.dumps({"step": int(step or 0), **values}) + "\n")
        if len(self._lines) >= 20:
            self.save()

    @rank_zero_only
    def save(self) -> None:
        if not self._lines or not self._alive:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a") as file:
                file.write("".join(self._lines))
        except OSError:
            self._alive = False  # numbers in measurements matter more than this record
        self._lines.clear()

    @rank_zero_only
    def finalize(self, status: str) -> None:
        self.save()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The entries of a metrics file in order, later ones for the same step and name replacing earlier; a half-written
    last line is left out."""
    merged: dict[int, dict[str, Any]] = {}
    for line in path.read_text(errors="replace").splitlines():
        try:
            entry = json.loads(line)
            merged.setdefault(int(entry["step"]), {}).update(entry)
        except (ValueError, KeyError, TypeError):
            continue
    return [merged[step] for step in sorted(merged)]


def finite(values: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in values.items() if math.isfinite(value)}
