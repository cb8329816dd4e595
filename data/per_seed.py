"""The base of data sets that are drawn anew for every seed, so that one fit can train all seeds on their own data.

A sample of the training split is the i-th sample of every seed at once, and the whole split is one batch: full-batch
methods see (n, S, ...) inputs and (n, S) targets with S seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from data.module import Split, Splits, StreamData


class Drawn(NamedTuple):
    """The data of one seed in float64: inputs (n, ...) and targets (n,) of both splits."""

    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor


class PerSeedData(StreamData):
    """A subclass gives ``draw``.

    train_size, test_size: points of one seed. seed: one seed or several; a single one still has an axis of its own.
    workers: see StreamData.
    """

    def __init__(self, train_size: int, test_size: int | None, seed: int | Sequence[int] = 0, workers: int = 0):
        super().__init__(batch_size=None, seed=0, workers=workers)  # the order of a full batch does not matter
        self.train_size, self.test_size = train_size, test_size
        self.seeds = [int(value) for value in seed] if isinstance(seed, Sequence) else [int(seed)]

    def draw(self, seed: int) -> Drawn:
        """The data of one seed, a function of that seed alone."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its data are drawn")

    def load(self) -> Splits:
        """Draw every seed's data and stack them along the second axis."""
        train_x, train_y, test_x, test_y = (
            torch.stack(parts, 1) for parts in zip(*map(self.draw, self.seeds), strict=True)
        )
        return Splits(Split(train_x, train_y), None, Split(test_x, test_y))
