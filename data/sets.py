"""A whole data set for each seed, the training batch being all of every set: for solvers that work on full batches.

Inputs have leading axes (S, D): seeds and independent draws of a seed, which an experiment averages over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from data.module import Split, Splits, StreamData

PARTS = ("train", "pool")


class SeededSets(StreamData):
    """Base of data modules that draw ``draws`` data sets for each seed; a subclass gives ``load``.

    seed: one seed or a sequence of S seeds. draws: D data sets for each. part: what the training batches hold, the
    ``train`` split or the ``pool``, separate samples for a surrogate model. Each split has x (S, D, n, p) and
    y (S, D, n) in float64; ``test`` is None where errors have a formula.
    Raises ValueError for values out of range.
    """

    def __init__(self, seed: int | Sequence[int], draws: int, part: str = "train", workers: int = 0):
        super().__init__(batch_size=None, seed=seed, workers=workers)
        if part not in PARTS:
            raise ValueError(f"data.part={part!r}: give {' or '.join(PARTS)}")
        if draws < 1:
            raise ValueError(f"data.draws={draws}: give a positive number")
        self.draws, self.part = draws, part
        self.seeds = [int(value) for value in seed] if isinstance(seed, Sequence) else [int(seed)]

    def generators(self, purpose: int) -> list[list[np.random.Generator]]:
        """A generator for each seed and draw, (S, D), apart from those of other purposes."""
        return [[np.random.default_rng((seed, draw, purpose)) for draw in range(self.draws)] for seed in self.seeds]

    def chosen(self, train: Split, pool: Split | None, test: Split | None) -> Splits:
        """The splits, with the part that is trained on as ``train``. Raises ValueError for a pool that is not there."""
        if self.part == "train":
            return Splits(train, None, test)
        if pool is None:
            raise ValueError("data.part=pool needs a pool: set data.pool to its size")
        return Splits(pool, None, test)

    def train_dataloader(self) -> DataLoader:
        """The same batch without end: x (S, D, n, p) and y (S, D, n)."""
        return DataLoader(_Whole(self.train), sampler=_Endless(), batch_size=None, num_workers=self.workers,
                          generator=torch.Generator())


class _Whole(Dataset):
    """One sample, which is the whole split."""

    def __init__(self, split: Split):
        self.split = split

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.split.x, self.split.y


class _Endless:
    def __iter__(self) -> Iterator[int]:
        return repeat(0)


class Empty(StreamData):
    """One empty sample, for phases that solve equations and read no data."""

    def __init__(self) -> None:
        super().__init__(batch_size=None)

    def load(self) -> Splits:
        nothing = Split(torch.zeros(1, 0), torch.zeros(1))
        return Splits(nothing, None, nothing)


def stack(sets: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]]) -> Split:
    """A split from an (S, D) table of pairs x (n, p), y (n,) of equal sizes."""
    x, y = (np.stack([np.stack([pair[part] for pair in row]) for row in sets]) for part in (0, 1))
    return Split(torch.from_numpy(x).double(), torch.from_numpy(y).double())


def random_parts(count: int, size: int, pool: int, test: int,
                 generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows of the training, pool and test parts: the first, the following and the last of a permutation.

    So training and test rows do not depend on the pool's size.
    """
    order = generator.permutation(count)
    return order[:size], order[size: size + pool], order[count - test:]


def standardised(codes: np.ndarray, reference: np.ndarray) -> np.ndarray:
    """Columns (n, p) shifted and scaled to mean 0 and deviation 1 over the reference rows; constant ones become 0."""
    deviation = reference.std(0)
    return np.where(deviation > 0, (codes - reference.mean(0)) / np.where(deviation > 0, deviation, 1), 0)
