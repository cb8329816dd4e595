"""Two classes of a set of small images as a regression problem with targets -1 and 1, a few images for each seed.

Every pixel is centred and all are scaled together so that the mean norm of an image is the square root of its number
of pixels, as if each were N(0, 1); both statistics come from the training images of the seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from data.cifar10 import CIFAR10
from data.digits import Digits
from data.images import ImageData
from data.mnist import MNIST, FashionMNIST
from data.module import Splits
from data.per_seed import Drawn, PerSeedData

SOURCES = {"digits": Digits, "mnist": MNIST, "fashion_mnist": FashionMNIST, "cifar10": CIFAR10}
SUBSET = 0x25E7  # keeps these draws apart from others made from the same seed


class TwoClass(PerSeedData):
    """The two ``classes`` of a source; the first becomes -1, the second 1.

    source: digits, mnist, fashion_mnist or cifar10. train_size: images that each seed draws from the source's training
    split; test_size: the first so many of its test split, the same for all seeds; null for all.
    flatten: inputs of shape (pixels,) instead of (C, H, W). split_at: how many images the source's training split
    has; null is its usual number. root, download: see the source (digits come with their package).
    Raises ValueError for an unknown source and, when the data are read, for more images than there are.
    """

    def __init__(
        self, source: str, classes: Sequence[int], train_size: int, test_size: int | None = None,
        flatten: bool = True, split_at: int | None = None, root: str = ".cache/data", download: bool = False,
        seed: int | Sequence[int] = 0, workers: int = 0,
    ):
        super().__init__(train_size, test_size, seed, workers)
        if source not in SOURCES:
            raise ValueError(f"data.source={source}: give one of {', '.join(SOURCES)}")
        if len(classes) != 2:
            raise ValueError(f"data.classes={list(classes)}: give two labels")
        files = {} if source == "digits" else {"root": root, "download": download}
        self.images: ImageData = SOURCES[source](train_size=split_at, flatten=flatten, classes=classes, **files)

    def prepare_data(self) -> None:
        """Download the source's files if that is asked for and needed."""
        self.images.prepare_data()

    def load(self) -> Splits:
        """Read the source, then draw. Raises MissingData and ValueError."""
        self.images.setup()
        for name, wanted in (("train", self.train_size), ("test", self.test_size)):
            found = len(getattr(self.images, name))
            if wanted is not None and wanted > found:
                raise ValueError(f"data.{name}_size={wanted}, but the source has {found} such images of these classes")
        return super().load()

    def draw(self, seed: int) -> Drawn:
        """A random subset of the training images, and the test images prepared by the statistics of that subset."""
        rng = np.random.default_rng((seed, SUBSET))
        train_x, train_y = self.images.train[rng.permutation(len(self.images.train))[: self.train_size]]
        test_x, test_y = self.images.test[np.arange(len(self.images.test))[: self.test_size]]
        mean = train_x.double().mean(0)
        scale = mean.numel() ** 0.5 / (train_x.double() - mean).flatten(1).norm(dim=1).mean()
        inputs = [(x.double() - mean) * scale for x in (train_x, test_x)]
        return Drawn(inputs[0], 2.0 * train_y.double() - 1, inputs[1], 2.0 * test_y.double() - 1)
