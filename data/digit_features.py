"""Random ReLU features of scikit-learn's digits with a two-class label: real data for methods on linear classifiers.

Features are max(0, W (x - mean)) of the 64 pixels with Gaussian W, standardised by the training part, so that a model
without intercept suits them (Rahimi and Recht, "Random features for large-scale kernel machines", 2007). Without the mean,
or with a bias, the full sample's error is larger.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data.module import Splits
from data.sets import SeededSets, random_parts, stack, standardised

SPLIT, FEATURES, FLIPS = 0xD101, 0xD102, 0xD103  # purposes of generators
TWO_CLASSES = {"parity": lambda digit: digit % 2, "large": lambda digit: digit >= 5}


class DigitFeatures(SeededSets):
    """A random split of the 1797 digits for each seed and draw: ``size`` to train on, ``pool`` apart, ``test`` at the end.

    labels: ``parity`` (odd digits are 1) or ``large`` (5 to 9 are 1). flipped: the share of training and pool labels
    turned round; test labels stay clean. features: random features. Runs that differ in ``pool`` alone share training
    and test images. Other arguments: see SeededSets. Raises ValueError for parts that exceed the digits.
    """

    truth = None  # no known direction

    def __init__(self, features: int = 200, size: int = 900, pool: int = 350, test: int = 547, labels: str = "parity",
                 flipped: float = 0.0, draws: int = 1, part: str = "train", seed: int | Sequence[int] = 0,
                 workers: int = 0):
        super().__init__(seed, draws, part, workers)
        if labels not in TWO_CLASSES:
            raise ValueError(f"data.labels={labels!r}: give {' or '.join(TWO_CLASSES)}")
        if size + pool + test > 1797 or min(features, size, test) < 1 or pool < 0:
            raise ValueError(f"data: size={size}, pool={pool}, test={test} are not parts of 1797 digits")
        if not 0 <= flipped < 1:
            raise ValueError(f"data.flipped={flipped}: give a share in [0, 1)")
        self.features, self.size, self.pool, self.test_size = features, size, pool, test
        self.labels, self.flipped = labels, flipped

    def load(self) -> Splits:
        """Read the digits and make every seed's parts."""
        from sklearn.datasets import load_digits

        bunch = load_digits()
        pixels, labels = bunch.data / 16, TWO_CLASSES[self.labels](bunch.target).astype(bool)
        purposes = (SPLIT, FEATURES, FLIPS)
        tables = [[self._parts(pixels, labels, *each) for each in zip(*rows, strict=True)]
                  for rows in zip(*map(self.generators, purposes), strict=True)]
        train, pool, test = (stack([[parts[part] for parts in row] for row in tables]) for part in range(3))
        return self.chosen(train, pool if self.pool else None, test)

    def _parts(self, pixels: np.ndarray, labels: np.ndarray, split: np.random.Generator,
               features: np.random.Generator, flips: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
        parts = random_parts(len(pixels), self.size, self.pool, self.test_size, split)
        weights = features.standard_normal((pixels.shape[1], self.features))
        codes = np.maximum((pixels - pixels[parts[0]].mean(0)) @ weights, 0)
        codes = standardised(codes, codes[parts[0]])
        noisy = labels ^ (flips.random(len(labels)) < self.flipped)
        return [(codes[rows], (labels if rows is parts[2] else noisy)[rows]) for rows in parts]
