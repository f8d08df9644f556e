"""A sampler for a running training: at every n-th step it looks at loss, gradients, updates, rate.

Example:
    with Watcher(model, optimizer, every=50) as watcher:
        for batch in loader:
            ...                              # forward, backward, optimizer.step() as always
            for finding in watcher.step(loss):
                print(finding.message)
"""

from __future__ import annotations

from typing import Any

from rgt.report import Finding

_KEEP = 1000  # samples remembered


class Watcher:
    """Two hooks on the optimizer, removed by close(). `samples` holds what was seen, newest last."""

    def __init__(self, model: Any, optimizer: Any, every: int = 50) -> None:
        if every < 1:
            raise ValueError(f"every={every}; expected a whole number from 1")
        self.every, self.count = every, 0
        self.samples: list[dict[str, Any]] = []
        self._named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        self._before: list[Any] = []
        self._sample: dict[str, Any] | None = None
        self._handles = [
            optimizer.register_step_pre_hook(self._pre),
            optimizer.register_step_post_hook(self._post),
        ]

    def __enter__(self) -> Watcher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._before = []

    def _pre(self, optimizer: Any, *_: Any) -> None:
        if self.count % self.every:
            return
        import torch

        with torch.no_grad():
            grads = [(n, p.grad) for n, p in self._named if p.grad is not None and not p.grad.is_sparse]
            norms = torch.stack(torch._foreach_norm([g for _, g in grads])) if grads else torch.zeros(0)
            self._before = [p.detach().clone() for _, p in self._named]
        self._sample = {
            "step": self.count,
            "lr": [float(group["lr"]) for group in optimizer.param_groups],
            "grad_norm": float(norms.norm()) if grads else 0.0,
            "bad_gradients": [grads[i][0] for i in (~norms.isfinite()).nonzero().flatten().tolist()] if grads else [],
            "without_gradient": [n for n, p in self._named if p.grad is None],
        }

    def _post(self, optimizer: Any, *_: Any) -> None:
        if self._sample is None or not self._before:
            return
        import torch

        with torch.no_grad():
            now = [p.detach() for _, p in self._named]
            change = torch.stack(torch._foreach_norm(torch._foreach_sub(now, self._before)))
            size = torch.stack(torch._foreach_norm(self._before))
            ratios = (change / size.clamp_min(1e-30)).tolist()
        self._before = []
        names = [name for name, _ in self._named]
        self._sample["update_ratio"] = dict(zip(names, ratios, strict=True))
        self._sample["still"] = [name for name, moved in zip(names, change.tolist(), strict=True) if moved == 0]

    def step(self, loss: Any = None) -> list[Finding]:
        """Call after optimizer.step(): counts, and on a sampled step gives what is wrong (usually nothing)."""
        sample, self._sample = self._sample, None
        self.count += 1
        if sample is None:
            return []
        if loss is not None:
            sample["loss"] = float(loss.detach() if hasattr(loss, "detach") else loss)
        self.samples = [*self.samples[1 - _KEEP :], sample]
        return list(judge(sample))


def judge(sample: dict[str, Any]) -> list[Finding]:
    found, step = [], sample["step"]
    loss = sample.get("loss", 0.0)
    if loss != loss or abs(loss) == float("inf"):
        found.append(Finding("nan", "error", f"the loss is {loss} at step {step}", fix="stop; run the nan probe"))
    if sample["bad_gradients"]:
        names = ", ".join(sample["bad_gradients"][:4])
        found.append(Finding("nan", "warn", f"gradients are not finite at step {step}", where=names))
    if any(sample["lr"]) and sample.get("still"):
        names = ", ".join(sample["still"][:4])
        message = f"{len(sample['still'])} parameters did not move at step {step}"
        found.append(Finding("not-updating", "warn", message, where=names, fix="run the parameters probe"))
    return found
