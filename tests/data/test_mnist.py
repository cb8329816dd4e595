"""MNIST and Fashion-MNIST from small IDX files that the tests write, and from Debian's package where installed."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch
from torchvision import datasets

import data.mnist
from data.mnist import DEBIAN, MNIST, FashionMNIST, read_idx
from data.module import MissingData

SIZES = {"train": 20, "t10k": 6}


@pytest.fixture(autouse=True)
def no_system_files(monkeypatch, tmp_path):
    monkeypatch.setattr(data.mnist, "DEBIAN", str(tmp_path / "debian"))


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def write_files(folder: Path, compress: bool = True) -> dict[str, np.ndarray]:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    arrays = {}
    for part, count in SIZES.items():
        arrays[f"{part}-images-idx3-ubyte"] = rng.integers(0, 256, (count, 28, 28)).astype(np.uint8)
        arrays[f"{part}-labels-idx1-ubyte"] = (np.arange(count) % 10).astype(np.uint8)
    for name, array in arrays.items():
        content = gzip.compress(idx(array)) if compress else idx(array)
        (folder / (f"{name}.gz" if compress else name)).write_bytes(content)
    return arrays


def loaded(kind: type, root: Path, **options):
    options = {"train_size": SIZES["train"], **options}
    images = kind(root=str(root), **options)
    images.setup()
    return images


@pytest.mark.parametrize("kind", [MNIST, FashionMNIST])
@pytest.mark.parametrize("compress", [True, False])
@pytest.mark.parametrize("below", ["raw", "."])
def test_files_below_the_root_are_read_compressed_or_not(kind, compress, below, tmp_path):
    arrays = write_files(tmp_path / kind.__name__ / below, compress)
    images = loaded(kind, tmp_path)
    for split, part in ((images.train, "train"), (images.test, "t10k")):
        expected = arrays[f"{part}-images-idx3-ubyte"].reshape(-1, 784) / 255
        np.testing.assert_allclose(split.x.numpy(), expected, rtol=1e-6)
        np.testing.assert_array_equal(split.y.numpy(), arrays[f"{part}-labels-idx1-ubyte"])
    assert images.val is None


def test_torchvision_reads_the_same_images(tmp_path):
    write_files(tmp_path / "FashionMNIST" / "raw", compress=False)
    images = loaded(FashionMNIST, tmp_path, flatten=False)
    for split, train in ((images.train, True), (images.test, False)):
        reference = datasets.FashionMNIST(tmp_path, train=train)
        assert torch.equal(split.x, reference.data[:, None] / 255)
        assert torch.equal(split.y, reference.targets)


def test_debians_files_are_used_when_the_root_has_none_and_the_root_goes_first(tmp_path):
    arrays = write_files(tmp_path / "debian")
    assert loaded(FashionMNIST, tmp_path).find() == tmp_path / "debian"
    write_files(tmp_path / "FashionMNIST" / "raw")
    assert loaded(FashionMNIST, tmp_path).find() == tmp_path / "FashionMNIST" / "raw"
    np.testing.assert_array_equal(loaded(FashionMNIST, tmp_path).train.y, arrays["train-labels-idx1-ubyte"])
    with pytest.raises(MissingData):
        loaded(MNIST, tmp_path)


def test_the_rest_of_the_training_images_is_for_validation(tmp_path):
    write_files(tmp_path / "MNIST" / "raw")
    whole, cut = loaded(MNIST, tmp_path), loaded(MNIST, tmp_path, train_size=15)
    assert torch.equal(torch.cat([cut.train.x, cut.val.x]), whole.train.x) and len(cut.val) == 5
    pair = loaded(MNIST, tmp_path, train_size=15, classes=[0, 1], half="second", binarize=True)
    assert pair.train.y.tolist() == [0, 1] and pair.val.y.tolist() == [] and pair.test.y.tolist() == [0, 1]
    with pytest.raises(ValueError, match="train_size=60000, but the files of MNIST hold 20"):
        loaded(MNIST, tmp_path, train_size=None)


@pytest.mark.parametrize(("kind", "cure"), [(MNIST, ""), (FashionMNIST, "apt-get install dataset-fashion-mnist, or ")])
def test_missing_files_are_reported_in_one_line_with_places_and_cure(kind, cure, tmp_path):
    write_files(tmp_path / kind.__name__)
    (tmp_path / kind.__name__ / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(MissingData) as failure:
        loaded(kind, tmp_path)
    message = str(failure.value)
    assert "\n" not in message and message.startswith(f"{kind.title}: ")
    assert str(tmp_path / kind.__name__ / "raw") in message
    assert message.endswith(f"data.download=true, or {cure}data.root=PATH")


@pytest.mark.parametrize("damage", [lambda b: b[:-9], lambda b: b[:3], lambda b: b"<html>", lambda b: b""])
@pytest.mark.parametrize("compress", [True, False])
def test_a_damaged_file_is_named(damage, compress, tmp_path):
    folder = tmp_path / "MNIST" / "raw"
    write_files(folder, compress)
    path = folder / ("train-images-idx3-ubyte" + (".gz" if compress else ""))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(MissingData, match=f"{path} is damaged") as failure:
        loaded(MNIST, tmp_path)
    assert "\n" not in str(failure.value)


def test_an_idx_file_of_another_type_is_refused(tmp_path):
    path = tmp_path / "floats"
    path.write_bytes(b"\x00\x00\x0d\x01" + np.array([1], ">u4").tobytes() + bytes(4))
    with pytest.raises(ValueError, match="no IDX file of unsigned bytes"):
        read_idx(path)


class FakeDownload:
    """Stands for a torchvision class: writes the files below the root that it is given, or fails."""

    calls = 0
    files: set[int] = set()

    def __init__(self, root: str, download: bool):
        assert download
        FakeDownload.calls += 1
        write_files(Path(root) / "MNIST" / "raw", compress=False)
        FakeDownload.files = inodes(Path(root))


def inodes(root: Path) -> set[int]:
    return {path.stat().st_ino for path in root.rglob("*-ubyte")}


def test_a_download_happens_once_and_leaves_only_whole_files(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets, "MNIST", FakeDownload)
    monkeypatch.setattr(FakeDownload, "calls", 0)
    root = tmp_path / "new" / "root"
    broken = root / "MNIST" / "raw"
    broken.mkdir(parents=True)
    (broken / "train-images-idx3-ubyte").write_bytes(b"cut off")
    first, second = loaded(MNIST, root, download=True), loaded(MNIST, root, download=True)
    assert first.fingerprint() == second.fingerprint() and FakeDownload.calls == 1
    assert {path.name for path in root.iterdir()} <= {"MNIST", ".MNIST.lock"}
    assert inodes(root) == FakeDownload.files  # moved into place, not copied: no moment with half a file


def test_a_failed_download_is_one_line(tmp_path, monkeypatch):
    def fail(root, download):
        raise RuntimeError("Error downloading x:\nTried a\nTried b")

    monkeypatch.setattr(datasets, "MNIST", fail)
    with pytest.raises(MissingData, match="the download failed .Error downloading x: Tried a Tried b") as failure:
        loaded(MNIST, tmp_path, download=True)
    assert "\n" not in str(failure.value) and not list((tmp_path).glob("MNIST"))


@pytest.mark.skipif(not Path(DEBIAN).is_dir(), reason="Debian's dataset-fashion-mnist is not installed")
def test_debians_fashion_mnist_has_its_published_size_and_balance(monkeypatch, tmp_path):
    monkeypatch.setattr(data.mnist, "DEBIAN", DEBIAN)
    images = loaded(FashionMNIST, tmp_path, train_size=60000)
    assert images.train.y.bincount().tolist() == [6000] * 10 and images.test.y.bincount().tolist() == [1000] * 10
    # Mean and deviation of the training pixels, as commonly used to normalise this set.
    assert abs(images.train.x.mean().item() - 0.2860) < 1e-4 and abs(images.train.x.std().item() - 0.3530) < 1e-4
