"""Validation of a composed config before anything is written: keys, types, targets, claims.

Hydra accepts ``+trainer.max_epoch=3`` and, in free-form nodes, any misspelt key of a file; both are caught here. Nodes
that the schema types are compared with its fields; nodes with a ``_target_`` with that definition's parameters.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from launch import CONF, PROJECT
from launch.errors import UserError, explain
from launch.keys import without_hydra
from launch.schema import SCALES, Schema
from launch.targets import Definition, require_definition

COMPONENTS = ("model", "data", "kernel", "objective", "measure", "derive", "figure")
GIVEN = {  # parameters that the harness passes itself
    "objective": {"model", "kernels"}, "model": {"kernels"}, "measure": {"trained"}, "derive": {"runs"},
    "figure": {"runs", "claims"}, "data": set(), "kernel": set(), "trainer": set(),
}
RESERVED = {"_target_", "_partial_", "_recursive_", "_convert_", "_args_"}
SIMPLE_TYPES = {"int": int, "float": (int, float), "str": str, "bool": bool}


def check_config(config: DictConfig, locate: Callable[[str], str]) -> None:
    """Raise a UserError for the first thing wrong in a job or phase config; ``locate`` tells where a key is set."""
    _check_known_keys(config, Schema, "", locate)
    resolved = _resolve(config, locate)
    _check_scale(resolved, locate)
    for name in (name for name in COMPONENTS if name in resolved):
        for path, node in _target_nodes(resolved[name], name):
            check_target_node(node, path, GIVEN[name] if path.split("[")[0] == name else set(), locate)
        if name in ("measure", "derive", "figure"):
            _require_targets(resolved[name], name, locate)
    for path, node in _target_nodes(resolved["trainer"], "trainer"):
        check_target_node(node, path, set(), locate)


def check_phase(config: DictConfig, locate: Callable[[str], str]) -> None:
    """As ``check_config``, for a phase, which must also have steps to do."""
    check_config(config, locate)
    if config.trainer.max_steps < 1:
        raise UserError("a phase has no steps: trainer.max_steps is 0", where=locate("trainer.max_steps"),
                        cure="set trainer.max_steps in the experiment or in its phases")
    size, ranks = config.data.get("batch_size"), config.trainer.devices * config.trainer.num_nodes
    if isinstance(size, int) and size % ranks:
        raise UserError(f"batch_size {size} does not divide among {ranks} ranks", where=locate("data.batch_size"),
                        cure=f"for example data.batch_size={size - size % ranks or ranks}")


def _check_known_keys(node: DictConfig, kind: type, path: str, locate) -> None:
    hints = get_type_hints(kind)
    names = [item.name for item in fields(kind)]
    for key in node:
        full = f"{path}{key}"
        if key not in names:
            if key == "hydra":
                continue
            raise UserError(f"unknown key '{full}'", where=locate(full), names=names, value=str(key),
                            cure=f"keys of '{path.rstrip('.') or 'the root'}' are defined in launch/schema.py")
        if is_dataclass(hints[key]):
            _check_known_keys(node[key], hints[key], f"{full}.", locate)


def _resolve(config: DictConfig, locate) -> dict[str, Any]:
    plain = without_hydra(config)
    try:
        return OmegaConf.to_container(plain, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise explain(error, locate) from error


def _check_scale(resolved: Mapping, locate) -> None:
    scale = resolved["experiment"]["scale"]
    if scale not in SCALES:
        raise UserError(f"unknown scale '{scale}'", where=locate("experiment.scale"), names=SCALES, value=scale)


def check_arm_keys(config: DictConfig, own: DictConfig, locate) -> None:
    """Refuse keys of ``arm`` that nothing refers to; ``own`` is the experiment without the command line."""
    text = OmegaConf.to_yaml(without_hydra(own))
    for key in config.arm:
        if key not in own.arm or not re.search(rf"\$\{{[^}}]*\barm\.{re.escape(str(key))}\b", text):
            used = sorted(set(re.findall(r"\barm\.(\w+)\}", text)))
            raise UserError(f"nothing uses 'arm.{key}'", where=locate(f"arm.{key}"), names=used, value=str(key),
                            cure=f"refer to it as ${{arm.{key}}} in the experiment or remove it")


def _target_nodes(node: Any, path: str) -> Iterator[tuple[str, dict]]:
    if isinstance(node, dict):
        if "_target_" in node:
            yield path, node
        for key, value in node.items():
            yield from _target_nodes(value, f"{path}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _target_nodes(value, f"{path}[{index}]")


def check_target_node(node: dict, path: str, given: set[str], locate) -> Definition:
    """Check one ``_target_`` node: allowed, defined, keys are parameters, simple types fit, none missing."""
    definition = require_definition(node["_target_"], lambda: locate(f"{path}._target_") or path)
    allowed = [name for name in definition.parameters if name not in given]
    for key, value in node.items():
        if key in RESERVED:
            continue
        parameter = definition.parameters.get(key)
        if key in given:
            raise UserError(f"'{path}.{key}' is passed by the harness", where=locate(f"{path}.{key}"), cure="remove it")
        if parameter is None and not definition.open:
            raise UserError(f"unknown key '{path}.{key}'", where=locate(f"{path}.{key}"), names=allowed,
                            value=key, cure=f"these are the parameters of {node['_target_']}")
        if parameter is not None:
            _check_type(value, parameter.annotation, f"{path}.{key}", locate)
    missing = [name for name, parameter in definition.parameters.items()
               if parameter.required and name not in node and name not in given]
    if missing and not node.get("_partial_") and not node.get("_args_"):
        raise UserError(f"'{path}' lacks {', '.join(missing)}", where=locate(path), cure=f"{node['_target_']} needs it")
    return definition


def _check_type(value: Any, annotation: str, path: str, locate) -> None:
    options = [part.strip() for part in annotation.split("|")]
    if not annotation or any(option not in {*SIMPLE_TYPES, "None"} for option in options):
        return
    for option in options:
        if option == "None" and value is None:
            return
        if option != "None" and isinstance(value, SIMPLE_TYPES[option]):
            if option in ("int", "float") and isinstance(value, bool):
                continue
            return
    raise UserError(f"'{path}' is {value!r} ({type(value).__name__})", where=locate(path),
                    cure=f"expected {annotation}")


def _require_targets(node: Any, path: str, locate) -> None:
    for index, item in enumerate(node if isinstance(node, list) else [node] if node else []):
        if not isinstance(item, dict) or "_target_" not in item:
            raise UserError(f"'{path}' entry {index} has no _target_", where=locate(path),
                            cure="write - {_target_: experiments.<slug>.<function>}")


def check_hydra_targets(config: DictConfig) -> None:
    """Refuse a launcher or sweeper that is not one of Hydra's plugins."""
    for name in ("launcher", "sweeper"):
        target = str(OmegaConf.select(config, f"hydra.{name}._target_", default="hydra."))
        if not target.startswith(("hydra.", "hydra_plugins.")):
            raise UserError(f"hydra.{name}._target_ '{target}' is outside hydra's own plugins", where="command line",
                            cure="choose a launcher with launcher=<name>")


