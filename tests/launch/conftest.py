"""A project of its own for the tests of the harness: real rooms and config groups, and one tiny experiment."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import pytest

from launch import CONF, PROJECT, expand, plan, targets
from launch.errors import UserError

LAUNCH_MODULES = ("launch", "launch.check", "launch.errors", "launch.listing", "launch.plan", "launch.provenance",
                  "launch.report", "launch.sweep", "launch.targets")

PAGE = """\
# @package _global_
# paper:   A tiny paper, Nobody, 2024 (arXiv 0000.00000)
# claim:   more noise is worse
# command: python -m launch -m experiment=tiny
# minutes: smoke 0.1 measured | cpu 2.5 estimated
# expect:  nothing much
# shrunk:  everything
defaults:
  - override /data: digits
  - override /trainer: cpu
  - _self_
experiment: {slug: tiny, title: "A tiny paper", arxiv: "0000.00000", scale: cpu}
arm:
  noise: 0.5
  warm: false
objective:
  _target_: experiments.tiny.Noisy
  noise: ${arm.noise}
data: {batch_size: 20}
phases:
  warm_up:
    when: ${arm.warm}
    objective.noise: 0.0
    trainer.max_steps: 3
  fit: {trainer.max_steps: 5}
sweep:
  seeds: [0, 1]
  arms:
    little: {arm.noise: 0.1}
    much: {arm.noise: 3.0}
measure:
  - {_target_: experiments.tiny.accuracy, scale: 1.0}
derive:
  - {_target_: experiments.tiny.gap}
claims:
  - id: T1
    says: "less noise is better"
    paper: {where: "nowhere", value: 1.5}
    compare: {metric: accuracy, greater: little, than: much}
figure: {_target_: experiments.tiny.draw}
"""

SMOKE = """\
# @package _global_
defaults:
  - /experiment/tiny
  - _self_
experiment: {scale: smoke}
sweep: {seeds: [0]}
"""

MODULE = '''\
"""A linear classifier under noisy inputs."""

import lightning as L
import torch

from experiments.measurement import derived, measurement


class Noisy(L.LightningModule):
    def __init__(self, model=None, noise: float = 0.0, decay: float | None = None):
        super().__init__()
        self.net, self.noise = torch.nn.Linear(64, 10), noise

    def training_step(self, batch, index):
        x, y = batch
        loss = torch.nn.functional.cross_entropy(self.net(x + self.noise * torch.randn_like(x)), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-2)

    def inherit(self, previous):
        self.load_state_dict(previous)


@measurement("accuracy")
def accuracy(trained, scale: float = 1.0):
    x, y = trained.data.test.x, trained.data.test.y
    return {"accuracy": scale * float((trained.objective.net(x).argmax(-1) == y).float().mean())}


@derived("gap")
def gap(runs):
    return {"gap": float(runs.values("accuracy", "little")[0] - runs.values("accuracy", "much")[0])}


def draw(runs, claims):
    from matplotlib.figure import Figure

    figure = Figure()
    figure.add_subplot().plot(runs.values("accuracy", "little"))
    return figure
'''


class Project:
    """A project folder that the harness takes for its own while a test runs."""

    def __init__(self, root: Path):
        self.root, self.conf = root, root / "conf"
        self.page = self.conf / "experiment" / "tiny.yaml"
        self.smoke = self.conf / "experiment" / "tiny" / "smoke.yaml"
        self.module = root / "experiments" / "tiny.py"

    def replace(self, old: str, new: str, file: Path | None = None) -> None:
        """Change the config page, or another file, in one place."""
        path = file or self.page
        text = path.read_text()
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {path}"
        path.write_text(text.replace(old, new))

    def line(self, text: str, file: Path | None = None) -> int:
        """The number, from 1, of the one line that holds the text."""
        lines = (file or self.page).read_text().splitlines()
        found = [number for number, line in enumerate(lines, 1) if text in line]
        assert len(found) == 1, f"{text!r} is on lines {found}"
        return found[0]

    def jobs(self, *words: str) -> list[expand.Job]:
        """The jobs of ``-m experiment=tiny`` with these overrides."""
        if not any(word.startswith("experiment=") for word in words):
            words = ("experiment=tiny", *words)
        return plan.compose_jobs(words)[0]

    def refusal(self, *words: str) -> str:
        """The one line with which these overrides are refused."""
        with pytest.raises(UserError) as caught:
            self.jobs(*words)
        line = str(caught.value)
        assert "\n" not in line
        assert not (self.root / "store").exists(), "something was written"
        return line


def _copy_rooms(root: Path) -> None:
    shutil.copytree(CONF, root / "conf", ignore=shutil.ignore_patterns("experiment"))
    for room in ("data", "kernels", "models", "launch"):
        (root / room).symlink_to(PROJECT / room)
    (root / "experiments").mkdir()
    for path in (PROJECT / "experiments").glob("*.py"):
        (root / "experiments" / path.name).symlink_to(path)


def forget_definitions() -> None:
    """Forget what was read from source files of another project folder."""
    targets.find_definition.cache_clear()


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """A copy of the config groups, the real rooms and the experiment ``tiny`` at scales cpu and smoke."""
    made = Project(tmp_path / "project")
    _copy_rooms(made.root)
    made.smoke.parent.mkdir(parents=True)
    made.page.write_text(PAGE + f"store: {{path: {made.root}/store}}\n")
    made.smoke.write_text(SMOKE)
    made.module.write_text(MODULE)
    for name in LAUNCH_MODULES:
        module = importlib.import_module(name)
        for constant, value in (("PROJECT", made.root), ("CONF", made.conf)):
            if hasattr(module, constant):
                monkeypatch.setattr(module, constant, value)
    import experiments

    monkeypatch.setattr(experiments, "__path__", [str(made.root / "experiments"), *experiments.__path__])
    forget_definitions()
    yield made
    forget_definitions()
    sys.modules.pop("experiments.tiny", None)
    vars(experiments).pop("tiny", None)


@cache
def _composed(words: tuple[str, ...]) -> tuple[expand.Job, ...]:
    return tuple(plan.compose_jobs(words)[0])


@pytest.fixture
def jobs_of() -> Callable[..., Sequence[expand.Job]]:
    """The jobs of a command line over the real experiments, composed once; their configs are not to be changed."""
    return lambda *words: _composed(words)
