"""Variants x arms x grid x seeds, over a composer that applies overrides with Hydra's own parser and nothing else."""

from __future__ import annotations

import itertools
import random

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from launch.errors import UserError
from launch.expand import CommandLine, expand, format_override, override_key, parse_command_line, single_job
from launch.schema import Schema

PARSER = OverridesParser.create()
PAGE = {
    "experiment": {"slug": "x", "title": "X", "arxiv": "0", "scale": "cpu"},
    "arm": {"rate": 0.1, "name": "plain"},
    "model": {"width": 3},
    "objective": {"rate": "${arm.rate}", "name": "${arm.name}"},
    "trainer": {"max_steps": 4},
    "phases": {"fit": {}},
}
SWEEP = {"seeds": [0, 1], "arms": {"slow": {"arm.rate": 0.1}, "fast": {"arm.rate": 0.9, "arm.name": "it's"}}}


def composer(sweep: dict | None = None):
    """A function from overrides to a config, as Hydra's loader is one."""
    base = OmegaConf.merge(OmegaConf.structured(Schema), PAGE, {"sweep": {**SWEEP, **(sweep or {})}})

    def compose(texts):
        config = base.copy()
        for override in PARSER.parse_overrides([text for text in texts if not text.startswith("experiment=")]):
            OmegaConf.update(config, override.key_or_group, override.value(), force_add=override.is_add())
        return config

    return compose


def expanded(*words, sweep: dict | None = None):
    return expand(parse_command_line(words), composer(sweep), groups=("model", "data"))


def coordinates(jobs):
    return [(job.arm, job.config.model.width, job.config.seed) for job in jobs]


def test_arms_cross_grid_and_seeds_in_that_order():
    jobs = expanded(sweep={"grid": {"model.width": [3, 10]}})
    assert coordinates(jobs) == list(itertools.product(["slow", "fast"], [3, 10], [0, 1]))
    assert [job.point for job in jobs[:4]] == [{"model.width": 3}] * 2 + [{"model.width": 10}] * 2
    assert jobs[0].name == "slow width=3 seed=0"
    assert len({job.key for job in jobs}) == 8


def test_an_arm_brings_its_values_into_the_config_and_its_name():
    fast = expanded()[2]
    assert (fast.arm, fast.config.job.arm) == ("fast", "fast")
    assert (fast.config.objective.rate, fast.config.objective.name) == (0.9, "it's")
    assert expanded()[0].config.objective.name == "plain"


def test_the_overrides_of_a_job_compose_to_its_config():
    for job in expanded(sweep={"grid": {"model.width": [3, 10]}, "fuse": ["seed"]}):
        again = composer(sweep={"grid": {"model.width": [3, 10]}, "fuse": ["seed"]})(job.overrides)
        assert again == job.config


@pytest.mark.parametrize("words", [("model.width=5,7",), ("model.width=[5,7]",)])
def test_a_sweep_over_a_grid_axis_replaces_the_axis(words):
    jobs = expanded(*words, sweep={"grid": {"model.width": [3, 10]}})
    assert {job.config.model.width for job in jobs} == {5, 7}
    assert len({job.variant for job in jobs}) == 1 and jobs[0].variant.startswith("model.width=_5,_7_-")


def test_one_value_over_a_grid_axis_and_seeds_replace_them():
    jobs = expanded("model.width=5", "seed=7,8,9", sweep={"grid": {"model.width": [3, 10]}})
    assert coordinates(jobs) == list(itertools.product(["slow", "fast"], [5], [7, 8, 9]))


def test_a_sweep_over_another_key_makes_variants_each_whole():
    jobs = expanded("trainer.max_steps=4,8", "objective.name=a,b")
    variants = list(dict.fromkeys(job.variant for job in jobs))
    assert len(variants) == 4 and len(jobs) == 16
    for variant, (steps, name) in zip(variants, itertools.product([4, 8], "ab"), strict=True):
        mine = [job for job in jobs if job.variant == variant]
        assert {(job.config.trainer.max_steps, job.config.objective.name) for job in mine} == {(steps, name)}
        assert {job.arm for job in mine} == {"slow", "fast"} and {job.config.job.variant for job in mine} == {variant}


def test_an_arm_that_sets_a_grid_axis_is_not_crossed_with_it():
    jobs = expanded(sweep={"grid": {"model.width": [3, 10]}, "arms": {"slow": {}, "fixed": {"model.width": 2}},
                          "seeds": [0]})
    assert [(job.arm, job.point) for job in jobs] == [
        ("slow", {"model.width": 3}), ("slow", {"model.width": 10}), ("fixed", {"model.width": 2})]


def test_an_experiment_without_arms_has_one_run_a_seed():
    jobs = expanded(sweep={"arms": {}})
    assert [(job.arm, job.config.seed) for job in jobs] == [("run", 0), ("run", 1)]


