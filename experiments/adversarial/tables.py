"""Tables across the models of one seed: distortions, transfer between architectures, transfer between halves.

Networks are rebuilt from the weights that each run measured. A table uses only the images that all of its models
classify correctly and for which all have an adversarial example, the same images for each row. Rows are the models the
examples were made for, columns the models they are fed to, cells the share misclassified; both follow the arm names in
alphabetical order (``arms_of``). Without enough models every value is NaN.
Source: Szegedy et al., section 4.2, Tables 1, 2 and 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from experiments.adversarial.attack import distortion, predict
from experiments.measurement import Run, Runs, derived
from models.mlp import Mlp


@derived(
    "distortion_deep", "distortion_weak", "distortion_strong", "distortion_coded", "distortions", "shared_images"
)
def distortions(
    runs: Runs, deep: str, weak: str, strong: str, coded: str
) -> dict[str, float | np.ndarray]:
    """Mean distortions over shared images of the whole-data models, Table 1.

    deep, weak, strong, coded: the arms whose means get a name of their own (NaN for an arm that is missing).
    distortions: (2, models), by the minimal change and by the fast gradient sign (the latter where it succeeds).
    """
    table = Table.of(runs, halves=False)
    if table is None:
        return _nothing(distortions)
    names = ("distances", "fgsm_distances")
    means = np.stack([[np.nanmean(table.read(run, name)) for run in table.runs] for name in names])
    named = {run.arm: float(mean) for run, mean in zip(table.runs, means[0], strict=True)}
    wanted = {"deep": deep, "weak": weak, "strong": strong, "coded": coded}
    return {
        **{f"distortion_{name}": named.get(arm, float("nan")) for name, arm in wanted.items()},
        "distortions": means, "shared_images": float(len(table.labels)),
    }


@derived(
    "transfer_mean", "noise_mean", "transfer", "transfer_interval", "cell_halfwidth",
    "noise", "noise_levels", "noise_rms",
)
def transfer(runs: Runs, noise: Sequence[float] = (0.1, 0.3), draws: int = 10) -> dict[str, float | np.ndarray]:
    """Transfer between the whole-data models (models, models) and errors under noise (levels, models), Table 2.

    noise: standard deviations of Gaussian noise on every pixel, clamped to [0, 1], kept as noise_levels; noise_rms:
    (levels,), what is left of them after clamping; draws: noise drawn so many times for each image.
    transfer_mean: mean over the cells off the diagonal; noise_mean: mean over models at the first level.
    transfer_interval: 95 % interval of each cell for its number of images (models, models, 2), none wider than twice
    cell_halfwidth.
    """
    table = Table.of(runs, halves=False)
    if table is None or len(table.runs) < 2:
        return _nothing(transfer)
    cells = np.stack([table.errors(table.adversarial(run)) for run in table.runs])
    noisy = [table.noisy(level, draws, index) for index, level in enumerate(noise)]
    rows = np.stack([table.errors(images, draws) for images in noisy])
    interval = np.stack(wilson(cells, len(table.labels)), axis=-1)
    return {
        "transfer": cells, "transfer_interval": interval, "cell_halfwidth": float(np.ptp(interval, axis=-1).max() / 2),
        "noise": rows, "noise_levels": np.array(noise, dtype=float),
        "noise_rms": np.array([table.rms(images, draws) for images in noisy]),
        "transfer_mean": float(cells[~np.eye(len(cells), dtype=bool)].mean()), "noise_mean": float(rows[0].mean()),
    }


@derived(
    "half_transfer", "half_amplified", "half_noise", "amplified_rms", "half_images",
    "other_half_error", "other_half_noise",
)
def half_transfer(
    runs: Runs, made_for: str, fed_to: str, rms: float = 0.1, draws: int = 10
) -> dict[str, float | np.ndarray]:
    """Transfer between models of two disjoint halves, as found and amplified to ``rms``, Table 4.

    half_transfer, half_amplified: (models, models); half_noise: (models,), under noise that has, image by image, the
    amplified examples' own root mean square after clamping; amplified_rms: mean of that over images and models.
    other_half_error: amplified examples of ``made_for`` fed to ``fed_to``; other_half_noise: the error of ``fed_to``
    under noise of the same size, no smaller than one image in all, so that a ratio stays finite.
    """
    table = Table.of(runs, halves=True)
    if table is None or not {made_for, fed_to} <= set(table.arms):
        return _nothing(half_transfer)
    plain = [table.adversarial(run) for run in table.runs]
    larger = [amplify(table.clean, images, rms) for images in plain]
    sizes = torch.stack([distortion(table.clean, images) for images in larger])
    matched = [table.matched_noise(size, draws, index) for index, size in enumerate(sizes)]
    noise = np.stack([table.errors(images, draws) for images in matched])
    amplified = np.stack([table.errors(images) for images in larger])
    row, column = table.arms.index(made_for), table.arms.index(fed_to)
    return {
        "half_transfer": np.stack([table.errors(images) for images in plain]),
        "half_amplified": amplified, "half_noise": noise.mean(0),
        "amplified_rms": float(sizes.mean()), "half_images": float(len(table.labels)),
        "other_half_error": float(amplified[row, column]),
        "other_half_noise": max(float(noise[row, column]), 1 / len(table.labels)),
    }


def arms_of(runs: Runs, halves: bool) -> list[str]:
    """Names of the arms in a table's rows and columns: the models of halves, or those of the whole training set."""
    return sorted({run.arm for run in runs if "half" in run.values and bool(run.values["half"]) == halves})


