"""CIFAR-10: 50000 + 10000 colour images of 32x32 pixels, as torchvision downloads and reads them.

Source: Krizhevsky, "Learning multiple layers of features from tiny images", 2009.
"""

from __future__ import annotations

from pathlib import Path

import torch

from data.augment import CropFlip
from data.images import DownloadedImages
from data.module import Split, Splits


class CIFAR10(DownloadedImages):
    """Objects in ten classes; pixels divided by 255, images of shape (3, 32, 32).

    augment: random crops (4 pixels of padding) and mirrored images in training. Other arguments: see DownloadedImages.
    Raises ValueError for ``augment`` together with ``flatten``.
    """

    image_shape = (3, 32, 32)
    class_count = 10
    largest_train_size = 50000
    usual_train_size = 50000
    title = "CIFAR-10"
    torchvision_name = "CIFAR10"
    folder = "cifar-10-batches-py"

    def __init__(self, augment: bool = False, flatten: bool = False, **options):
        super().__init__(flatten=flatten, **options)
        if augment and flatten:
            raise ValueError("data.augment=true crops images and needs data.flatten=false")
        self.augment = augment

    def places(self) -> list[Path]:
        """The folder of the unpacked archive below the root."""
        return [Path(self.root) / self.folder]

    def is_complete(self, place: Path) -> bool:
        """Whether a folder holds all batch files; torchvision checks their contents when it reads them."""
        from torchvision.datasets import CIFAR10 as Files

        names = [name for name, _ in Files.train_list + Files.test_list] + [Files.meta["filename"]]
        return all((place / name).is_file() for name in names)

    def read(self) -> Splits:
        """The official splits in the order of the files. Raises MissingData, also for damaged files."""
        place = self.find()
        train, test = (self._read_part(place, train=train) for train in (True, False))
        return self.split(train.x, train.y, test)

    def load(self) -> Splits:
        """As DownloadedImages.load, with the augmentation attached to the training split."""
        train, val, test = super().load()
        augment = CropFlip(self.seed, len(train)) if self.augment else None
        return Splits(Split(train.x, train.y, augment), val, test)

    def _read_part(self, place: Path, train: bool) -> Split:
        from torchvision.datasets import CIFAR10 as Files

        try:
            files = Files(self.root, train=train)
        except RuntimeError as error:
            raise self.missing(f"the files in {place} are damaged, delete them") from error
        x = torch.from_numpy(files.data).permute(0, 3, 1, 2).float().div_(255)
        return Split(x.contiguous(), torch.tensor(files.targets))
