"""A zoo of small trainings: broken ones with exactly one planted bug, and healthy ones that look suspicious.

PLANTED says which probe, with which code and which words of the message, must name which broken ones. A training is
made by the function of its name, or by the line of its name in SHORT.
"""

from __future__ import annotations

import copy
import math
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from rgt.probes.factory import Training

import numpy
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import CosineAnnealingLR, LambdaLR, LinearLR, LRScheduler, StepLR
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

Make = Callable[[], Training]
WIDTH, CLASSES, BATCH = 8, 3, 16


class Planted(NamedTuple):
    make: Make
    probe: str
    code: str
    words: str


PLANTED = """
loss loss-input | softmax is applied twice: softmax_before_cross_entropy
loss loss-input | raw scores: logits_before_nll logits_before_bce
loss loss-input | instead of their logarithms: probabilities_before_nll | sigmoid twice: sigmoid_before_bce_with_logits
loss target | targets from 1 to 3 for 3 classes: labels_from_one
loss target | must be int64: float_class_numbers
loss target | every target is ignore_index: all_targets_ignored | not shifted: targets_not_shifted
loss target | shifted twice: targets_shifted_twice
loss shape | broadcast: regression_broadcast
loss padding | padding (0) counts: padding_in_the_mean mask_that_only_divides
parameters not-updating | not in the optimizer: head_not_in_the_optimizer
parameters not-updating | none of the model's parameters: optimizer_of_a_copy
parameters not-updating | nobody declared it frozen: frozen_and_forgotten
parameters not-updating | its module runs, but the loss does not reach it: detached_features
parameters not-updating | never called: module_never_called | optimizer.step() was never called: step_forgotten
parameters not-updating | gone when the optimizer steps: zero_grad_before_step | no graph: loss_rebuilt_from_a_number
parameters not-updating | lost to rounding: bfloat16_swallows_updates
parameters not-updating | learning rate of its group is 0: group_with_rate_zero
parameters unregistered | not parameters of the model: layers_in_a_plain_list
parameters moving | running statistics: frozen_batchnorm_moves | declared frozen, and moves: frozen_only_by_name
parameters accumulated | earlier steps: zero_grad_forgotten
lr lr | never stepped: scheduler_never_stepped | scheduler of epochs is stepped inside: epoch_scheduler_per_batch
lr lr | the schedule ends at step: schedule_in_epochs | climbs back: cosine_period_in_epochs
lr lr | another optimizer: scheduler_of_an_old_optimizer | more often than the optimizer: scheduler_per_micro_batch
lr lr | 0 in every step: warmup_never_leaves_zero
overfit no-fit | the recipe is at fault: clipped_to_nothing weight_decay_wins rate_far_too_high rate_far_too_low
overfit ignored-input | does not depend on the input: input_multiplied_away
nan nan | born in the forward, in log: log_of_zero | born in the backward: root_at_zero
nan nan | softmax: attention_row_fully_masked
nan nan | is born in the forward: half_precision_overflows | itself holds NaN: infinity_in_the_target
data nan | batch: nan_in_one_sample
data empty | no batch: drop_last_drops_everything
data duplicate | every sample of every batch is the same: index_ignored
data constant | labels are 1: one_label_for_all
gradients gradient | vanishes: twelve_sigmoids | explodes: wide_initialisation
gradients dead-units | never fire: dead_relu
mode mode | in eval mode during the training step: left_in_eval_mode
mode mode | in train mode during the evaluation: evaluates_in_train_mode
mode mode | leaves the model in eval mode: never_back_to_train_mode
mode mode | same input gives two different outputs: dropout_that_never_stops
mode moving | evaluating changes the model: evaluation_moves_batchnorm
workers worker-rng | workers draw the same random numbers: generator_copied_into_workers
workers worker-rng | same in every epoch: one_worker_repeats_each_epoch
workers duplicate | every sample comes 2 times: stream_not_sharded
data order | same order: never_shuffled
data ragged | [0] is 4, 5, 6: sequences_of_different_length
data image | not divided by 255: images_not_divided
memory growth | with their graph: losses_kept_with_their_graph | more are kept after each step: outputs_collected
memory growth | hook is registered by each step: hook_in_every_step
memory growth | from evaluation to evaluation: losses_of_evaluations
throughput starved | waits for data: slow_decoding
determinism nondeterminism | the initial weights: seed_from_the_system | the batch: unseeded_shuffle
determinism nondeterminism | the loss: unseeded_noise_in_forward
"""


