"""scikit-learn's digits: 1797 grey images of 8x8 pixels, shipped with the package, so that they are always there.

Source: the test part of the UCI set "Optical Recognition of Handwritten Digits" (Alpaydin and Kaynak, 1998).
"""

from __future__ import annotations

import numpy as np
import torch

from data.images import ImageData
from data.module import Split, Splits

SHUFFLE = 1797  # the seed of the one permutation behind every split; not a setting, so that all runs share it


class Digits(ImageData):
    """The first ``train_size`` images of a fixed permutation are for training, the rest for testing.

    Pixels are grey levels 0..16 divided by 16; images have shape (1, 8, 8). Arguments: see ImageData.
    """

    image_shape = (1, 8, 8)
    class_count = 10
    largest_train_size = 1796
    usual_train_size = 1297

    def read(self) -> Splits:
        """All digits, permuted and cut at ``train_size``; there is no validation split."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        order = np.random.default_rng(SHUFFLE).permutation(len(bunch.target))
        x = torch.from_numpy((bunch.images[order, None] / 16).astype(np.float32))
        y = torch.from_numpy(bunch.target[order].astype(np.int64))
        n = self.train_size
        return Splits(Split(x[:n], y[:n]), None, Split(x[n:], y[n:]))
