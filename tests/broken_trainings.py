"""A zoo of small trainings: broken ones with exactly one planted bug, and healthy ones that look suspicious.

A broken one says which probe must name it, with which code and which words of the message:

    @broken("loss", "loss-input", "softmax is applied twice")
    def softmax_before_cross_entropy() -> Training: ...
"""

from __future__ import annotations

import copy
import math
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

from probing.contract import Training

Make = Callable[[], Training]
WIDTH, CLASSES, BATCH = 8, 3, 16


class Planted(NamedTuple):
    make: Make
    probe: str
    code: str
    words: str


BROKEN: dict[str, Planted] = {}
HEALTHY: dict[str, Make] = {}


def broken(probe: str, code: str, words: str) -> Callable[[Make], Make]:
    def keep(make: Make) -> Make:
        BROKEN[make.__name__] = Planted(make, probe, code, words)
        return make

    return keep


def healthy(make: Make) -> Make:
    HEALTHY[make.__name__] = make
    return make


# --- parts -----------------------------------------------------------------------------------------------------


def points(count: int = 64) -> tuple[Tensor, Tensor]:
    """Three classes that a line almost separates."""
    x = torch.randn(count, WIDTH)
    return x, x[:, :CLASSES].argmax(1)


def loader(count: int = 64, size: int = BATCH, **more: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(*points(count)), batch_size=size, **{"shuffle": True, **more})


def mlp(*tail: nn.Module, out: int = CLASSES) -> Any:
    return nn.Sequential(nn.Linear(WIDTH, 16), nn.ReLU(), nn.Linear(16, out), *tail)


def adam(model: nn.Module, lr: float = 1e-2) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=lr)


def training(model: nn.Module, loss: Any = None, **more: Any) -> Training:
    given = {"loss": loss or nn.CrossEntropyLoss(), **more}
    given.setdefault("data", None if "data" in more else loader())
    given.setdefault("optimizer", None if "optimizer" in more else adam(model))
    return Training(model=model, **given)


def update(t: Training, loss: Any) -> Any:
    t.optimizer.zero_grad()
    loss.backward()
    t.optimizer.step()
    return loss


def usual_loss(t: Training, batch: Any) -> Any:
    return t.loss(t.model(batch[0]), batch[1])


class Net(nn.Module):
    """Two parts with names, to break one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.backbone(x))
        return scores


class Wrapped(nn.Module):
    """A forward of one's own around the usual net."""

    def __init__(self, function: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.function = mlp(), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.net, x)


# --- the loss function's contract --------------------------------------------------------------------------------


@broken("loss", "loss-input", "softmax is applied twice")
def softmax_before_cross_entropy() -> Training:
    return training(mlp(nn.Softmax(dim=1)))


@broken("loss", "loss-input", "softmax is applied twice")
def softmax_in_the_loss_function() -> Training:
    return training(mlp(), lambda scores, y: F.cross_entropy(scores.softmax(1), y))


@broken("loss", "loss-input", "raw scores")
def logits_before_nll() -> Training:
    return training(mlp(), nn.NLLLoss())


@broken("loss", "loss-input", "instead of their logarithms")
def probabilities_before_nll() -> Training:
    return training(mlp(nn.Softmax(dim=1)), nn.NLLLoss())


@broken("loss", "loss-input", "sigmoid twice")
def sigmoid_before_bce_with_logits() -> Training:
    return training(
        mlp(nn.Sigmoid(), out=1), lambda p, y: F.binary_cross_entropy_with_logits(p[:, 0], (y == 0).float())
    )


@broken("loss", "loss-input", "raw scores")
def logits_before_bce() -> Training:
    return training(mlp(out=1), lambda p, y: F.binary_cross_entropy(p[:, 0], (y == 0).float()))


@broken("loss", "target", "targets from 1 to 3 for 3 classes")
def labels_from_one() -> Training:
    x, y = points()
    return training(mlp(), data=DataLoader(TensorDataset(x, y + 1), batch_size=BATCH, shuffle=True))


@broken("loss", "target", "for 2 classes")
def too_few_outputs() -> Training:
    return training(mlp(out=2))


@broken("loss", "target", "targets from -1 to")
def unlabelled_is_minus_one() -> Training:
    x, y = points()
    y[::8] = -1
    return training(mlp(), data=DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True))


@broken("loss", "target", "must be int64")
def float_class_numbers() -> Training:
    x, y = points()
    return training(mlp(), data=DataLoader(TensorDataset(x, y.float()), batch_size=BATCH, shuffle=True))


@broken("loss", "shape", "broadcast")
def regression_broadcast() -> Training:
    x, y = torch.randn(64, WIDTH), torch.randn(64)
    return training(mlp(out=1), nn.MSELoss(), data=DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True))


@broken("loss", "target", "every target is ignore_index")
def all_targets_ignored() -> Training:
    x, y = points()
    return training(mlp(), data=DataLoader(TensorDataset(x, torch.full_like(y, -100)), batch_size=BATCH, shuffle=True))