# --- parts -----------------------------------------------------------------------------------------------------


def training(model: Any = None, loss: Any = None, data: Any = None, optimizer: Any = None, **more: Any) -> Training:
    """A healthy training but for what is given; a pair of tensors is data, functions make optimizer and scheduler."""
    model, data = mlp() if model is None else model, points() if data is None else data
    if isinstance(data, tuple):
        data = DataLoader(TensorDataset(*data), batch_size=BATCH, shuffle=True)
    if not isinstance(optimizer, torch.optim.Optimizer):
        optimizer = (optimizer or adam)(model.parameters())
    scheduler = more.pop("scheduler", None)
    if scheduler is not None and not isinstance(scheduler, LRScheduler):
        scheduler = scheduler(optimizer)
    return Training(model, data, loss or nn.CrossEntropyLoss(), optimizer, scheduler=scheduler, **more)


def points(count: int = 64, inputs: Any = lambda x: x, labels: Any = lambda y: y) -> tuple[Tensor, Tensor]:
    """Three classes that a line almost separates; inputs and labels changed by functions."""
    x = torch.randn(count, WIDTH)
    return inputs(x), labels(x[:, :CLASSES].argmax(1))


def numbers(of: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Data of a regression."""
    x = torch.randn(64, WIDTH)
    return x, of(x)


def hidden(*middle: nn.Module, out: int = CLASSES) -> Any:
    return nn.Sequential(nn.Linear(WIDTH, 16), *middle, nn.Linear(16, out))


def mlp(*tail: nn.Module, out: int = CLASSES) -> Any:
    return hidden(nn.ReLU(), out=out).extend(tail)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return AdamW(parameters, lr=1e-2)


def sgd(**settings: Any) -> Callable[[Any], torch.optim.Optimizer]:
    return lambda parameters: SGD(parameters, **settings)


@torch.no_grad()
def after(model: Any, *changes: Callable[[Any], Any]) -> Any:
    for change in changes:
        change(model)
    return model


def usual_loss(t: Training, batch: Any) -> Any:
    return t.loss(t.model(batch[0]), batch[1])


def update(t: Training, loss: Any) -> Any:
    t.optimizer.zero_grad()
    loss.backward()
    t.optimizer.step()
    return loss


def step_in_order(acts: str) -> Callable[[Training, Any], Any]:
    """A training step that does these, in this order, after the forward pass."""

    def step(t: Training, batch: Any) -> Any:
        loss = usual_loss(t, batch)
        does = {
            "zero": t.optimizer.zero_grad,
            "backward": loss.backward,
            "step": t.optimizer.step,
            "schedule": lambda: t.scheduler.step(),
        }
        for act in acts.split():
            does[act]()
        return loss

    return step


def evaluation(*modes: bool) -> Callable[[Training], float]:
    """An evaluation that sets train mode (True) or eval mode (False) before and, with a second one, after."""

    def evaluate(t: Training) -> float:
        t.model.train(modes[0] if modes else t.model.training)
        with torch.no_grad():
            total = sum(float(usual_loss(t, batch)) for batch in t.data)
        t.model.train(modes[1] if modes[1:] else t.model.training)
        return total

    return evaluate


class Net(nn.Module):
    """Two parts with names, to break one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(WIDTH, 16), nn.BatchNorm1d(16), nn.ReLU())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.backbone(x))


def softmax_before_cross_entropy() -> Training:
    return training(mlp(nn.Softmax(dim=1)))


def binary(loss: Any) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda p, y: loss(p[:, 0], (y == 0).float())


class Tagger(nn.Module):
    """Scores per position of a row of tokens."""

    def __init__(self, padding_idx: int | None = None, tied: bool = False) -> None:
        super().__init__()
        self.token = nn.Embedding(12, 16, padding_idx=padding_idx)
        self.rnn, self.head = nn.GRU(16, 16, batch_first=True), nn.Linear(16, 12, bias=not tied)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, tokens: Tensor) -> Any:
        return self.head(self.rnn(self.token(tokens))[0])


