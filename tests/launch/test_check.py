"""The check of a composed config: component nodes against signatures, targets before import, and where a key is set."""

from __future__ import annotations

import sys

import pytest
from omegaconf import OmegaConf

from launch.check import Locator, check_arm_keys, check_hydra_targets, check_phase, check_sweep, check_target_node
from launch.errors import UserError
from launch.schema import Schema

TARGETS = '''\
from experiments.measurement import measurement

class Net:
    def __init__(self, model, width: int, rate: float = 0.1, name: str | None = None, flag: bool = True, kind=None):
        pass

class Open:
    def __init__(self, **settings):
        pass

@measurement("loss")
def loss(trained, samples: int = 3):
    return {"loss": 0.0}

def undeclared(trained):
    return {}
'''


def nowhere(key: str) -> str:
    return f"at {key}"


@pytest.fixture
def nodes(project):
    (project.root / "experiments" / "nodes.py").write_text(TARGETS)
    return project


def refusal(node: dict, path: str = "objective", given: frozenset = frozenset({"model"})) -> str:
    with pytest.raises(UserError) as caught:
        check_target_node({"_target_": "experiments.nodes.Net", **node}, path, given, nowhere)
    return str(caught.value)


def test_a_node_that_fits_its_signature_passes(nodes):
    node = {"_target_": "experiments.nodes.Net", "width": 3, "rate": 1, "name": None, "flag": False, "kind": [1]}
    assert check_target_node(node, "objective", {"model"}, nowhere).name == "Net"


@pytest.mark.parametrize("settings, parts", [
    ({"widht": 3}, ["unknown key 'objective.widht'", "at objective.widht", "nearest: width", "experiments.nodes.Net"]),
    ({"width": "wide"}, ["'objective.width' is 'wide' (str)", "at objective.width", "expected int"]),
    ({"width": 2.5}, ["'objective.width' is 2.5 (float)", "expected int"]),
    ({"width": True}, ["'objective.width' is True (bool)", "expected int"]),
    ({"width": None}, ["'objective.width' is None", "expected int"]),
    ({"width": 3, "rate": "1e-4"}, ["'objective.rate' is '1e-4' (str)", "expected float"]),
    ({"width": 3, "rate": False}, ["'objective.rate' is False (bool)", "expected float"]),
    ({"width": 3, "name": 4}, ["'objective.name' is 4 (int)", "expected str | None"]),
    ({"width": 3, "flag": 1}, ["'objective.flag' is 1 (int)", "expected bool"]),
    ({}, ["'objective' lacks width", "at objective"]),
    ({"width": 3, "model": {}}, ["'objective.model' is passed by the harness", "remove it"]),
])
def test_a_node_that_does_not_fit_is_refused_with_the_key_and_what_is_expected(nodes, settings, parts):
    line = refusal(settings)
    for part in parts:
        assert part in line


def test_parameters_that_the_harness_passes_are_neither_missing_nor_offered(nodes):
    assert "nearest: flag, kind, name, rate, width" in refusal({"zzzz": 1})
    assert "lacks model, width" in refusal({}, given=frozenset())


def test_partial_and_positional_nodes_may_lack_parameters(nodes):
    for extra in ({"_partial_": True}, {"_args_": [1, 2]}):
        check_target_node({"_target_": "experiments.nodes.Net", **extra}, "objective", set(), nowhere)


def test_a_signature_that_takes_anything_refuses_nothing(nodes):
    check_target_node({"_target_": "experiments.nodes.Open", "whatever": 1}, "objective", set(), nowhere)


SIDE_EFFECT = "from pathlib import Path\nPath({path!r}).write_text('imported')\ndef run(*a, **k):\n    pass\n"