class Tagger(nn.Module):
    """Scores per position of a row of tokens."""

    def __init__(self, vocab: int = 12, padding_idx: int | None = None) -> None:
        super().__init__()
        self.token = nn.Embedding(vocab, 16, padding_idx=padding_idx)
        self.rnn, self.head = nn.GRU(16, 16, batch_first=True), nn.Linear(16, vocab)

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.head(self.rnn(self.token(tokens))[0])
        return scores


def sentences(count: int = 32, length: int = 10, pad: bool = False) -> Tensor:
    """Rows in which each token follows from the one before it; token 0 only pads."""
    start = torch.randint(0, 11, (count, 1))
    rows = (start + torch.arange(length + 1) * 3) % 11 + 1
    if pad:
        lengths = torch.randint(3, length, (count, 1))
        rows = rows * (torch.arange(length + 1) < lengths)
    return rows


def rows_of(tokens: Tensor, targets: Tensor) -> DataLoader[Any]:
    return DataLoader(TensorDataset(tokens, targets), batch_size=8, shuffle=True)


def token_loss(scores: Tensor, y: Tensor, ignore: int = -100) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), y.flatten(), ignore_index=ignore)


@broken("loss", "padding", "padding (0) counts")
def padding_in_the_mean() -> Training:
    rows = sentences(pad=True)
    return training(Tagger(padding_idx=0), token_loss, data=rows_of(rows[:, :-1], rows[:, 1:]))


@broken("loss", "padding", "padding (0) counts")
def mask_that_only_divides() -> Training:
    """The mask is in the denominator, and forgotten in the sum."""
    rows = sentences(pad=True)

    def loss(scores: Tensor, y: Tensor) -> Tensor:
        each = F.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none")
        return each.sum() / (y != 0).sum()

    return training(Tagger(), loss, data=rows_of(rows[:, :-1], rows[:, 1:]), pad_id=0)


@broken("loss", "target", "not shifted")
def targets_not_shifted() -> Training:
    rows = sentences()
    return training(Tagger(), token_loss, data=rows_of(rows, rows))


@broken("loss", "target", "shifted twice")
def targets_shifted_twice() -> Training:
    rows = sentences()
    return training(Tagger(), lambda s, y: token_loss(s[:, :-1], y[:, 1:]), data=rows_of(rows[:, :-1], rows[:, 1:]))


# --- parameters --------------------------------------------------------------------------------------------------


@broken("parameters", "not-updating", "not in the optimizer")
def head_not_in_the_optimizer() -> Training:
    model = Net()
    return training(model, optimizer=torch.optim.AdamW(model.backbone.parameters(), lr=1e-2))


@broken("parameters", "not-updating", "not in the optimizer")
def head_replaced_after_the_optimizer() -> Training:
    model = Net()
    optimizer = adam(model)
    model.head = nn.Linear(16, CLASSES)
    return training(model, optimizer=optimizer)


@broken("parameters", "not-updating", "none of the model's parameters")
def optimizer_of_a_copy() -> Training:
    model = Net()
    return training(model, optimizer=adam(copy.deepcopy(model)))


@broken("parameters", "not-updating", "nobody declared it frozen")
def frozen_and_forgotten() -> Training:
    model = Net()
    model.backbone.requires_grad_(False)
    return training(model)


@broken("parameters", "not-updating", "its module runs, but the loss does not reach it")
def detached_features() -> Training:
    return training(Detached())


class Detached(Net):
    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(self.backbone(x).detach())
        return scores


