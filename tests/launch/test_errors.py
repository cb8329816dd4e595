"""Every kind of bad input ends as one line: what is wrong, where it stands, what is near and how to mend it."""

from __future__ import annotations

import pickle
import sys
from types import SimpleNamespace

import pytest

from launch.errors import UserError, explain, nearest
from launch.store import StorageFull

EDITED_PAGES = [  # in the page: what is replaced, by what; what the line must say; a text on the line that is named
    ("data: {batch_size: 20}", "data: {batch_size: 20}\ntrainer: {max_epoch: 7}", ["unknown key 'trainer.max_epoch'",
     "nearest: max_steps"], "max_epoch"),
    ("fit: {trainer.max_steps: 5}", "fit: {trainer.max_epoch: 5}", ["unknown key 'trainer.max_epoch'", "max_steps"],
     "max_epoch"),
    ("fit: {trainer.max_steps: 5}", "fit: {trainer: {max_stps: 5}}", ["unknown key 'trainer.max_stps'", "max_steps"],
     "max_stps"),
    ("figure: {", "figur: {", ["unknown key 'figur'", "nearest: figure"], "figur: {"),
    ("seeds: [0, 1]", "seed: [0, 1]", ["unknown key 'sweep.seed'", "nearest: seeds"], "seed: [0, 1]"),
    ("{slug: tiny,", "{slugg: tiny,", ["unknown key 'experiment.slugg'", "nearest: slug"], "slugg"),
    ("data: {batch_size: 20}", "data: {batch_sizes: 20}", ["unknown key 'data.batch_sizes'", "nearest: batch_size",
     "data.digits.Digits"], "batch_sizes"),
    ("  noise: ${arm.noise}", "  nois: ${arm.noise}", ["unknown key 'objective.nois'", "nearest: noise",
     "experiments.tiny.Noisy"], "nois: ${"),
    ("{arm.noise: 3.0}", "{arm.nois: 3.0}", ["unknown key 'arm.nois'", "nearest: noise"], "much: {"),
    ("{arm.noise: 3.0}", "{objective.nois: 3.0}", ["unknown key 'objective.nois'", "nearest: noise"], "much: {"),
    ("{arm.noise: 3.0}", "{objective.noise: big}", ["'objective.noise' is 'big' (str)", "expected float"], "much: {"),
    ("{arm.noise: 3.0}", "{model: mpl}", ["unknown model 'mpl'", "nearest: mlp"], "much: {"),
    ("{arm.noise: 3.0}", "arm.noise=3", ["'sweep.arms.much' is 'arm.noise=3'", "mapping"], "much: arm"),
    ("  arms:", "  grid: {data.batch_sze: [3]}\n  arms:", ["unknown key 'data.batch_sze'", "batch_size"], "grid: {"),
    ("  arms:", "  grid: {data.batch_size: 3}\n  arms:", ["'data.batch_size' is 3", "list of values"], "grid: {"),
    ("  arms:", "  fuse: [sede]\n  arms:", ["sweep.fuse names 'sede'", "nearest: seed"], "fuse: ["),
    ("seeds: [0, 1]", "seeds: [0, x]", ["'sweep.seeds[1]'", "'x'", "Integer"], "seeds: ["),
    ("fit: {trainer.max_steps: 5}", "fit: {trainer.max_steps: soon}", ["'trainer.max_steps'", "'soon'"], "soon"),
    ("fit: {trainer.max_steps: 5}", "fit: 3", ["'phases.fit' is 3", "mapping"], "fit: 3"),
    ("phases:", "phses:", ["unknown key 'phses'", "nearest: phases"], "phses:"),
    ("override /data: digits", "override /data: digts", ["unknown data 'digts'", "nearest: digits"], "digts"),
    ("override /trainer: cpu", "override /trainr: cpu", ["cannot override 'trainr'", "nearest: trainer"], "trainr"),
    (", scale: cpu}", ", scale: huge}", ["unknown scale 'huge'", "cpu, gpu, paper, smoke"], "scale: huge"),
    ("  noise: ${arm.noise}", "  noise: ${arm.nose}", ["nothing uses 'arm.noise'", "nearest: nose"], "noise: 0.5"),
    ("  noise: ${arm.noise}", "  noise: ${arm.noise}\n  decay: ${arm.deca}", ["'objective.decay'",
     "'arm.deca' not found", "define that key"], "deca}"),
    ("greater: little", "greater: litle", ["claim T1", "unknown arm", "little", "'litle'"], "litle"),
    ("{metric: accuracy,", "{metric: acuracy,", ["claim T1", "unknown metric", "accuracy", "'acuracy'"], "acuracy"),
    ("compare:", "compar:", ["claim T1", "'compar'"], "id: T1"),
    ("{_target_: experiments.tiny.accuracy, scale: 1.0}", "{scale: 1.0}", ["'measure' entry 0 has no _target_"],
     "measure:"),
    ("experiments.tiny.draw", "experiments.tiny.drw", ["'experiments.tiny.drw' is not defined in experiments/tiny.py",
     "nearest: draw"], "drw"),
    ("  warm: false", "  warm: false\n odd: 1", ["not YAML"], " odd: 1"),
]


