"""Random crops and flips that are a pure function of (seed, epoch, index).

The numbers of a whole epoch are drawn at once from a generator made from (seed, epoch) and looked up by sample, so
that neither the batch size, nor the rank, nor the number of workers can change what happens to an image.
Source of the policy: the usual CIFAR recipe (He et al., 2015, arXiv 1512.03385, section 4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

AUGMENT = 0xA063  # keeps these draws apart from other generators made from (seed, epoch)


class CropFlip:
    """Pad with zeros, crop to the original size at a random place, mirror left-right with probability one half.

    seed: one seed, or R seeds for batches with a leading axis R. size: number of samples in the split.
    padding: pixels added on each side.
    """

    def __init__(self, seed: int | Sequence[int], size: int, padding: int = 4):
        self.seeds = list(seed) if isinstance(seed, Sequence) else [seed]
        self.size, self.padding = size, padding

    def __call__(self, images: Tensor, indices: np.ndarray, epochs: np.ndarray) -> Tensor:
        """Augment images (B, C, H, W) with indices (B,), or (R, B, C, H, W) with (R, B); epochs (B,)."""
        rows = np.atleast_2d(indices)
        draws = np.concatenate([self._draws(seed, row, epochs) for seed, row in zip(self.seeds, rows, strict=True)])
        top, left, mirrored = torch.from_numpy(draws.astype(np.int64)).unbind(1)
        flat = images.reshape(-1, *images.shape[-3:])
        return crop_flip(flat, top, left, mirrored.bool(), self.padding).reshape(images.shape)

    def _draws(self, seed: int, indices: np.ndarray, epochs: np.ndarray) -> np.ndarray:
        chosen = np.empty((len(indices), 3), np.uint8)
        for epoch in np.unique(epochs):
            here = epochs == epoch
            chosen[here] = epoch_draws(seed, int(epoch), self.size, self.padding)[indices[here]]
        return chosen


@lru_cache(maxsize=64)
def epoch_draws(seed: int, epoch: int, size: int, padding: int) -> np.ndarray:
    """Top and left of the crop and whether to mirror, of each sample in one epoch: uint8, (size, 3)."""
    rng = np.random.default_rng((seed, epoch, AUGMENT))
    return rng.integers(0, [2 * padding + 1, 2 * padding + 1, 2], size=(size, 3)).astype(np.uint8)


def crop_flip(images: Tensor, top: Tensor, left: Tensor, mirrored: Tensor, padding: int) -> Tensor:
    """Crop zero-padded images (B, C, H, W) at (top, left), each (B,), and mirror those with ``mirrored`` (B,) true."""
    height, width = images.shape[-2:]
    rows = top[:, None] + torch.arange(height)
    columns = left[:, None] + torch.arange(width)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    padded = pad(images, (padding,) * 4)
    sample = torch.arange(len(images))[:, None, None]
    return padded[sample, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()
