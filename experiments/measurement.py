"""What a paper's measurements receive and return, and the table of runs that claims and figures read.

A measurement is computed from one trained job; a derived measurement from all runs of one seed. Both declare the
names they give in a decorator whose literal arguments are read from the source text, so that a claim about an unknown
metric is refused before anything is imported or trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from lightning import LightningDataModule, LightningModule
    from omegaconf import DictConfig

Value = float | np.ndarray
ACROSS = "across"  # the arm name under which derived (cross-run) measurements are kept


def measurement(*names: str) -> Callable[[Callable], Callable]:
    """Declare the metric names that a function ``f(trained, **settings) -> dict[name, value]`` returns."""
    return _declare(names)


def derived(*names: str) -> Callable[[Callable], Callable]:
    """Declare the metric names that a function ``f(runs_of_one_seed, **settings) -> dict[name, value]`` returns."""
    return _declare(names)


def _declare(names: tuple[str, ...]) -> Callable[[Callable], Callable]:
    def mark(function: Callable) -> Callable:
        function.metric_names = names
        return function

    return mark


@dataclass(frozen=True)
class Trained:
    """A job after its last phase, as a measurement receives it.

    objective: the trained LightningModule, in eval mode, on the job's device.
    data: the last phase's data module, set up.
    config: the job's resolved config (last phase).
    seeds: the job's seeds; more than one when ``sweep.fuse`` holds ``seed``.
    load_phase: ``load_phase(name)`` gives the objective as it was at the end of an earlier phase.
    """

    objective: LightningModule
    data: LightningDataModule
    config: DictConfig
    seeds: tuple[int, ...]
    load_phase: Callable[[str], LightningModule]


@dataclass(frozen=True)
class Run:
    """The measurements of one arm with one seed at one point of the experiment's grid.

    point: grid coordinates by config key, e.g. ``{"model.latent_dim": 10}``; empty without a grid.
    values: scalars (float) and arrays by metric name.
    """

    arm: str
    seed: int
    values: Mapping[str, Value]
    point: Mapping[str, Any] = field(default_factory=dict)
    key: str = ""


class Runs(Sequence[Run]):
    """An immutable table of runs with the selections that claims, derived measurements and figures need."""

    def __init__(self, runs: Sequence[Run]):
        self._runs = tuple(runs)

    def __len__(self) -> int:
        return len(self._runs)

    def __getitem__(self, index):
        return Runs(self._runs[index]) if isinstance(index, slice) else self._runs[index]

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def arms(self) -> list[str]:
        """Arm names in order of first appearance, without the pseudo-arm of derived measurements."""
        return [arm for arm in dict.fromkeys(run.arm for run in self) if arm != ACROSS]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self})

    def axis(self, name: str) -> list[Any]:
        """The values of one grid axis, ascending (order of appearance where they do not compare)."""
        values = list(dict.fromkeys(run.point[name] for run in self if name in run.point))
        try:
            return sorted(values)
        except TypeError:
            return values

    def select(self, arm: str | None = None, seed: int | None = None, at: Mapping[str, Any] | None = None) -> Runs:
        """The runs of one arm, seed and (partial) grid point; an empty table when there is none."""
        wanted = dict(at or {})
        return Runs([
            run for run in self
            if (arm is None or run.arm == arm)
            and (seed is None or run.seed == seed)
            and all(run.point.get(name) == value for name, value in wanted.items())
        ])

    def values(self, metric: str, arm: str | None = None, at: Mapping[str, Any] | None = None) -> np.ndarray:
        """The metric of the selected runs, stacked in order of seed: shape (runs, *shape of the metric).

        ``arm=None`` reads derived measurements. Raises KeyError naming the metric when a selected run lacks it.
        """
        chosen = sorted(self.select(arm=arm or ACROSS, at=at), key=lambda run: run.seed)
        return np.stack([np.asarray(run.values[metric]) for run in chosen]) if chosen else np.empty(0)
