"""A user's mistake on the command line: status 2, one line that starts with ``error:``, and nothing written."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import torch

from launch.checkpoint import checkpoints
from launch.run import execute

VAE, ADVERSARIAL = "experiment=vae/smoke", "experiment=adversarial/smoke"
CASES = [  # words, what the line says after where the mistake stands, or in all when that is not on the command line
    ("-m", "no experiment chosen; nearest: adversarial"),
    ("experiment=vea", "unknown experiment 'vea' @; nearest: vae"),
    ("experiment=vae/papr", "'vae/papr' @; nearest: vae/paper"),
    (f"data=digit {VAE}", "unknown data 'digit' @; nearest: digits"),
    (f"launcher=slrum -m {VAE}", "unknown launcher 'slrum' @; nearest:"),
    (f"trainer.max_epoch=3 {VAE}", "unknown key 'trainer.max_epoch' @; nearest: max_steps"),
    (f"+trainer.max_epoch=3 {VAE}", "unknown key 'trainer.max_epoch' @; nearest: max_steps"),
    (f"+sede=1 -m {VAE}", "unknown key 'sede' @; nearest: seed"),
    (f"+model.latent=3 {VAE}", "unknown key 'model.latent' @; nearest: latent_dim"),
    (f"+arm.algoritm=aevb {VAE}", "nothing uses 'arm.algoritm' @; nearest: algorithm"),
    (f"trainer.devices=two {VAE}", "'trainer.devices': Value 'two' of type 'str' could not be converted to Integer @"),
    (f"model.hidden_dim=wide {VAE}", "'model.hidden_dim' is 'wide' (str) @; expected int"),
    (f"-m {VAE} job.arm=aevb,wake_slep", "unknown arm 'wake_slep' (command line: job.arm); nearest: wake_sleep"),
    (f"-m {VAE} seed=zero", "seed 'zero' is not an integer (command line: seed); for example seed=0,1,2"),
    (f"seed=0,1 {VAE}", "'seed' has several values (command line); add -m"),
    (f"arm.decay=[1] -m {ADVERSARIAL}", "arm 'fc10_1e-4' sets 'arm.decay' itself @; drop it, or run without -m"),
    (f"trainer.max_steps {VAE}", "'trainer.max_steps' (command line); write key=value"),
    (f"objective._target_=os.system {VAE}", "_target_ 'os.system' is outside the allowed packages @; allowed: data"),
    (f"objective._target_=experiments.vae.objective.np.save {VAE}", "names no module @; nearest: experiments.vae.obj"),
    (f"objective._target_=experiments.vae.objective.Leaner {VAE}", "experiments/vae/objective.py @; nearest: Learner"),
    (f"arm.steps=0 {VAE}", "a phase has no steps: trainer.max_steps is 0"),
    (f"store.rerun=some {VAE}", "store.rerun is 'some' @; nearest:"),
    (f"sweep.fuse=[sede] -m {VAE}", "sweep.fuse names 'sede' @; nearest: seed; only seed and grid axes"),
    (f"{VAE} -m claims=[] measure=[{{_target_:experiments.vae.objective.Learner}}]", "declares no metric names"),
    (f"{VAE} --multrun", "unknown option '--multrun' (command line); nearest: --multirun"),
    (f"hydra.launcher._target_=os.system -m {VAE}", "'hydra.launcher._target_=os.system' names code to import"),
    (f"trainer.devices=3 {VAE}", "batch_size 100 does not divide among 3 ranks (conf/experiment/vae"),
    ("-m experiment=vae/smoke,adversarial/smoke", "several experiments in one command (command line)"),
    ("lisst", "'lisst' (command line); write key=value"),
    ("plan experiment=vea", "unknown experiment 'vea' (command line: experiment=vea); nearest: vae"),
    ("verdicts vea", "no results for 'vea'"),
    ("store store.pth=x", "'store.pth=x' is not an option of `store`; write store.path=FOLDER"),
]
OTHER_COMMANDS = ("lisst", "verdicts vea", "store store.pth=x")  # which take no overrides


def the_line(ended, place) -> str:
    """The one line of a refused command that wrote nothing."""
    assert ended.status == 2 and ended.err.startswith("error: ") and ended.err.count("\n") == 1, ended.err
    assert "Traceback" not in ended.out and place.is_untouched()
    return ended.err


@pytest.mark.parametrize(("words", "expected"), CASES)
def test_a_mistake_is_one_line_and_nothing_is_written(words, expected, place, command):
    """``@`` stands for where the mistake is: the first word."""
    line = the_line(command(*words.split(), *(() if words in OTHER_COMMANDS else place.words)), place)
    assert expected.replace("@", f"(command line: {words.split()[0]})") in line


def test_a_mistake_is_one_line_of_a_real_process_too(place, command_line):
    line = the_line(command_line("-m", VAE, "trainer.max_epoch=3", *place.words), place)
    assert line.startswith("error: unknown key 'trainer.max_epoch' (command line: trainer.max_epoch=3); nearest:")


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_said_before_anything_is_computed(place, command):
    line = the_line(command("-m", "experiment=adversarial/gpu", "data=digits", *place.words), place)
    assert "this machine shows 0 GPUs" in line and "SCALE=cpu" in line


@pytest.mark.parametrize("mode", [(), ("-m", "job.arm=svm,fc10_1")])
def test_missing_data_is_said_with_the_ways_to_get_it(mode, place, command, tmp_path):
    (tmp_path / "empty").mkdir()
    words = (*mode, ADVERSARIAL, "data=mnist", "model.in_features=784", f"data.root={tmp_path / 'empty'}")
    line = the_line(command(*words, *place.words), place)
    assert "MNIST: its files are not in" in line and str(tmp_path / "empty") in line
    assert "data.download=true" in line and "data.root=PATH" in line
    assert list((tmp_path / "empty").iterdir()) == []


@pytest.mark.parametrize("words", [(VAE,), ("-m", VAE)])
def test_a_store_that_cannot_be_written_is_refused(words, tmp_path, place, command):
    (tmp_path / "file").write_text("")
    line = the_line(command(*words, f"store.path={tmp_path / 'file' / 'store'}", *place.words[1:]), place)
    assert f"cannot write to the store {tmp_path / 'file' / 'store'} (store.path); choose another with store.p" in line


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc, where even root cannot make a folder")
def test_a_store_that_not_even_root_can_write_is_refused(place, command):
    line = the_line(command(VAE, "store.path=/proc/self/store", *place.words[1:]), place)
    assert "the store /proc/" in line and "store.path=FOLDER" in line


def test_results_that_cannot_be_written_are_refused_before_anything_runs(tmp_path, place, command):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "results"
    line = the_line(command("-m", VAE, place.words[0], f"results.path={path}", "logger=none"), place)
    assert f"cannot write to the results {path} (results.path); choose another with results.path=FOLDER" in line


@pytest.fixture
def small_disk(tmp_path):
    """A folder on a disk of 80 MB of its own."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = shutil.which("mount") and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=80m", "tmpfs", str(folder)], capture_output=True, check=False)
    if not mounted or mounted.returncode:
        pytest.skip("a small disk can only be mounted by root")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Take all the room that a disk has left."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(2**16))
        except OSError:
            return path


def test_a_disk_that_fills_up_costs_nothing_but_the_command_again(
    small_disk, new_place, compose, start_command_line, wait_until, command, same
):
    settings = (VAE, "arm.steps=600")
    words = (*settings, "trainer.checkpoint_every_steps=10", "logger=none")
    job = compose(*settings, "job.single=true")[0]
    place, whole = new_place("small", small_disk), new_place("whole")
    process = start_command_line(*words, f"store.path={place.store}")
    folder = place.phase(job).folder / "checkpoints"
    wait_until(lambda: len(checkpoints(folder)) == 2, process)
    filler = fill(small_disk)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 2 and err.startswith("error: no space left for ") and err.count("\n") == 1, err
    assert "the same command" in err and len(checkpoints(folder)) == 2

    refused = command(*words, f"store.path={place.store}")
    assert refused.status == 2 and "MB left for the store" in refused.err and refused.err.count("\n") == 1
    os.remove(filler)
    assert command(*words, f"store.path={place.store}").status == 0
    assert "goes on from batch" in (place.run(job).folder / "log.txt").read_text()
    assert execute(whole.config(job))["error"] == ""
    same(place.measurements(), whole.measurements())
