"""The headers of all experiments, and that asking what there is stays quick."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys

import pytest

from launch import CONF, PROJECT
from launch.errors import UserError
from launch.listing import experiments, group_choices, print_list, read_header
from launch.schema import SCALES

PAGES = sorted((CONF / "experiment").glob("*.yaml"))
HEADER = """\
# @package _global_
# paper:   A paper, Nobody, 2024
# claim:   a claim
#          on two lines
# command: make figure-x
# minutes: smoke 0.1 measured | cpu 3 estimated | gpu 1.5e3 estimated
# expect:  a number: 3
# shrunk:  everything
defaults: []
# paper: not this one
"""


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_every_experiment_opens_with_a_whole_header(page):
    header = read_header(page)
    assert page.stem in header.command
    assert "cpu" in header.minutes and set(header.minutes) <= set(SCALES)
    assert all(number > 0 for number, _ in header.minutes.values())
    assert min(len(text) for text in (header.paper, header.claim, header.expect, header.shrunk)) > 0


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_the_minutes_are_given_for_the_scales_that_exist(page):
    assert set(read_header(page).minutes) <= set(experiments()[page.stem])


def page_with(tmp_path, old: str = "", new: str = ""):
    assert old in HEADER
    path = tmp_path / "x.yaml"
    path.write_text(HEADER.replace(old, new))
    return path


def test_a_header_is_read_as_written(tmp_path):
    header = read_header(page_with(tmp_path, "1.5e3", "1500"))
    assert header.claim == "a claim on two lines" and header.paper == "A paper, Nobody, 2024"
    assert header.expect == "a number: 3"
    assert header.minutes == {"smoke": (0.1, "measured"), "cpu": (3.0, "estimated"), "gpu": (1500.0, "estimated")}


@pytest.mark.parametrize("key", ["paper", "claim", "command", "minutes", "expect", "shrunk"])
def test_a_header_without_one_of_its_lines_is_refused_by_file_and_name(tmp_path, key):
    path = page_with(tmp_path)
    path.write_text(re.sub(rf"# {key}:.*\n", "", HEADER, count=1))
    with pytest.raises(UserError, match=rf"header lacks {key} \({path}\); see docs/adding-a-paper.md"):
        read_header(path)


@pytest.mark.parametrize("minutes", [
    "cpu three measured", "laptop 3 measured", "cpu 3", "cpu 3 guessed", "cpu 1.2.3 measured", "smoke 1 measured | ",
    "cpu 3 measured, gpu 4 estimated",
])
def test_malformed_minutes_are_refused_by_file_and_part(tmp_path, minutes):
    path = page_with(tmp_path, "smoke 0.1 measured | cpu 3 estimated | gpu 1.5e3 estimated", minutes)
    with pytest.raises(UserError, match=rf"'minutes' has '.*' \({path}\); expected 'cpu 3.2 measured'"):
        read_header(path)


def test_a_page_without_a_header_is_refused(tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text("# @package _global_\ndefaults: []\n")
    with pytest.raises(UserError, match="header lacks paper, claim, command, minutes, expect, shrunk"):
        read_header(path)


def test_a_malformed_header_ends_the_list_with_one_line(project, capsys):
    from launch.__main__ import main

    project.replace("# minutes: smoke", "# minutes: smoky")
    with pytest.raises(SystemExit) as caught:
        main(["list"])
    printed = capsys.readouterr()
    assert caught.value.code == 2 and printed.err.count("\n") == 1
    assert printed.err.startswith("error: ") and "conf/experiment/tiny.yaml" in printed.err and "smoky" in printed.err


def test_scales_are_the_page_and_the_files_beside_it(project):
    assert experiments() == {"tiny": ["smoke", "cpu"]}
    assert group_choices("experiment") == ["tiny", "tiny/smoke"]
    assert group_choices("launcher") == sorted(path.stem for path in (CONF / "launcher").glob("*.yaml"))
    assert group_choices("no_such_group") == []


def test_the_list_has_a_row_for_each_experiment(project, capsys):
    print_list()
    row, = (line for line in capsys.readouterr().out.splitlines() if "tiny" in line)
    assert "A tiny paper" in row and "0.1 (smoke), 2.5 (cpu, estimated)" in row
    assert "python -m launch -m experiment=tiny" in row


@pytest.mark.parametrize("word, shown", [("--help", "python -m launch report"), ("list", "adversarial")])
def test_asking_what_there_is_takes_less_than_two_seconds_of_cpu_and_imports_nothing_heavy(word, shown):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-X", "importtime", "-m", "launch", word], cwd=PROJECT, text=True,
                          capture_output=True, timeout=120, env={**os.environ, "COLUMNS": "200"})
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0 and shown in done.stdout
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2.0
    imported = {line.rpartition("|")[2].strip().split(".")[0] for line in done.stderr.splitlines() if "|" in line}
    assert "launch" in imported
    assert not imported & {"torch", "lightning", "wandb", "matplotlib", "sklearn", "scipy"}