@pytest.mark.parametrize("old, new", [
    ("_target_: experiments.tiny.Noisy", "_target_: spy.run"),
    ("figure: {_target_: experiments.tiny.draw}", "figure: {_target_: spy.run}"),
    ("{_target_: experiments.tiny.gap}", "{_target_: spy.run}"),
    ("{_target_: experiments.tiny.accuracy, scale: 1.0}", "{_target_: spy.run}"),
    ("data: {batch_size: 20}", "data: {batch_size: 20, classes: [3, {inner: {_target_: spy.run}}]}"),
    ("data: {batch_size: 20}", "data: {batch_size: 20}\ntrainer: {strategy: {_target_: spy.run}}"),
    ("  fit: {trainer.max_steps: 5}", "  fit: {trainer.max_steps: 5, model: {_target_: spy.run}}"),
    ("{arm.noise: 3.0}", "{objective: {_target_: spy.run}}"),
])
def test_a_foreign_target_is_refused_wherever_it_stands_and_never_imported(project, monkeypatch, old, new):
    mark = project.root / "imported"
    (project.root / "spy.py").write_text(SIDE_EFFECT.format(path=str(mark)))
    monkeypatch.syspath_prepend(str(project.root))
    project.replace(old, new)
    line = project.refusal()
    assert "_target_ 'spy.run' is outside the allowed packages (conf/experiment/tiny.yaml:" in line
    assert "torch.optim" in line
    assert not mark.exists() and "spy" not in sys.modules


def test_a_target_that_reaches_a_number_through_an_interpolation_is_refused_as_no_number(project):
    project.replace("  noise: 0.5", "  noise: {_target_: spy.run}")
    project.replace("{arm.noise: 0.1}", "{}")
    line = project.refusal()
    assert "'objective.noise' is {'_target_': 'spy.run'} (dict)" in line and "expected float" in line


@pytest.mark.parametrize("target", [
    "experiments.tiny.os.system", "experiments.tiny.torch.nn.Linear", "experiments.tiny.Noisy.load_from_checkpoint",
    "torch.nn.modules.module.os.system", "lightning.fabric.utilities.seed.os.system",
    "torchvision.datasets.mnist.os.remove", "torch.optim.optimizer.torch.load",
    "torch.nn.init.nosuch", "launch.provenance.subprocess.run", "builtins.eval",
    "os.system", "torch.load", "torch.hub.load", "torch", "experiments", "", "experiments..os.system",
])
def test_a_path_that_wanders_out_of_a_module_is_refused_before_the_module_is_imported(project, target):
    with pytest.raises(UserError, match="^_target_ '.*' (is outside|names no module|is not defined in)"):
        check_target_node({"_target_": target}, "objective", set(), nowhere)
    assert "experiments.tiny" not in sys.modules


def test_a_target_that_is_no_text_is_refused():
    with pytest.raises(UserError, match="_target_ '3' is outside"):
        check_target_node({"_target_": 3}, "objective", set(), nowhere)


@pytest.mark.parametrize("target", [
    "torch.optim.SGD", "torch.optim.lr_scheduler.StepLR", "torch.nn.Linear", "torch.nn.init.normal_",
    "lightning.pytorch.strategies.DDPStrategy", "torchvision.models.resnet18",
    "torchmetrics.classification.MulticlassAccuracy",
])
def test_public_names_of_the_allowed_packages_are_found(target):
    check_target_node({"_target_": target, "_partial_": True}, "trainer.strategy", set(), nowhere)


@pytest.mark.parametrize("name", ["launcher", "sweeper"])
def test_hydra_only_gets_its_own_launchers_and_sweepers(name):
    config = OmegaConf.create({"hydra": {name: {"_target_": "spy.Launcher"}}})
    with pytest.raises(UserError, match=rf"hydra.{name}._target_ 'spy.Launcher' is outside"):
        check_hydra_targets(config)
    check_hydra_targets(OmegaConf.create({"hydra": {name: {"_target_": "hydra_plugins.arms.ArmsSweeper"}}}))


def test_a_foreign_launcher_is_refused_before_hydra_instantiates_it(monkeypatch):
    from hydra.core.plugins import Plugins

    from hydra_plugins.arms import ArmsSweeper

    started = []
    monkeypatch.setattr(Plugins, "instantiate_launcher", lambda self, **settings: started.append(settings))
    config = OmegaConf.create({"hydra": {"launcher": {"_target_": "spy.Launcher"}}})
    with pytest.raises(UserError, match="hydra.launcher"):
        ArmsSweeper().setup(hydra_context=None, task_function=None, config=config)
    assert started == []


