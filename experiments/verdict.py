"""The verdict on a claim: a t interval of its margin over seeds, and a sentence that says why.

A verdict needs the two-sided 95 % interval of the mean margin to exclude zero (Student, Biometrika 6, 1908); pairing
arms by seed removes what the seed does to both. What the runs do not decide stays ``inconclusive``, with the number of
seeds at which the test at the observed mean and spread would have power 0.8 (noncentral t).

Equal margins in all seeds are decided by their sign; a strict claim whose terms are equal everywhere (saturated values)
stays ``inconclusive``.

A claim with several components (``experiments.claims``) is their conjunction. It is ``reproduced`` when every
component's interval lies above zero, which needs no correction (intersection-union test: Berger, Technometrics 24,
1982), and ``contradicted`` when one component's interval lies below zero at 95 % for all of them together (Bonferroni).

How often it errs, over 400 trials in the tests: arms of equal distribution (normal, uniform, t with 3 degrees of
freedom; 3 or 5 seeds) come out ``reproduced`` in 2 to 4 %. With 5 seeds an effect of two standard deviations of the
paired difference is ``reproduced`` in 91 % (normal), one of two standard deviations of each of two unpaired arms in
66 %. A trend over five equal arms is ``contradicted`` in 0.5 to 3 %; one null step among large ones is ``reproduced``
in 1 to 3 %. A trend that rises by half a standard deviation of an arm a step is ``contradicted`` in none; one step that
falls among rising ones is found in 69 % (a fall of three standard deviations of an arm) or 94 % (of the step). Paired
margins are nearly symmetric; a ``threshold`` on skewed values that lie on the bound errs more often.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np

from experiments.claims import Margins, margins_of
from experiments.measurement import Runs

REPRODUCED, CONTRADICTED, INCONCLUSIVE = "reproduced", "contradicted", "inconclusive"
NOT_TESTED = "not tested at this scale"
CONFIDENCE, POWER, MOST_SEEDS = 0.95, 0.8, 100
MOST_NAMED = 4  # missing values, or components, spelt out in a reason


@dataclass(frozen=True)
class Verdict:
    """What the runs say about one claim, beside what the paper says.

    ours: the mean over seeds of every term of the predicate, to four significant digits.
    interval: 95 % interval of the mean margin, of the weakest component (the smallest lower end) where there are
        several; None where there is none (one seed, exact, equal or infinite margins).
    seeds, margins: the seeds that had all values; a margin is in the metric's units, that of the component that is
        worst in the seed, and positive when the claim holds there.
    """

    id: str
    says: str
    paper: dict[str, Any]
    where: str
    ours: dict[str, float]
    interval: list[float] | None
    seeds: list[int]
    verdict: str
    reason: str
    margins: dict[int, float]

    def as_json(self) -> dict[str, Any]:
        """A plain dict in the order of the fields; seeds as text keys; inf and NaN, which JSON lacks, as text."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}


@dataclass(frozen=True)
class Decision:
    """A verdict with its interval and its reason, from margins alone."""

    verdict: str
    interval: list[float] | None
    reason: str


@dataclass(frozen=True)
class _Part:
    verdict: str  # contradicted already allows for the number of components
    reason: str
    low: float  # the lower end of the interval, or what stands for it: the smaller, the weaker
    interval: list[float] | None = None
    sample: np.ndarray | None = None  # the margins, bounded, where their spread can say how many seeds are needed


def judge_all(claims: Iterable[Mapping[str, Any]], runs: Runs, scale: str) -> list[Verdict]:
    """Judge every claim of an experiment; see ``judge``."""
    return [judge(claim, runs, scale) for claim in claims]


def judge(claim: Mapping[str, Any], runs: Runs, scale: str) -> Verdict:
    """The verdict of the runs, made at ``scale``, on a validated claim (plain dict). Never raises for missing runs."""
    scales = claim.get("scales")
    if scales is not None and scale not in scales:
        why = claim.get("why_not") or f"the claim is tested at {', '.join(scales) or 'no scale'}"
        return _verdict(claim, Margins({}, {}, False, math.nan, {}, []), Decision(NOT_TESTED, None, why))
    margins = margins_of(claim, runs)
    decision = decide_jointly(margins.components, margins.inclusive, bool(claim.get("exact")))
    parts = [decision.reason, *_second_thoughts(decision, margins)]
    return _verdict(claim, margins, Decision(decision.verdict, decision.interval, "; ".join(filter(None, parts))))


