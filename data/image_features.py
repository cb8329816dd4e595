"""Features of a pretrained network for any folder of images with one subfolder for each class, one class against the rest.

Computed once and kept in a file, since every run needs the same ones. Source of the set-up: Kolossov et al. (arXiv
2309.14563, appendix O) use a ResNet-50 trained by SwAV; its weights can be given as a file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from data.module import MissingData, Splits
from data.sets import SeededSets, random_parts, stack, standardised

SPLIT = 0x1F01  # purpose of a generator
BATCH = 64


class ImageFeatures(SeededSets):
    """A random split of the images below ``root`` for each seed and draw: ``size`` to train on, ``pool`` apart, ``test``.

    labels: the subfolder whose images are 1. network: a torchvision ResNet. weights: a name of torchvision's, a file
    with a state dict, or None for random ones. features: the network's width, which the model is built for. download:
    fetch named weights when they are missing. cache: folder for the computed features. Features are standardised by the
    training part. Other arguments: see SeededSets.
    """

    truth = None  # no known direction

    def __init__(self, root: str = ".cache/data/images", network: str = "resnet50", weights: str | None = "IMAGENET1K_V2",
                 features: int = 2048, size: int = 1000, pool: int = 500, test: int = 1000, labels: str = "car",
                 draws: int = 1, download: bool = False, cache: str = ".cache/features", part: str = "train",
                 seed: int | Sequence[int] = 0, workers: int = 0):
        super().__init__(seed, draws, part, workers)
        self.root, self.network, self.weights, self.features = Path(root), network, weights, features
        self.size, self.pool, self.test_size, self.labels = size, pool, test, labels
        self.download, self.cache = download, Path(cache)

    def prepare_data(self) -> None:
        """Compute the features unless the cache has them. Raises MissingData for images or weights that are not there."""
        if not (self.root / self.labels).is_dir():
            raise MissingData(f"no images of class '{self.labels}' in {self.root}: give a folder with a subfolder for "
                              f"each class, one named '{self.labels}', with arm.images=PATH")
        if not self._file().is_file():
            self._file().parent.mkdir(parents=True, exist_ok=True)
            temporary = self._file().with_suffix(f".{os.getpid()}.tmp")
            torch.save(self._compute(), temporary)
            os.replace(temporary, self._file())

    def load(self) -> Splits:
        """Split the features. Raises ValueError for sizes that the images or the network do not allow."""
        self.prepare_data()
        codes, labels = (part.numpy() for part in torch.load(self._file(), weights_only=True))
        wanted = self.size + self.pool + self.test_size
        if wanted > len(labels) or codes.shape[1] != self.features:
            raise ValueError(f"data: {len(labels)} images with {codes.shape[1]} features, but size + pool + test = "
                             f"{wanted} and features = {self.features}")
        tables = [[self._parts(codes, labels, generator) for generator in row] for row in self.generators(SPLIT)]
        train, pool, test = (stack([[parts[part] for parts in row] for row in tables]) for part in range(3))
        return self.chosen(train, pool if self.pool else None, test)

    def _parts(self, codes: np.ndarray, labels: np.ndarray,
               generator: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
        parts = random_parts(len(labels), self.size, self.pool, self.test_size, generator)
        scaled = standardised(codes, codes[parts[0]])
        return [(scaled[rows], labels[rows]) for rows in parts]

    def _file(self) -> Path:
        files = sorted(path for path in self.root.glob("*/**/*") if path.is_file())
        listing = "\n".join(f"{path.relative_to(self.root)} {path.stat().st_size}" for path in files)
        text = f"{self.network} {self.weights} {self.labels}\n{listing}"
        return self.cache / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.pt"

    @torch.no_grad()
    def _compute(self) -> tuple[Tensor, Tensor]:
        from torchvision.datasets import ImageFolder

        network, transform = self._network()
        device = "cuda" if torch.cuda.is_available() else "cpu"
        images = ImageFolder(str(self.root), transform)
        loader = torch.utils.data.DataLoader(images, BATCH, num_workers=self.workers, generator=torch.Generator())
        network = network.to(device).eval()
        codes, labels = zip(*((network(x.to(device)).cpu(), y) for x, y in loader), strict=True)
        return torch.cat(codes).double(), torch.cat(labels) == images.class_to_idx[self.labels]

    def _network(self) -> tuple[nn.Module, nn.Module]:
        from torchvision.models import ResNet50_Weights, get_model, get_model_weights

        transform = ResNet50_Weights.IMAGENET1K_V1.transforms()
        if self.weights is None or Path(self.weights).is_file():
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                network = get_model(self.network, weights=None)
            if self.weights:
                _load_body(network, Path(self.weights))
        else:
            named = get_model_weights(self.network)[self.weights]
            self._require(named.url)
            network, transform = get_model(self.network, weights=named), named.transforms()
        network.fc = nn.Identity()
        return network, transform

    def _require(self, url: str) -> None:
        place = Path(torch.hub.get_dir()) / "checkpoints" / url.rpartition("/")[2]
        if not place.is_file() and not self.download:
            raise MissingData(f"the weights {self.weights} of {self.network} are not in {place}: get them with "
                              "data.download=true, or give a file with data.weights=PATH")


def _load_body(network: nn.Module, path: Path) -> None:
    """Load a state dict, without the prefix that distributed training leaves and without any head."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    named = {name.removeprefix("module."): value for name, value in state.get("state_dict", state).items()}
    body = {name: value for name, value in network.state_dict().items() if not name.startswith("fc.")}
    if missing := [name for name in body if name not in named]:
        raise ValueError(f"data.weights={path} is no state dict of the network: it lacks {missing[0]}")
    network.load_state_dict({name: named[name] for name in body}, strict=False)
