"""What is computed from several arms of one seed: widths at which boxes help an embedding, and equal regions."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from experiments.measurement import Runs, derived


@derived("embed_tau_gain", "embed_radius_gain")
def embedding_gain(runs: Runs, boxed: str, plain: str) -> dict[str, float]:
    """What training with boxes adds to tightness and takes off the box's radius, at the width where it does least.

    boxed, plain: the arms. NaN without either.
    """
    found = [runs.select(arm=arm) for arm in (boxed, plain)]
    if not all(found):
        return dict.fromkeys(embedding_gain.metric_names, float("nan"))
    tau, radius = ([np.asarray(table[0].values[name]) for table in found] for name in ("embed_tau", "embed_radius"))
    return {"embed_tau_gain": float((tau[0] - tau[1]).min()), "embed_radius_gain": float((radius[1] - radius[0]).min())}


@derived("region_ratio")
def equal_regions(runs: Runs, small: str, small_at: Mapping[str, float], whole: str, whole_at: Mapping[str, float],
                  ) -> dict[str, float]:
    """Tightness of the arm that propagates a small part of a large box over that of one whose whole box is that small.

    small_at, whole_at: the grid points of the two arms. NaN where one is missing.
    """
    found = [runs.select(arm=arm, at=dict(at)) for arm, at in ((small, small_at), (whole, whole_at))]
    if not all(found):
        return {"region_ratio": float("nan")}
    taus = [float(table[0].values["tau"]) for table in found]
    return {"region_ratio": taus[0] / taus[1]}
