"""What a key depends on: everything that can change a number, and nothing else."""

from __future__ import annotations

from dataclasses import fields

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import ConfigKeyError, ConfigTypeError, InterpolationKeyError

from launch.keys import digest, phase_key, phases_of, run_key
from launch.schema import Schema, TrainerNode

SILENT_TRAINER = {"checkpoint_every_seconds", "checkpoint_every_steps", "log_every_steps", "progress_bar"}
CHANGED = {  # another value for each field of the trainer
    "accelerator": "gpu", "devices": 2, "num_nodes": 2, "strategy": "ddp", "precision": "bf16-mixed", "max_steps": 9,
    "accumulate_grad_batches": 2, "gradient_clip_val": 1.0, "threads": 2, "deterministic": False,
    "checkpoint_every_seconds": 1.0, "checkpoint_every_steps": 5, "log_every_steps": 1, "progress_bar": True,
}
PAGE = {
    "seed": 3,
    "arm": {"rate": 0.1, "warm": True},
    "model": {"_target_": "models.mlp.Mlp", "hidden": [4, 5], "nested": {"deep": 1}},
    "data": {"batch_size": 10, "workers": 0, "root": "here", "download": False},
    "kernel": {"default": "auto"},
    "objective": {"_target_": "x.Objective", "rate": "${arm.rate}"},
    "trainer": {"max_steps": 4},
    "phases": {"first": {"when": "${arm.warm}", "objective.rate": 0.0}, "second": {"trainer.max_steps": 7}},
    "measure": [{"_target_": "x.loss", "samples": 3}],
}


def config(*dotted: tuple[str, object]):
    made = OmegaConf.merge(OmegaConf.structured(Schema), PAGE)
    for key, value in dotted:
        OmegaConf.update(made, key, value, merge=False, force_add=True)
    return made


def keys(*dotted: tuple[str, object]) -> list[str]:
    return [phase.key for phase in phases_of(config(*dotted))]


def test_every_trainer_setting_is_tried():
    assert set(CHANGED) == {item.name for item in fields(TrainerNode)}


@pytest.mark.parametrize("name", CHANGED)
def test_a_trainer_setting_counts_unless_it_cannot_change_a_number(name):
    changed = phase_key(config((f"trainer.{name}", CHANGED[name])), None) != phase_key(config(), None)
    assert changed == (name not in SILENT_TRAINER)


@pytest.mark.parametrize("key, value", [
    ("data.workers", 4), ("data.root", "there"), ("data.download", True), ("logger.mode", "online"),
    ("logger.project", "p"), ("launcher.name", "workers"), ("launcher.workers", 8), ("store.path", "elsewhere"),
    ("store.rerun", "all"), ("results.path", "elsewhere"), ("job.arm", "other"), ("job.variant", "v"),
    ("job.until", "first"), ("job.single", True), ("experiment.note", "read me"), ("experiment.title", "T"),
    ("claims", [{"id": "c"}]), ("figure", {"_target_": "x.f"}),
    ("derive", [{"_target_": "x.d"}]), ("sweep.seeds", [1, 2, 3]), ("sweep.arms", {"a": {}}), ("arm.unused", 5),
])
def test_settings_that_change_no_number_change_no_key(key, value):
    changed, kept = config((key, value)), config()
    assert keys((key, value)) == keys()
    assert run_key(changed, phases_of(changed)) == run_key(kept, phases_of(kept))


@pytest.mark.parametrize("key, value", [
    ("seed", 4), ("seed", [3]), ("seed", [3, 4]), ("model.hidden", [5, 4]), ("model.hidden", [4, 5, 6]),
    ("model.nested.deep", 2), ("model.nested.deep", "1"), ("model.nested.deep", 1.5),
    ("model._target_", "models.mlp.Other"),
    ("model.extra", None), ("data.batch_size", 11), ("data.batch_size", None), ("data.binarize", True),
    ("kernel.default", "reference"), ("objective.extra", 0), ("objective._target_", "x.Other"),
])
def test_settings_that_numbers_depend_on_change_every_phase(key, value):
    assert all(new != old for new, old in zip(keys((key, value)), keys(), strict=True))


def test_no_two_of_those_changes_share_a_key():
    changes = [("seed", 4), ("seed", [3]), ("seed", [4]), ("model.hidden", [5, 4]), ("model.nested.deep", "1"),
               ("data.batch_size", None), ("data.batch_size", "None"), ("data.batch_size", 11),
               ("trainer.max_steps", 11)]
    assert len({phase_key(config(change), None) for change in changes}) == len(changes)


def test_the_measured_settings_change_the_run_and_not_its_phases():
    changed, kept = config(("measure", [{"_target_": "x.loss", "samples": 4}])), config()
    assert keys(("measure", [{"_target_": "x.loss", "samples": 4}])) == keys()
    assert run_key(changed, phases_of(changed)) != run_key(kept, phases_of(kept))


