"""MNIST and Fashion-MNIST: 60000 + 10000 grey images of 28x28 pixels in four IDX files, compressed or not.

The files are those that torchvision downloads. Debian packages those of Fashion-MNIST (dataset-fashion-mnist), which
makes it the set that needs no network beyond the system's own packages.
Sources: LeCun et al., 1998 (the IDX format is described on the data set's page); Xiao et al., 2017, arXiv 1708.07747.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import torch

from data.images import DownloadedImages
from data.module import Split, Splits

PARTS = {"train": "train", "test": "t10k"}
DEBIAN = "/usr/share/datasets/fashion-mnist"


class MNIST(DownloadedImages):
    """Handwritten digits; pixels divided by 255, images of shape (1, 28, 28). Arguments: see DownloadedImages."""

    image_shape = (1, 28, 28)
    class_count = 10
    largest_train_size = 60000
    usual_train_size = 60000
    title = "MNIST"
    torchvision_name = "MNIST"
    folder = "MNIST"

    def places(self) -> list[Path]:
        """torchvision's folder below the root, and its parent for files put there by hand.

        Not the root itself: the two data sets have the same file names, and one would be taken for the other.
        """
        return [Path(self.root) / self.folder / "raw", Path(self.root) / self.folder]

    def is_complete(self, place: Path) -> bool:
        """Whether a folder holds the four IDX files."""
        return all(find_idx(place, part, kind) for part in PARTS.values() for kind in ("images", "labels"))

    def read(self) -> Splits:
        """The official splits in the order of the files. Raises MissingData, also for damaged files."""
        place = self.find()
        train, test = (self._read_part(place, PARTS[name]) for name in ("train", "test"))
        return self.split(train.x, train.y, test)

    def _read_part(self, place: Path, part: str) -> Split:
        arrays = {}
        for kind in ("images", "labels"):
            path = find_idx(place, part, kind)
            try:
                arrays[kind] = read_idx(path)
            except ValueError as error:
                raise self.missing(f"{path} is damaged ({error}), delete it") from error
        x = torch.from_numpy(arrays["images"])[:, None].float().div_(255)
        return Split(x, torch.from_numpy(arrays["labels"]).long())


class FashionMNIST(MNIST):
    """Pictures of clothes in ten classes, in the format of MNIST. Arguments: see DownloadedImages."""

    title = "Fashion-MNIST"
    torchvision_name = "FashionMNIST"
    folder = "FashionMNIST"
    other_source = "apt-get install dataset-fashion-mnist"

    def places(self) -> list[Path]:
        """The places below the root, then the folder of Debian's package."""
        return [*super().places(), Path(DEBIAN)]


def find_idx(place: Path, part: str, kind: str) -> Path | None:
    """The IDX file of a part (``train``, ``t10k``) and kind (``images``, ``labels``), or its .gz; None if neither."""
    name = f"{part}-{kind}-idx{3 if kind == 'images' else 1}-ubyte"
    return next((path for path in (place / name, place / f"{name}.gz") if path.is_file()), None)


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes: a big-endian header (type 8, rank, sizes), then the values.

    Raises ValueError for a file that is cut short or of another kind.
    """
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"not a whole gzip file: {error}") from error
    if len(content) < 4 or content[:3] != b"\x00\x00\x08":
        raise ValueError("no IDX file of unsigned bytes")
    rank = content[3]
    shape = np.frombuffer(content[4 : 4 + 4 * rank].ljust(4 * rank, b"\x00"), ">u4").astype(np.int64)
    values = np.frombuffer(content, np.uint8, offset=min(4 + 4 * rank, len(content)))
    if values.size != shape.prod():
        raise ValueError(f"{values.size} values where the header promises {shape.prod()}")
    return values.reshape(shape).copy()