class NoGrad(Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            features = self.backbone(x)
        scores: Tensor = self.head(features)
        return scores


@broken("parameters", "not-updating", "its module runs, but the loss does not reach it")
def no_grad_around_the_backbone() -> Training:
    return training(NoGrad())


class Unused(Net):
    def __init__(self) -> None:
        super().__init__()
        self.adapter = nn.Linear(16, 16)


@broken("parameters", "not-updating", "never called")
def module_never_called() -> Training:
    return training(Unused())


class PlainList(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = [nn.Linear(WIDTH, 16), nn.ReLU()]
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        scores: Tensor = self.head(x)
        return scores


@broken("parameters", "unregistered", "not parameters of the model")
def layers_in_a_plain_list() -> Training:
    return training(PlainList())


@broken("parameters", "moving", "running statistics")
def frozen_batchnorm_moves() -> Training:
    model = Net()
    model.backbone.requires_grad_(False)
    return training(model, optimizer=adam(model.head), frozen=("backbone",))


@broken("parameters", "moving", "declared frozen, and moves")
def frozen_only_by_name() -> Training:
    return training(Net(), frozen=("backbone.0",))


@broken("parameters", "not-updating", "optimizer.step() was never called")
def step_forgotten() -> Training:
    def step(t: Training, batch: Any) -> Any:
        loss = usual_loss(t, batch)
        t.optimizer.zero_grad()
        loss.backward()
        return loss

    return training(mlp(), step=step)


@broken("parameters", "not-updating", "gone when the optimizer steps")
def zero_grad_before_step() -> Training:
    def step(t: Training, batch: Any) -> Any:
        loss = usual_loss(t, batch)
        loss.backward()
        t.optimizer.zero_grad()
        t.optimizer.step()
        return loss

    return training(mlp(), step=step)


@broken("parameters", "accumulated", "earlier steps")
def zero_grad_forgotten() -> Training:
    def step(t: Training, batch: Any) -> Any:
        loss = usual_loss(t, batch)
        loss.backward()
        t.optimizer.step()
        return loss

    return training(mlp(), step=step)


@broken("parameters", "accumulated", "earlier steps")
def model_zero_grad_of_a_part() -> Training:
    """Only the head is cleared, and clipping hides the growing norm."""

    def step(t: Training, batch: Any) -> Any:
        loss = usual_loss(t, batch)
        loss.backward()
        nn.utils.clip_grad_norm_(t.model.parameters(), 1.0)
        t.optimizer.step()
        t.model.head.zero_grad()
        return loss

    return training(Net(), step=step)


@broken("parameters", "not-updating", "no graph")
def loss_rebuilt_from_a_number() -> Training:
    def step(t: Training, batch: Any) -> Any:
        loss = torch.tensor(usual_loss(t, batch).item())
        t.optimizer.zero_grad()
        t.optimizer.step()
        return loss

    return training(mlp(), step=step)


@broken("parameters", "not-updating", "lost to rounding")
def bfloat16_swallows_updates() -> Training:
    model = nn.Linear(WIDTH, CLASSES).to(torch.bfloat16)
    nn.init.constant_(model.weight, 1.0)
    with torch.no_grad():
        model.weight += torch.randn(CLASSES, WIDTH) * 0.05
        model.bias.fill_(1.0)
    x, y = points()
    data = DataLoader(TensorDataset(x.to(torch.bfloat16), y), batch_size=BATCH, shuffle=True)
    return training(model, data=data, optimizer=torch.optim.SGD(model.parameters(), lr=1e-4))


# --- learning rate -----------------------------------------------------------------------------------------------


@broken("parameters", "not-updating", "learning rate of its group is 0")
def group_with_rate_zero() -> Training:
    model = Net()
    groups: list[dict[str, Any]] = [
        {"params": model.backbone.parameters(), "lr": 0.0},
        {"params": model.head.parameters()},
    ]
    return training(model, optimizer=torch.optim.AdamW(groups, lr=1e-2))


@broken("lr", "lr", "never stepped")
def scheduler_never_stepped() -> Training:
    model = mlp()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
    return training(model, optimizer=optimizer, scheduler=scheduler, step=lambda t, b: update(t, usual_loss(t, b)))


@broken("lr", "lr", "scheduler of epochs is stepped inside")
def epoch_scheduler_per_batch() -> Training:
    model = mlp()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 30)

    def step(t: Training, batch: Any) -> Any:
        loss = update(t, usual_loss(t, batch))
        t.scheduler.step()
        return loss

    return training(model, optimizer=optimizer, scheduler=scheduler, step=step, scheduler_interval="epoch")


@broken("lr", "lr", "the schedule ends at step")
def schedule_in_epochs() -> Training:
    model = mlp()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=10)
    return training(model, optimizer=optimizer, scheduler=scheduler, total_steps=1000)


@broken("lr", "lr", "climbs back")
def cosine_period_in_epochs() -> Training:
    model = mlp()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=50)
    return training(model, optimizer=optimizer, scheduler=scheduler, total_steps=1000)


@broken("lr", "lr", "another optimizer")
def scheduler_of_an_old_optimizer() -> Training:
    model = mlp()
    scheduler = torch.optim.lr_scheduler.StepLR(adam(model), 10)
    return training(model, scheduler=scheduler)


@broken("lr", "lr", "more often than the optimizer")
def scheduler_per_micro_batch() -> Training:
    model = mlp()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=1000)
    count = [0]

    def step(t: Training, batch: Any) -> Any:
        loss = usual_loss(t, batch)
        (loss / 4).backward()
        count[0] += 1
        if count[0] % 4 == 0:
            t.optimizer.step()
            t.optimizer.zero_grad()
        t.scheduler.step()
        return loss

    return training(model, optimizer=optimizer, scheduler=scheduler, step=step, accumulate=4)


@broken("lr", "lr", "lr_at(0) is")
def rate_set_on_the_wrong_attribute() -> Training:
    def step(t: Training, batch: Any) -> Any:
        t.optimizer.lr = 1e-4  # no such setting: param_groups keep theirs
        return update(t, usual_loss(t, batch))

    return training(mlp(), step=step, lr_at=lambda step: 1e-4)


@broken("lr", "lr", "0 in every step")
def warmup_never_leaves_zero() -> Training:
    model = mlp()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step // 1000)  # // where / was meant
    return training(model, optimizer=optimizer, scheduler=scheduler)


