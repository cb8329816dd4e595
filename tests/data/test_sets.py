"""Whole data sets as batches: the same batch without end, and nothing drawn from the global generator."""

from __future__ import annotations

import inspect
from itertools import islice
from pathlib import Path

import pytest
import torch
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

from data.gaussian_logistic import GaussianLogistic
from data.module import Split
from data.sets import Empty, SeededSets

PAGES = Path(__file__).parents[2] / "conf" / "data"
NAMES = ("gaussian_logistic", "digit_features", "image_features")


def test_every_batch_is_the_whole_split_and_draws_no_global_random_number():
    data = GaussianLogistic(features=3, size=5, draws=2, seed=[0, 1])
    data.setup()
    before = torch.get_rng_state()
    batches = list(islice(data.train_dataloader(), 3))
    assert torch.equal(before, torch.get_rng_state())
    for x, y in batches:
        assert torch.equal(x, data.train.x) and torch.equal(y, data.train.y)


def test_an_empty_module_gives_batches_too():
    data = Empty()
    data.setup()
    assert len(list(islice(data.train_dataloader(), 4))) == 4 and data.fingerprint() == Empty().fingerprint()


@pytest.mark.parametrize("options, message", [({"draws": 0}, "draws=0"), ({"draws": 1, "part": "val"}, "train or pool")])
def test_bad_settings_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SeededSets(0, **options)


def test_the_chosen_part_is_trained_on():
    one, two = (Split(torch.full((1, 1, 2, 3), value), torch.zeros(1, 1, 2)) for value in (1.0, 2.0))
    assert SeededSets(0, 1).chosen(one, two, None).train is one
    assert SeededSets(0, 1, part="pool").chosen(one, two, None).train is two


@pytest.mark.parametrize("name", NAMES)
def test_a_page_shows_every_argument_with_its_default_and_builds_without_reading(name):
    settings = OmegaConf.to_container(OmegaConf.load(PAGES / f"{name}.yaml"), resolve=False)
    kind = get_class(settings["_target_"])
    defaults = {one.name: one.default for one in list(inspect.signature(kind.__init__).parameters.values())[1:]}
    assert settings == defaults | {"_target_": settings["_target_"], "seed": "${seed}"}
    data = instantiate(OmegaConf.create({"seed": [0, 1], "data": settings}).data)
    assert data.train is None and data.seeds == [0, 1]