def check_sweep(config: DictConfig, locate) -> None:
    """Check what concerns all runs together: grid, fused axes, seeds, phases and the claims' names."""
    sweep = OmegaConf.to_container(config.sweep, resolve=True)
    for key in sweep["fuse"]:
        if key != "seed" and key not in sweep["grid"]:
            raise UserError(f"sweep.fuse names '{key}'", where=locate("sweep.fuse"),
                            names=["seed", *sweep["grid"]], value=key, cure="only seed and grid axes can be fused")
    for key, values in sweep["grid"].items():
        if not isinstance(values, list) or not values:
            raise UserError(f"sweep.grid axis '{key}' is {values!r}", where=locate(f"sweep.grid.{key}"),
                            cure="expected a list of values")
    if not config.phases:
        raise UserError("the experiment has no phases", where=locate("phases"), cure="add phases: {fit: {...}}")
    for path, node in (("phases", config.phases), ("sweep.arms", config.sweep.arms)):
        for key, value in node.items():
            if value is not None and not OmegaConf.is_dict(value):
                raise UserError(f"'{path}.{key}' is {value!r}", where=locate(f"{path}.{key}"),
                                cure="expected a mapping of keys to values")
    for name in ("measure", "derive"):
        _require_targets(OmegaConf.to_container(config[name], resolve=False), name, locate)
    _check_claims(config, sweep, locate)


def _check_claims(config: DictConfig, sweep: dict, locate) -> None:
    from experiments.claim_check import validate_claims

    metrics, derived = (declared_metrics(config, node, locate) for node in ("measure", "derive"))
    claims = OmegaConf.to_container(config.claims, resolve=True)
    arms = set(sweep["arms"] or {"run": {}})
    axes = dict(sweep["grid"])
    for overrides in sweep["arms"].values():
        for key, value in (overrides or {}).items():
            if key in axes and value not in axes[key]:
                axes[key] = [*axes[key], value]
    problems = validate_claims(claims, arms, metrics, derived, axes)
    if problems:
        rest = f"; and {len(problems) - 1} more" if len(problems) > 1 else ""
        raise UserError(f"claims: {problems[0]}{rest}", where=locate(_claim_key(problems[0], claims)))