def decide(margins: Mapping[int, float], inclusive: bool = False, exact: bool = False) -> Decision:
    """Judge margins by seed.

    inclusive: a margin of exactly 0 holds. exact: the measurement does not depend on the seed, so that values decide.
    A NaN margin may hide either sign and leaves the claim inconclusive. Infinite margins (a diverged arm) count as
    larger than anything finite, in the limit of the t interval.
    """
    return decide_jointly({seed: {"margin": margin} for seed, margin in margins.items()}, inclusive, exact)


def decide_jointly(
    components: Mapping[int, Mapping[str, float]], inclusive: bool = False, exact: bool = False
) -> Decision:
    """Judge margins by seed and by component (the same names in every seed), all of which must hold.

    The interval and the reason are those of the weakest component, whose interval reaches lowest. The rest is as in
    ``decide``, to which this comes down with a single component.
    """
    names = list(next(iter(components.values()), {}))
    columns = ({seed: named[name] for seed, named in components.items()} for name in names)
    parts = [_part(column, inclusive, exact, len(names)) for column in columns]
    if not parts:
        return Decision(INCONCLUSIVE, None, "")
    weakest = min(range(len(parts)), key=lambda place: parts[place].low)
    found = {part.verdict for part in parts}
    verdict = CONTRADICTED if CONTRADICTED in found else INCONCLUSIVE if len(found) > 1 else parts[0].verdict
    reason = _reason(names, parts, weakest, verdict)
    return Decision(verdict, parts[weakest].interval, reason)


def seeds_for_power(mean: float, deviation: float, beyond: int, comparisons: int = 1) -> int | None:
    """The smallest number of seeds above ``beyond`` with power 0.8 at this mean and standard deviation of the margin.

    None beyond 100. Power is that of the two-sided one-sample t test, from the noncentral t distribution, at the
    Bonferroni level of that many comparisons.
    """
    from scipy import stats

    count = np.arange(max(beyond + 1, 2), MOST_SEEDS + 1)
    effect = abs(mean) / deviation * np.sqrt(count)
    power = stats.nct.sf(stats.t.isf((1 - CONFIDENCE) / 2 / comparisons, count - 1), count - 1, effect)
    enough = count[power >= POWER]
    return int(enough[0]) if len(enough) else None


@lru_cache
def _critical(freedom: int, comparisons: int = 1) -> float:
    from scipy import stats

    return float(stats.t.isf((1 - CONFIDENCE) / 2 / comparisons, freedom))


def _part(margins: Mapping[int, float], inclusive: bool, exact: bool, comparisons: int) -> _Part:
    values = np.array(list(margins.values()), dtype=float)
    holds = (values > 0) | (inclusive & (values == 0))
    if np.isnan(values).any():
        return _Part(INCONCLUSIVE, _undecided(margins, holds), -math.inf)
    if exact or (len(values) > 1 and np.all(values == values[0])):
        return _by_value(values, holds, exact)
    if len(values) == 1:
        side = "in favour of" if holds[0] else "against"
        return _Part(INCONCLUSIVE, f"one seed only; its margin {values[0]:+.3g} points {side} the claim", values[0])
    return _by_interval(values, holds, comparisons)


def _by_value(values: np.ndarray, holds: np.ndarray, exact: bool) -> _Part:
    low, high = values.min(), values.max()
    spread = f"margin {low:+.3g}" if low == high else f"margins from {low:+.3g} to {high:+.3g}"
    text = f"{'exact: ' if exact else 'equal in all seeds: '}{spread}, {_favour(holds)}"
    if low != high:
        text += ", although an exact measurement should not depend on the seed"
    if not exact and low == high == 0 and not holds.any():  # saturated values, which differ at no seed
        return _Part(INCONCLUSIVE, f"equal in all seeds: the margin is 0, {_favour(holds)}", low)
    return _Part(REPRODUCED if holds.all() else INCONCLUSIVE if holds.any() else CONTRADICTED, text, low)


