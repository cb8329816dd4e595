"""The digits, and through them the options that all image sets share."""

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from sklearn.datasets import load_digits

from data.digits import Digits


def digits(**options) -> Digits:
    data = Digits(**options)
    data.setup()
    return data


def rows(x: torch.Tensor) -> list[bytes]:
    return sorted(image.numpy().tobytes() for image in x)


def test_train_and_test_are_all_of_scikit_learns_digits():
    data, source = digits(), load_digits()
    assert data.train.x.shape == (1297, 64) and data.test.x.shape == (500, 64) and data.val is None
    assert data.train.x.dtype == torch.float32 and data.train.y.dtype == torch.int64
    everything = torch.cat([data.train.x, data.test.x])
    assert rows(everything) == rows(torch.tensor(source.data / 16, dtype=torch.float32))
    labels = torch.cat([data.train.y, data.test.y]).tolist()
    labelled = {image.numpy().tobytes(): label for image, label in zip(everything, labels, strict=True)}
    for image, label in zip((source.data / 16).astype(np.float32), source.target, strict=True):
        assert labelled[image.tobytes()] == label


def test_the_permutation_is_fixed_and_mixes_the_classes():
    assert digits(seed=1).fingerprint() == digits(seed=2, batch_size=7).fingerprint()
    assert digits(train_size=300).train.y.bincount(minlength=10).min() > 15
    assert torch.equal(digits(train_size=300).train.x, digits().train.x[:300])


def test_nothing_is_read_before_setup():
    data = Digits(classes=[3, 8], flatten=False)
    assert data.train is None
    assert (data.input_dim, data.input_shape, data.num_classes, data.train_size) == (64, (1, 8, 8), 2, 1297)


def test_unflattened_images_are_the_same_numbers():
    data = digits(flatten=False)
    assert data.train.x.shape[1:] == data.input_shape == (1, 8, 8)
    assert torch.equal(data.train.x.flatten(1), digits().train.x)


def test_binarised_pixels_are_ones_above_a_half():
    grey, binary = digits(), digits(binarize=True)
    assert binary.train.x.dtype == torch.float32
    assert torch.equal(binary.test.x == 1, grey.test.x > 0.5) and set(binary.test.x.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("classes", [[8, 3], OmegaConf.create([8, 3])])
def test_classes_select_and_relabel_by_position(classes):
    whole, pair = digits(), digits(classes=classes)
    for name in ("train", "test"):
        every, kept = getattr(whole, name), getattr(pair, name)
        assert torch.equal(kept.x[kept.y == 0], every.x[every.y == 8])
        assert torch.equal(kept.x[kept.y == 1], every.x[every.y == 3])
        assert len(kept) == ((every.y == 8) | (every.y == 3)).sum()


@pytest.mark.parametrize("options", [{}, {"classes": [3, 8]}, {"train_size": 1000}])
def test_halves_are_disjoint_cover_the_training_split_and_leave_the_test_split(options):
    whole, first, second = (digits(half=half, **options) for half in (None, "first", "second"))
    assert rows(torch.cat([first.train.x, second.train.x])) == rows(whole.train.x)
    assert not set(rows(first.train.x)) & set(rows(second.train.x))
    assert 0 <= len(first.train) - len(second.train) <= 1
    assert torch.equal(first.test.x, whole.test.x) and torch.equal(second.test.y, whole.test.y)


def test_limit_train_keeps_the_first_images_of_what_the_other_options_leave():
    data, unlimited = digits(classes=[3, 8], half="second", limit_train=50), digits(classes=[3, 8], half="second")
    assert torch.equal(data.train.x, unlimited.train.x[:50]) and len(data.test) == len(unlimited.test)


def test_every_option_that_changes_the_data_changes_the_fingerprint():
    options = [{}, {"binarize": True}, {"train_size": 1296}, {"half": "first"}, {"half": "second"}, {"classes": [3, 8]},
               {"classes": [8, 3]}, {"limit_train": 7}, {"flatten": False}]
    assert len({digits(**option).fingerprint() for option in options}) == len(options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train_size": 1797}, "data.train_size=1797: give 1 to 1796"),
        ({"train_size": 0}, "data.train_size=0"),
        ({"half": "third"}, "data.half=third: give null, first or second"),
        ({"classes": [3, 10]}, "data.classes=\\[3, 10\\]: give different labels from 0 to 9"),
        ({"classes": [3, 3]}, "data.classes=\\[3, 3\\]"),
        ({"classes": []}, "data.classes=\\[\\]"),
        ({"limit_train": 0}, "data.limit_train=0"),
        ({"limit_train": 650, "half": "first"}, "data.limit_train=650, but train_size, classes and half leave 649"),
    ],
)
def test_impossible_options_are_refused_by_name_and_value(options, message):
    with pytest.raises(ValueError, match=message):
        digits(**options)
