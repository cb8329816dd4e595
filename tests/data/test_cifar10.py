"""CIFAR-10 through torchvision's own reader, on small files in its format that the test writes and registers."""

import hashlib
import pickle
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets

from data.cifar10 import CIFAR10
from data.module import MissingData


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    """A root with two training batches of 6 images and a test batch, whose sums replace the official ones."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()

    def write(name: str, content: dict) -> list[str]:
        (folder / name).write_bytes(pickle.dumps(content))
        return [name, hashlib.md5((folder / name).read_bytes()).hexdigest()]

    def batch(name: str, seed: int) -> list[str]:
        pixels = np.random.default_rng(seed).integers(0, 256, (6, 3072)).astype(np.uint8)
        return write(name, {"data": pixels, "labels": [0, 1, 2, 0, 1, 2]})

    monkeypatch.setattr(datasets.CIFAR10, "train_list", [batch("data_batch_1", 1), batch("data_batch_2", 2)])
    monkeypatch.setattr(datasets.CIFAR10, "test_list", [batch("test_batch", 3)])
    name, md5 = write("batches.meta", {"label_names": ["a", "b", "c"]})
    monkeypatch.setattr(datasets.CIFAR10, "meta", {"filename": name, "key": "label_names", "md5": md5})
    return tmp_path


def loaded(root: Path, **options) -> CIFAR10:
    images = CIFAR10(root=str(root), **{"train_size": 12, "batch_size": 5, **options})
    images.setup()
    return images


def test_pixels_keep_their_channel_row_and_column(root):
    images = loaded(root, train_size=9)
    expected = [np.random.default_rng(seed).integers(0, 256, (6, 3, 32, 32)) / 255 for seed in (1, 2, 3)]
    np.testing.assert_allclose(torch.cat([images.train.x, images.val.x]), np.concatenate(expected[:2]), rtol=1e-6)
    np.testing.assert_allclose(images.test.x, expected[2], rtol=1e-6)
    assert images.train.y.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2] and len(images.val) == 3


def test_shared_options_apply(root):
    images = loaded(root, flatten=True, classes=[2, 0], limit_train=3)
    assert images.train.x.shape == (3, 3072) == (3, images.input_dim) and images.train.y.tolist() == [1, 0, 1]


@pytest.mark.parametrize("seed", [0, [0, 1]])
def test_augmented_batches_depend_on_seed_and_step_alone(root, seed):
    def batches(start: int, workers: int) -> list[torch.Tensor]:
        images = loaded(root, augment=True, seed=seed, workers=workers)
        images.start_batch = start
        return [x for x, _ in islice(images.train_dataloader(), 8 - start)]

    whole = batches(0, 0)
    for other in (batches(3, 0), batches(3, 2)):
        assert all(torch.equal(a, b) for a, b in zip(whole[3:], other, strict=True))


def test_only_training_batches_are_augmented(root):
    plain, augmented = loaded(root), loaded(root, augment=True)
    assert plain.fingerprint() == augmented.fingerprint()
    assert torch.equal(next(iter(plain.test_dataloader()))[0], next(iter(augmented.test_dataloader()))[0])
    (x, y), (moved, same) = (next(iter(images.train_dataloader())) for images in (plain, augmented))
    assert torch.equal(y, same) and x.shape == moved.shape and not torch.equal(x, moved)


def test_augmentation_of_flat_inputs_is_refused():
    with pytest.raises(ValueError, match="data.augment=true crops images and needs data.flatten=false"):
        CIFAR10(augment=True, flatten=True)


def test_missing_and_damaged_files_are_reported_in_one_line_with_the_cure(root, tmp_path):
    for reason in ("are damaged, delete them", "its files are not in"):
        (root / "cifar-10-batches-py" / "data_batch_2").write_bytes(b"short")
        if reason.startswith("its"):
            (root / "cifar-10-batches-py" / "data_batch_2").unlink()
        with pytest.raises(MissingData, match=reason) as failure:
            loaded(root)
        message = str(failure.value)
        assert "\n" not in message and str(tmp_path / "cifar-10-batches-py") in message
        assert message.endswith("get them with data.download=true, or data.root=PATH")