def test_fused_axes_stay_in_one_job_and_come_out_as_runs_in_order():
    jobs = expanded(sweep={"grid": {"arm.rate": [0.1, 0.2, 0.3], "model.width": [3, 10]}, "fuse": ["seed", "arm.rate"],
                          "arms": {"slow": {"arm.name": "s"}, "fast": {"arm.name": "f", "arm.rate": 0.9}}})
    slow = [job for job in jobs if job.arm == "slow"]
    assert len(jobs) == 4 and len(slow) == 2
    assert slow[1].config.seed == [0, 1] and slow[1].config.arm.rate == [0.1, 0.2, 0.3]
    assert slow[1].name == "slow width=10 seed=0,1 rate x3"
    assert list(slow[1].runs()) == [
        ((i, j), seed, {"model.width": 10, "arm.rate": rate})
        for (i, seed), (j, rate) in itertools.product(enumerate([0, 1]), enumerate([0.1, 0.2, 0.3]))]
    pinned = next(job for job in jobs if job.arm == "fast")
    assert pinned.config.arm.rate == [0.9] and len(list(pinned.runs())) == 2


def test_a_job_without_fused_axes_is_one_run():
    (index, seed, point), = expanded(sweep={"grid": {"model.width": [3]}})[1].runs()
    assert (index, seed, point) == ((), 1, {"model.width": 3})


@pytest.mark.parametrize("word", ["job.arm=fast", "job.arm=[fast]"])
def test_a_subset_of_the_arms_runs_alone_and_is_a_variant(word):
    jobs = expanded(word)
    assert {job.arm for job in jobs} == {"fast"} and len(jobs) == 2
    assert jobs[0].variant.startswith("job.arm=_fast_")
    assert [job.arm for job in expanded("job.arm=fast,slow", "seed=0")] == ["fast", "slow"]


def test_a_subset_of_runs_has_the_keys_it_has_in_the_whole():
    whole = {job.key for job in expanded()}
    assert {job.key for job in expanded("job.arm=fast", "seed=1")} < whole


def test_a_command_line_that_an_arm_would_overrule_is_refused():
    with pytest.raises(UserError, match=r"^arm 'slow' sets 'arm.rate' itself \(command line: arm.rate=0.5\); drop it"):
        expanded("arm.rate=0.5")
    with pytest.raises(UserError, match="arm 'slow' sets 'arm.rate' itself"):
        expanded("arm.rate=0.5,0.6")


@pytest.mark.parametrize("word", [
    "launcher=workers", "launcher.workers=4", "logger=none", "logger.mode=none", "store.path=x", "store.rerun=all",
    "results.path=x", "trainer.progress_bar=true", "trainer.log_every_steps=1", "trainer.checkpoint_every_seconds=1",
    "trainer.checkpoint_every_steps=5", "+data.workers=2", "+data.root=x", "+data.download=true", "hydra.verbose=true",
    "hydra/launcher=joblib", "experiment=x/smoke",
])
def test_settings_that_change_no_number_make_no_variant(word):
    assert parse_command_line([word]).changes == ()


@pytest.mark.parametrize("word", [
    "trainer.max_steps=3", "trainer.threads=2", "trainer=gpu", "model=mlp", "model.width=3", "+data.batch_size=3",
    "objective.rate=3", "kernel=reference", "arm.rate=2", "claims=[]", "figure={}", "experiment.scale=paper",
    "experiment.slug=other", "++data.workers_per_node=2", "storey=1", "~objective.rate", "measure=[]",
])
def test_settings_that_may_change_a_number_or_a_verdict_make_a_variant(word):
    assert parse_command_line([word]).changes == (word,)


def test_a_variant_is_named_by_its_changes_whatever_their_order():
    first, = {job.variant for job in expanded("model.width=5", "trainer.max_steps=8")}
    other, = {job.variant for job in expanded("trainer.max_steps=8", "model.width=5")}
    assert first.rpartition("-")[2] == other.rpartition("-")[2]
    assert first.startswith("model.width=5_trainer.max_steps=8-")
    assert {job.variant for job in expanded("model.width=6", "trainer.max_steps=8")}.isdisjoint({first, other})
    assert {job.variant for job in expanded()} == {""}


def test_a_variants_name_is_a_plain_folder_name():
    variant = expanded("objective.name='../../etc/p w\"d:*'", "job.arm=fast")[0].variant
    assert set(variant) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789=.,-_")
    assert "/" not in variant and len(variant) < 80


def test_a_single_run_takes_the_config_as_given():
    job = single_job(parse_command_line(["arm.rate=0.7", "seed=5"]), composer())
    assert (job.config.arm.rate, job.config.seed, job.arm, job.point) == (0.7, 5, "", {})
    assert list(job.runs()) == [((), 5, {})]