def _claim_key(problem: str, claims: list[Any]) -> str:
    named = re.match(r"claim (.+?): ([\w.]+):", problem)
    ids = [str(claim.get("id")) if isinstance(claim, dict) else "" for claim in claims]
    return f"claims[{ids.index(named.group(1))}].{named.group(2)}" if named and named.group(1) in ids else "claims"


def declared_metrics(config: DictConfig, node: str, locate) -> set[str]:
    """The metric names that the functions of ``measure`` or ``derive`` declare in their decorators."""
    names: set[str] = set()
    for index, item in enumerate(config[node]):
        where = partial(locate, f"{node}[{index}]._target_")
        definition = require_definition(item["_target_"], where)
        if not definition.metrics:
            raise UserError(f"{item['_target_']} declares no metric names", where=where(),
                            cure="decorate it with @measurement(...) or @derived(...)")
        names |= set(definition.metrics)
    return names


class Locator:
    """Tells where a config key was set: the command line, or a file and line of ``conf/``.

    scopes: nodes whose overlays count before the config itself, e.g. ``("phases", "fit")``.
    """

    def __init__(self, overrides: Sequence[str], choices: Mapping[str, Any]):
        self.overrides = {text.split("=")[0].lstrip("+~"): text for text in overrides}
        self.files = list(_files(choices))

    def __call__(self, key: str, scopes: Sequence[Sequence[str]] = ()) -> str:
        parts = re.sub(r"\[(\d+)\]", r".\1", key).split(".")
        for scope in scopes:
            given = self.overrides.get(".".join([*scope, *parts]))
            found = f"command line: {given}" if given else self._in_files([*scope, *parts])
            if found:
                return found
        for end in range(len(parts), 0, -1):
            given = self.overrides.get(".".join(parts[:end]))
            if given and end > (1 if len(parts) > 1 else 0):
                return f"command line: {given}"
        for end in range(len(parts), 0, -1):
            found = self._in_files(parts[:end])
            if found:
                return found
        return ""

    def _in_files(self, parts: list[str]) -> str:
        for file, package in self.files:
            line = _find_line(file, package, parts)
            if line:
                return f"{file.relative_to(PROJECT)}:{line}"
        return ""


def guess_locator(words: Sequence[str], error: BaseException) -> Locator:
    """A locator for when composing failed, so that the choices are known only from the words and the error's text."""
    choices = {key: value for key, _, value in (word.partition("=") for word in words) if (CONF / key).is_dir()}
    named = re.match(r"In '([^/']+)/([^']+)'", str(error))
    if named:
        choices.setdefault(named.group(1), named.group(2))
    return Locator(words, choices)


def _files(choices: Mapping[str, Any]) -> Iterator[tuple[Path, list[str]]]:
    """The files behind the chosen groups, the experiment's inner file and page first, with the package each fills."""
    experiment = choices.get("experiment")
    if experiment:
        yield CONF / "experiment" / f"{experiment}.yaml", []
        if "/" in experiment:
            yield CONF / "experiment" / f"{experiment.split('/')[0]}.yaml", []
    for group, name in choices.items():
        if group != "experiment" and name and not group.startswith("hydra/"):
            package = [] if group == "launcher" else group.split("/")
            yield CONF / group / f"{name}.yaml", package
    yield CONF / "config.yaml", []


def _find_line(file: Path, package: list[str], parts: list[str]) -> int:
    if parts[: len(package)] != package or not file.is_file():
        return 0
    return _descend(_tree(file, file.stat().st_mtime_ns), parts[len(package):])


@cache
def _tree(file: Path, changed: int) -> yaml.Node | None:
    try:
        return yaml.compose(file.read_text(encoding="utf-8"))
    except yaml.YAMLError:
        return None


def _descend(node: yaml.Node | None, parts: list[str], line: int = 0) -> int:
    if not parts or node is None:
        return line
    if isinstance(node, yaml.SequenceNode) and parts[0].isdigit() and int(parts[0]) < len(node.value):
        item = node.value[int(parts[0])]
        return _descend(item, parts[1:], item.start_mark.line + 1)
    if not isinstance(node, yaml.MappingNode):
        return 0
    for key, value in node.value:
        for used in range(len(parts), 0, -1):  # literal dotted keys as well as nested ones
            found = key.value == ".".join(parts[:used]) and _descend(value, parts[used:], key.start_mark.line + 1)
            if found:
                return found
    return 0