@broken("ratios", "update-ratio", "too large")
def rate_far_too_high() -> Training:
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, 1))
    x = torch.randn(64, WIDTH)
    data = DataLoader(TensorDataset(x, x[:, :1]), batch_size=BATCH, shuffle=True)
    return training(model, nn.MSELoss(), data=data, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))


@broken("ratios", "update-ratio", "cannot teach")
def rate_far_too_low() -> Training:
    model = mlp()
    return training(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-8))


@broken("overfit", "no-fit", "the recipe is at fault")
def clipped_to_nothing() -> Training:
    model = mlp()
    return training(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-2), clip=1e-3)


@broken("overfit", "no-fit", "the recipe is at fault")
def weight_decay_wins() -> Training:
    model = mlp()
    return training(model, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=30.0))


@broken("overfit", "ignored-input", "does not depend on the input")
def input_multiplied_away() -> Training:
    return training(Wrapped(lambda net, x: net(x * 0.0)))


@broken("overfit", "ignored-input", "does not depend on the input")
def wrong_variable_in_forward() -> Training:
    return training(Wrapped(lambda net, x: net(torch.ones_like(x))))


# --- NaN and Inf ---------------------------------------------------------------------------------------------------


@broken("nan", "nan", "born in the forward, in log")
def log_of_zero() -> Training:
    return training(mlp(nn.ReLU()), lambda s, y: -(s + 0.0).log().gather(1, y[:, None]).mean())


@broken("nan", "nan", "born in the backward")
def root_at_zero() -> Training:
    def loss(scores: Tensor, y: Tensor) -> Tensor:
        same = scores - scores.detach()
        return F.cross_entropy(scores, y) + same.square().sum(1).sqrt().mean()

    return training(mlp(), loss)


@broken("nan", "nan", "born in the backward")
def where_does_not_stop_it() -> Training:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        scores: Tensor = net(x)
        return torch.where(scores > 0, (scores * (scores > 0)).log(), torch.zeros_like(scores)).clamp(-3, 3) + scores

    return training(Wrapped(forward))


@broken("nan", "nan", "softmax")
def attention_row_fully_masked() -> Training:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        scores: Tensor = net(x)
        mask = torch.zeros_like(scores)
        mask[0] = -math.inf
        return scores * (scores + mask).softmax(1)

    return training(Wrapped(forward))


@broken("nan", "nan", "in std")
def deviation_of_one_sample() -> Training:
    return training(Wrapped(lambda net, x: net(x / x.std(0))), data=[(x[:1], y[:1]) for x, y in [points(4)] * 4])


@broken("nan", "nan", "in exp")
def exp_overflows() -> Training:
    x, y = points()
    data = DataLoader(TensorDataset(x * 300, y), batch_size=BATCH, shuffle=True)

    def forward(net: nn.Module, x: Tensor) -> Tensor:
        powers: Tensor = net(x).exp()
        return powers / powers.sum(1, keepdim=True)

    return training(Wrapped(forward), lambda p, y: -(p.gather(1, y[:, None]) + 1e-9).log().mean(), data=data)


@broken("nan", "nan", "is born in the forward")
def half_precision_overflows() -> Training:
    model = mlp().half()
    x, y = points()
    data = DataLoader(TensorDataset((x * 5e3).half(), y), batch_size=BATCH, shuffle=True)
    with torch.no_grad():
        model[0].weight *= 20
    return training(model, data=data, optimizer=torch.optim.SGD(model.parameters(), lr=1e-3))


@broken("data", "nan", "batch")
def nan_in_one_sample() -> Training:
    x, y = points()
    x[37, 2] = math.nan
    return training(mlp(), data=DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True))


@broken("nan", "nan", "itself holds NaN")
def infinity_in_the_target() -> Training:
    x = torch.randn(64, WIDTH)
    y = 1 / (x[:, :1] > -1).float()
    return training(mlp(out=1), nn.MSELoss(), data=DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True))


# --- gradients and units -------------------------------------------------------------------------------------------


@broken("gradients", "gradient", "vanishes")
def twelve_sigmoids() -> Training:
    layers = [part for _ in range(12) for part in (nn.Linear(WIDTH, WIDTH), nn.Sigmoid())]
    return training(nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)))


@broken("gradients", "gradient", "explodes")
def wide_initialisation() -> Training:
    layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(10)]
    for layer in layers:
        nn.init.normal_(layer.weight, std=3.0)
    model = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES))
    return training(model, optimizer=torch.optim.SGD(model.parameters(), lr=1e-12))


@broken("gradients", "dead-units", "never fire")
def dead_relu() -> Training:
    model = mlp()
    nn.init.constant_(model[0].bias, -20.0)
    return training(model, optimizer=adam(model, 1e-3))


