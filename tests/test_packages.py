"""The rooms have plain names (data, kernels, models, ...): packages of the stack must still work beside them.

transformers, for one, looks for a package named ``kernels`` and would take this project's for it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("data", "experiments", "hydra_plugins", "kernels", "launch", "models")
PACKAGES = ("datasets", "wandb", "torchmetrics", "deepspeed", "transformers")
INSTALLED = [name for name in PACKAGES if importlib.util.find_spec(name)]
PROGRAM = """
import importlib, json, sys, traceback

def use_datasets():
    rows = importlib.import_module("datasets").Dataset.from_dict({"x": [1, 2]})
    assert rows.map(lambda row: {"y": row["x"] + 1})["y"][1] == 3

def use_transformers():
    import torch
    from transformers import LlamaConfig, LlamaModel
    sizes = dict(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1)
    LlamaModel(LlamaConfig(**sizes))(torch.ones(1, 2).long())

rooms, packages = json.loads(sys.argv[1])
found = {}
for name in rooms + packages:
    try:
        module = importlib.import_module(name)
        globals().get(f"use_{name}", lambda: None)()
        found[name] = list(module.__path__)
    except Exception:
        found[name] = traceback.format_exc()
print(json.dumps(found))
"""


def test_the_packages_that_the_project_needs_are_installed():
    needed = set(PACKAGES) - {"transformers"} - ({"deepspeed"} if sys.platform != "linux" else set())
    assert needed <= set(INSTALLED)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Where a process with the rooms first on its path found each package; a traceback for one that does not work."""
    folder = tmp_path_factory.mktemp("cache")
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HOME": str(folder), "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run([sys.executable, "-c", PROGRAM, json.dumps([ROOMS, INSTALLED])], env={**os.environ, **own},
                           cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", INSTALLED)
def test_a_package_works_beside_the_rooms(name, found):
    assert isinstance(found[name], list), found[name]


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_is_this_projects(name, found):
    assert str(ROOT / name) in found[name]
