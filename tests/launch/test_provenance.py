"""The sources behind a result, when they count as changed, and what a provenance card says and does not say."""

from __future__ import annotations

import ast
import getpass
import importlib.metadata
import json
import os
import platform
import re
import shutil
import socket
import subprocess

import pytest

from launch import CONF, PROJECT, provenance
from launch.provenance import card, changed_sources, commit, device, import_closure, sources_of, versions

LOOP = {"launch/fit.py", "launch/checkpoint.py", "launch/measure.py"}


def files_named_by(slug: str) -> set[str]:
    """The files of the targets in the text of a config page and its groups' pages, the figure's left out."""
    page = (CONF / "experiment" / f"{slug}.yaml").read_text()
    groups = re.findall(r"override /(\w+): (\w+)", page)
    texts = [page, *((CONF / group / f"{name}.yaml").read_text() for group, name in groups)]
    targets = re.findall(r"_target_: ((?:experiments|models|data|kernels)\.[\w.]+)", "\n".join(texts))
    return {target.rpartition(".")[0].replace(".", "/") + ".py" for target in targets
            if not target.endswith("figure.draw")}


@pytest.mark.parametrize("slug, reached", [
    ("adversarial", {"data/stream.py", "data/module.py", "models/mlp.py", "experiments/measurement.py"}),
    ("vae", {"data/stream.py", "models/gaussian_vae.py", "experiments/measurement.py"}),
])
def test_the_sources_of_an_experiment_are_those_its_numbers_pass_through(jobs_of, slug, reached):
    found = set(sources_of(jobs_of(f"experiment={slug}/smoke")[0].config))
    assert found >= files_named_by(slug) | reached | LOOP | {"kernels/registry.py"}
    assert f"experiments/{slug}/figure.py" not in found
    of_papers = {name for name in found if name.startswith("experiments/") and name.count("/") == 2}
    assert {name.split("/")[1] for name in of_papers} == {slug}
    assert {name for name in found if name.startswith("launch/")} == LOOP


def test_the_hash_of_a_source_is_a_short_digest(jobs_of):
    found = sources_of(jobs_of("experiment=vae/smoke")[0].config)
    assert all(re.fullmatch("[0-9a-f]{12}", value) for value in found.values())
    assert len(set(found.values())) == len(found)


def test_imports_are_followed_through_functions_packages_and_relative_names(project):
    room = project.root / "experiments"
    package = room / "chain"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "first.py").write_text("import numpy\nfrom experiments.chain import second\n\ndef f():\n"
                                      "    import experiments.chain.third as t\n    from os import path\n")
    (package / "second.py").write_text("from .fourth import x\n")
    (package / "third.py").write_text("from experiments.chain.first import f\n")
    (package / "fourth.py").write_text("x = 1\n")
    (package / "apart.py").write_text("")
    found = {str(path.relative_to(package)) for path in import_closure(["experiments.chain.first"])
             if path.is_relative_to(package)}
    assert found - {"__init__.py"} == {"first.py", "second.py", "third.py", "fourth.py"}


CODE = '''"""A module."""


class Thing:
    """A thing."""

    def act(self, x):
        """Act."""
        return x + 1  # more
'''


@pytest.fixture
def recorded(project, monkeypatch):
    """The recorded hash of a file, and a function that says what is changed once the file has another text."""
    path = project.root / "experiments" / "thing.py"
    path.write_text(CODE)
    name = "experiments/thing.py"
    kept = {name: provenance._syntax_hash(path)}

    def changed(text: str | None) -> list[str]:
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
        provenance._syntax_hash.cache_clear()  # a later command is another process
        return changed_sources(kept)

    return changed


@pytest.mark.parametrize("edit", [
    lambda text: text.replace("# more", "# much more"),
    lambda text: text.replace("Act.", "Act, twice.\n\n        Twice."),
    lambda text: text.replace('"""A module."""', '"""Another."""'),
    lambda text: text.replace('    """A thing."""\n\n', ""),
    lambda text: text.replace("x + 1", "(x  +  1)"), lambda text: text + "\n\n# the end\n",
], ids=["comment", "docstring", "module docstring", "docstring removed", "spaces", "more lines"])
def test_words_may_change_without_making_a_result_stale(recorded, edit):
    assert edit(CODE) != CODE and recorded(edit(CODE)) == []


