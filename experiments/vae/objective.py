"""Training by the lower bound, by wake-sleep or by Monte Carlo EM, for all seeds and step sizes in one fit.

Source: Kingma and Welling (arXiv 1312.6114), algorithm 1, section 5 and appendix E. Replica r of the model is seed
r // S with step size r % S, S the number of step sizes. Seeds see their own data order and noise, the step sizes of a
seed share both, and so do the algorithms, which makes their differences paired.

What is recorded on the way is held in buffers, so that a resumed run ends with the same curves.
"""

from __future__ import annotations

from collections.abc import Sequence

import lightning
import numpy as np
import torch
from torch import Tensor

from experiments.vae.adagrad import ReplicaAdagrad
from experiments.vae.bound import aevb_loss, log_joint, mean_bound, standard_normal, wake_sleep_loss
from experiments.vae.hmc import hamiltonian_step, tuned
from models.gaussian_vae import GaussianVAE

ALGORITHMS = ("aevb", "wake_sleep", "mcem")
NOISE, DREAM_LATENT, DREAM_PICTURE, MOMENTUM, METROPOLIS, START, TRAIN_BOUND, TEST_BOUND = range(8)


def log_spaced_steps(max_steps: int, count: int, start: float, also: int) -> list[int]:
    """About ``count`` steps from the fraction ``start`` of the budget on, and the step ``also``; not the last one."""
    spaced = np.geomspace(max(1.0, start * max_steps), max_steps, count).round().astype(int)
    return sorted(({also} | set(spaced.tolist())) - {max_steps})


