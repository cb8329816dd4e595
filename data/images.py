"""Small labelled images: the options that digits, MNIST, Fashion-MNIST and CIFAR-10 share, and how files are fetched.

Options are applied in a fixed order: the data set is cut by `train_size`, then `classes` filters each split, then
`half` and `limit_train` shorten the training split alone, so that runs that differ in them share one test split.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from data.module import MissingData, Split, Splits, StreamData

HALVES = ("first", "second")


class ImageData(StreamData):
    """Images as float32 in [0, 1], labels as int64; a subclass gives ``read`` and the class constants.

    train_size: see the subclass; None is its usual size. flatten: inputs of shape (C * H * W,) instead of (C, H, W).
    binarize: pixels above 0.5 become 1.0, the others 0.0. classes: keep these labels only; the label of a sample is
    then its position in this list. half: None, ``first`` or ``second`` of two disjoint halves of the training split.
    limit_train: keep the first so many training samples. Other arguments: see StreamData.
    Raises ValueError for values that the data set does not have, naming the allowed ones.
    """

    image_shape: ClassVar[tuple[int, int, int]]  # channels, height, width
    class_count: ClassVar[int]
    largest_train_size: ClassVar[int]
    usual_train_size: ClassVar[int]

    def __init__(
        self,
        batch_size: int | None = 100,
        seed: int | Sequence[int] = 0,
        workers: int = 0,
        train_size: int | None = None,
        flatten: bool = True,
        binarize: bool = False,
        classes: Sequence[int] | None = None,
        half: str | None = None,
        limit_train: int | None = None,
    ):
        super().__init__(batch_size, seed, workers)
        self.train_size = self.usual_train_size if train_size is None else train_size
        self.flatten, self.binarize, self.half, self.limit_train = flatten, binarize, half, limit_train
        self.classes = None if classes is None else [int(label) for label in classes]
        self._check_options()

    @property
    def input_dim(self) -> int:
        """Numbers in one image: channels * height * width."""
        return prod(self.image_shape)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one input as the model receives it."""
        return (self.input_dim,) if self.flatten else self.image_shape

    @property
    def num_classes(self) -> int:
        """Number of labels left by ``classes``."""
        return self.class_count if self.classes is None else len(self.classes)

    def read(self) -> Splits:
        """The splits of ``train_size``, with inputs (n, C, H, W) in [0, 1] and original labels. Raises MissingData."""
        raise NotImplementedError(f"{type(self).__name__} does not say how its images are read")

    def load(self) -> Splits:
        """Read the images and apply the options. Raises MissingData, and ValueError for an impossible size."""
        train, val, test = (None if split is None else self._prepare(split) for split in self.read())
        return Splits(self._shorten(train), val, test)

    def _check_options(self) -> None:
        if not 1 <= self.train_size <= self.largest_train_size:
            raise ValueError(f"data.train_size={self.train_size}: give 1 to {self.largest_train_size}")
        if self.half not in (None, *HALVES):
            raise ValueError(f"data.half={self.half}: give null, first or second")
        if self.limit_train is not None and self.limit_train < 1:
            raise ValueError(f"data.limit_train={self.limit_train}: give a positive number, or null for no limit")
        if self.classes is not None and not is_choice(self.classes, self.class_count):
            raise ValueError(
                f"data.classes={self.classes}: give different labels from 0 to {self.class_count - 1}, or null for all"
            )

    def _prepare(self, split: Split) -> Split:
        x, y = split.x, split.y
        if self.classes is not None:
            matches = y[:, None] == torch.tensor(self.classes)
            kept = matches.any(1)
            x, y = x[kept], matches[kept].long().argmax(1)
        if self.binarize:
            x = (x > 0.5).float()
        return Split(x.flatten(1) if self.flatten else x, y)

    def _shorten(self, train: Split) -> Split:
        middle = (len(train) + 1) // 2
        part = {None: slice(None), "first": slice(middle), "second": slice(middle, None)}[self.half]
        x, y = train.x[part], train.y[part]
        if self.limit_train is not None and self.limit_train > len(x):
            raise ValueError(f"data.limit_train={self.limit_train}, but train_size, classes and half leave {len(x)}")
        return Split(x[: self.limit_train], y[: self.limit_train])


def is_choice(labels: Sequence[int], count: int) -> bool:
    """Whether labels are a non-empty list of different numbers from 0 to count - 1."""
    return 0 < len(labels) == len(set(labels)) and set(labels) <= set(range(count))


class DownloadedImages(ImageData):
    """Images with an official training and test split, in files below ``root``, which torchvision can download.

    train_size: the first so many official training images; the rest of them are the validation split.
    root: folder with the files as torchvision lays them out. download: fetch them when they are missing.
    options: see ImageData.
    """

    title: ClassVar[str]
    torchvision_name: ClassVar[str]  # the class in torchvision.datasets that downloads the files
    folder: ClassVar[str]  # what that class creates below its root
    other_source: ClassVar[str] = ""  # a further way to get the files, for the message

    def __init__(self, root: str = ".cache/data", download: bool = False, **options):
        super().__init__(**options)
        self.root, self.download = root, download

    def places(self) -> list[Path]:
        """Folders in which the files are looked for, in this order."""
        raise NotImplementedError

    def is_complete(self, place: Path) -> bool:
        """Whether a folder holds all files of the data set."""
        raise NotImplementedError

    def find(self) -> Path:
        """The first place that holds all files. Raises MissingData."""
        for place in self.places():
            if self.is_complete(place):
                return place
        looked = ", ".join(str(place) for place in self.places())
        raise self.missing(f"its files are not in {looked}")

    def missing(self, reason: str) -> MissingData:
        """The error to raise when the files cannot be used: one line with the reason and every way to get them."""
        fetch = "data.download=true where there is a network" if self.download else "data.download=true"
        cures = [fetch, *filter(None, [self.other_source]), "data.root=PATH"]
        return MissingData(f"{self.title}: {' '.join(reason.split())}; get them with {', or '.join(cures)}")

    def prepare_data(self) -> None:
        """Download the files below ``root`` if that is asked for and needed; one process at a time."""
        if not self.download or any(map(self.is_complete, self.places())):
            return
        from filelock import FileLock

        Path(self.root).mkdir(parents=True, exist_ok=True)
        with FileLock(Path(self.root) / f".{self.torchvision_name}.lock"):
            if not any(map(self.is_complete, self.places())):
                self._fetch()

    def _fetch(self) -> None:
        from torchvision import datasets

        with tempfile.TemporaryDirectory(dir=self.root) as scratch:
            try:
                getattr(datasets, self.torchvision_name)(scratch, download=True)
            except (OSError, RuntimeError) as error:
                raise self.missing(f"the download failed ({str(error)[:200]})") from error
            # Moved file by file from the same file system: a killed download never leaves half a file in place.
            source, target = Path(scratch) / self.folder, Path(self.root) / self.folder
            shutil.copytree(source, target, dirs_exist_ok=True, copy_function=os.replace)

    def load(self) -> Splits:
        """Read the images, downloading them first if asked for. Raises MissingData and ValueError."""
        self.prepare_data()  # under a Trainer it has run by now; this serves callers without one
        return super().load()

    def split(self, x: Tensor, y: Tensor, test: Split) -> Splits:
        """Cut the official training images into training and validation. Raises ValueError if there are too few."""
        n = self.train_size
        if n > len(x):
            raise ValueError(f"data.train_size={n}, but the files of {self.title} hold {len(x)} training images")
        return Splits(Split(x[:n], y[:n]), Split(x[n:], y[n:]) if n < len(x) else None, test)