@broken("gradients", "dead-units", "never fire")
def dead_relu_from_unscaled_inputs() -> Training:
    """All inputs are large and positive, and all weights came out negative: every unit is below zero for good."""
    model = mlp()
    with torch.no_grad():
        model[0].weight.copy_(-model[0].weight.abs())
    x, y = points()
    data = DataLoader(TensorDataset(x.abs() + 5, y), batch_size=BATCH, shuffle=True)
    return training(model, data=data, optimizer=adam(model, 1e-3))


@broken("gradients", "dead-units", "saturated")
def saturated_tanh() -> Training:
    x, y = points()
    model = nn.Sequential(nn.Linear(WIDTH, 16), nn.Tanh(), nn.Linear(16, CLASSES))
    data = DataLoader(TensorDataset(x * 1000, y), batch_size=BATCH, shuffle=True)
    return training(model, data=data, optimizer=adam(model, 1e-4))


@broken("gradients", "symmetry", "copies of each other")
def constant_initialisation() -> Training:
    model = mlp()
    for layer in (model[0], model[2]):
        nn.init.constant_(layer.weight, 0.1)
        nn.init.zeros_(layer.bias)
    x = torch.randn(64, WIDTH)
    return training(model, data=DataLoader(TensorDataset(x, points()[1]), batch_size=BATCH, shuffle=True))


# --- train and eval mode -------------------------------------------------------------------------------------------


@broken("mode", "mode", "in eval mode during the training step")
def left_in_eval_mode() -> Training:
    model = Net()
    model.eval()
    return training(model)


@broken("mode", "mode", "in train mode during the evaluation")
def evaluates_in_train_mode() -> Training:
    def evaluate(t: Training) -> float:
        with torch.no_grad():
            return sum(float(usual_loss(t, batch)) for batch in t.data)

    return training(mlp(nn.Dropout(0.2)), evaluate=evaluate)


@broken("mode", "mode", "leaves the model in eval mode")
def never_back_to_train_mode() -> Training:
    def evaluate(t: Training) -> float:
        t.model.eval()
        with torch.no_grad():
            return sum(float(usual_loss(t, batch)) for batch in t.data)

    return training(Net(), evaluate=evaluate)


@broken("mode", "mode", "same input gives two different outputs")
def dropout_that_never_stops() -> Training:
    return training(Wrapped(lambda net, x: F.dropout(net(x), 0.3)))


@broken("mode", "moving", "evaluating changes the model")
def evaluation_moves_batchnorm() -> Training:
    def evaluate(t: Training) -> float:
        with torch.no_grad():
            return sum(float(usual_loss(t, batch)) for batch in t.data)

    return training(Net(), evaluate=evaluate)


# --- data ------------------------------------------------------------------------------------------------------------


class Noisy(Dataset[Any]):
    """Augments with a generator of its own, which every worker gets a copy of."""

    def __init__(self) -> None:
        self.x, self.y = points()
        self.rng = numpy.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.x[index] + torch.from_numpy(self.rng.normal(size=WIDTH)).float() * 0.1, self.y[index]


def same_seed(worker: int) -> None:
    random.seed(7)
    numpy.random.seed(7)
    torch.manual_seed(7)


