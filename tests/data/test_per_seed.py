"""Data that are drawn anew for each seed: what each set contains, and that seeds do not disturb each other."""

import numpy as np
import pytest
import torch

from data.digits import Digits
from data.gaussian_teacher import GaussianTeacher
from data.two_class import TwoClass
from data.two_clusters import TwoClusters

MAKERS = {
    "teacher": lambda seed, **sizes: GaussianTeacher(dim=6, seed=seed, **({"train_size": 9, "test_size": 5} | sizes)),
    "clusters": lambda seed, **sizes: TwoClusters(seed=seed, **({"train_size": 10, "test_size": 6} | sizes)),
    "digits": lambda seed, **sizes: TwoClass("digits", [3, 8], seed=seed, split_at=900,
                                             **({"train_size": 20, "test_size": 15} | sizes)),
}


def ready(data):
    data.setup()
    return data


@pytest.mark.parametrize("name", MAKERS)
def test_a_seeds_data_do_not_depend_on_the_other_seeds(name):
    together, alone = ready(MAKERS[name]([4, 9])), ready(MAKERS[name](9))
    for split in ("train", "test"):
        many, one = getattr(together, split), getattr(alone, split)
        assert many.x.dtype == many.y.dtype == torch.float64 and many.x.shape[1] == 2 and one.x.shape[1] == 1
        assert torch.equal(many.x[:, 1], one.x[:, 0]) and torch.equal(many.y[:, 1], one.y[:, 0])
        assert set(many.y.unique().tolist()) == {-1.0, 1.0}
    assert not torch.equal(together.train.x[:, 0], together.train.x[:, 1])


@pytest.mark.parametrize("name", MAKERS)
def test_a_training_batch_is_the_whole_split_of_every_seed_at_every_step(name):
    data = ready(MAKERS[name]([4, 9]))
    batches = iter(data.train_dataloader())
    for _ in range(2):
        x, y = next(batches)
        assert torch.equal(x, data.train.x) and torch.equal(y, data.train.y)


def test_a_teachers_labels_are_linearly_separable_and_balanced_over_many_points():
    data = ready(GaussianTeacher(dim=4, train_size=3, test_size=4000, seed=[0, 1]))
    for s in range(2):
        x, y = data.test.x[:, s].numpy(), data.test.y[:, s].numpy()
        normal = np.linalg.lstsq(x, y, rcond=None)[0]  # for Gaussian points the regression is parallel to the teacher
        assert (np.sign(x @ normal) == y).mean() > 0.98 and abs(y.mean()) < 0.06
        assert abs(x.mean()) < 0.03 and abs(x.var() - 1) < 0.03


def test_the_test_size_leaves_the_training_points():
    for name in ("teacher", "clusters"):
        small, large = ready(MAKERS[name](3, test_size=2)), ready(MAKERS[name](3, test_size=8))
        assert torch.equal(small.train.x, large.train.x)


def test_clusters_lie_at_two_and_minus_two_with_unit_variance():
    data = ready(TwoClusters(train_size=4000, test_size=2, seed=1))
    x, y = data.train.x[:, 0, 0], data.train.y[:, 0]
    assert y.sum() == 0
    for sign in (-1, 1):
        group = x[y == sign]
        assert abs(group.mean() - 2 * sign) < 0.1 and abs(group.var() - 1) < 0.1


def two_class_and_its_source(**options):
    source = ready(Digits(train_size=900, classes=[3, 8], flatten=False))
    return ready(TwoClass("digits", [3, 8], split_at=900, flatten=False, **options)), source


def test_image_pixels_are_centred_and_scaled_by_the_training_images_alone():
    data, source = two_class_and_its_source(train_size=100, seed=[0, 5])
    assert data.train.x.shape == (100, 2, 1, 8, 8) and len(data.test) == len(source.test)
    for s in range(2):
        x = data.train.x[:, s].flatten(1)
        assert x.mean(0).abs().max() < 1e-12 and float(x.norm(dim=1).mean()) == pytest.approx(8)
    assert torch.equal(data.test.y[:, 0], source.test.y.double() * 2 - 1) and torch.equal(*data.test.y.unbind(1))


def test_a_seed_trains_on_different_images_of_the_sources_training_split():
    data, source = two_class_and_its_source(train_size=40, seed=3)
    x, known = data.test.x[:, 0], source.test.x.double()
    scale = float((x[0] - x[1]).norm() / (known[0] - known[1]).norm())
    images = data.train.x[:, 0] / scale + (known[0] - x[0] / scale)  # undo what the test images went through
    distance = torch.cdist(images.flatten(1), source.train.x.double().flatten(1))
    nearest = distance.argmin(1)
    assert distance.amin(1).max() < 1e-9 and len(set(nearest.tolist())) == 40
    assert torch.equal(data.train.y[:, 0], source.train.y[nearest].double() * 2 - 1)


def test_impossible_requests_are_refused():
    with pytest.raises(ValueError, match="imagenet.*digits, mnist"):
        TwoClass("imagenet", [0, 1], 10)
    with pytest.raises(ValueError, match="two labels"):
        TwoClass("digits", [0, 1, 2], 10)
    with pytest.raises(ValueError, match="train_size=500.*has"):
        TwoClass("digits", [3, 8], 500, split_at=900).setup()