def test_a_single_run_of_a_fused_experiment_carries_lists_of_one():
    sweep = {"grid": {"model.width": [3, 10]}, "fuse": ["seed", "model.width"]}
    job = single_job(parse_command_line(["seed=5", "model.width=4"]), composer(sweep=sweep))
    assert (job.config.seed, job.config.model.width) == ([5], [4])
    assert list(job.runs()) == [((0, 0), 5, {"model.width": 4})]


def test_a_single_run_refuses_a_sweep():
    with pytest.raises(UserError, match="'seed' has several values.*add -m for a sweep over 2 values"):
        single_job(parse_command_line(["seed=1,2"]), composer())


def test_a_command_line_is_split_into_fixed_and_swept_words():
    line = parse_command_line(["a=1", "b=1,2", "c=[1,2]", "d=range(0,3)", "e='x,y'", "+f={g:1}"])
    assert line == CommandLine(("a=1", "c=[1,2]", "e='x,y'", "+f={g:1}"),
                               (("b", ("b=1", "b=2")), ("d", ("d=0", "d=1", "d=2"))))


@pytest.mark.parametrize("text, key", [
    ("a.b=1=2", "a.b"), ("+a.b=1", "a.b"), ("++a=", "a"), ("~a", "a"), ("m@p=x", "m"),
])
def test_the_key_of_an_override_is_what_it_sets(text, key):
    assert override_key(text) == key


NASTY = [
    "", "it's", 'say "x"', "back\\slash", "end\\", "end\\\\", "\\'", "a\\\\'b", "1e-4", "1", "-1", "null", "true",
    "nan", "???", "[1,2]", "{a:1}", "a,b", "a=b", "a:b", " lead", "trail ", "tab\t", "line\nbreak", "line\\\n",
    "${seed}", "choice(1,2)", "glob(*)", "--x", "%$#@!", "grün 漢字",
    None, True, False, 0, -1, 10**30, 1e-5, -2.5e-300, 1e22, -0.0, 0.1 + 0.2, float("inf"), float("-inf"),
    [], [[], [1, [-2.5, "x'"]], None], {}, {"a": 1, "b": {"c": [1.0, None, "1e-4"]}}, {"a.b": -1.5},
    {"with space": "v"}, {"a:b": 1}, {"a\\b": 1}, {"fc10_1e-2": [1e-2]}, {1: "x", 2.5: [True]},
]


@pytest.mark.parametrize("value", NASTY, ids=repr)
def test_an_override_is_read_back_as_exactly_its_value(value):
    override = PARSER.parse_override(format_override("a.key", value, groups=()))
    assert repr(override.value()) == repr(value)
    assert not override.is_sweep_override() and override.key_or_group == "a.key"


def test_random_values_are_read_back_exactly():
    draw = random.Random(0)

    def value(depth: int):
        kind = draw.randrange(7 if depth else 4)
        if kind < 2:
            return "".join(draw.choice("\\\\''\"a1e-. \n{}[]():,=$ü") for _ in range(draw.randrange(9)))
        if kind == 2:
            number = draw.gauss(0, 1) * 10 ** draw.randrange(-9, 9)
            return draw.choice([None, True, False, draw.randrange(-99, 99), number])
        if kind == 3:
            return draw.choice(["null", "1e-4", "true", "0x1", "1_000", "inf"])
        if kind == 4:
            return {f"k{draw.randrange(9)}": value(depth - 1) for _ in range(draw.randrange(3))}
        return [value(depth - 1) for _ in range(draw.randrange(4))]

    for made in (value(2) for _ in range(400)):
        text = format_override("key", made, groups=())
        assert repr(PARSER.parse_override(text).value()) == repr(made), text


@pytest.mark.parametrize("key", ["it's", "", "null", "True", "1e-4", "12"])
def test_a_key_that_hydra_cannot_express_is_refused_and_not_changed(key):
    with pytest.raises(UserError, match="Hydra cannot be given the key"):
        format_override("a", {"x": {key: 1}}, groups=())


def test_a_group_choice_is_written_bare_and_a_value_of_that_name_quoted():
    assert format_override("model", "mlp", groups=("model",)) == "model=mlp"
    assert format_override("model.name", "mlp", groups=("model",)) == "model.name='mlp'"


@pytest.mark.parametrize("words", [
    ("experiment=adversarial/smoke",), ("experiment=vae/smoke", "objective.evaluations=5"),
])
def test_hydra_composes_a_jobs_overrides_to_the_key_that_the_sweep_worked_out(jobs_of, words):
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.types import RunMode

    from launch import CONF
    from launch.keys import phases_of, run_key

    jobs = jobs_of(*words)
    with initialize_config_dir(str(CONF), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        master = loader.load_configuration("config", overrides=list(words), run_mode=RunMode.MULTIRUN)
        for job in (jobs[0], jobs[len(jobs) // 2 + 1]):
            config = loader.load_sweep_config(master, list(job.overrides))
            assert run_key(config, phases_of(config)) == job.key
            assert config.job.arm == job.arm and config.job.variant == job.variant
