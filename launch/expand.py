"""From an experiment and a command line to jobs: variants x arms x grid x seeds.

A sweep on the command line over ``seed`` or a grid axis replaces that axis; over any other key it makes variants, each
judged by itself. An arm that sets a grid axis is not crossed with it. Axes named in ``sweep.fuse`` stay inside one job
as lists.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from omegaconf import DictConfig, OmegaConf

from launch.errors import UserError, within
from launch.keys import Phase, digest, phases_of, run_key, without_hydra

QUIET = (  # overrides that change no number, so that the results stay the experiment's own
    "launcher", "logger", "store", "results", "hydra", "job.until", "job.single", "trainer.progress_bar",
    "trainer.log_every_steps", "trainer.checkpoint_every_seconds", "trainer.checkpoint_every_steps", "data.root",
    "data.download", "data.workers",
)
Compose = Callable[[Sequence[str]], DictConfig]


@dataclass(frozen=True)
class Job:
    """One Hydra job: the overrides that make it, and the runs it carries.

    axes: the fused axes in order, each a name and its values; a job without them is one run.
    """

    overrides: tuple[str, ...]
    config: DictConfig
    variant: str
    arm: str
    point: dict[str, Any]
    axes: tuple[tuple[str, tuple], ...]
    phases: tuple[Phase, ...] = field(repr=False)
    key: str

    @property
    def name(self) -> str:
        """A readable name, such as ``aevb latent_dim=10 seed=0``."""
        parts = [self.arm or "run", *(f"{short(key)}={value}" for key, value in self.point.items())]
        fused = dict(self.axes)
        seeds = fused.get("seed") or (self.config.seed,)
        parts.append("seed=" + ",".join(map(str, seeds)))
        parts += [f"{short(key)} x{len(values)}" for key, values in self.axes if key != "seed"]
        return " ".join(parts)

    def runs(self) -> Iterator[tuple[tuple[int, ...], int, dict[str, Any]]]:
        """The runs inside: the index along the fused axes, the seed, the full grid point."""
        names = [name for name, _ in self.axes]
        for index in itertools.product(*(range(len(values)) for _, values in self.axes)):
            chosen = {name: self.axes[i][1][j] for i, (name, j) in enumerate(zip(names, index, strict=True))}
            seed = chosen.pop("seed", None)
            yield index, int(self.config.seed if seed is None else seed), {**self.point, **chosen}


def short(key: str) -> str:
    return key.rpartition(".")[2]


@dataclass(frozen=True)
class CommandLine:
    """A parsed command line: fixed overrides as given, and swept ones as (key, list of override strings)."""

    fixed: tuple[str, ...]
    sweeps: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def changes(self) -> tuple[str, ...]:
        """The fixed overrides that may change numbers."""
        return tuple(text for text in self.fixed if not _is_quiet(override_key(text)))


def parse_command_line(arguments: Sequence[str], config_loader: Any = None) -> CommandLine:
    """Split overrides into fixed and swept ones with Hydra's own grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parser = OverridesParser.create(config_loader=config_loader)
    fixed, sweeps = [], []
    for override in parser.parse_overrides(list(arguments)):
        if override.is_sweep_override():
            key = override.get_key_element()
            sweeps.append((key, tuple(f"{key}={value}" for value in override.sweep_string_iterator())))
        else:
            fixed.append(override.input_line)
    return CommandLine(tuple(fixed), tuple(sweeps))


def override_key(text: str) -> str:
    return text.split("=")[0].lstrip("+~").split("@")[0]


def _is_quiet(key: str) -> bool:
    if key == "experiment":  # the choice of the experiment itself; experiment.scale would change what is judged
        return True
    return any(key == quiet or key.startswith((quiet + ".", quiet + "/")) for quiet in QUIET)


def expand(line: CommandLine, compose: Compose, groups: Sequence[str]) -> list[Job]:
    """All jobs of a multirun, in order.

    compose: gives the config for a list of overrides; groups: names of the config groups.
    """
    axis_keys = {"seed", "job.arm"} | set(compose(_experiment_only(line)).sweep.grid)
    variants = [sweep for sweep in line.sweeps if sweep[0] not in axis_keys]
    jobs = []
    for chosen in itertools.product(*(values for _, values in variants)):
        fixed = (*line.fixed, *chosen)
        replaced = {key: [_value(text) for text in texts] for key, texts in line.sweeps if key in axis_keys}
        for text in line.fixed:
            if override_key(text) in axis_keys:
                replaced[override_key(text)] = _as_list(_value(text))
        narrowed = [f"{key}={value}" for key, value in sorted(replaced.items())]
        changes = [text for text in fixed if not _is_quiet(override_key(text)) and override_key(text) not in axis_keys]
        variant = variant_name(changes + narrowed)
        fixed = tuple(text for text in fixed if override_key(text) not in axis_keys)
        jobs += _expand_variant(fixed, replaced, variant, compose, groups)
    return jobs


def _experiment_only(line: CommandLine) -> list[str]:
    return [text for text in line.fixed if override_key(text) == "experiment"]


def variant_name(changes: Sequence[str]) -> str:
    """Empty for the experiment as it stands, else a readable name with a hash of the changes."""
    if not changes:
        return ""
    readable = re.sub(r"[^A-Za-z0-9=.,-]+", "_", "+".join(changes))[:60]
    return f"{readable}-{digest(sorted(changes))[:6]}"


