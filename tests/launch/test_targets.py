"""Signatures read from source text against ``inspect.signature`` of the imported objects."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest

from launch.errors import UserError
from launch.targets import Parameter, find_definition, is_allowed, require_definition

GIVEN = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def imported(target: str):
    module, _, name = target.rpartition(".")
    return getattr(import_module(module), name)


def own_parameters(function) -> tuple[dict[str, bool], bool]:
    """The named parameters of a callable, whether each must be given; and whether it takes ``**kwargs``."""
    parameters = inspect.signature(function).parameters.values()
    named = {item.name: item.default is item.empty for item in parameters if item.kind not in GIVEN}
    return named, any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters)


def python_parameters(target) -> dict[str, bool]:
    """As ``own_parameters``, with ``**kwargs`` followed through the base classes in the order Python would."""
    named, is_open = own_parameters(target)
    for base in target.__mro__[1:] if is_open and inspect.isclass(target) else ():
        if "__init__" in vars(base):
            more, is_open = own_parameters(base)
            named = named | {name: needed for name, needed in more.items() if name not in named}
            if not is_open:
                break
    return named


@pytest.mark.parametrize("target", [
    "torch.optim.SGD", "torch.optim.Adam", "torch.optim.AdamW", "torch.optim.LBFGS", "torch.optim.Adagrad",
    "torch.optim.RMSprop", "torch.optim.lr_scheduler.StepLR", "torch.optim.lr_scheduler.CosineAnnealingLR",
    "torch.nn.Linear", "torch.nn.Conv2d", "torch.nn.LayerNorm", "torch.nn.TransformerEncoderLayer",
    "torch.nn.init.trunc_normal_", "lightning.pytorch.callbacks.EarlyStopping",
    "data.stream.StepBatches", "data.digits.Digits", "data.mnist.MNIST", "models.mlp.Mlp", "kernels.registry.KernelSet",
    "experiments.adversarial.objective.Classifier", "experiments.adversarial.objective.Reconstruction",
    "experiments.adversarial.measure.network", "experiments.adversarial.lbfgs.Solver",
    "experiments.adversarial.attack.MinimalChange", "experiments.measurement.Run",
])
def test_parameters_equal_those_of_the_imported_object(target):
    found, python = find_definition(target), imported(target)
    assert {name: item.required for name, item in found.parameters.items()} == python_parameters(python)
    assert not found.open
    assert found.name == python.__name__


@pytest.mark.parametrize("target", [
    "models.mlp.Mlp", "data.stream.StepBatches", "experiments.adversarial.measure.examples",
])
def test_the_line_is_where_python_says_the_definition_starts(target):
    found = find_definition(target)
    lines, start = inspect.getsourcelines(inspect.unwrap(imported(target)))
    offset = next(number for number, line in enumerate(lines) if line.startswith(("def ", "class ")))
    assert (found.line, found.file.name) == (start + offset, inspect.getsourcefile(imported(target)).rpartition("/")[2])


INHERITING = '''\
from dataclasses import dataclass, field
from lightning import LightningModule
import torch
from experiments.base import Base, make as build

class Plain(Base):
    pass

class Wider(Base):
    def __init__(self, extra, width: int = 5, **settings):
        super().__init__(width=width, **settings)

class Widest(Wider):
    def __init__(self, *, last: bool, **settings):
        super().__init__(**settings)

class Closed(Base):
    def __init__(self, only):
        super().__init__(1)

class Module(LightningModule):
    def __init__(self, a, **rest):
        super().__init__()

class Unknown(torch.utils.data.Dataset):
    def __init__(self, a, **rest):
        pass

@dataclass(frozen=True)
class Record:
    first: int
    second: str = "x"
    third: list = field(default_factory=list)
'''

BASE = '''\
class Base:
    def __init__(self, width: int, rate: float = 0.1):
        pass

def make(a, /, b, *, c=1):
    pass
'''

METRICS = '''\
import experiments.measurement
from experiments.measurement import derived, measurement

@measurement("loss", "accuracy")
def plain(trained):
    pass

@experiments.measurement.derived("gap")
def dotted(runs):
    pass

@staticmethod
@derived()
def none(runs):
    pass

@measurement(*["hidden"])
def computed(trained):
    pass

def bare(trained):
    pass
'''


@pytest.fixture
def written(project):
    for name, text in (("inheriting", INHERITING), ("base", BASE), ("metrics", METRICS)):
        (project.root / "experiments" / f"{name}.py").write_text(text)
    package = project.root / "experiments" / "package"
    package.mkdir()
    (package / "__init__.py").write_text("from .inner import Thing as Renamed\nfrom .stars import *\n"
                                         "from os import system\nfrom email.message import Message\n"
                                         "from json.decoder import *\n")
    (package / "inner.py").write_text("class Thing:\n    def __init__(self, a: int):\n        pass\n")
    (package / "stars.py").write_text("def starred(b):\n    pass\n")
    return project


@pytest.mark.parametrize("name, parameters, is_open", [
    ("Plain", {"width": True, "rate": False}, False),
    ("Wider", {"extra": True, "width": False, "rate": False}, False),
    ("Widest", {"last": True, "extra": True, "width": False, "rate": False}, False),
    ("Closed", {"only": True}, False),
    ("Module", {"a": True}, False),
    ("Record", {"first": True, "second": False, "third": False}, False),
    ("build", {"a": True, "b": True, "c": False}, False),
])
def test_keyword_arguments_are_followed_to_the_base_class(written, name, parameters, is_open):
    found = find_definition(f"experiments.inheriting.{name}")
    assert {key: item.required for key, item in found.parameters.items()} == parameters
    assert found.open == is_open


def test_keyword_arguments_that_leave_the_project_stay_open(written):
    found = find_definition("experiments.inheriting.Unknown")
    assert found.open and list(found.parameters) == ["a"]


def test_annotations_are_kept_as_written(written):
    assert find_definition("experiments.base.Base").parameters == {
        "width": Parameter("int", True), "rate": Parameter("float", False)}


@pytest.mark.parametrize("name, metrics", [
    ("plain", ("loss", "accuracy")), ("dotted", ("gap",)), ("none", ()), ("computed", ()), ("bare", ()),
])
def test_metric_names_are_the_literals_of_the_decorator(written, name, metrics):
    assert find_definition(f"experiments.metrics.{name}").metrics == metrics


@pytest.mark.parametrize("slug", ["adversarial", "vae"])
def test_declared_metrics_of_an_experiment_equal_what_the_imported_functions_carry(jobs_of, slug):
    config = jobs_of(f"experiment={slug}/smoke")[0].config
    for item in [*config.measure, *config.derive]:
        assert find_definition(item["_target_"]).metrics == imported(item["_target_"]).metric_names != ()


def test_re_exports_are_followed_inside_the_allowed_packages_only(written):
    renamed = find_definition("experiments.package.Renamed")
    assert (renamed.name, renamed.file.name, list(renamed.parameters)) == ("Thing", "inner.py", ["a"])
    assert find_definition("experiments.package.starred").file.name == "stars.py"
    assert find_definition("experiments.package.system") is None
    assert find_definition("experiments.package.Message") is None
    assert find_definition("experiments.package.JSONDecoder") is None


@pytest.mark.parametrize("target, allowed", [
    ("torch.optim.Adam", True), ("torch.nn.Linear", True), ("data.digits.Digits", True), ("lightning.Trainer", True),
    ("torch.load", False), ("torch", False), ("torchx.nn.Linear", False), ("torch.nnx.Linear", False), ("data", False),
    ("database.x", False), ("os.system", False), ("", False), ("tests.launch.conftest.Project", False),
])
def test_what_is_allowed_is_decided_by_whole_names(target, allowed):
    assert is_allowed(target) == allowed


def test_a_misspelt_name_is_answered_with_the_names_of_that_module(written):
    with pytest.raises(UserError) as caught:
        require_definition("experiments.inheriting.Wide", lambda: "here")
    assert str(caught.value) == ("_target_ 'experiments.inheriting.Wide' is not defined in experiments/inheriting.py "
                                 "(here); nearest: Wider, Widest")


def test_a_misspelt_module_is_answered_with_the_modules_of_the_project(written):
    with pytest.raises(UserError, match=r"'models.mlpp.Mlp' names no module \(here\); nearest: models.mlp"):
        require_definition("models.mlpp.Mlp", lambda: "here")