def sentences(shift: int = 1, pad: bool = False) -> DataLoader[Any]:
    """Rows in which each token follows from the one before it, and the next tokens; token 0 only pads."""
    rows = (torch.randint(0, 11, (32, 1)) + torch.arange(11) * 3) % 11 + 1
    if pad:
        rows = rows * (torch.arange(11) < torch.randint(3, 10, (32, 1)))
    return DataLoader(TensorDataset(rows[:, : 11 - shift], rows[:, shift:]), batch_size=8, shuffle=True)


def token_loss(scores: Tensor, y: Tensor, ignore: int = -100) -> Tensor:
    return F.cross_entropy(scores.flatten(0, 1), y.flatten(), ignore_index=ignore)


def masked_loss(mask_the_sum: bool) -> Callable[[Tensor, Tensor], Tensor]:
    def loss(scores: Tensor, y: Tensor) -> Tensor:
        each = F.cross_entropy(scores.flatten(0, 1), y.flatten(), reduction="none")
        keep = (y != 0).flatten().float()
        return (each * keep if mask_the_sum else each).sum() / keep.sum()

    return loss


# --- parameters --------------------------------------------------------------------------------------------------


def head_not_in_the_optimizer() -> Training:
    return training(model := Net(), optimizer=adam(model.backbone.parameters()))


def layers_in_a_plain_list() -> Training:
    hidden = [nn.Linear(WIDTH, 16)]
    return training(Net(), forward=lambda net, b: net.head(hidden[0](b[0]).relu() + net.backbone(b[0])))


def frozen_batchnorm_moves() -> Training:
    model = after(Net(), lambda net: net.backbone.requires_grad_(False))
    return training(model, optimizer=adam(model.head.parameters()), frozen=("backbone",))


def bfloat16_swallows_updates() -> Training:
    model = after(nn.Linear(WIDTH, CLASSES).bfloat16(), lambda m: m.weight.mul_(0.1).add_(1), lambda m: m.bias.fill_(1))
    return training(model, data=points(inputs=Tensor.bfloat16), optimizer=sgd(lr=1e-4))


# --- learning rate -----------------------------------------------------------------------------------------------


def group_with_rate_zero() -> Training:
    model = Net()
    groups = [{"params": model.backbone.parameters(), "lr": 0.0}, {"params": model.head.parameters()}]
    return training(model, optimizer=adam(groups))


# --- NaN and Inf ---------------------------------------------------------------------------------------------------


def attention_row_fully_masked() -> Training:
    mask = torch.zeros(BATCH, 1).index_fill(0, torch.tensor(0), -math.inf)
    return training(forward=lambda net, b: net(b[0]) * (net(b[0]) + mask).softmax(1))


def half_precision_overflows() -> Training:
    model = after(mlp().half(), lambda m: m[0].weight.mul_(20))
    return training(model, data=points(inputs=lambda x: (x * 5e3).half()), optimizer=sgd(lr=1e-3))


# --- gradients and units -------------------------------------------------------------------------------------------


def twelve_sigmoids() -> Training:
    layers = [part for _ in range(12) for part in (nn.Linear(WIDTH, WIDTH), nn.Sigmoid())]
    return training(nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)))


def wide_initialisation() -> Training:
    layers = [after(nn.Linear(WIDTH, WIDTH, bias=False), lambda m: m.weight.normal_(std=3.0)) for _ in range(10)]
    return training(nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)), optimizer=sgd(lr=1e-12))


# --- data ------------------------------------------------------------------------------------------------------------


class Samples(Dataset[Any]):
    """`read(samples, x)` augments an input; `rng` is a generator of its own, which every worker gets a copy of."""

    def __init__(self, read: Callable[[Samples, Tensor], Tensor]) -> None:
        (self.x, self.y), self.read, self.rng = points(), read, numpy.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> Any:
        return self.read(self, self.x[index]), self.y[index]


def own_noise(samples: Samples, x: Tensor) -> Tensor:
    return x + torch.from_numpy(samples.rng.normal(size=WIDTH)).float() * 0.1


def slow_decoder(samples: Samples, x: Tensor) -> Tensor:
    time.sleep(0.003)
    return x


def own_seed(worker: int) -> None:
    dataset: Any = get_worker_info().dataset  # type: ignore[union-attr]
    dataset.rng = numpy.random.default_rng(torch.initial_seed() % 2**32)


def sampling(read: Callable[[Samples, Tensor], Tensor], workers: int = 2, init: Any = None) -> Training:
    loader = DataLoader(Samples(read), BATCH, shuffle=True, num_workers=workers, worker_init_fn=init)
    return training(data=loader)