def _expand_variant(fixed, replaced, variant, compose, groups) -> list[Job]:
    base = compose(fixed)
    sweep = OmegaConf.to_container(base.sweep, resolve=True)
    arms = OmegaConf.to_container(base.sweep.arms, resolve=False)  # interpolations see what the arm itself sets
    arms = _chosen_arms(arms, replaced.get("job.arm"))
    grid = {key: replaced.get(key, values) for key, values in sweep["grid"].items()}
    seeds = _seeds(replaced.get("seed", sweep["seeds"]))
    jobs = []
    for arm, overrides in arms.items():
        overrides = dict(overrides or {})
        _refuse_clash(arm, overrides, fixed)
        pinned = {key: [overrides.pop(key)] for key in list(overrides) if key in grid}
        axes = {**{key: pinned.get(key, values) for key, values in grid.items()}, "seed": seeds}
        settings = {**overrides, "job.arm": arm, "job.variant": variant}
        with within("sweep", "arms", str(arm)):
            jobs += _cross(fixed, settings, axes, sweep["fuse"], compose, groups)
    return jobs


def _seeds(values: Sequence[Any]) -> list[int]:
    for value in values:
        if not isinstance(value, int) or isinstance(value, bool):
            raise UserError(f"seed '{value}' is not an integer", where="command line: seed",
                            cure="for example seed=0,1,2")
    return list(values)


def _chosen_arms(arms: dict, wanted: list | None) -> dict:
    arms = arms or {"run": {}}
    for name in wanted or ():
        if name not in arms:
            raise UserError(f"unknown arm '{name}'", where="command line: job.arm", names=arms, value=str(name))
    return {name: arms[name] for name in wanted} if wanted else arms


def _refuse_clash(arm: str, overrides: dict, fixed: Sequence[str]) -> None:
    given = {override_key(text): text for text in fixed}
    for key in overrides:
        if key in given:
            raise UserError(f"arm '{arm}' sets '{key}' itself", where=f"command line: {given[key]}",
                            cure="drop it, or run without -m to make one run with your own value")


def _cross(fixed, settings, axes, fuse, compose, groups) -> Iterator[Job]:
    """The jobs of one arm: the product of the axes that are not fused, with the fused ones as lists.

    Hydra composes once for each choice of groups; plain values are set on copies, as Hydra would set them.
    """
    fused = {key: tuple(axes[key]) for key in fuse}
    free = {key: values for key, values in axes.items() if key not in fused}
    for point in itertools.product(*free.values()):
        chosen = dict(zip(free, point, strict=True))
        values = {**settings, **chosen, **{key: list(values) for key, values in fused.items()}}
        texts = {key: format_override(key, value, groups) for key, value in values.items()}
        composed = compose((*fixed, *(text for key, text in texts.items() if key in groups)))
        config = without_hydra(composed)
        OmegaConf.set_struct(config, True)  # as composed, so that a key which does not exist is refused
        for key, value in values.items():
            if key not in groups:
                OmegaConf.update(config, key, value, merge=True)
        chosen.pop("seed", None)
        yield make_job((*fixed, *texts.values()), config, settings["job.variant"], settings["job.arm"], chosen,
                       tuple(fused.items()))


def make_job(overrides, config, variant, arm, point, axes) -> Job:
    """A job with its phases and keys worked out."""
    phases = tuple(phases_of(config))
    return Job(tuple(overrides), config, variant, arm, point, axes, phases, run_key(config, list(phases)))


def single_job(line: CommandLine, compose: Compose) -> Job:
    """The one job of a command line without ``-m``: the config as given, fused axes as lists of one."""
    if line.sweeps:
        key, values = line.sweeps[0]
        raise UserError(f"'{key}' has several values", where="command line",
                        cure=f"add -m for a sweep over {len(values)} values")
    config = compose(line.fixed)
    fused, texts = [], []
    for key in config.sweep.fuse:
        values = _as_list(OmegaConf.select(config, key))
        texts.append(format_override(key, values, ()))
        fused.append((key, tuple(values)))
    overrides = (*(text for text in line.fixed if override_key(text) not in dict(fused)), *texts)
    return make_job(overrides, compose(overrides), variant_name(line.changes), config.job.arm, {}, tuple(fused))


def _as_list(value: Any) -> list:
    return list(value) if isinstance(value, list | tuple) or OmegaConf.is_list(value) else [value]


def _value(text: str) -> Any:
    """The Python value of one override, as Hydra reads it."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    value = OverridesParser.create().parse_override(text).value()
    return str(value) if not isinstance(value, int | float | str | list | dict | bool | type(None)) else value


def format_override(key: str, value: Any, groups: Sequence[str]) -> str:
    """An override string that Hydra's grammar reads back as exactly this value."""
    if key in groups and isinstance(value, str):
        return f"{key}={value}"
    return f"{key}={_format(value)}"


def _format(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ",".join(_format(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{_format_key(key)}:{_format(item)}" for key, item in value.items()) + "}"
    return "'" + re.sub(r"(\\+)(?='|\Z)", r"\1\1", str(value)).replace("'", "\\'") + "'"  # others stand for themselves


def _format_key(key: Any) -> str:
    """A dict key as Hydra's grammar has it, which cannot quote one. Raises UserError for what it cannot express."""
    if not isinstance(key, str):
        return _format(key)
    text = re.sub(r"([\\()\[\]{}:=, \t])", r"\\\1", key)
    plain = re.fullmatch(r"[A-Za-z_][\w.]*", key) and key.lower() not in ("null", "true", "false", "inf", "nan")
    if not plain and not _reads_back(text, key):
        raise UserError(f"Hydra cannot be given the key {key!r} inside a value", cure="use letters, digits and _")
    return text


def _reads_back(text: str, key: str) -> bool:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        found = OverridesParser.create().parse_override(f"x={{{text}:0}}").value()
    except HydraException:
        return False
    return [(type(name), name) for name in found] == [(str, key)]
