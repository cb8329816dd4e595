"""The base of the data modules: tensors in memory, visited in the order of `data.stream`.

A data module stores its settings when it is built and reads nothing before `setup`, so that a config can be checked
without the data. All loaders have a generator of their own: making an iterator draws a number, and from torch's
global generator that draw would make a resumed run differ from an uninterrupted one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from data.stream import StepBatches

Augment = Callable[[Tensor, np.ndarray, np.ndarray], Tensor]  # (images, indices, epochs) -> images


class MissingData(FileNotFoundError):
    """The files of a data set are not there or not whole. The message is one line: what, where, and how to get them."""


class Split(Dataset):
    """Samples in memory: x of shape (n, ...), y of shape (n,).

    ``split[indices]`` with an integer array of shape (B,) or (R, B) gives (x, y) of shapes (B, ...) and (B,), or
    (R, B, ...) and (R, B): the samples as stored. ``split[indices, epochs]``, what the training stream asks for, gives
    them augmented where the split has an ``augment``, which must be a pure function of its arguments.
    """

    def __init__(self, x: Tensor, y: Tensor, augment: Augment | None = None):
        if len(x) != len(y):
            raise ValueError(f"{len(x)} inputs but {len(y)} labels")
        self.x, self.y, self.augment = x, y, augment

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: np.ndarray | tuple[np.ndarray, np.ndarray]) -> tuple[Tensor, Tensor]:
        indices, epochs = at if isinstance(at, tuple) else (at, None)
        if np.ndim(indices) == 0:  # what Lightning's own distributed sampler would ask for
            raise TypeError(
                f"a split takes an array of indices, not {indices!r}: with several processes set"
                " trainer.use_distributed_sampler=false, since the stream slices its batches by rank itself"
            )
        where = torch.as_tensor(indices)
        x = self.x[where]
        if self.augment is not None and epochs is not None:
            x = self.augment(x, indices, epochs)
        return x, self.y[where]


class Splits(NamedTuple):
    """What a data module loads; val is None when nothing is held out for validation."""

    train: Split
    val: Split | None
    test: Split


class StreamData(LightningDataModule):
    """Base of the data modules; a subclass gives ``load``.

    batch_size: global training batch over all ranks; None trains on the whole split at each step, in natural order.
    seed: decides the order of the batches (and augmentation); a sequence of R seeds gives training batches with a
    leading axis R. workers: loader processes, which never change a batch.
    ``start_batch`` is the step at which the training loader starts; set it before fit when a run is resumed.
    ``train``, ``val`` and ``test`` are None until ``setup``.
    """

    def __init__(self, batch_size: int | None, seed: int | Sequence[int] = 0, workers: int = 0):
        super().__init__()
        self.batch_size, self.workers = batch_size, workers
        self.seed = [int(value) for value in seed] if isinstance(seed, Sequence) else int(seed)
        self.start_batch = 0
        self.train: Split | None = None
        self.val: Split | None = None
        self.test: Split | None = None
        self._fingerprint: str | None = None

    def load(self) -> Splits:
        """Read the data. Raises MissingData when its files are not there."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its data are loaded")

    def setup(self, stage: str | None = None) -> None:
        """Load all splits, once; later calls do nothing. Raises MissingData."""
        if self.train is None:
            self.train, self.val, self.test = self.load()

    def fingerprint(self) -> str:
        """16 hex digits of a SHA-256 over the inputs and labels of each split; sets the data up. Raises MissingData."""
        self.setup()
        if self._fingerprint is None:
            digest = hashlib.sha256()
            for name, split in (("train", self.train), ("val", self.val), ("test", self.test)):
                for tensor in (split.x, split.y) if split is not None else ():
                    digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)};".encode())
                    digest.update(tensor.contiguous().numpy())
            self._fingerprint = digest.hexdigest()[:16]
        return self._fingerprint

    def train_dataloader(self) -> DataLoader:
        """Training batches from ``start_batch`` on, without end; each rank of the trainer gets its slice of each."""
        rank, world = (self.trainer.global_rank, self.trainer.world_size) if self.trainer is not None else (0, 1)
        augmented = self.train.augment is not None
        stream = StepBatches(
            len(self.train), self.batch_size, self.seed, self.start_batch, rank, world, with_epochs=augmented
        )
        return self._loader(self.train, stream)

    def val_dataloader(self) -> DataLoader | list:
        """The validation split in chunks of the batch size, the same on each rank; no loader without such a split."""
        return self._chunks(self.val) if self.val is not None else []

    def test_dataloader(self) -> DataLoader:
        """The test split in chunks of the batch size, the same on each rank."""
        return self._chunks(self.test)

    def _chunks(self, split: Split) -> DataLoader:
        size = self.batch_size or len(split)
        return self._loader(split, [np.arange(i, min(i + size, len(split))) for i in range(0, len(split), size)])

    def _loader(self, split: Split, sampler: Iterable) -> DataLoader:
        return DataLoader(
            split, sampler=sampler, batch_size=None, num_workers=self.workers, generator=torch.Generator()
        )
