"""What can be run: the choices of each config group, and the header that every experiment file opens with."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from launch import CONF, PROJECT
from launch.errors import UserError
from launch.schema import SCALES

HEADER_KEYS = ("paper", "claim", "command", "minutes", "expect", "shrunk")


@dataclass(frozen=True)
class Header:
    """The opening comment of an experiment file.

    minutes: by scale, a pair of a number and ``measured`` or ``estimated``.
    """

    paper: str
    claim: str
    command: str
    minutes: dict[str, tuple[float, str]]
    expect: str
    shrunk: str


def group_choices(group: str) -> list[str]:
    """The names that a config group offers, nested ones as ``name/scale``."""
    folder = CONF / group
    return sorted(str(path.relative_to(folder).with_suffix("")) for path in folder.rglob("*.yaml"))


def experiments() -> dict[str, list[str]]:
    """Experiment slugs with the scales each has a file for (cpu is the page itself)."""
    folder = CONF / "experiment"
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        inner = {file.stem for file in (folder / path.stem).glob("*.yaml")}
        found[path.stem] = [scale for scale in SCALES if scale == "cpu" or scale in inner]
    return found


def read_header(path: Path) -> Header:
    """Parse the header comment of ``conf/experiment/<slug>.yaml``.

    Raises UserError naming the file and the line that is missing or malformed.
    """
    entries: dict[str, str] = {}
    key = ""
    for line in path.read_text(encoding="utf-8").splitlines()[1:]:
        if not line.startswith("#"):
            break
        match = re.match(r"#\s{1,2}(\w+):\s*(.*)$", line)
        if match and match.group(1) in HEADER_KEYS:
            key = match.group(1)
            entries[key] = match.group(2).strip()
        elif key:
            entries[key] += " " + line.lstrip("# ").strip()
    missing = [key for key in HEADER_KEYS if not entries.get(key)]
    if missing:
        raise UserError(f"header lacks {', '.join(missing)}", where=_name(path), cure="see docs/adding-a-paper.md")
    return Header(**{**entries, "minutes": _minutes(entries["minutes"], path)})


def _minutes(text: str, path: Path) -> dict[str, tuple[float, str]]:
    found = {}
    for part in text.split("|"):
        match = re.fullmatch(r"\s*(\w+) (\d+(?:\.\d+)?) (measured|estimated)\s*", part)
        if not match or match.group(1) not in SCALES:
            raise UserError(f"'minutes' has '{part.strip()}'", where=_name(path), cure="expected 'cpu 3.2 measured'")
        found[match.group(1)] = (float(match.group(2)), match.group(3))
    return found


def _name(path: Path) -> str:
    return str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path)


def print_list() -> None:
    """Print the experiments with their scales, minutes and claim."""
    from rich.console import Console
    from rich.table import Table

    table = Table("experiment", "paper", "minutes (scale)", "command")
    for slug in experiments():
        header = read_header(CONF / "experiment" / f"{slug}.yaml")
        minutes = ", ".join(f"{value:g} ({scale}{'' if kind == 'measured' else ', estimated'})"
                            for scale, (value, kind) in header.minutes.items())
        table.add_row(slug, header.paper, minutes, header.command)
    Console(width=None if sys.stdout.isatty() else 200).print(table)