class Lines(IterableDataset[Any]):
    def __init__(self, shard: bool) -> None:
        self.x, self.y = points(48)
        self.shard = shard

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        step, first = (info.num_workers, info.id) if info and self.shard else (1, 0)
        return iter([(self.x[i], self.y[i]) for i in range(first, len(self.x), step)])


def sequences_of_different_length() -> Training:
    rows: Any = [(torch.ones(4 + i % 3), 1) for i in range(32)]
    return training(data=DataLoader(rows, 4))


def pictures() -> Any:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, CLASSES))


# --- memory, speed, repetition ---------------------------------------------------------------------------------------


def collecting(what: Callable[[Tensor, Tensor], Tensor]) -> Training:
    """Keeps what(scores, loss) of every step."""
    kept: list[Tensor] = []

    def step(t: Training, batch: Any) -> Any:
        scores = t.model(batch[0])
        loss = t.loss(scores, batch[1])
        kept.append(what(scores, loss))
        return update(t, loss)

    return training(step=step)


def hook_in_every_step() -> Training:
    def step(t: Training, batch: Any) -> Any:
        t.model[0].register_forward_hook(lambda module, inputs, output: None)
        return update(t, t.loss(t.model(batch[0]), batch[1]))

    return training(step=step)


def losses_of_evaluations() -> Training:
    history: list[Tensor] = []

    def evaluate(t: Training) -> float:
        inputs, targets = next(iter(t.data))
        t.model.eval()
        history.append(t.loss(t.model(inputs), targets))
        t.model.train()
        return float(history[-1].detach())

    return training(evaluate=evaluate)


def seed_from_the_system() -> Training:
    generator = torch.Generator().manual_seed(random.SystemRandom().getrandbits(32))
    return training(after(mlp(), lambda m: m[0].weight.normal_(0, 0.3, generator=generator)))


def unseeded_shuffle() -> Training:
    generator = torch.Generator().manual_seed(random.SystemRandom().getrandbits(32))
    return training(data=DataLoader(TensorDataset(*points()), BATCH, shuffle=True, generator=generator))


# --- healthy, though it looks odd --------------------------------------------------------------------------------


def frozen_on_purpose() -> Training:
    model = after(Net(), lambda net: net.backbone.requires_grad_(False), lambda net: net.backbone.eval())
    return training(model, optimizer=adam(model.head.parameters()), frozen=("backbone",))


def two_losses() -> Training:
    def loss(output: Any, y: Tensor) -> Any:
        main, extra = F.cross_entropy(output[0], y), output[1].square().mean()
        return {"loss": main + 0.01 * extra, "main": main, "extra": extra}

    return training(Net(), loss, forward=lambda net, b: (net.head(features := net.backbone(b[0])), features))


def ema_beside_the_model() -> Training:
    """The average inside the model: it moves without a gradient, and forward does not use it."""

    def step(t: Training, batch: Any) -> Any:
        loss = update(t, usual_loss(t, batch))
        with torch.no_grad():
            for slow, fast in zip(t.model.average.parameters(), t.model.head.parameters(), strict=True):
                slow.lerp_(fast, 0.1)
        return loss

    model = after(Net(), lambda net: net.add_module("average", nn.Linear(16, CLASSES).requires_grad_(False)))
    return training(model, step=step, optimizer=lambda parameters: AdamW([p for p in parameters if p.requires_grad]))


def causal_mask_of_infinities() -> Training:
    mask = torch.full((BATCH, BATCH), -math.inf).triu(1)
    return training(forward=lambda net, b: net((b[0] @ b[0].T + mask).softmax(1) @ b[0] + b[0]))


# --- in a line each ---------------------------------------------------------------------------------------------