@pytest.mark.parametrize("edit", [
    lambda text: text.replace("x + 1", "x + 2"), lambda text: text.replace("x + 1", "1 + x"),
    lambda text: text.replace("def act", "def do"), lambda text: text + "Y = 'text'\n", lambda text: None,
    lambda text: text.replace("(self, x)", "(self, x=0)"),
], ids=["number", "order", "name", "new line", "gone", "default"])
def test_code_may_not_and_the_file_is_named(recorded, edit):
    assert recorded(edit(CODE)) == ["experiments/thing.py"]


def test_a_text_that_is_no_docstring_counts_as_code(recorded):
    assert recorded(CODE + "\nNAME = 'a'\n") == ["experiments/thing.py"]


def test_sources_recorded_now_are_unchanged_now(jobs_of):
    assert changed_sources(sources_of(jobs_of("experiment=vae/smoke")[0].config)) == []


def test_every_recorded_file_lies_in_the_project(jobs_of):
    for name in sources_of(jobs_of("experiment=adversarial/smoke")[0].config):
        ast.parse((PROJECT / name).read_text())
        assert not os.path.isabs(name)


def git(folder, *words: str) -> str:
    return subprocess.run(["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=e@x", *words], check=True,
                          capture_output=True, text=True).stdout.strip()


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
def test_the_commit_and_whether_tracked_files_differ_from_it(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "PROJECT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert commit() == {"commit": None, "dirty": None}
    git(tmp_path, "init", "-q")
    (tmp_path / "results").mkdir()
    for name in ("code.py", "README.md", "results/a.json"):
        (tmp_path / name).write_text("1")
    git(tmp_path, "add", "."), git(tmp_path, "commit", "-qm", "x")
    head = git(tmp_path, "rev-parse", "HEAD")
    for name in ("results/a.json", "README.md", "untracked.py"):
        (tmp_path / name).write_text("2")
    assert commit() == {"commit": head, "dirty": False}
    (tmp_path / "code.py").write_text("2")
    assert commit() == {"commit": head, "dirty": True}


def test_without_git_the_commit_is_unknown(monkeypatch):
    def missing(*arguments, **settings):
        raise FileNotFoundError("git")

    monkeypatch.setattr(provenance.subprocess, "run", missing)
    assert commit() == {"commit": None, "dirty": None}


def test_the_versions_are_those_installed(monkeypatch):
    found = versions()
    assert found["python"] == platform.python_version()
    for name in ("torch", "lightning", "numpy", "hydra-core"):
        assert found[name] == importlib.metadata.version(name)
    monkeypatch.setattr(provenance, "PACKAGES", ("numpy", "no-such-package"))
    assert set(versions()) == {"python", "numpy"}


def test_a_card_names_the_machine_kind_and_neither_host_nor_user_nor_paths(jobs_of, monkeypatch):
    real = {socket.gethostname(), platform.node(), str(PROJECT), os.path.expanduser("~"), getpass.getuser()}
    for module, name in ((socket, "gethostname"), (platform, "node")):
        monkeypatch.setattr(module, name, lambda: "a-secret-host")
    made = card(jobs_of("experiment=vae/smoke")[0].config)
    assert set(made) == {"commit", "dirty", "sources", "versions", "device", "made"}
    assert set(made["device"]) == {"cpu", "cores", "system", "machine", "accelerator"}
    text = json.dumps(made)
    values = {str(value) for value in made["device"].values()} | {text if len(name) > 4 else "" for name in real}
    assert "a-secret-host" not in text
    assert not any(name in values or (len(name) > 4 and name in text) for name in real)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", made["made"])


def test_the_device_of_a_cpu_run_is_the_processor():
    found = device("cpu")
    assert (found["cores"], found["machine"], found["accelerator"]) == (os.cpu_count(), platform.machine(), "cpu")
    assert found["cpu"]
