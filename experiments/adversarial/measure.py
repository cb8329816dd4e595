"""What one trained model gives: its errors and weights, and its adversarial examples by each attack.

Every run of a seed looks at the same candidate images in the same order and attacks those that its model classifies
correctly, so that the tables across models (``experiments.adversarial.tables``) can keep the images they share.
Arrays have one row for each candidate; what was not attacked or not found is NaN in the distortions.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from experiments.adversarial.attack import Adversarial, MinimalChange, fast_gradient_sign, predict
from experiments.measurement import Trained, measurement

HALF = {None: 0.0, "first": 1.0, "second": 2.0}
CHUNK = 10000  # images predicted at once


@measurement("error_train", "error_test", "half", "widths", "weights")
def network(trained: Trained) -> dict[str, float | np.ndarray]:
    """Errors on both splits, and the network itself: layer widths (L + 1,) and all parameters as one vector.

    half: 0 for a model of the whole training set, 1 or 2 for one of its halves.
    """
    model = trained.objective.model.float()
    errors = {
        f"error_{name}": error_rate(model, split.x, split.y)
        for name, split in (("train", trained.data.train), ("test", trained.data.test))
    }
    vector = nn.utils.parameters_to_vector(model.parameters()).detach().cpu().numpy()
    return {
        **errors, "half": HALF[trained.config.data.half],
        "widths": np.array(model.widths, dtype=float), "weights": vector,
    }


@measurement(
    "success", "attacked", "distortion", "fgsm_success", "fgsm_distortion", "fgsm_ratio", "smaller_share",
    "box_distortion", "free_distortion", "box_cost", "outside_share",
    "images", "labels", "correct", "adversarial", "distances", "fgsm_distances",
)
def examples(
    trained: Trained, attack: MinimalChange, images: int, free_images: int,
    fgsm_step: float = 0.002, fgsm_steps: int = 500,
) -> dict[str, float | np.ndarray]:
    """The minimal change and the fast gradient sign on the correctly classified ones of ``images`` candidates (n).

    Scalars: see ``compare_methods`` and, for the first ``free_images`` of the attacked images, ``compare_free``.
    images: (n, m); labels, correct, distances, fgsm_distances: (n,), correct being 1 for the attacked candidates;
    adversarial: (n, m), the clean image where there is none.
    """
    model, pixels, labels = candidates(trained, images)
    correct = predict(model, pixels) == labels
    attacked, answers = pixels[correct], labels[correct]
    minimal = attack(model, attacked, answers, generator_of(trained))
    sign = fast_gradient_sign(model, attacked, answers, fgsm_step, fgsm_steps)
    free = replace(attack, box=False)(model, attacked[:free_images], answers[:free_images], generator_of(trained))
    adversarial = pixels.clone()
    adversarial[correct] = torch.where(minimal.found[:, None], minimal.images, attacked)
    return {
        "attacked": float(correct.sum()), **compare_methods(minimal, sign), **compare_free(minimal, free),
        "images": _array(pixels), "labels": _array(labels), "correct": _array(correct.float()),
        "adversarial": _array(adversarial), "distances": _spread(_distances(minimal), correct),
        "fgsm_distances": _spread(_distances(sign), correct),
    }


def compare_methods(minimal: Adversarial, sign: Adversarial) -> dict[str, float]:
    """Success and mean distortion of the minimal change and of the fast gradient sign, over the same attacked images.

    success, fgsm_success: share of the images with an adversarial example. distortion, fgsm_distortion: mean over
    those. fgsm_ratio, smaller_share: over the images where both succeed, the ratio of the mean distortions and the
    share of images for which the minimal change is the smaller one.
    """
    both = minimal.found & sign.found
    found = minimal.distortion[both], sign.distortion[both]
    return {
        "success": _mean(minimal.found), "fgsm_success": _mean(sign.found),
        "distortion": _mean(minimal.distortion[minimal.found]), "fgsm_distortion": _mean(sign.distortion[sign.found]),
        "fgsm_ratio": _mean(found[1]) / _mean(found[0]), "smaller_share": _mean(found[0] < found[1]),
    }


def compare_free(boxed: Adversarial, free: Adversarial) -> dict[str, float]:
    """Mean distortions with and without the box over the images of ``free``, the first of ``boxed``.

    box_cost: their ratio, above one when the box makes the change larger. outside_share: the share of the free images
    that leave [0, 1] somewhere.
    """
    both = boxed.found[: len(free.found)] & free.found
    inside, outside = _mean(boxed.distortion[: len(both)][both]), _mean(free.distortion[both])
    leaves = ((free.images < 0) | (free.images > 1)).flatten(1).any(1)
    return {
        "box_distortion": inside, "free_distortion": outside, "box_cost": inside / outside,
        "outside_share": _mean(leaves[free.found]),
    }


def candidates(trained: Trained, count: int) -> tuple[nn.Module, Tensor, Tensor]:
    """The model and the seed's first ``count`` test images (n, m) with labels (n,), on the model's device."""
    model, split = trained.objective.model.float(), trained.data.test
    order = np.random.default_rng(trained.seeds[0]).permutation(len(split))[:count]
    device = next(model.parameters()).device
    chosen = torch.as_tensor(order)
    return model, split.x[chosen].flatten(1).to(device), split.y[chosen].to(device)


def generator_of(trained: Trained) -> torch.Generator:
    """Draws the random targets of a run; made from its seed."""
    return torch.Generator().manual_seed(trained.seeds[0])


def error_rate(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Share of misclassified images (n, ...)."""
    device = next(model.parameters()).device
    wrong = sum(
        (predict(model, some.to(device)).cpu() != wanted).sum()
        for some, wanted in zip(images.split(CHUNK), labels.split(CHUNK), strict=True)
    )
    return float(wrong) / len(labels)


def _distances(found: Adversarial) -> Tensor:
    return found.distortion.where(found.found, torch.nan)


def _spread(values: Tensor, correct: Tensor) -> np.ndarray:
    return _array(values.new_full(correct.shape, torch.nan).masked_scatter(correct, values))


def _mean(values: Tensor) -> float:
    return float(values.double().mean()) if len(values) else float("nan")


def _array(values: Tensor) -> np.ndarray:
    return values.cpu().numpy()