@pytest.mark.parametrize("old, new, parts, marker", EDITED_PAGES, ids=[f"{case[1][-24:]!r}" for case in EDITED_PAGES])
def test_a_mistake_in_an_experiment_file_is_one_line_with_file_and_line(project, old, new, parts, marker):
    project.replace(old, new)
    line = project.refusal()
    assert f"(conf/experiment/tiny.yaml:{project.line(marker)})" in line
    for part in parts:
        assert part in line


def test_a_mistake_in_a_scale_file_names_that_file(project):
    project.replace("sweep: {seeds: [0]}", "trainer: {max_epoch: 1}", project.smoke)
    line = project.refusal("experiment=tiny/smoke")
    assert "unknown key 'trainer.max_epoch' (conf/experiment/tiny/smoke.yaml:6)" in line


def test_a_mistake_in_a_group_file_names_that_file(project):
    file = project.conf / "trainer" / "cpu.yaml"
    file.write_text(file.read_text() + "max_epoch: 3\n")
    line = f"conf/trainer/cpu.yaml:{project.line('max_epoch', file)}"
    assert f"unknown key 'trainer.max_epoch' ({line})" in project.refusal()


COMMAND_LINES = [  # words; what the line must say
    (["+trainer.max_epoch=3"], ["unknown key 'trainer.max_epoch'", "command line: +trainer.max_epoch=3", "max_steps"]),
    (["trainer.max_epoch=3"], ["unknown key 'trainer.max_epoch'", "command line: trainer.max_epoch=3", "max_steps"]),
    (["+objective.nois=3"], ["unknown key 'objective.nois'", "command line: +objective.nois=3", "nearest: noise"]),
    (["objective.nois=3"], ["unknown key 'objective.nois'", "command line: objective.nois=3", "nearest: noise"]),
    (["+arm.nois=3"], ["nothing uses 'arm.nois'", "command line: +arm.nois=3", "nearest: noise"]),
    (["experiment=tny"], ["unknown experiment 'tny'", "command line: experiment=tny", "nearest: tiny", "launch list"]),
    (["experiment=tiny/papper"], ["'tiny/papper'", "command line: experiment=tiny/papper", "tiny/smoke"]),
    (["experiment.scale=cpuu"], ["unknown scale 'cpuu'", "command line: experiment.scale=cpuu", "nearest: cpu"]),
    (["data=minst"], ["unknown data 'minst'", "command line: data=minst", "nearest: mnist"]),
    (["launcher=slurmy"], ["unknown launcher 'slurmy'", "command line: launcher=slurmy", "local, workers"]),
    (["job.arm=litle"], ["unknown arm 'litle'", "command line: job.arm", "nearest: little"]),
    (["trainer.max_steps=soon"], ["'trainer.max_steps'", "'soon'", "command line: trainer.max_steps=soon"]),
    (["trainer.deterministic=7up"], ["'7up' is not a valid bool", "command line: trainer.deterministic=7up"]),
    (["objective.noise=${arm.nois}"], ["'objective.noise'", "'arm.nois' not found", "command line: objective.noise="]),
    (["store.rerun=al"], ["store.rerun is 'al'", "command line: store.rerun=al", "nearest: all"]),
    (["seed=a,b"], ["seed 'a' is not an integer", "seed=0,1,2"]),
    (["seed=1.5"], ["seed '1.5' is not an integer"]),
    (["nonsense"], ["parsing override 'nonsense'", "command line", "key=value"]),
    (["arm.noise={"], ["command line", "key=value"]),
    (["claims.0.compare.greater=litle"], ["claim T1", "unknown arm", "command line: claims.0.compare.greater=litle"]),
    (["phases.fit={trainer.max_stps:3}"], ["'phases.fit.trainer.max_stps'", "command line: phases.fit=", "max_steps"]),
    (["phases.fit.trainer.max_steps=3"], ["'phases.fit.trainer'", "command line: phases.fit.trainer.max_steps=3"]),
]


