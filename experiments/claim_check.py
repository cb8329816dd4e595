"""The check of claims before a run: are they well formed, and do the names they use exist?

It knows names only, so that a misspelt arm is refused before anything is imported or trained. What the keys mean
stands in docs/adding-a-paper.md.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.claims import BOUNDS, KIND_KEYS

SCALES = ("smoke", "cpu", "gpu", "paper")
CURVES = ("linear", "semilogy", "loglog")
CLAIM_KEYS = ("id", "says", "paper", *KIND_KEYS, "scales", "why_not", "exact")
TERM_KEYS = ("arm", "metric", "at")


def validate_claims(
    claims: Any, arms: set[str], metrics: set[str], derived: set[str], axes: Mapping[str, list]
) -> list[str]:
    """The problems of an experiment's claims, one line each with the claim's id, the bad value and the nearest names.

    arms, metrics, derived: the names that exist; axes: the grid's values by config key. Empty when all is well.
    """
    if not isinstance(claims, list | tuple):
        return [f"claims: must be a list, got {claims!r}"]
    check, seen = _Check(set(arms), set(metrics), set(derived), axes, []), set()
    for place, claim in enumerate(claims, start=1):
        named = isinstance(claim, Mapping) and bool(claim.get("id"))
        check.prefix = f"claim {claim['id'] if named else f'#{place}'}: "
        if not isinstance(claim, Mapping):
            check.say("must be a mapping", claim)
            continue
        if named and str(claim["id"]) in seen:
            check.say("id: is used by an earlier claim", claim["id"])
        seen.add(str(claim.get("id")))
        check.claim(claim)
    return check.problems


@dataclass
class _Check:
    arms: set[str]
    metrics: set[str]
    derived: set[str]
    axes: Mapping[str, list]
    problems: list[str]
    prefix: str = ""

    def say(self, problem: str, value: Any) -> None:
        line = f"{self.prefix}{problem}, got {value!r}"
        if line not in self.problems:
            self.problems.append(line)

    def need(self, right: bool, problem: str, value: Any) -> bool:
        if not right:
            self.say(problem, value)
        return right

    def name(self, key: str, what: str, value: Any, valid: Iterable[Any]) -> bool:
        names = [str(name) for name in (valid if isinstance(valid, list | tuple) else sorted(valid))]
        nearest = difflib.get_close_matches(str(value), names, n=3, cutoff=0.5)
        hint = f"nearest: {', '.join(nearest)}" if nearest else f"valid: {', '.join(names) or 'none'}"
        return self.need(value in list(valid), f"{key}: unknown {what} ({hint})", value)

    def keys(self, key: str, given: Mapping[str, Any], allowed: Sequence[str]) -> None:
        for extra in given:
            self.need(extra in allowed, f"{key}: unknown key (allowed: {', '.join(allowed)})", extra)

    def span(self, key: str, value: Any) -> None:
        right = isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value))
        self.need(right and value[0] <= value[1], f"{key}: must be [low, high] with low <= high", value)

    def claim(self, claim: Mapping[str, Any]) -> None:
        self.keys("claim", claim, CLAIM_KEYS)
        for key in ("id", "says"):
            self.need(_is_text(claim.get(key)), f"{key}: must be a text", claim.get(key))
        paper, scales = claim.get("paper"), claim.get("scales", [])
        sourced = isinstance(paper, Mapping) and _is_text(paper.get("where"))
        self.need(sourced, "paper: must be a mapping with `where`, the table or figure", paper)
        if self.need(isinstance(scales, list | tuple), "scales: must be a list", scales):
            for scale in scales:
                self.name("scales", "scale", scale, SCALES)
        explained = "why_not" not in claim or ("scales" in claim and _is_text(claim["why_not"]))
        self.need(explained, "why_not: must be a text beside `scales`", claim.get("why_not"))
        self.need(isinstance(claim.get("exact", False), bool), "exact: must be true or false", claim.get("exact"))
        kinds = [kind for kind in KIND_KEYS if kind in claim]
        if self.need(len(kinds) == 1, f"needs exactly one of {', '.join(KIND_KEYS)}", kinds):
            self.kind(kinds[0], claim[kinds[0]])

    def kind(self, kind: str, spec: Any) -> None:
        if not self.need(isinstance(spec, Mapping), f"{kind}: must be a mapping", spec):
            return
        self.keys(kind, spec, KIND_KEYS[kind])
        for key in ("by", "factor", "above", "at_least", "below", "at_most"):
            self.need(key not in spec or _is_number(spec[key]), f"{kind}.{key}: must be a number", spec.get(key))
        if "over" in spec:
            self.name(f"{kind}.over", "value", spec["over"], ("mean", "worst"))
        self.at(f"{kind}.at", spec.get("at"))
        {"compare": self.compare, "threshold": self.threshold, "trend": self.trend}[kind](spec)

    def compare(self, spec: Mapping[str, Any]) -> None:
        sides = [key for key in ("greater", "less", "than") if key in spec]
        if not self.need(len(sides) == 2 and "than" in spec, "compare: needs `greater` or `less`, and `than`", sides):
            return
        for side in sides:
            given = spec[side] if isinstance(spec[side], Mapping) else {"arm": spec[side]}
            self.keys(f"compare.{side}", given, TERM_KEYS)
            self.reading(f"compare.{side}", given.get("arm"), given.get("metric", spec.get("metric")))
            self.at(f"compare.{side}.at", given.get("at"))
            placed = given.get("arm") is not None or not given.get("at")
            self.need(placed, f"compare.{side}.at: a derived metric has no grid point", given.get("at"))
        self.need(spec[sides[0]] != spec["than"], "compare.than: the same term on both sides", spec["than"])

    def threshold(self, spec: Mapping[str, Any]) -> None:
        bounds, arms = [key for key in BOUNDS if key in spec], spec.get("arm")
        self.need(len(bounds) == 1, f"threshold: needs exactly one of {', '.join(BOUNDS)}", bounds)
        if "within" in spec:
            self.span("threshold.within", spec["within"])
        listed = arms if isinstance(arms, list | tuple) else sorted(self.arms)[:1] if arms == "all" else [arms]
        different = len({str(arm) for arm in listed}) == len(listed) > 0
        self.need(different, "threshold.arm: must name arms, each once", arms)
        for arm in listed:
            self.reading("threshold.arm", arm, spec.get("metric"))
        placed = arms is not None or not spec.get("at")
        self.need(placed, "threshold.at: a derived metric has no grid point", spec.get("at"))

    def trend(self, spec: Mapping[str, Any]) -> None:
        keys, arms = [key for key in ("arms", "arm", "axis") if key in spec], spec.get("arms", [])
        if not self.need(keys in (["arms"], ["arm", "axis"]), "trend: needs `arms`, or `arm` and `axis`", keys):
            return
        several = isinstance(arms, list | tuple) and len({str(arm) for arm in arms}) == len(arms) > 1
        if self.need(several or "arm" in spec, "trend.arms: must be a list of two or more different arms", arms):
            for arm in [spec["arm"] or ""] if "arm" in spec else arms:
                self.reading(f"trend.{keys[0]}", arm, spec.get("metric"))
        shapes = [key for key in ("direction", "slope") if key in spec]
        self.need(len(shapes) == 1, "trend: needs either `direction` or `slope`", shapes)
        if "direction" in spec:
            self.name("trend.direction", "value", spec["direction"], ("rising", "falling"))
        values = []
        if "axis" in spec and self.name("trend.axis", "axis", spec["axis"], self.axes):
            values = list(self.axes[spec["axis"]])
            self.need(len(values) > 1, f"trend.axis: {spec['axis']} needs two or more values", values)
            free = not isinstance(spec.get("at"), Mapping) or spec["axis"] not in spec["at"]
            self.need(free, "trend.at: cannot fix the axis of the trend", spec.get("at"))
        if "slope" in spec:
            self.slope(spec, values)

    def slope(self, spec: Mapping[str, Any], values: list[Any]) -> None:
        slope = spec["slope"]
        self.need("axis" in spec, "trend.slope: needs `arm` and `axis`, since arms have no distance", spec.get("arms"))
        for key in ("by", "factor"):
            self.need(key not in spec, f"trend.{key}: has no meaning beside `slope`", spec.get(key))
        if not self.need(isinstance(slope, Mapping), "trend.slope: must be a mapping of scale and within", slope):
            return
        self.keys("trend.slope", slope, ("scale", "within"))
        self.name("trend.slope.scale", "value", slope.get("scale"), CURVES)
        self.span("trend.slope.within", slope.get("within"))
        usable = all(_is_number(value) and (value > 0 or slope.get("scale") != "loglog") for value in values)
        self.need(usable, f"trend.axis: cannot fit a {slope.get('scale')} slope over these values", values)

    def reading(self, key: str, arm: Any, metric: Any) -> None:
        if arm is not None:
            self.name(key, "arm", arm, self.arms)
        if metric is None:
            self.say(f"{key}: has no metric", metric)
        elif self.name(key, "metric", metric, self.metrics | self.derived):
            right = metric in (self.derived if arm is None else self.metrics)
            why = "is measured on each run and needs an arm" if arm is None else "is derived across arms and takes none"
            self.need(right, f"{key}: metric {metric} {why}", arm)

    def at(self, key: str, at: Any) -> None:
        if self.need(at is None or isinstance(at, Mapping), f"{key}: must map axes to values", at):
            for axis, value in (at or {}).items():
                if self.name(key, "axis", axis, self.axes):
                    self.name(key, f"value of {axis}", value, list(self.axes[axis]))


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
