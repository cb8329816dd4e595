"""Random crops and flips against torchvision's own, and their purity in (seed, epoch, index)."""

import numpy as np
import torch
from torchvision.transforms import functional

from data.augment import CropFlip, crop_flip


def images(count: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, 3, 8, 6, generator=torch.Generator().manual_seed(seed))


def test_crop_flip_agrees_with_torchvision_image_by_image():
    x = images(50)
    rng = np.random.default_rng(0)
    top, left, mirrored = (torch.from_numpy(rng.integers(0, high, 50)) for high in (5, 5, 2))
    ours = crop_flip(x, top, left, mirrored.bool(), padding=2)
    for image, result, row, column, flip in zip(x, ours, top, left, mirrored, strict=True):
        expected = functional.crop(functional.pad(image, [2, 2]), int(row), int(column), 8, 6)
        assert torch.equal(result, functional.hflip(expected) if flip else expected)


def test_each_shift_and_both_directions_occur_evenly():
    marked = torch.zeros(6000, 1, 9, 9)
    marked[:, :, 4, 4] = 1
    marked[:, :, 4, 5] = 2
    out = CropFlip(0, 6000, padding=1)(marked, np.arange(6000), np.zeros(6000, int))
    row, column = (out == 1).flatten(1).long().argmax(1).div(9, rounding_mode="floor"), (out == 1).sum(2).argmax(-1)
    twin = (out == 2).sum(2).argmax(-1)
    cells = torch.stack([row, column.flatten(), (twin - column).flatten()], 1).unique(dim=0, return_counts=True)[1]
    assert len(cells) == 3 * 3 * 2
    assert (cells - 6000 / 18).abs().max() < 5 * (6000 / 18) ** 0.5


def test_a_sample_does_not_depend_on_its_batch():
    x, augment = images(20), CropFlip(7, 20)
    whole = augment(x, np.arange(20), np.full(20, 3))
    for chosen in ([4], [19, 4, 0], list(range(19, -1, -1))):
        part = CropFlip(7, 20)(x[chosen], np.array(chosen), np.full(len(chosen), 3))
        assert torch.equal(part, whole[chosen])


def test_a_batch_across_an_epoch_end_follows_each_samples_epoch():
    x, augment = images(20), CropFlip(7, 20)
    mixed = augment(x, np.arange(20), np.repeat([0, 1], 10))
    assert torch.equal(mixed[:10], augment(x[:10], np.arange(10), np.zeros(10, int)))
    assert torch.equal(mixed[10:], augment(x[10:], np.arange(10, 20), np.ones(10, int)))
    assert not torch.equal(mixed[10:], augment(x[10:], np.arange(10, 20), np.zeros(10, int)))


def test_replicas_are_augmented_as_their_seeds_alone():
    x, indices, epochs = images(20), np.array([[3, 1, 4], [15, 9, 2]]), np.array([0, 0, 1])
    together = CropFlip([5, 6], 20)(x[indices], indices, epochs)
    for row, seed in enumerate((5, 6)):
        assert torch.equal(together[row], CropFlip(seed, 20)(x[indices[row]], indices[row], epochs))
    same = CropFlip([5, 6], 20)(x[indices[[0, 0]]], indices[[0, 0]], epochs)
    assert not torch.equal(same[0], same[1])
