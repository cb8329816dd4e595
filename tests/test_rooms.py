"""The rooms of the project and who may import whom, and what no file may hold; read from the source text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[1]
ROOMS = ("data", "experiments", "hydra_plugins", "kernels", "launch", "models")
ALLOWED = {  # which rooms each one imports, besides itself
    "kernels": set(), "data": set(), "models": {"kernels"}, "experiments": {"models", "data", "kernels"},
    "launch": {"experiments"}, "hydra_plugins": {"launch"},
}
SHARED = {"claim_check", "claims", "measurement", "style", "verdict"}  # the modules of experiments that know no paper
PASSED_OVER = {".git", ".venv", ".cache", ".pytest_cache", ".ruff_cache", "__pycache__", "store", "outputs", "multirun",
               "wandb"}
MODULES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def imported(path: Path) -> set[str]:
    """Every module that a file imports anywhere, names imported from a module as modules of it too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join([*path.relative_to(ROOT).parts[:-node.level], *filter(None, [node.module])]) \
                if node.level else node.module
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return names


def files() -> Iterator[Path]:
    """Every file of the project that is not the product of a run or of a tool."""
    waiting = [ROOT]
    while waiting:
        for path in waiting.pop().iterdir():
            if path.is_symlink() or path.name in PASSED_OVER or path.name.endswith((".egg-info", ".tmp")):
                continue
            if path.is_dir():
                waiting.append(path)
            else:
                yield path


def test_the_rooms_are_there():
    assert all((ROOT / room).is_dir() for room in ROOMS) and len(MODULES) > 30


def test_arrows_go_one_way():
    found = {}
    for path in MODULES:
        room = path.relative_to(ROOT).parts[0]
        reached = {name.split(".")[0] for name in imported(path)} & {*ROOMS, "tests"}
        found[name_of(path)] = reached - {room} - ALLOWED[room]
    assert not {name: reached for name, reached in found.items() if reached}


def papers_of(path: Path) -> set[str]:
    """The modules of experiments/ that a file imports, less those that know no paper."""
    parts = [name.split(".") for name in imported(path)]
    return {name[1] for name in parts if name[0] == "experiments" and len(name) > 1} - SHARED


def test_the_harness_knows_no_paper():
    found = {name_of(path): papers_of(path) for path in MODULES if name_of(path).startswith("launch/")}
    assert not {name: papers for name, papers in found.items() if papers}


def test_a_paper_knows_no_other_paper():
    for path in MODULES:
        if name_of(path).startswith("experiments/"):
            own = path.relative_to(ROOT).with_suffix("").parts[1]
            assert papers_of(path) <= {own}, name_of(path)


def test_an_experiments_page_names_no_other_paper():
    for path in sorted((ROOT / "conf" / "experiment").rglob("*.yaml")):
        slug = path.relative_to(ROOT / "conf" / "experiment").parts[0].removesuffix(".yaml")
        for target in targets(yaml.safe_load(path.read_text(encoding="utf-8"))):
            assert f"{target}.".startswith(f"experiments.{slug}.") or not target.startswith("experiments."), path


def test_a_groups_page_takes_code_from_the_groups_room():
    for group, room in (("model", "models"), ("data", "data"), ("kernel", "kernels")):
        for path in sorted((ROOT / "conf" / group).glob("*.yaml")):
            found = {target.split(".")[0] for target in targets(yaml.safe_load(path.read_text(encoding="utf-8")))}
            assert found & set(ROOMS) <= {room}, f"{path}: {found}"


def targets(node: object) -> Iterator[str]:
    if isinstance(node, dict):
        if "_target_" in node:
            yield node["_target_"]
        node = list(node.values())
    if isinstance(node, list):
        for item in node:
            yield from targets(item)


def test_every_module_says_what_it_is_for():
    silent = [path for path in MODULES + TESTS if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not [name_of(path) for path in silent]


def test_no_module_has_a_name_that_says_nothing():
    empty = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}
    assert not [name_of(path) for path in files() if path.stem in empty or empty & set(path.relative_to(ROOT).parts)]


def test_tests_are_no_package():
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_no_file_holds_a_path_of_one_machine_or_a_package_index():
    """The patterns are put together here so that this file does not hold them either."""
    patterns = [f"/{name}/".encode() for name in ("work", "root", "home", "Users")]
    patterns += [f"{name}{'-'}{rest}".encode() for name, rest in (("index", "url"), ("trusted", "host"))]
    found = [(name_of(path), pattern) for path in files() for pattern in patterns if pattern in path.read_bytes()]
    assert not found


def test_constraints_are_plain_versions():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    assert wanted and all("==" in line and "/" not in line and "@" not in line for line in wanted)