def test_the_names_of_the_phases_belong_to_the_run():
    """Measurements may ask for a phase by name."""
    renamed = config(("phases", {"pretrain": PAGE["phases"]["first"], "second": PAGE["phases"]["second"]}))
    assert [phase.key for phase in phases_of(renamed)] == keys()
    assert run_key(renamed, phases_of(renamed)) != run_key(config(), phases_of(config()))


def test_the_predecessor_is_part_of_a_phases_key():
    assert phase_key(config(), "aaaa") != phase_key(config(), "bbbb") != phase_key(config(), None)
    first, second = phases_of(config())
    assert (first.parent, second.parent) == (None, first.key)


def test_the_order_in_which_settings_are_written_does_not_count():
    backwards = {name: dict(reversed(node.items())) if isinstance(node, dict) and name != "phases" else node
                 for name, node in reversed(PAGE.items())}
    made = OmegaConf.merge(OmegaConf.structured(Schema), backwards)
    assert [phase.key for phase in phases_of(made)] == keys()


def test_runs_that_differ_only_in_a_later_phase_share_the_first_ones_key():
    one, other = keys(("phases.second", {"objective.rate": 1.0})), keys(("phases.second", {"objective.rate": 2.0}))
    assert one[0] == other[0] and one[1] != other[1]


def test_runs_whose_arm_is_read_only_by_a_later_phase_share_the_first_ones_key():
    changed = ("objective", {"_target_": "x.O"}), ("phases.second", {"objective.rate": "${arm.rate}"})
    one, other = keys(*changed, ("arm.rate", 0.1)), keys(*changed, ("arm.rate", 0.2))
    assert one[0] == other[0] and one[1] != other[1]


def test_a_false_when_leaves_the_phase_out():
    kept = phases_of(config(("arm.warm", False)))
    assert [(phase.name, phase.parent) for phase in kept] == [("second", None)]
    alone = phases_of(config(("phases", {"second": PAGE["phases"]["second"]})))
    assert kept[0].key == alone[0].key != phases_of(config())[1].key
    assert "when" not in OmegaConf.to_container(phases_of(config())[0].config)


@pytest.mark.parametrize("nested", [
    {"objective": {"rate": 0.5}, "trainer": {"max_steps": 9}}, {"objective.rate": 0.5, "trainer": {"max_steps": 9}},
    {"trainer.max_steps": 9, "objective": {"rate": 0.5}},
])
def test_nested_and_dotted_overlays_mean_the_same(nested):
    dotted = {"objective.rate": 0.5, "trainer.max_steps": 9}
    assert keys(("phases", {"only": nested})) == keys(("phases", {"only": dotted}))
    phase, = phases_of(config(("phases", {"only": nested})))
    assert (phase.config.objective.rate, phase.config.objective._target_, phase.config.trainer.max_steps) == (
        0.5, "x.Objective", 9)


def test_an_overlay_with_a_target_replaces_the_node():
    phase, = phases_of(config(("phases", {"only": {"objective": {"_target_": "x.Other", "size": 2}}})))
    assert OmegaConf.to_container(phase.config.objective) == {"_target_": "x.Other", "size": 2}


def test_an_overlay_is_seen_through_interpolations_of_other_nodes():
    overlay = ("phases", {"only": {"trainer.max_steps": 9}})
    phase, = phases_of(config(("objective.steps", "${trainer.max_steps}"), overlay))
    assert phase.config.objective.steps == 9


def test_an_overlay_leaves_the_jobs_config_as_it_was():
    made = config()
    before = OmegaConf.to_yaml(made)
    phases_of(made)
    assert OmegaConf.to_yaml(made) == before


@pytest.mark.parametrize("overlay", [{"trainer.max_epoch": 3}, {"trainer": {"max_epoch": 3}}])
def test_an_unknown_trainer_key_in_an_overlay_is_refused(overlay):
    with pytest.raises((ConfigKeyError, ConfigTypeError, AttributeError), match="max_epoch") as caught:
        phases_of(config(("phases", {"only": overlay})))
    assert caught.value.scope == ("phases", "only")


def test_a_missing_interpolation_is_named_with_its_phase():
    with pytest.raises(InterpolationKeyError) as caught:
        phases_of(config(("phases", {"only": {"model.nested": {"deep": ["${arm.nosuch}"]}}})))
    assert (caught.value.scope, caught.value.full_key) == (
        ("phases", "only"), "phases.only.model.nested.deep[0]")


def test_a_missing_interpolation_of_the_config_is_found_in_lists_and_dicts():
    with pytest.raises(InterpolationKeyError) as caught:
        phases_of(config(("model.nested.deep", [1, {"x": "${arm.nosuch}"}])))
    assert caught.value.full_key == "model.nested.deep.1.x"


def test_keys_are_short_hexadecimal_digests_of_sorted_json():
    import hashlib

    assert digest({"b": 1, "a": [True, None]}) == hashlib.sha256(b'{"a":[true,null],"b":1}').hexdigest()[:16]