def _by_interval(values: np.ndarray, holds: np.ndarray, comparisons: int) -> _Part:
    finite = values[np.isfinite(values)]
    large = 1e9 * max(1.0, np.abs(finite).max(initial=0.0))
    bounded = np.clip(values, -large, large)
    count, mean, deviation = len(values), bounded.mean(), bounded.std(ddof=1)
    half, half_together = (_critical(count - 1, many) * deviation / math.sqrt(count) for many in (1, comparisons))
    low, high, contradicted = float(mean - half), float(mean + half), mean + half_together < 0
    if len(finite) < count:
        text = f"{count - len(finite)} of {count} margins are infinite, {_favour(holds)}"
    else:
        text = f"mean margin {mean:+.3g}, 95 % interval [{low:.3g}, {high:.3g}], {_favour(holds)}"
    if count == 2:
        text += f" (two seeds: the interval is {_critical(1):.1f} standard errors to each side)"
    if high < 0 and not contradicted:
        text += f", below zero alone but not at the level of {comparisons} components together"
    verdict = REPRODUCED if low > 0 else CONTRADICTED if contradicted else INCONCLUSIVE
    return _Part(verdict, text, low, [low, high] if len(finite) == count else None, bounded)


def _reason(names: Sequence[str], parts: Sequence[_Part], weakest: int, verdict: str) -> str:
    chosen, several = parts[weakest], len(parts) > 1
    text = f"weakest: {names[weakest]}, {chosen.reason}" if several else chosen.reason
    if verdict == INCONCLUSIVE and chosen.sample is not None:
        text += f"; {_advice(chosen.sample, len(parts))}"
    against = [place for place, part in enumerate(parts) if part.verdict == CONTRADICTED and place != weakest]
    if against and chosen.verdict != CONTRADICTED:
        first = against.pop(0)
        text += f"; contradicted by {names[first]}, {parts[first].reason}"
    return f"{text}; contradicted as well: {_listed([names[place] for place in against])}" if against else text


def _advice(sample: np.ndarray, comparisons: int) -> str:
    """Seeds for the claim's direction of the sample: in favour each component stands alone, against they share 5 %."""
    count, mean = len(sample), sample.mean()
    needed = seeds_for_power(mean, sample.std(ddof=1), count, 1 if mean > 0 else comparisons)
    if needed is None:
        return f"it would take more than {MOST_SEEDS} seeds: the effect is within the noise"
    direction = "in favour" if mean > 0 else "against"
    it = " it" * (comparisons > 1)  # the weakest component: in favour, the others have to follow
    return f"about {needed - count} more seed{'s' * (needed > count + 1)} would probably decide{it}, {direction}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _undecided(margins: Mapping[int, float], holds: np.ndarray) -> str:
    seeds = [seed for seed, margin in margins.items() if math.isnan(margin)]
    decided = holds[~np.isnan(list(margins.values()))]
    rest = f"; of the rest {_favour(decided)}" if len(decided) else ""
    return f"{_seeds(seeds)} undecided: the margin is not a number{rest}"


def _second_thoughts(decision: Decision, margins: Margins) -> list[str]:
    """What a reader should know beside the statistics: left-out seeds and points, and means that disagree."""
    notes = [f"{text} ({_seeds(seeds)})" for text, seeds in margins.missing.items()]
    if len(notes) > MOST_NAMED:
        notes = [*notes[:MOST_NAMED], f"and {len(notes) - MOST_NAMED} more missing"]
    if notes:
        notes[0] = f"{'left out: ' if margins.margins else 'nothing to judge: '}{notes[0]}"
    elif not margins.margins:
        notes = ["nothing to judge: no runs"]
    if decision.verdict == CONTRADICTED and margins.of_means > 0:
        notes.append("the means over seeds satisfy the claim, single seeds do not")
    return notes + margins.remarks


def _favour(holds: np.ndarray) -> str:
    return f"{int(holds.sum())} of {len(holds)} seed{'s' * (len(holds) > 1)} in favour"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}"


def _verdict(claim: Mapping[str, Any], margins: Margins, decision: Decision) -> Verdict:
    return Verdict(
        id=claim["id"],
        says=claim["says"],
        paper=dict(claim["paper"]),
        where=claim["paper"]["where"],
        ours=_means(margins.terms),
        interval=decision.interval,
        seeds=list(margins.margins),
        verdict=decision.verdict,
        reason=decision.reason,
        margins=margins.margins,
    )


def _means(terms: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    names = next(iter(terms.values()), {})
    with np.errstate(invalid="ignore"):  # the mean of inf and -inf is NaN
        return {name: float(f"{np.mean([named[name] for named in terms.values()]):.4g}") for name in names}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
