"""The order in which samples are visited: the indices of batch `step` as a pure function of (seed, step).

The stream is the concatenation of one permutation per epoch, cut into batches. A batch may cross the end of an epoch,
so no sample is dropped or seen twice in an epoch, and a run that stops after any step goes on at the next one without
saved loader state. Used as ``DataLoader(dataset, sampler=StepBatches(...), batch_size=None)``: the dataset then
receives a whole array of indices at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
from torch.utils.data import Sampler

# Keeps this stream apart from other generators that are made from (seed, small integer), e.g. noise from (seed, step).
ORDER = 0x0DE2


class StepBatches(Sampler):
    """Yields the index arrays of batches ``start``, ``start + 1``, ... without end.

    size: number of samples. batch_size: global batch size over all ranks; None means all samples in natural order at
    each step. seed: one seed gives indices of shape (B,); a sequence of R seeds gives (R, B), row r being the stream
    of seed r. rank, world: this process takes the rank-th of ``world`` contiguous slices of each global batch, so that
    B = batch_size / world. with_epochs: yield pairs (indices, epochs), epochs of shape (B,), for augmentation.
    Raises ValueError for a batch size that does not divide by ``world`` and for values out of range.
    """

    def __init__(
        self,
        size: int,
        batch_size: int | None,
        seed: int | Sequence[int] = 0,
        start: int = 0,
        rank: int = 0,
        world: int = 1,
        with_epochs: bool = False,
    ):
        super().__init__()
        self.size, self.start, self.with_epochs = size, start, with_epochs
        self.shuffled = batch_size is not None
        self.replicated = isinstance(seed, Sequence)
        self.seeds = [int(value) for value in seed] if isinstance(seed, Sequence) else [int(seed)]
        self.rank, self.world = rank, world
        self.global_batch = size if batch_size is None else batch_size
        self._permutations: dict[int, tuple[int, np.ndarray]] = {}  # the current epoch of each seed
        self._check()

    def _check(self) -> None:
        if self.size < 1:
            raise ValueError("no samples to draw batches from: the training split is empty")
        if self.global_batch < 1:
            raise ValueError(f"batch_size={self.global_batch}: give a positive number, or null for the full batch")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank={self.rank} is not one of the {self.world} processes")
        if self.global_batch % self.world:
            raise ValueError(
                f"a batch of {self.global_batch} samples does not divide by {self.world} processes;"
                f" give a batch_size that is a multiple of {self.world}"
            )
        if not self.seeds or min(self.seeds) < 0 or self.start < 0:
            raise ValueError(f"seeds and start must be non-negative: seed={self.seeds}, start={self.start}")

    def __iter__(self) -> Iterator[np.ndarray | tuple[np.ndarray, np.ndarray]]:
        for step in count(self.start):
            yield (self.batch(step), self.epochs(step)) if self.with_epochs else self.batch(step)

    def batch(self, step: int) -> np.ndarray:
        """This rank's indices at a step: int64, (B,) for one seed and (R, B) for a sequence of R seeds."""
        epochs, offsets = np.divmod(self._positions(step), self.size)
        rows = [self._visit(seed, epochs, offsets) for seed in self.seeds]
        return np.stack(rows) if self.replicated else rows[0]

    def epochs(self, step: int) -> np.ndarray:
        """The epoch of each index of ``batch(step)``: int64, (B,), the same for all seeds."""
        return self._positions(step) // self.size

    def _positions(self, step: int) -> np.ndarray:
        share = self.global_batch // self.world
        first = step * self.global_batch + self.rank * share
        return np.arange(first, first + share, dtype=np.int64)

    def _visit(self, seed: int, epochs: np.ndarray, offsets: np.ndarray) -> np.ndarray:
        if not self.shuffled:
            return offsets
        spanned = range(epochs[0], epochs[-1] + 1)
        return np.concatenate([self._permutation(seed, epoch)[offsets[epochs == epoch]] for epoch in spanned])

    def _permutation(self, seed: int, epoch: int) -> np.ndarray:
        cached = self._permutations.get(seed)
        if cached is None or cached[0] != epoch:
            cached = epoch, np.random.default_rng((seed, epoch, ORDER)).permutation(self.size)
            self._permutations[seed] = cached
        return cached[1]