def own_seed(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    dataset: Any = info.dataset
    dataset.rng = numpy.random.default_rng(torch.initial_seed() % 2**32)


class TorchNoise(Noisy):
    def __getitem__(self, index: int) -> Any:
        return self.x[index] + torch.randn(WIDTH) * 0.1, self.y[index]


@broken("workers", "worker-rng", "workers draw the same random numbers")
def generator_copied_into_workers() -> Training:
    return training(mlp(), data=DataLoader(Noisy(), batch_size=BATCH, shuffle=True, num_workers=2))


@broken("workers", "worker-rng", "workers draw the same random numbers")
def every_worker_seeded_alike() -> Training:
    data = DataLoader(TorchNoise(), batch_size=BATCH, shuffle=True, num_workers=2, worker_init_fn=same_seed)
    return training(mlp(), data=data)


@broken("workers", "worker-rng", "same in every epoch")
def one_worker_repeats_each_epoch() -> Training:
    return training(mlp(), data=DataLoader(Noisy(), batch_size=BATCH, shuffle=True, num_workers=1))


class Lines(IterableDataset[Any]):
    def __init__(self, shard: bool) -> None:
        self.x, self.y = points(48)
        self.shard = shard

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        step, first = (info.num_workers, info.id) if info and self.shard else (1, 0)
        return iter([(self.x[i], self.y[i]) for i in range(first, len(self.x), step)])


@broken("workers", "duplicate", "every sample comes 2 times")
def stream_not_sharded() -> Training:
    return training(mlp(), data=DataLoader(Lines(shard=False), batch_size=8, num_workers=2))


@broken("order", "order", "same order")
def never_shuffled() -> Training:
    return training(mlp(), data=loader(shuffle=False))


@broken("order", "order", "same order")
def set_epoch_forgotten() -> Training:
    dataset = TensorDataset(*points())
    sampler: Any = torch.utils.data.DistributedSampler(dataset, num_replicas=2, rank=0)
    return training(mlp(), data=DataLoader(dataset, batch_size=BATCH, sampler=sampler))


@broken("order", "order", "sorted by label")
def sorted_by_class() -> Training:
    x, y = points(96)
    at = y.argsort()
    return training(mlp(), data=DataLoader(TensorDataset(x[at], y[at]), batch_size=BATCH))


@broken("data", "empty", "no batch")
def drop_last_drops_everything() -> Training:
    return training(mlp(), data=loader(count=10, size=16, drop_last=True))


@broken("data", "duplicate", "every sample of every batch is the same")
def index_ignored() -> Training:
    x, y = points()
    return training(mlp(), data=DataLoader(TensorDataset(x[:1].expand(64, -1), y), batch_size=BATCH, shuffle=True))


@broken("data", "constant", "labels are 1")
def one_label_for_all() -> Training:
    x, y = points()
    return training(mlp(), data=DataLoader(TensorDataset(x, torch.ones_like(y)), batch_size=BATCH, shuffle=True))


class Ragged(Dataset[Any]):
    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        return torch.ones(4 + index % 3), index % CLASSES


@broken("collate", "ragged", "[0] is 4, 5, 6")
def sequences_of_different_length() -> Training:
    return training(mlp(), data=DataLoader(Ragged(), batch_size=4))


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.head(F.relu(self.conv(x)).mean((2, 3)))
        return scores


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pictures() -> tuple[Tensor, Tensor]:
    """Three kinds of pictures, with the channel means of photographs, in whole steps of 1/255."""
    y = torch.arange(48) % CLASSES
    tint = torch.nn.functional.one_hot(y, 3)[:, :, None, None] * 0.2 - 0.0667
    x = (torch.tensor(MEAN).view(1, 3, 1, 1) + tint + torch.randn(48, 3, 6, 6) * 0.1).clamp(0, 1)
    return (x * 255).round() / 255, y


def picture_training(change: Callable[[Tensor], Tensor], **more: Any) -> Training:
    x, y = pictures()
    return training(Pictures(), data=DataLoader(TensorDataset(change(x), y), batch_size=BATCH, shuffle=True), **more)


@broken("images", "image", "not divided by 255")
def images_not_divided() -> Training:
    return picture_training(lambda x: (x * 255).round())


@broken("images", "image", "divided by 255 twice")
def images_divided_twice() -> Training:
    return picture_training(lambda x: x / 255)


@broken("images", "image", "BGR")
def channels_reversed() -> Training:
    return picture_training(lambda x: x.flip(1), channel_mean=MEAN)


@broken("images", "image", "BGR")
def channels_reversed_then_normalised() -> Training:
    mean, std = torch.tensor(MEAN).view(1, 3, 1, 1), torch.tensor(STD).view(1, 3, 1, 1)
    return picture_training(lambda x: (x.flip(1) - mean) / std, channel_mean=MEAN, channel_std=STD)


@broken("images", "image", "channels are last")
def channels_last() -> Training:
    return picture_training(lambda x: x.permute(0, 2, 3, 1))


# --- memory, speed, repetition ---------------------------------------------------------------------------------------


@broken("memory", "growth", "with their graph")
def losses_kept_with_their_graph() -> Training:
    kept: list[Tensor] = []

    def step(t: Training, batch: Any) -> Any:
        loss = update(t, usual_loss(t, batch))
        kept.append(loss)
        return loss

    return training(mlp(), step=step)


@broken("memory", "growth", "more are kept after each step")
def outputs_collected() -> Training:
    kept: list[Tensor] = []

    def step(t: Training, batch: Any) -> Any:
        scores = t.model(batch[0])
        kept.append(scores.detach().repeat(100, 1))
        return update(t, t.loss(scores, batch[1]))

    return training(mlp(), step=step)


@broken("memory", "growth", "the graph grows")
def running_loss_never_detached() -> Training:
    total: list[Any] = [0.0]

    def step(t: Training, batch: Any) -> Any:
        loss = usual_loss(t, batch)
        total[0] = total[0] * 0.5 + loss
        t.optimizer.zero_grad()
        total[0].backward(retain_graph=True)
        return loss

    model = mlp()
    return training(model, step=step, optimizer=torch.optim.SGD(model.parameters(), lr=0.0))


class Slow(Noisy):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.003)  # a decoder
        return self.x[index], self.y[index]


@broken("throughput", "starved", "waits for data")
def slow_decoding() -> Training:
    return training(mlp(), data=DataLoader(Slow(), batch_size=BATCH, shuffle=True))


@broken("determinism", "nondeterminism", "the initial weights")
def seed_from_the_system() -> Training:
    model = mlp()
    generator = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "little"))
    with torch.no_grad():
        model[0].weight.normal_(0, 0.3, generator=generator)
    return training(model)


