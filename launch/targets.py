"""What a ``_target_`` names, read from source text so that nothing is imported before it is allowed.

A target may only lie in the project's rooms or in a short list of packages. Its definition is found by parsing files,
which gives its parameters (for checking config keys with torch still unloaded) and the metric names it declares.
Dotted paths that wander out of a module (``experiments.vae.os.system``) do not resolve to a definition and are refused.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from launch import PROJECT
from launch.errors import UserError

ROOMS = ("data", "experiments", "kernels", "launch", "models")
PACKAGES = ("torch.nn", "torch.optim", "torchvision", "lightning", "torchmetrics")


@dataclass(frozen=True)
class Parameter:
    """One constructor or function parameter: its annotation as written and whether it must be given."""

    annotation: str
    required: bool


@dataclass(frozen=True)
class Definition:
    """A class or function found in a source file.

    parameters: by name, in order; open: whether it also takes ``**kwargs`` that could not be traced further.
    metrics: names given in a ``@measurement`` or ``@derived`` decorator.
    """

    name: str
    file: Path
    line: int
    parameters: dict[str, Parameter]
    open: bool
    metrics: tuple[str, ...]


def is_allowed(target: str) -> bool:
    """Whether the dotted path starts in a room of the project or an allowed package."""
    return target.startswith(tuple(f"{name}." for name in (*ROOMS, *PACKAGES)))


@cache
def find_definition(target: str) -> Definition | None:
    """The definition a dotted path names, following re-exports inside allowed packages; None when it has none."""
    if not is_allowed(target):
        return None
    module, _, name = target.rpartition(".")
    path = _module_file(module)
    return _search(path, module, name, depth=0) if path else None


def require_definition(target: object, where: Callable[[], str]) -> Definition:
    """As ``find_definition``, with a one-line UserError for a target that is refused or does not exist.

    where: says where the target is set. A name of an allowed outside package must have a plain definition in its
    sources too: what merely can be reached through them (``torch.nn.modules.module.os.system``) is not theirs.
    """
    if not isinstance(target, str) or not is_allowed(target):
        raise UserError(f"_target_ '{target}' is outside the allowed packages", where=where(),
                        cure=f"allowed: {', '.join(ROOMS)} of this project and {', '.join(PACKAGES)}")
    found = find_definition(target)
    if found is None:
        module, _, name = target.rpartition(".")
        path = _module_file(module)
        if path is None:
            near = _modules() if target.split(".")[0] in ROOMS else ()
            raise UserError(f"_target_ '{target}' names no module", where=where(), names=near, value=module)
        file = path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else module
        raise UserError(f"_target_ '{target}' is not defined in {file}", where=where(),
                        names=_top_names(_parse(path)), value=name)
    return found


def _module_file(module: str) -> Path | None:
    head, *rest = module.split(".")
    if head in ROOMS:
        base = PROJECT / head
    else:
        spec = importlib.util.find_spec(head)  # of a top-level package: locates, does not import
        if spec is None or not spec.submodule_search_locations:
            return None
        base = Path(spec.submodule_search_locations[0])
    path = base.joinpath(*rest)
    for candidate in (path.with_suffix(".py"), path / "__init__.py"):
        if candidate.is_file():
            return candidate
    return None


@cache
def _parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _search(path: Path, module: str, name: str, depth: int) -> Definition | None:
    tree = _parse(path)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            return _describe(node, path, module)
    return _follow_import(tree, path, module, name, depth)


def _follow_import(tree: ast.Module, path: Path, module: str, name: str, depth: int) -> Definition | None:
    if depth > 5:
        return None
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom):
            continue
        source = _absolute(node, path, module)
        file = _module_file(source) if is_allowed(source + ".x") else None
        for alias in node.names if file else ():
            wanted = name if alias.name == "*" else alias.name
            if (alias.asname or wanted) == name and (found := _search(file, source, wanted, depth + 1)):
                return found
    return None


def _absolute(node: ast.ImportFrom, path: Path, module: str) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    keep = len(parts) - node.level + (1 if path.name == "__init__.py" else 0)
    return ".".join(parts[:keep] + ([node.module] if node.module else []))


def _describe(node: ast.FunctionDef | ast.ClassDef, path: Path, module: str) -> Definition:
    if isinstance(node, ast.FunctionDef):
        parameters, is_open = _arguments(node, skip_first=False)
    else:
        parameters, is_open = _constructor(node, path, module, depth=0)
    return Definition(node.name, path, node.lineno, parameters, is_open, _declared_metrics(node))


def _constructor(node: ast.ClassDef, path: Path, module: str, depth: int) -> tuple[dict[str, Parameter], bool]:
    init = next((item for item in node.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"), None)
    if init is None and any("dataclass" in ast.unparse(mark) for mark in node.decorator_list):
        return _fields(node), False
    own, takes_more = _arguments(init, skip_first=True) if init else ({}, True)
    if not takes_more:
        return own, False
    for base in node.bases:
        found = _base_class(ast.unparse(base), path, module, depth)
        if found is not None:
            inherited, is_open = found
            rest = {name: parameter for name, parameter in inherited.items() if name not in own}
            return own | rest, is_open
    return own, bool(node.bases) or init is not None


def _base_class(name: str, path: Path, module: str, depth: int) -> tuple[dict[str, Parameter], bool] | None:
    if depth > 5:
        return None
    tree = _parse(path)
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return _constructor(node, path, module, depth + 1)
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any((a.asname or a.name) == name for a in node.names):
            source = _absolute(node, path, module)
            file = _module_file(source) if source.split(".")[0] in ROOMS else None
            if file:
                original = next(a.name for a in node.names if (a.asname or a.name) == name)
                return _base_class(original, file, source, depth + 1)
    return ({}, False) if name.endswith(("LightningModule", "LightningDataModule", "nn.Module", "object")) else None


def _arguments(node: ast.FunctionDef, skip_first: bool) -> tuple[dict[str, Parameter], bool]:
    spec = node.args
    positional = [*spec.posonlyargs, *spec.args]
    required = len(positional) - len(spec.defaults)
    found = {arg.arg: Parameter(_annotation(arg), i < required) for i, arg in enumerate(positional)}
    found |= {arg.arg: Parameter(_annotation(arg), default is None)
              for arg, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True)}
    if skip_first and positional:
        found.pop(positional[0].arg)
    return found, spec.kwarg is not None


def _annotation(arg: ast.arg) -> str:
    return ast.unparse(arg.annotation) if arg.annotation else ""


def _fields(node: ast.ClassDef) -> dict[str, Parameter]:
    return {
        item.target.id: Parameter(ast.unparse(item.annotation), item.value is None)
        for item in node.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
    }


def _declared_metrics(node: ast.FunctionDef | ast.ClassDef) -> tuple[str, ...]:
    for mark in node.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func).split(".")[-1] in {"measurement", "derived"}:
            return tuple(arg.value for arg in mark.args if isinstance(arg, ast.Constant))
    return ()


def _modules() -> list[str]:
    files = (path for room in ROOMS for path in (PROJECT / room).rglob("*.py"))
    return [".".join(path.relative_to(PROJECT).with_suffix("").parts).removesuffix(".__init__") for path in files]


def _top_names(tree: ast.Module) -> list[str]:
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
