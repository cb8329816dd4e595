"""The data module base: loaders that a resume, a worker or a rank cannot change, and the fingerprint."""

from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from lightning import LightningModule, Trainer
from omegaconf import OmegaConf

from data.module import MissingData, Split, Splits, StreamData


class Numbers(StreamData):
    """Sample i is the vector (i, i) with label i; 20 for training, 6 for validation, 5 for testing."""

    sizes = (20, 6, 5)
    shift = 0.0

    def load(self) -> Splits:
        self.loads = getattr(self, "loads", 0) + 1
        return Splits(*(Split(torch.arange(n).float()[:, None].expand(n, 2) + self.shift, torch.arange(n))
                        for n in self.sizes))


def prepared(*arguments, start: int = 0, **settings) -> Numbers:
    data = Numbers(*arguments, **settings)
    data.setup("fit")
    data.start_batch = start
    return data


def labels(loader, steps: int) -> list[list[int]]:
    return [y.tolist() for _, y in islice(loader, steps)]


def test_the_training_loader_starts_at_start_batch():
    whole = labels(prepared(6, 3).train_dataloader(), 12)
    assert labels(prepared(6, 3, start=5).train_dataloader(), 7) == whole[5:]
    assert sorted(sum(whole[:10], [])) == sorted(list(range(20)) * 3)


@pytest.mark.parametrize("seed", [1, [1, 2, 3]])
def test_workers_do_not_change_a_batch(seed):
    batches = [list(islice(prepared(6, seed, workers=workers).train_dataloader(), 9)) for workers in (0, 2)]
    for (x, y), (other_x, other_y) in zip(*batches, strict=True):
        assert torch.equal(x, other_x) and torch.equal(y, other_y)


def test_replicas_get_a_leading_axis_and_inputs_match_labels():
    x, y = next(iter(prepared(6, [1, 2, 3]).train_dataloader()))
    assert x.shape == (3, 6, 2) and y.shape == (3, 6)
    assert torch.equal(x, y[..., None].expand(3, 6, 2).float())


def test_seeds_may_come_from_a_config():
    config = OmegaConf.create({"seed": [4, 5]})
    assert labels(prepared(6, config.seed).train_dataloader(), 3) == labels(prepared(6, [4, 5]).train_dataloader(), 3)


def test_validation_and_test_loaders_give_each_sample_once_in_order():
    data = prepared(4)
    assert labels(data.val_dataloader(), 9) == [[0, 1, 2, 3], [4, 5]]
    assert labels(data.test_dataloader(), 9) == [[0, 1, 2, 3], [4]]
    assert labels(prepared(None).test_dataloader(), 9) == [[0, 1, 2, 3, 4]]


def test_ranks_of_the_trainer_share_a_training_batch_but_each_sees_the_whole_test_split():
    parts = []
    for rank in range(3):
        data = prepared(6, 2)
        data.trainer = SimpleNamespace(global_rank=rank, world_size=3)
        parts.append(labels(data.train_dataloader(), 5))
        assert labels(data.test_dataloader(), 2) == [[0, 1, 2, 3, 4]]
    assert [sum(step, []) for step in zip(*parts, strict=True)] == labels(prepared(6, 2).train_dataloader(), 5)


@pytest.mark.parametrize("workers", [0, 1])
def test_iterating_a_loader_leaves_the_global_random_state_alone(workers):
    data = prepared(4, workers=workers)
    before = torch.get_rng_state()
    for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader()):
        next(iter(loader))
    assert torch.equal(torch.get_rng_state(), before)


def test_setup_loads_once():
    data = prepared(4)
    data.setup("test")
    data.fingerprint()
    assert data.loads == 1


def test_the_fingerprint_follows_content_and_split_only():
    shifted, resplit = Numbers(4), Numbers(4)
    shifted.shift, resplit.sizes = 0.5, (19, 7, 5)
    reference = Numbers(4).fingerprint()
    assert len(reference) == 16
    assert reference == Numbers(5, seed=[1, 2], workers=2).fingerprint()
    assert len({reference, shifted.fingerprint(), resplit.fingerprint()}) == 3


def test_the_fingerprint_sees_a_single_label():
    data = Numbers(4)
    data.setup()
    data.train.y[3] = 0
    assert data.fingerprint() != Numbers(4).fingerprint()


def test_a_split_takes_index_arrays_of_one_or_two_axes():
    split = Split(torch.arange(12.0).reshape(6, 2), torch.arange(6))
    x, y = split[np.array([[5, 0], [2, 2]])]
    assert x.tolist() == [[[10, 11], [0, 1]], [[4, 5], [4, 5]]] and y.tolist() == [[5, 0], [2, 2]]
    assert split[np.array([1])][0].shape == (1, 2)


def test_a_split_refuses_the_single_indices_of_a_foreign_sampler():
    with pytest.raises(TypeError, match="trainer.use_distributed_sampler=false"):
        Split(torch.zeros(2, 1), torch.zeros(2))[1]


def test_a_split_augments_what_the_stream_asks_for_and_not_what_a_measurement_reads():
    split = Split(torch.zeros(4, 1), torch.zeros(4), augment=lambda x, indices, epochs: x + torch.as_tensor(epochs))
    at = np.array([0])
    assert split[at][0].item() == 0 and split[at, np.array([3])][0].item() == 3


def test_missing_data_is_a_missing_file():
    assert issubclass(MissingData, FileNotFoundError)


class Recorder(LightningModule):
    """Remembers the labels that it was trained on."""

    def __init__(self):
        super().__init__()
        self.automatic_optimization = False
        self.seen, self.validated = [], 0

    def training_step(self, batch):
        self.seen.append(batch[1].tolist())
        self.optimizers().step()

    def validation_step(self, batch):
        self.validated += len(batch[1])

    def configure_optimizers(self):
        return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])


@pytest.mark.parametrize("sizes", [(20, 6, 5), (20, 0, 5)])
def test_a_trainer_runs_on_the_endless_stream(sizes, tmp_path):
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    data, recorder = Numbers(6, 1), Recorder()
    data.start_batch = 2
    if not sizes[1]:
        data.load = lambda: Numbers(6).load()._replace(val=None)
    trainer = Trainer(max_steps=7, max_epochs=-1, accelerator="cpu", default_root_dir=tmp_path, num_sanity_val_steps=0,
                      check_val_every_n_epoch=None, val_check_interval=7, **quiet)
    trainer.fit(recorder, datamodule=data)
    assert recorder.seen == labels(prepared(6, 1, start=2).train_dataloader(), 7)
    assert recorder.validated == sizes[1]