@broken("determinism", "nondeterminism", "the batch")
def unseeded_shuffle() -> Training:
    x, y = points()

    class Shuffled:
        def __iter__(self) -> Iterator[Any]:
            at = list(range(64))
            random.SystemRandom().shuffle(at)
            return iter([(x[at[i : i + 16]], y[at[i : i + 16]]) for i in range(0, 64, 16)])

    return training(mlp(), data=Shuffled())


@broken("determinism", "nondeterminism", "the loss")
def unseeded_noise_in_forward() -> Training:
    return training(Wrapped(lambda net, x: net(x + random.SystemRandom().random() * 0.01)))


def saving(model: nn.Module, keep: tuple[str, ...], **more: Any) -> Training:
    """A training with its own checkpoint, which carries only what `keep` names."""
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    place = Place(*points(96))
    t = training(model, optimizer=optimizer, scheduler=scheduler, data=place, also=(place,), **more)
    parts: dict[str, Any] = {"model": model, "optimizer": optimizer, "scheduler": scheduler, "place": place}

    def save() -> Any:
        state = {name: part.state_dict() for name, part in parts.items() if name in keep}
        return {**state, "rng": torch.get_rng_state()} if "rng" in keep else state

    def load(state: Any) -> None:
        for name, value in state.items():
            torch.set_rng_state(value) if name == "rng" else parts[name].load_state_dict(copy.deepcopy(value))

    t.save, t.load = save, load
    return t


