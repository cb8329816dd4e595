"""The pages of the data group: every argument is visible with its default, and building reads nothing."""

import inspect
from pathlib import Path

import pytest
import torch
from hydra.utils import get_class, instantiate
from omegaconf import OmegaConf

PAGES = Path(__file__).parents[2] / "conf" / "data"
IMAGE_PAGES = ["digits", "mnist", "fashion_mnist", "cifar10"]


def page(name: str, seed=0) -> OmegaConf:
    return OmegaConf.create({"seed": seed, "data": OmegaConf.load(PAGES / f"{name}.yaml")})


def defaults(kind: type) -> dict:
    found = {}
    for base in reversed(kind.__mro__):
        if base.__module__.startswith("data.") and "__init__" in vars(base):
            parameters = list(inspect.signature(base.__init__).parameters.values())[1:]
            found |= {one.name: one.default for one in parameters if one.kind is not one.VAR_KEYWORD}
    return found


@pytest.mark.parametrize("name", IMAGE_PAGES)
def test_a_page_shows_every_argument_with_its_default(name):
    settings = OmegaConf.to_container(page(name).data, resolve=False)
    kind = get_class(settings.pop("_target_"))
    expected = defaults(kind) | {"seed": "${seed}", "train_size": kind.usual_train_size}
    assert settings == expected


@pytest.mark.parametrize("name", IMAGE_PAGES)
def test_a_page_builds_without_data_on_the_meta_device(name):
    config = page(name, seed=[0, 1])
    config.data.merge_with({"root": "/nowhere"} if "root" in config.data else {})
    with torch.device("meta"):
        data = instantiate(config.data)
    assert data.train is None and data.seed == [0, 1] and data.num_classes == 10
    assert data.input_dim == torch.Size(data.input_shape).numel()