SHORT: dict[str, Make] = {
    "logits_before_nll": lambda: training(loss=nn.NLLLoss()),
    "probabilities_before_nll": lambda: training(mlp(nn.Softmax(dim=1)), nn.NLLLoss()),
    "sigmoid_before_bce_with_logits": lambda: training(mlp(nn.Sigmoid(), out=1), binary(nn.BCEWithLogitsLoss())),
    "logits_before_bce": lambda: training(mlp(out=1), binary(nn.BCELoss())),
    "labels_from_one": lambda: training(data=points(labels=lambda y: y + 1)),
    "float_class_numbers": lambda: training(data=points(labels=Tensor.float)),
    "all_targets_ignored": lambda: training(data=points(labels=lambda y: torch.full_like(y, -100))),
    "padding_in_the_mean": lambda: training(Tagger(padding_idx=0), token_loss, sentences(pad=True)),
    "mask_that_only_divides": lambda: training(Tagger(), masked_loss(False), sentences(pad=True), pad_id=0),
    "targets_not_shifted": lambda: training(Tagger(), token_loss, sentences(shift=0)),
    "targets_shifted_twice": lambda: training(Tagger(), lambda s, y: token_loss(s[:, :-1], y[:, 1:]), sentences()),
    "optimizer_of_a_copy": lambda: training(Net(), optimizer=lambda p: adam(copy.deepcopy(list(p)))),
    "frozen_and_forgotten": lambda: training(after(Net(), lambda net: net.backbone.requires_grad_(False))),
    "detached_features": lambda: training(Net(), forward=lambda net, b: net.head(net.backbone(b[0]).detach())),
    "module_never_called": lambda: training(after(Net(), lambda net: net.add_module("adapter", nn.Linear(16, 16)))),
    "frozen_only_by_name": lambda: training(Net(), frozen=("backbone.0",)),
    "step_forgotten": lambda: training(step=step_in_order("zero backward")),
    "zero_grad_before_step": lambda: training(step=step_in_order("backward zero step")),
    "zero_grad_forgotten": lambda: training(step=step_in_order("backward step")),
    "schedule_in_epochs": lambda: training(scheduler=lambda o: LinearLR(o, 1.0, 0.0, total_iters=10), total_steps=1000),
    "cosine_period_in_epochs": lambda: training(scheduler=lambda o: CosineAnnealingLR(o, T_max=50), total_steps=1000),
    "warmup_never_leaves_zero": lambda: training(scheduler=lambda o: LambdaLR(o, lambda s: s // 1000)),  # / was meant
    "rate_far_too_low": lambda: training(optimizer=sgd(lr=1e-8)),
    "clipped_to_nothing": lambda: training(optimizer=sgd(lr=1e-2), clip=1e-3),
    "weight_decay_wins": lambda: training(optimizer=lambda p: AdamW(p, lr=1e-2, weight_decay=30.0)),
    "input_multiplied_away": lambda: training(forward=lambda net, b: net(b[0] * 0.0)),
    "log_of_zero": lambda: training(mlp(nn.ReLU()), lambda s, y: -(s + 0.0).log().gather(1, y[:, None]).mean()),
    "dead_relu": lambda: training(after(mlp(), lambda m: m[0].bias.fill_(-20.0)), optimizer=sgd(lr=1e-3)),
    "loss_rebuilt_from_a_number": lambda: training(step=lambda t, b: torch.tensor(usual_loss(t, b).item())),
    "nan_in_one_sample": lambda: training(data=points(inputs=lambda x: x.where(x < x.max(), math.nan))),
    "left_in_eval_mode": lambda: training(Net().eval()),
    "evaluates_in_train_mode": lambda: training(mlp(nn.Dropout(0.2)), evaluate=evaluation()),
    "never_back_to_train_mode": lambda: training(Net(), evaluate=evaluation(False)),
    "dropout_that_never_stops": lambda: training(forward=lambda net, b: F.dropout(net(b[0]), 0.3)),
    "evaluation_moves_batchnorm": lambda: training(Net(), evaluate=evaluation()),
    "generator_copied_into_workers": lambda: sampling(own_noise),
    "one_worker_repeats_each_epoch": lambda: sampling(own_noise, workers=1),
    "stream_not_sharded": lambda: training(data=DataLoader(Lines(shard=False), batch_size=8, num_workers=2)),
    "never_shuffled": lambda: training(data=DataLoader(TensorDataset(*points()), BATCH)),
    "drop_last_drops_everything": lambda: training(data=DataLoader(TensorDataset(*points(10)), BATCH, drop_last=True)),
    "index_ignored": lambda: training(data=points(inputs=lambda x: x[:1].expand(64, -1))),
    "one_label_for_all": lambda: training(data=points(labels=torch.ones_like)),
    "images_not_divided": lambda: training(pictures(), data=(torch.randint(256, (64, 3, 6, 6)).float(), points()[1])),
    "losses_kept_with_their_graph": lambda: collecting(lambda scores, loss: loss),
    "outputs_collected": lambda: collecting(lambda scores, loss: scores.detach().repeat(100, 1)),
    "slow_decoding": lambda: sampling(slow_decoder, workers=0),
    "unseeded_noise_in_forward": lambda: training(forward=lambda net, b: net(b[0] + random.SystemRandom().random())),
    "regression_broadcast": lambda: training(mlp(out=1), nn.MSELoss(), numbers(lambda x: x[:, 0])),
    "scheduler_per_micro_batch": lambda: training(
        scheduler=lambda o: LinearLR(o, 1.0, 0.1, total_iters=1000),
        step=step_in_order("zero backward step schedule schedule"),
    ),
    "scheduler_never_stepped": lambda: training(
        scheduler=lambda o: CosineAnnealingLR(o, 100), step=step_in_order("zero backward step")
    ),
    "epoch_scheduler_per_batch": lambda: training(
        scheduler=lambda o: StepLR(o, 30),
        step=step_in_order("zero backward step schedule"),
        scheduler_interval="epoch",
    ),
    "scheduler_of_an_old_optimizer": lambda: training(scheduler=StepLR(adam(mlp().parameters()), 10)),
    "rate_far_too_high": lambda: training(
        hidden(nn.Tanh(), out=1), nn.MSELoss(), numbers(lambda x: x[:, :1]), sgd(lr=1.0)
    ),
    "root_at_zero": lambda: training(loss=lambda s, y: F.cross_entropy(s, y) + (s - s.detach()).square().sum().sqrt()),
    "infinity_in_the_target": lambda: training(mlp(out=1), nn.MSELoss(), numbers(lambda x: x[:, :1] / 0)),
}
BROKEN = {
    name: Planted(SHORT.get(name) or globals()[name], probe, code, words)
    for head, *found in (line.split(" | ") for line in PLANTED.strip().split("\n"))
    for probe, code in [head.split()]
    for words, names in (entry.split(": ") for entry in found)
    for name in names.split()
}
HEALTHY: dict[str, Make] = {
    "plain": training,
    "tied_weights": lambda: training(Tagger(tied=True), token_loss, sentences()),
    "batchnorm_with_evaluation": lambda: training(Net(), evaluate=evaluation(False, True)),
    "recurrent": lambda: training(Tagger(), token_loss, sentences(), clip=1.0),
    "padded_and_masked": lambda: training(Tagger(0), partial(token_loss, ignore=0), sentences(pad=True)),
    "masked_by_hand": lambda: training(Tagger(), masked_loss(True), sentences(pad=True)),
    "label_smoothing": lambda: training(loss=nn.CrossEntropyLoss(label_smoothing=0.2)),
    "sharded_stream": lambda: training(data=DataLoader(Lines(shard=True), batch_size=8, num_workers=2)),
    "workers_seeded_properly": lambda: sampling(own_noise, init=own_seed),
    "warmup_from_zero": lambda: training(scheduler=lambda o: LambdaLR(o, lambda s: min(1.0, s / 10)), total_steps=1000),
    # Superfluous and harmless: log_softmax of log-probabilities changes nothing.
    "log_softmax_then_cross_entropy": lambda: training(mlp(nn.LogSoftmax(dim=1))),
    "zero_initialised_head": lambda: training(after(mlp(), lambda m: m[2].weight.zero_())),
    "masks_as_pictures": lambda: training(pictures(), data=(torch.randint(2, (64, 3, 6, 6)).float(), points()[1])),
    "normalised_pictures": lambda: training(pictures(), data=(torch.randn(64, 3, 6, 6), points()[1])),
    "momentum_and_clipping": lambda: training(Net(), optimizer=sgd(lr=0.05, momentum=0.9), clip=0.5),
    "regression": lambda: training(mlp(out=1), nn.MSELoss(), numbers(lambda x: x[:, :1] * 2 + x[:, 1:2] ** 2)),
    "gradient_accumulation": lambda: training(
        scheduler=lambda o: LinearLR(o, 1.0, 0.1, total_iters=500), accumulate=4, total_steps=500
    ),
    "frozen_on_purpose": frozen_on_purpose,
    "two_losses": two_losses,
    "ema_beside_the_model": ema_beside_the_model,
    "causal_mask_of_infinities": causal_mask_of_infinities,
}
