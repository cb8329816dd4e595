"""Features of an image folder: classes from subfolders, a cache, and one-line errors for what is not there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.models import ResNet18_Weights, get_model

from data.image_features import ImageFeatures
from data.module import MissingData


@pytest.fixture
def folder(tmp_path):
    generator = np.random.default_rng(0)
    for label, count in (("car", 4), ("road", 5)):
        (tmp_path / "images" / label).mkdir(parents=True)
        for index in range(count):
            pixels = generator.integers(0, 255, (40, 30, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / label / f"{index}.png")
    return tmp_path


def made(folder, **options) -> ImageFeatures:
    sizes = {"features": 512, "size": 4, "pool": 2, "test": 3}
    return ImageFeatures(**{"root": str(folder / "images"), "network": "resnet18", "weights": None,
                            "cache": str(folder / "cache"), **sizes} | options)


def test_features_are_the_network_s_and_labels_the_named_subfolder(folder):
    data = made(folder, seed=[0, 1])
    data.setup()
    assert data.train.x.shape == (2, 1, 4, 512) and data.test.y.shape == (2, 1, 3)
    codes, labels = torch.load(next((folder / "cache").glob("*.pt")), weights_only=True)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = get_model("resnet18", weights=None).eval()
    network.fc = torch.nn.Identity()
    picture = ResNet18_Weights.IMAGENET1K_V1.transforms()(Image.open(folder / "images" / "car" / "0.png"))
    with torch.no_grad():
        torch.testing.assert_close(codes[0], network(picture[None])[0].double(), rtol=1e-4, atol=1e-4)
    assert labels.tolist() == [True] * 4 + [False] * 5


def test_features_are_computed_once(folder, monkeypatch):
    first = made(folder)
    first.setup()
    monkeypatch.setattr(ImageFeatures, "_compute", lambda self: pytest.fail("computed again"))
    second = made(folder)
    second.setup()
    assert first.fingerprint() == second.fingerprint()


def test_weights_of_a_file_are_loaded_and_others_refused(folder):
    network = get_model("resnet18", weights=None)
    torch.save({f"module.{name}": value for name, value in network.state_dict().items() if not name.startswith("fc")},
               folder / "good.pt")
    loaded, _ = made(folder, weights=str(folder / "good.pt"))._network()
    assert torch.equal(loaded.conv1.weight, network.conv1.weight)
    torch.save({"conv1.weight": network.conv1.weight.data}, folder / "bad.pt")
    with pytest.raises(ValueError, match="lacks bn1.weight"):
        made(folder, weights=str(folder / "bad.pt"))._network()


def test_missing_images_and_weights_are_one_line_with_a_cure(folder, monkeypatch):
    with pytest.raises(MissingData, match="arm.images=PATH"):
        made(folder, labels="boat").setup()
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(folder))
    with pytest.raises(MissingData, match="data.download=true") as failure:
        made(folder, weights="IMAGENET1K_V1").setup()
    assert "\n" not in str(failure.value)


def test_impossible_sizes_are_refused(folder):
    with pytest.raises(ValueError, match="9 images with 512 features"):
        made(folder, size=9).setup()
    with pytest.raises(ValueError, match="features = 100"):
        made(folder, features=100).setup()
