"""Train and eval mode: which one the step, the evaluation and the steps after it really run in."""

from __future__ import annotations

from typing import Any

from probing.observe import Observation
from probing.parameters import crashed
from probing.results import Result, several
from probing.session import Session, sentence, site, tensors
from probing.state import preserved


def mode(session: Session) -> Result:
    """Dropout and BatchNorm in the wrong mode in the step or the evaluation; what evaluating changes."""
    seen = session.observation()
    result = Result("mode")
    if crashed(result, seen):
        return result
    _training(result, session, seen)
    _random_in_eval(result, session)
    if session.training.evaluate:
        _evaluation(result, session)
    result.evidence = result.evidence or f"{len(seen.modes)} dropout or norm modules, in the mode they should have"
    result.data["modes"] = seen.modes
    return result


def _training(result: Result, session: Session, seen: Observation) -> None:
    asleep = [n for n, training in seen.modes.items() if not training and not session.training.is_frozen(n)]
    if asleep:
        result.add(
            "mode",
            "error",
            "in eval mode during the training step",
            where=several(asleep),
            evidence=f"{len(asleep)} of {len(seen.modes)} dropout or BatchNorm modules",
            fix="model.train() at the start of every epoch, also after evaluation and after loading",
        )


def _random_in_eval(result: Result, session: Session) -> None:
    import torch

    batch = session.batches(1)[0]
    with preserved(session.training), torch.no_grad():
        session.training.model.eval()
        try:
            first, second = (dict(tensors(session.forward(batch))) for _ in range(2))
        except Exception as error:
            where, text = site(error), sentence(error)
            result.add("mode", "error", f"the model cannot run in eval mode: {text}", where=where,
                       fix="compare what forward does under self.training")  # fmt: skip
            return
    odd = [name for name in first if name in second and not torch.equal(first[name], second[name])
           and not (first[name].isnan() & second[name].isnan()).any()]  # fmt: skip
    if odd:
        result.add("mode", "error", "in eval mode the same input gives two different outputs", where=several(odd),
                   evidence=f"largest difference {max(float((first[n] - second[n]).abs().max()) for n in odd):.3g}",
                   fix="F.dropout(x, p) drops always: pass training=self.training")  # fmt: skip


def _evaluation(result: Result, session: Session) -> None:
    training = session.training
    assert training.evaluate
    with preserved(training):
        training.model.train()
        before = {name: module.training for name, module in training.model.named_modules()}
        state = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
        modes: dict[str, bool] = {}
        handles = _watch(training.model, modes)
        try:
            training.evaluate(training)
        except Exception as error:
            result.add("crash", "error", f"evaluate raises: {sentence(error)}", where=site(error))
            return
        finally:
            for handle in handles:
                handle.remove()
        _changes(result, training.model, before, state)
        awake = [name for name, on in modes.items() if on]
        if awake:
            result.add("mode", "error", "in train mode during the evaluation", where=several(awake),
                       evidence="dropout drops, BatchNorm uses the batch's own statistics",
                       fix="model.eval() before evaluating, model.train() after")  # fmt: skip


def _watch(model: Any, modes: dict[str, bool]) -> list[Any]:
    import torch

    kinds = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd)

    def note(name: str, module: Any) -> Any:
        return module.register_forward_pre_hook(lambda *_: modes.__setitem__(name, module.training))

    return [note(name, module) for name, module in model.named_modules() if isinstance(module, kinds)]


def _changes(result: Result, model: Any, before: dict[str, bool], state: dict[str, Any]) -> None:
    import torch

    left = [name or "model" for name, module in model.named_modules() if before.get(name) and not module.training]
    if left:
        result.add("mode", "error", "evaluation leaves the model in eval mode", where=several(left),
                   evidence="every later training step runs without dropout and with frozen BatchNorm",
                   fix="model.train() after evaluating")  # fmt: skip
    after = model.state_dict()
    changed = [name for name, old in state.items() if name in after and not torch.equal(old, after[name])]
    if changed:
        result.add("moving", "error", "evaluating changes the model", where=several(changed),
                   fix="model.eval() and torch.no_grad() around the evaluation")  # fmt: skip