def test_a_foreign_launcher_on_the_command_line_is_refused(project):
    assert "hydra.launcher._target_ 'spy.L' is outside" in project.refusal("hydra.launcher._target_=spy.L")


def schema(**changes):
    config = OmegaConf.structured(Schema)
    return OmegaConf.merge(config, {"experiment": {"slug": "x", "title": "X", "arxiv": "0", "scale": "cpu"}, **changes})


def test_a_phase_without_steps_is_refused():
    with pytest.raises(UserError, match="trainer.max_steps is 0.*at trainer.max_steps.*set trainer.max_steps"):
        check_phase(schema(), nowhere)
    check_phase(schema(trainer={"max_steps": 1}), nowhere)


def test_a_missing_value_is_named():
    with pytest.raises(UserError, match="'model.width'.*at model.width"):
        check_phase(schema(trainer={"max_steps": 1}, model={"width": "???"}), nowhere)


def test_a_key_of_arm_needs_an_interpolation_that_reads_it():
    own = schema(arm={"used": 1, "braced": 2, "unused": 3},
                 objective={"a": "${arm.used}", "b": "${mul:${arm.braced},2}"})
    with pytest.raises(UserError, match=r"nothing uses 'arm.unused' \(at arm.unused\); nearest: .*used"):
        check_arm_keys(own, own, nowhere)
    del own.arm["unused"]
    check_arm_keys(own, own, nowhere)


def test_the_name_of_one_arm_key_inside_another_does_not_count_as_use():
    own = schema(arm={"rate": 1, "rate_decay": 2}, objective={"a": "${arm.rate_decay}"})
    with pytest.raises(UserError, match="nothing uses 'arm.rate'"):
        check_arm_keys(own, own, nowhere)


def test_measurements_must_declare_their_names(nodes):
    config = schema(phases={"fit": {}}, measure=[{"_target_": "experiments.nodes.undeclared"}])
    with pytest.raises(UserError, match="experiments.nodes.undeclared declares no metric names"):
        check_sweep(config, nowhere)


def test_an_experiment_without_phases_is_refused():
    with pytest.raises(UserError, match=r"no phases \(at phases\); add phases"):
        check_sweep(schema(), nowhere)


def test_the_locator_prefers_the_command_line_then_the_scale_file_then_the_page_then_the_group(project):
    choices = {"experiment": "tiny/smoke", "trainer": "cpu", "data": "digits"}
    locate = Locator(["arm.noise=3", "++data.workers=2"], choices)
    assert locate("arm.noise") == "command line: arm.noise=3"
    assert locate("data.workers") == "command line: ++data.workers=2"
    assert locate("sweep.seeds") == f"conf/experiment/tiny/smoke.yaml:{project.line('seeds: [0]', project.smoke)}"
    assert locate("arm.warm") == f"conf/experiment/tiny.yaml:{project.line('warm: false')}"
    threads = project.line("threads: 1", project.conf / "trainer" / "cpu.yaml")
    assert locate("trainer.threads") == f"conf/trainer/cpu.yaml:{threads}"
    assert locate("nosuch.key") == ""


def test_the_locator_finds_list_items_dotted_keys_and_overlays(project):
    locate = Locator([], {"experiment": "tiny"})
    assert locate("claims[0].compare.metric") == f"conf/experiment/tiny.yaml:{project.line('compare:')}"
    fit = project.line("fit: {trainer.max_steps: 5}")
    assert locate("trainer.max_steps", scopes=[("phases", "fit")]) == f"conf/experiment/tiny.yaml:{fit}"
    much = project.line("much: {")
    assert locate("arm.noise", scopes=[("sweep", "arms", "much")]) == f"conf/experiment/tiny.yaml:{much}"


def test_the_locator_looks_past_a_node_to_a_dotted_key_beside_it(project):
    project.replace("data: {batch_size: 20}", "data: {batch_size: 20}\ndata.train_size: 100")
    assert Locator([], {"experiment": "tiny"})("data.train_size") == (
        f"conf/experiment/tiny.yaml:{project.line('data.train_size')}")