@dataclass(frozen=True)
class Table:
    """The models of one table and the images they share: clean (n, m), labels (n,), rows of the candidates (n,)."""

    runs: tuple[Run, ...]
    models: tuple[nn.Module, ...]
    rows: np.ndarray
    clean: Tensor
    labels: Tensor
    seed: int

    @classmethod
    def of(cls, runs: Runs, halves: bool) -> Table | None:
        """The table of the runs of one seed; None without models or without an image that they share."""
        chosen = tuple(runs.select(arm=arm)[0] for arm in arms_of(runs, halves))
        rows = np.flatnonzero(np.all([np.isfinite(run.values["distances"]) for run in chosen], axis=0))
        if not chosen or not len(rows):
            return None
        clean, labels = (torch.as_tensor(chosen[0].values[name][rows]) for name in ("images", "labels"))
        return cls(chosen, tuple(rebuild(run) for run in chosen), rows, clean, labels, chosen[0].seed)

    @property
    def arms(self) -> list[str]:
        return [run.arm for run in self.runs]

    def read(self, run: Run, name: str) -> np.ndarray:
        return np.asarray(run.values[name])[self.rows]

    def adversarial(self, run: Run) -> Tensor:
        """The examples made for a run's model (n, m)."""
        return torch.as_tensor(self.read(run, "adversarial"))

    def errors(self, images: Tensor, draws: int = 1) -> np.ndarray:
        """Share of images (draws * n, m) that each model misclassifies (models,)."""
        labels = self.labels.repeat(draws)
        return np.array([float((predict(model, images) != labels).double().mean()) for model in self.models])

    def rms(self, images: Tensor, draws: int = 1) -> float:
        """Mean over images (draws * n, m) of the root mean square of their change."""
        return float(distortion(self.clean.repeat(draws, 1), images).mean())

    def noisy(self, level: float, draws: int, stream: int) -> Tensor:
        """Clean images plus Gaussian noise of standard deviation ``level``, clamped (draws * n, m)."""
        return (self.clean.repeat(draws, 1) + level * self._normal(draws, stream)).clamp(0, 1)

    def matched_noise(self, sizes: Tensor, draws: int, stream: int) -> Tensor:
        """Gaussian noise scaled for each image so that its root mean square after clamping is ``sizes`` (n,)."""
        clean, normal, wanted = self.clean.repeat(draws, 1), self._normal(draws, stream), sizes.repeat(draws)
        low, high = torch.zeros_like(wanted), torch.full_like(wanted, 10.0)
        for _ in range(30):
            level = (low + high) / 2
            small = distortion(clean, (clean + level[:, None] * normal).clamp(0, 1)) < wanted
            low, high = torch.where(small, level, low), torch.where(small, high, level)
        return (clean + low[:, None] * normal).clamp(0, 1).float()

    def _normal(self, draws: int, stream: int) -> Tensor:
        shape = (draws * len(self.clean), self.clean.shape[1])
        return torch.as_tensor(np.random.default_rng((self.seed, stream)).standard_normal(shape, dtype=np.float32))


def _nothing(function: Callable) -> dict[str, float]:
    """What a derived measurement gives when the runs that it needs are not there."""
    return dict.fromkeys(function.metric_names, float("nan"))


def rebuild(run: Run) -> Mlp:
    """The network of a run, from its measured widths and weights."""
    widths = [int(width) for width in run.values["widths"]]
    model = Mlp(widths[0], widths[1:-1], widths[-1])
    nn.utils.vector_to_parameters(torch.as_tensor(run.values["weights"], dtype=torch.float32), model.parameters())
    return model.eval()


def amplify(clean: Tensor, changed: Tensor, rms: float) -> Tensor:
    """Scale each change to root mean square ``rms``, then clamp, which takes a little of it away again (n, m).

    The paper's printed formula lacks the square root of the number of pixels that makes this a per-pixel size.
    """
    size = distortion(clean, changed).float().clamp(min=torch.finfo(torch.float32).tiny)
    return (clean + rms / size[:, None] * (changed - clean)).clamp(0, 1)


def wilson(share: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the 95 % interval of a share observed in ``count`` images (Wilson, 1927), each shaped as ``share``."""
    z = 1.959964
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * np.sqrt(share * (1 - share) / count + z * z / (4 * count * count)) / (1 + z * z / count)
    return centre - half, centre + half