@pytest.mark.parametrize("words, parts", COMMAND_LINES, ids=[case[0][0] for case in COMMAND_LINES])
def test_a_mistake_on_the_command_line_is_one_line_that_quotes_it(project, words, parts):
    line = project.refusal(*words)
    for part in parts:
        assert part in line


def test_no_experiment_is_one_line_with_the_choices(project):
    from launch.plan import compose_jobs

    with pytest.raises(UserError, match="^no experiment chosen; nearest: tiny, tiny/smoke; add experiment=<name>"):
        compose_jobs([])


def test_a_single_run_refuses_a_sweep_and_says_how_to_get_one(project):
    assert "'seed' has several values (command line); add -m for a sweep over 3 values" in project.refusal(
        "job.single=true", "seed=0,1,2")


def test_a_store_below_a_file_is_refused(project):
    (project.root / "taken").write_text("")
    line = project.refusal(f"store.path={project.root}/taken/store")
    assert f"cannot write to the store {project.root}/taken/store" in line
    assert "choose another with store.path=FOLDER" in line


def test_a_store_without_permission_is_refused(project, monkeypatch):
    monkeypatch.setattr("launch.store.os.access", lambda path, mode: False)
    assert "cannot write to the store" in project.refusal()


def test_a_full_disk_is_refused_before_anything_is_written(project, monkeypatch):
    monkeypatch.setattr("launch.store.shutil.disk_usage", lambda path: SimpleNamespace(free=5 * 2**20))
    line = project.refusal()
    assert "only 5 MB left for the store" in line and "store.path=FOLDER" in line


def test_a_disk_that_fills_up_in_a_job_is_reported_as_the_users_to_mend(project, monkeypatch):
    import launch.fit
    from launch.run import execute

    def full(*arguments, **settings):
        raise StorageFull("no space left for x", cure="free some")

    monkeypatch.setattr(launch.fit, "build_data", lambda config: None)
    monkeypatch.setattr(launch.fit, "fit_phase", full)
    outcome = execute(project.jobs("job.arm=little", "seed=0")[0].config)
    assert (outcome["state"], outcome["error"]) == ("refused", "no space left for x; free some")


def test_the_program_prints_the_line_and_ends_with_status_two(project, capsys, monkeypatch):
    from hydra.core.global_hydra import GlobalHydra

    from launch import __main__

    monkeypatch.setattr(__main__, "CONF", project.conf)
    monkeypatch.setattr(sys, "argv", ["reprise"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    project.replace("fit: {trainer.max_steps: 5}", "fit: {trainer.max_steps: 5}\ntrainer: {max_epoch: 7}")
    try:
        with pytest.raises(SystemExit) as caught:
            __main__.main(["-m", "experiment=tiny"])
    finally:
        GlobalHydra.instance().clear()
    printed = capsys.readouterr()
    assert caught.value.code == 2
    assert printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith("error: unknown key 'trainer.max_epoch' (conf/experiment/tiny.yaml:26)")


def test_a_user_error_squeezes_every_part_into_one_line():
    error = UserError("wrong\n  value", where="a.yaml:3", value="ab", names=["abc", "zzz"], cure="mend\nit")
    assert str(error) == "wrong value (a.yaml:3); nearest: abc; mend it"


def test_a_user_error_keeps_its_line_on_the_way_from_a_worker():
    error = UserError("wrong", where="a.yaml:3", names=["x"], cure="mend it")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_nearest_names_come_first_and_all_names_when_none_is_near():
    assert nearest("acuracy", ["loss", "accuracy", "time"]) == ["accuracy"]
    assert nearest("qqq", ["loss", "accuracy"]) == ["accuracy", "loss"]


def test_an_exception_that_is_no_users_mistake_is_not_explained_away():
    assert explain(ZeroDivisionError("1/0")) is None
    assert explain(RuntimeError("CUDA error")) is None
