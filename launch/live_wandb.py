"""W&B while a job runs, for ``logger=online``: a logger whose every failure is a warning and nothing more.

The W&B run has the job's key as its id, so a resumed job continues it; W&B itself drops steps it already has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from lightning.pytorch.loggers.logger import Logger
from lightning.pytorch.utilities import rank_zero_only

log = logging.getLogger("reprise")


class LiveWandb(Logger):
    """Send scalars to a W&B run made by ``start``; the first failure switches it off.

    start: opens the run; prefix and offset: put several phases on one axis, as the bundles do.
    """

    def __init__(self, start: Callable[[], Any], prefix: str = "", offset: int = 0):
        super().__init__()
        self._start, self._prefix, self._offset = start, prefix, offset
        self._run: Any = None
        self._alive = True

    @property
    def name(self) -> str:
        return "wandb"

    @property
    def version(self) -> str:
        return ""

    @rank_zero_only
    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing: the whole config goes with the run when it is opened."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        values = {f"{self._prefix}{name}": float(value) for name, value in metrics.items() if name != "epoch"}
        if values:
            self._try(lambda run: run.log(values, step=self._offset + int(step or 0)))

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._run is not None:
            self._try(lambda run: run.finish())
            self._run = None

    def _try(self, act: Callable[[Any], Any]) -> None:
        if not self._alive:
            return
        try:
            self._run = self._run or self._start()
            act(self._run)
        except Exception as error:
            self._alive = False
            log.warning("W&B is switched off for this job (%s: %s)", type(error).__name__, error)