class Learner(lightning.LightningModule):
    """One algorithm on one model, at every step size.

    algorithm: ``aevb``, ``wake_sleep`` or ``mcem``.
    step_sizes: Adagrad's grid. selection_fraction: the part of the budget after which the step size is chosen.
    train_size: number of training pictures N; the weight prior N(0, I) is 0.5 |w|^2 / N in a loss per data point.
    evaluations: points of the curves. evaluated_pictures: at most so many training (and test) pictures for each.
    snapshots: points at which the decoder is kept for the marginal likelihood (0: none).
    leapfrog_steps, acceptance, updates: the E step's chain and the updates of each M step (``mcem`` only).

    Raises ValueError for an unknown algorithm.
    """

    def __init__(self, model: GaussianVAE, algorithm: str, seed: int | Sequence[int], step_sizes: Sequence[float],
                 selection_fraction: float, max_steps: int, train_size: int, evaluations: int, evaluated_pictures: int,
                 snapshots: int = 0, leapfrog_steps: int = 10, acceptance: float = 0.9, updates: int = 5):
        super().__init__()
        if algorithm not in ALGORITHMS:
            raise ValueError(f"arm.algorithm is {algorithm!r}; it must be one of {', '.join(ALGORITHMS)}")
        self.automatic_optimization = False
        self.algorithm, self.step_sizes, self.train_size = algorithm, list(step_sizes), train_size
        self.seeds = [seed] if isinstance(seed, int) else list(seed)
        self.copies = len(self.step_sizes)
        self.model = model.repeat(self.copies)
        self.max_steps, self.evaluated_pictures = max_steps, evaluated_pictures
        self.leapfrog_steps, self.acceptance, self.updates = leapfrog_steps, acceptance, updates
        self.selection_step = min(max(1, round(selection_fraction * max_steps)), max_steps - 1)
        self.steps = sorted({0, *log_spaced_steps(max_steps, evaluations, 0.001, self.selection_step)})
        self.snapshot_steps = log_spaced_steps(max_steps, snapshots, 0.01, self.selection_step) if snapshots else []
        self._register_records()

    def _register_records(self) -> None:
        replicas = self.model.replicas
        empty = torch.full((len(self.steps), replicas), float("nan"), dtype=torch.float64)
        self.register_buffer("bound_train", empty)
        self.register_buffer("bound_test", empty.clone())
        self.register_buffer("recorded_points", torch.zeros(len(self.steps), dtype=torch.int64))
        self.register_buffer("points", torch.zeros((), dtype=torch.int64))
        self.register_buffer("gradients", torch.zeros((), dtype=torch.int64))
        self.register_buffer("snapshots", torch.zeros(len(self.snapshot_steps), *self.model.decoder_weights().shape))
        if self.algorithm == "mcem":
            chains = standard_normal(self.seeds, 0, START, (self.train_size, self.model.latent_dim))
            self.register_buffer("chains", chains.repeat_interleave(self.copies, 0))
            self.register_buffer("hmc_step_size", torch.full((replicas,), 0.1))

    def configure_optimizers(self) -> ReplicaAdagrad:
        networks = self.model.decoder if self.algorithm == "mcem" else self.model
        sizes = self.step_sizes * len(self.seeds)
        return ReplicaAdagrad(networks.parameters(), sizes, weight_decay=1 / self.train_size)

    def normal(self, purpose: int, *shape: int, step: int | None = None) -> Tensor:
        """Standard normal numbers (R, *shape) of this step, the same for all step sizes of a seed."""
        step = self.global_step if step is None else step
        return standard_normal(self.seeds, step, purpose, shape, self.device).repeat_interleave(self.copies, 0)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_index: int) -> None:
        """One minibatch for each seed: pictures (seeds, B, D) and labels, which are not used."""
        self._record()
        x = batch[0].repeat_interleave(self.copies, 0)
        if self.algorithm == "mcem":
            self._expectation_maximisation(x)
        else:
            self._descend(self._loss(x), last=True)
            self.gradients += 2 * x.shape[1]  # of the encoder and of the decoder
        self.points += x.shape[1]

    def _loss(self, x: Tensor) -> Tensor:
        points, latent = x.shape[1], self.model.latent_dim
        noise = self.normal(NOISE, points, latent)
        if self.algorithm == "aevb":
            return aevb_loss(self.model, x, noise)
        z_dream = self.normal(DREAM_LATENT, points, latent)
        return wake_sleep_loss(self.model, x, noise, z_dream, self.normal(DREAM_PICTURE, points, x.shape[2]))

    def _descend(self, loss: Tensor, last: bool) -> None:
        """One Adagrad update. Lightning counts the last of a minibatch only, so that its steps are minibatches."""
        optimizer = self.optimizers(use_pl_optimizer=last)
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()

    def _expectation_maximisation(self, x: Tensor) -> None:
        """Move each data point's chain by one transition, then fit the decoder to the states (appendix E)."""
        order = torch.as_tensor(self.trainer.train_dataloader.sampler.batch(self.global_step), device=x.device)
        index = order.repeat_interleave(self.copies, 0)
        rows = torch.arange(len(index), device=x.device)[:, None]
        momentum = self.normal(MOMENTUM, *x.shape[1:2], self.model.latent_dim)
        uniform = torch.special.ndtr(self.normal(METROPOLIS, *x.shape[1:2]))
        z, acceptance = hamiltonian_step(lambda z: log_joint(self.model, x, z), self.chains[rows, index],
                                         self.hmc_step_size, momentum, uniform, self.leapfrog_steps)
        self.hmc_step_size = tuned(self.hmc_step_size, acceptance, self.acceptance)
        self.chains[rows, index] = z
        self.gradients += (self.leapfrog_steps + 1 + self.updates) * x.shape[1]  # all of the decoder
        for update in range(self.updates):
            loss = -self.model.log_likelihood(x, z).mean(1).sum()
            self._descend(loss, last=update == self.updates - 1)

    def _record(self) -> None:
        """Evaluate before the update, so that a checkpoint made after any update holds all that came before."""
        if self.global_step in self.snapshot_steps:
            self.snapshots[self.snapshot_steps.index(self.global_step)] = self.model.decoder_weights()
        if self.global_step not in self.steps or self.algorithm == "mcem":  # which trains no encoder, so has no bound
            return
        row = self.steps.index(self.global_step)
        self.recorded_points[row] = self.points
        self.bound_train[row], self.bound_test[row] = self.bounds(self.trainer.datamodule, self.global_step)
        for rate, train, test in zip(self.step_sizes, *self._by_rate(row), strict=True):
            self.log_dict({f"bound_train/rate_{rate}": train, f"bound_test/rate_{rate}": test})

    def _by_rate(self, row: int) -> tuple[Tensor, Tensor]:
        return tuple(bound[row].view(-1, self.copies).mean(0).float() for bound in (self.bound_train, self.bound_test))

    def bounds(self, data: lightning.LightningDataModule, step: int) -> tuple[Tensor, Tensor]:
        """The bound, in nats for each data point, on the first training and the first test pictures: two of (R,)."""
        values = []
        for pictures, purpose in ((data.train.x, TRAIN_BOUND), (data.test.x, TEST_BOUND)):
            pictures = pictures[:self.evaluated_pictures].to(self.device)
            noise = self.normal(purpose, len(pictures), self.model.latent_dim, step=step)
            values.append(mean_bound(self.model, pictures, noise))
        return values[0], values[1]

    def chosen(self) -> Tensor:
        """For each seed the index of the step size with the best training bound at the selection step: (seeds,)."""
        at_selection = self.bound_train[self.steps.index(self.selection_step)].view(-1, self.copies)
        return at_selection.nan_to_num(nan=-torch.inf).argmax(1)

    def replicas_of(self, choice: Tensor) -> Tensor:
        """Replica numbers of one step size index for each seed: (seeds,) -> (seeds,)."""
        return torch.arange(len(self.seeds), device=choice.device) * self.copies + choice

    def decoders_after(self, steps: Sequence[int], replicas: Tensor) -> GaussianVAE:
        """The chosen replicas with the decoders that they had after each snapshot (or the last) step, steps first."""
        weights = [self._decoder_weights_after(step)[replicas] for step in steps]
        model = self.model.pick(replicas.repeat(len(weights)))
        model.load_decoder_weights(torch.cat(weights))
        return model

    def _decoder_weights_after(self, step: int) -> Tensor:
        if step == self.max_steps:
            return self.model.decoder_weights()
        return self.snapshots[self.snapshot_steps.index(step)]
