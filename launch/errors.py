"""A user's mistake as one line: what is wrong, the value, where it stands, the nearest valid names, the cure.

``UserError`` ends the program with status 2 and that line; ``explain`` turns the exceptions of Hydra and OmegaConf,
which name the right key but spread it over many lines, into the same shape.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

EXIT_BAD_INPUT = 2
EXIT_FAILED_RUNS = 1


class UserError(Exception):
    """One line for the user; raised before anything is written."""

    def __init__(self, what: str, *, where: str = "", names: Iterable[str] = (), value: str = "", cure: str = ""):
        near = nearest(value, names) if names else []
        parts = [what]
        if where:
            parts[0] += f" ({where})"
        if near:
            parts.append("nearest: " + ", ".join(near))
        if cure:
            parts.append(cure)
        super().__init__("; ".join(" ".join(part.split()) for part in parts))

    def __reduce__(self):  # keeps its one line when a worker process sends it back
        return _rebuild, (str(self),)


def _rebuild(line: str) -> UserError:
    return UserError(line)


def nearest(value: str, names: Iterable[str], count: int = 3) -> list[str]:
    """The valid names that look most like ``value``; the first few in order when none does."""
    names = list(names)
    return difflib.get_close_matches(value, names, n=count, cutoff=0.5) or sorted(names)[: max(count, 5)]


@contextlib.contextmanager
def within(*scope: str) -> Iterator[None]:
    """Remember on an exception from inside which node it came from, e.g. ``sweep``, ``arms``, the arm's name."""
    try:
        yield
    except Exception as error:
        error.scope = getattr(error, "scope", scope)
        raise


def explain(error: BaseException, locate: Callable[..., str] = lambda key, scopes=(): "") -> UserError | None:
    """The one-line form of an exception that Hydra or OmegaConf raised for a user's mistake; None for any other.

    locate: maps a config key to the file and line (or the command line) that sets it (``launch.check.Locator``).
    """
    from hydra.errors import HydraException, MissingConfigException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import YAMLError

    scope = getattr(error, "scope", ())
    if scope:
        locate = functools.partial(locate, scopes=(scope, ("sweep", "grid")))
    if isinstance(error, UserError):
        return error
    if isinstance(error, MissingConfigException):
        return _missing_config(error, locate)
    if isinstance(error, HydraException):
        return _hydra(error, locate)
    if isinstance(error, OmegaConfBaseException):
        return _omegaconf(error, locate)
    if isinstance(error, YAMLError):
        return _yaml(error)
    if isinstance(error, RuntimeError) and str(error).startswith(("Invalid plugin", "Unknown plugin")):
        return UserError(_first_line(str(error)), where="a node of hydra", cure="choose one with launcher=<name>")
    return None


def _missing_config(error, locate) -> UserError:
    from launch.listing import group_choices

    wanted = error.missing_cfg_file or ""
    group, _, name = wanted.rpartition("/")
    while group and not group_choices(group) and "/" in group:
        group = group.rpartition("/")[0]
    if group.startswith("experiment"):
        group, name = "experiment", wanted.removeprefix("experiment/")
    kind = "scale or experiment" if "/" in name else group or "config"
    where = _defaults_line(group, name) or locate(group) or f"group '{group}'"
    return UserError(f"unknown {kind} '{name}'", where=where, names=group_choices(group), value=name,
                     cure=f"`python -m launch list` shows them; a new one is conf/{group}/{name}.yaml")


def _hydra(error, locate) -> UserError | None:
    text = str(error)
    if "You must specify" in text:
        from launch.listing import group_choices

        return UserError("no experiment chosen", names=group_choices("experiment"), value="",
                         cure="add experiment=<name>, for example experiment=vae")
    cause = error.__cause__ or error.__context__
    file = _containing_file(text)
    override = re.search(r"(?:Error merging override|Could not override) '?([^\s']+)'?", text)
    key = override.group(1).split("=")[0].lstrip("+~").rstrip(".") if override else ""
    if cause is not None and cause.__class__.__module__.startswith("omegaconf"):
        return _omegaconf(cause, locate, given=key, file=file)
    if override and file:
        return UserError(f"cannot override '{key}'", where=_line_in(file, f"override /{key}"), names=_groups(),
                         value=key, cure="only groups that conf/config.yaml chooses can be overridden")
    if override:
        return UserError(f"cannot override '{key}'", where=locate(key) or "command line", cure=_first_line(text))
    if "parsing override" in text or error.__class__.__name__ == "OverrideParseException":
        return UserError(_first_line(text), where="command line", cure="write key=value, quoted if it holds spaces")
    return UserError(_first_line(text), where=file or "command line")


def _groups() -> list[str]:
    from launch import CONF

    return sorted(path.name for path in CONF.iterdir() if path.is_dir())


def _containing_file(text: str) -> str:
    """The config file that an error of Hydra says it is in."""
    named = re.match(r"In '([^']+)': ", text)
    return f"conf/{named.group(1)}.yaml" if named else ""


def _defaults_line(group: str, name: str) -> str:
    """Where a defaults list of ``conf/`` chooses a name for a group; empty when none does."""
    from launch import CONF, PROJECT

    for path in sorted(CONF.rglob("*.yaml")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.fullmatch(rf"\s*- (override )?/?{re.escape(group)}(: |/){re.escape(name)}\s*", line):
                return f"{path.relative_to(PROJECT)}:{number}"
    return ""


def _line_in(file: str, text: str) -> str:
    """``file:line`` of the first line that holds the text, the file alone when none does."""
    from launch import PROJECT

    lines = (PROJECT / file).read_text(encoding="utf-8").splitlines() if (PROJECT / file).is_file() else ()
    return next((f"{file}:{number}" for number, line in enumerate(lines, 1) if text in line), file)


def _omegaconf(error, locate, given: str = "", file: str = "") -> UserError:
    from omegaconf.errors import ConfigAttributeError, ConfigKeyError, InterpolationResolutionError

    named = re.search(r"full_key: ([^\s\]]+)", str(error))
    key = getattr(error, "full_key", None) or (named.group(1) if named else "") or given
    message = _first_line(getattr(error, "msg", None) or str(error))
    where = locate(given if given.startswith(f"{key}.") else key) or file or ("command line" if given else "")
    if isinstance(error, InterpolationResolutionError):
        return UserError(f"'{key}': {message}", where=where, cure="define that key or correct the ${...}")
    if isinstance(error, ConfigAttributeError | ConfigKeyError):
        name = key.rpartition(".")[2]
        return UserError(f"unknown key '{key}'", where=where, names=_siblings(error), value=name,
                         cure="correct the name, or see `python -m launch experiment=... --cfg job`")
    return UserError(f"'{key}': {message}", where=where)


def _yaml(error) -> UserError:
    from launch import PROJECT

    mark = getattr(error, "problem_mark", None)
    path = Path(mark.name) if mark else Path()
    name = path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path
    return UserError(f"not YAML: {getattr(error, 'problem', None) or _first_line(str(error))}",
                     where=f"{name}:{mark.line + 1}" if mark else "", cure="correct the file's syntax")


def _siblings(error) -> list[str]:
    parent = getattr(error, "parent_node", None)
    kind = getattr(error, "object_type", None)
    fields = getattr(kind, "__dataclass_fields__", None)
    if fields:
        return list(fields)
    try:
        return [str(key) for key in parent] if parent is not None else []
    except Exception:  # a node that cannot be iterated has no names to offer
        return []


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), text)