class Place:
    """Batches without end that know where they are."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        self.x, self.y, self.at = x, y, 0

    def __iter__(self) -> Iterator[Any]:
        while True:
            first = self.at % len(self.x)
            self.at += BATCH
            yield self.x[first : first + BATCH], self.y[first : first + BATCH]

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@broken("resume", "resume", "optimizer state")
def momentum_not_saved() -> Training:
    return saving(mlp(), ("model", "scheduler", "rng", "place"))


@broken("resume", "resume", "scheduler step")
def scheduler_not_saved() -> Training:
    return saving(mlp(), ("model", "optimizer", "rng", "place"))


@broken("resume", "resume", "random state of torch")
def dropout_state_not_saved() -> Training:
    return saving(mlp(nn.Dropout(0.2)), ("model", "optimizer", "scheduler", "place"))


@broken("resume", "order", "starts again from the first batch")
def data_position_not_saved() -> Training:
    return saving(mlp(), ("model", "optimizer", "scheduler", "rng"))


class HiddenBuffer(Net):
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.ones(1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.scale *= 0.9
        return super().forward(x) * self.scale


@broken("resume", "resume", "buffer scale")
def buffer_not_persistent() -> Training:
    return saving(HiddenBuffer(), ("model", "optimizer", "scheduler", "rng", "place"))


# --- healthy, though it looks odd --------------------------------------------------------------------------------


@healthy
def plain() -> Training:
    return training(mlp())


@healthy
def tied_weights() -> Training:
    class Tied(Tagger):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(16, 12, bias=False)
            self.head.weight = self.token.weight

    rows = sentences()
    return training(Tied(), token_loss, data=rows_of(rows[:, :-1], rows[:, 1:]))


@healthy
def frozen_on_purpose() -> Training:
    class Frozen(Net):
        def train(self, mode: bool = True) -> Frozen:
            super().train(mode)
            self.backbone.eval()
            return self

    model = Frozen()
    model.train()
    model.backbone.requires_grad_(False)
    return training(model, optimizer=adam(model.head), frozen=("backbone",))


@healthy
def batchnorm_with_evaluation() -> Training:
    def evaluate(t: Training) -> float:
        t.model.eval()
        with torch.no_grad():
            total = sum(float(usual_loss(t, batch)) for batch in t.data)
        t.model.train()
        return total

    return training(Net(), evaluate=evaluate)


@healthy
def gradient_accumulation() -> Training:
    model = mlp()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=500)
    return training(model, optimizer=optimizer, scheduler=scheduler, accumulate=4, total_steps=500)


@healthy
def mixed_groups() -> Training:
    model = Net()
    decay = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1, "lr": 1e-2}, {"params": rest, "weight_decay": 0.0, "lr": 1e-3}]
    return training(model, optimizer=torch.optim.AdamW(groups))


@healthy
def recurrent() -> Training:
    rows = sentences()
    return training(Tagger(), token_loss, data=rows_of(rows[:, :-1], rows[:, 1:]), clip=1.0)


@healthy
def padded_and_masked() -> Training:
    rows = sentences(pad=True)
    loss = lambda s, y: token_loss(s, y, ignore=0)  # noqa: E731
    return training(Tagger(padding_idx=0), loss, data=rows_of(rows[:, :-1], rows[:, 1:]), pad_id=0)


@healthy
def masked_by_hand() -> Training:
    rows = sentences(pad=True)

    def loss(scores: Tensor, y: Tensor) -> Tensor:
        each = F.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none")
        keep = (y != 0).flatten().float()
        return (each * keep).sum() / keep.sum()

    return training(Tagger(), loss, data=rows_of(rows[:, :-1], rows[:, 1:]))


@healthy
def sparse_embedding() -> Training:
    class Bag(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.head = nn.EmbeddingBag(1000, 16, mode="mean"), nn.Linear(16, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            scores: Tensor = self.head(self.words(x))
            return scores

    words = torch.randint(0, 1000, (64, 5))
    return training(Bag(), data=DataLoader(TensorDataset(words, words[:, 0] % CLASSES), batch_size=BATCH, shuffle=True))


@healthy
def two_losses() -> Training:
    class Twins(Net):
        def forward(self, x: Tensor) -> Any:
            features = self.backbone(x)
            return self.head(features), features

    def loss(output: Any, y: Tensor) -> Any:
        scores, features = output
        main, extra = F.cross_entropy(scores, y), features.square().mean()
        return {"loss": main + 0.01 * extra, "main": main, "extra": extra}

    return training(Twins(), loss)


@healthy
def label_smoothing() -> Training:
    return training(mlp(), nn.CrossEntropyLoss(label_smoothing=0.2))


@healthy
def regression() -> Training:
    x = torch.randn(64, WIDTH)
    y = x[:, :1] * 2 + torch.randn(64, 1) * 0.1
    return training(mlp(out=1), nn.MSELoss(), data=DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True))


@healthy
def heavy_dropout() -> Training:
    return training(nn.Sequential(nn.Linear(WIDTH, 64), nn.GELU(), nn.Dropout(0.5), nn.Linear(64, CLASSES)))


@healthy
def layernorm_only() -> Training:
    return training(nn.Sequential(nn.Linear(WIDTH, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, CLASSES)))


@healthy
def tiny_batches() -> Training:
    return training(mlp(), data=loader(count=12, size=2))


@healthy
def sharded_stream() -> Training:
    return training(mlp(), data=DataLoader(Lines(shard=True), batch_size=8, num_workers=2))


@healthy
def workers_seeded_properly() -> Training:
    data = DataLoader(Noisy(), batch_size=BATCH, shuffle=True, num_workers=2, worker_init_fn=own_seed)
    return training(mlp(), data=data)


@healthy
def warmup_from_zero() -> Training:
    model = mlp()
    optimizer = adam(model)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
    return training(model, optimizer=optimizer, scheduler=scheduler, total_steps=1000)


@healthy
def ema_beside_the_model() -> Training:
    class Averaged(Net):
        """The average inside the model: it moves without a gradient, and forward does not use it."""

        def __init__(self) -> None:
            super().__init__()
            self.average = nn.Linear(16, CLASSES).requires_grad_(False)

    def step(t: Training, batch: Any) -> Any:
        loss = update(t, usual_loss(t, batch))
        with torch.no_grad():
            for slow, fast in zip(t.model.average.parameters(), t.model.head.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return loss

    model = Averaged()
    return training(model, step=step, optimizer=torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]))


@healthy
def log_softmax_then_cross_entropy() -> Training:
    """Superfluous and harmless: log_softmax of log-probabilities changes nothing."""
    return training(mlp(nn.LogSoftmax(dim=1)))


@healthy
def log_softmax_then_nll() -> Training:
    return training(mlp(nn.LogSoftmax(dim=1)), nn.NLLLoss())


@healthy
def zero_initialised_head() -> Training:
    model = mlp()
    nn.init.zeros_(model[2].weight)
    return training(model)


@healthy
def normalised_pictures() -> Training:
    mean, std = torch.tensor(MEAN).view(1, 3, 1, 1), torch.tensor(STD).view(1, 3, 1, 1)
    return picture_training(lambda x: (x - mean) / std, channel_mean=MEAN, channel_std=STD)


@healthy
def causal_mask_of_infinities() -> Training:
    def forward(net: nn.Module, x: Tensor) -> Tensor:
        scores = x @ x.T / math.sqrt(WIDTH)
        mask = torch.full_like(scores, -math.inf).triu(1)
        result: Tensor = net((scores + mask).softmax(1) @ x + x)
        return result

    return training(Wrapped(forward))


@healthy
def complete_checkpoint() -> Training:
    return saving(mlp(nn.Dropout(0.1)), ("model", "optimizer", "scheduler", "rng", "place"))


@healthy
def momentum_and_clipping() -> Training:
    model = Net()
    return training(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), clip=0.5)


@healthy
def unbounded_negative_loss() -> Training:
    """A log-likelihood of a density: it may go below zero."""

    def loss(output: Tensor, y: Tensor) -> Tensor:
        mean, log_std = output[:, 0], output[:, 1].clamp(-4, 4)
        return (log_std + 0.5 * ((y - mean) / log_std.exp()).square()).mean()

    x = torch.randn(64, WIDTH)
    return training(mlp(out=2), loss, data=DataLoader(TensorDataset(x, x[:, 0]), batch_size=BATCH, shuffle=True))
