"""Run folders of seven trainers, most with something wrong at the end; each maker returns what to resume from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from worlds import savers as s

NAN, INF = float("nan"), float("inf")
SHARD = "model-0000{}-of-00003.safetensors"
Make = Callable[[Path], object]  # builds a run folder, and returns the path that is right


def _run(saver: s.Saver, change: s.Change | None = None, damage: Make | None = None,
         steps: tuple[int, ...] = (800, 900, 1000, 1100), **how: int) -> Make:  # fmt: skip
    """All sound but the last one, which is changed before, or damaged after it was written."""

    def make(run: Path) -> Path:
        made = [saver(run, step, change if step == steps[-1] else None, **how) for step in steps]
        for number, path in enumerate(made):
            s.as_if_from(path, 60 - number)  # copied from the box in any order
        if damage:
            damage(made[-1])
        return made[-2] if change or damage else made[-1]

    return make


def _inside(name: str, damage: Callable[[Path], None]) -> Make:
    return lambda folder: damage(folder / name)


def _without(*names: str) -> Make:
    return lambda folder: s.drop(folder, names)


# -- several things at once


def _backup_copied_back(run: Path) -> Path:
    right = [s.nanogpt(run, step) for step in (900, 950, 1000)][-1]
    s.as_if_from(s.nanogpt(run, 700, name="ckpt.pt"), 900)
    return right


def _newest_without_a_number(run: Path) -> Path:
    for step in (900, 1000):
        s.as_if_from(s.nanogpt(run, step), 900)
    return s.nanogpt(run, 1100, name="ckpt.pt")


def _newest_without_a_number_cut(run: Path) -> Path:
    right = [s.nanogpt(run, step) for step in (900, 1000)][-1]
    s.cut(s.nanogpt(run, 1100, name="ckpt.pt"), 0.97)
    return right


def _renamed(run: Path) -> Path:
    right = [s.nanogpt(run, step) for step in (800, 900, 1000)][-1]
    s.nanogpt(run, 700, name="ckpt_1500.pt")
    return right


def _two_bad(run: Path) -> Path:
    made = [s.nanogpt(run, step, s.bad_value(INF) if step == 1000 else None) for step in (800, 900, 1000, 1100)]
    s.flip(made[-1])
    return made[1]


def _temporary(name: str) -> Make:
    def make(run: Path) -> Path:
        made = [s.trainer(run, step) for step in (900, 1000, 1100)]
        made[-1].rename(run / name)
        return made[-2]

    return make


def _half_rotated(run: Path) -> Path:
    made = [s.trainer(run, step) for step in (700, 800, 900, 1000)]
    s.drop(made[0], ("trainer_state.json", "optimizer.pt", SHARD.format(1)))  # the kill came while it was deleted
    s.drop(made[-1], ("scheduler.pt", "rng_state.pth"))
    return made[-2]


def _all_bad(run: Path) -> None:
    for step in (900, 1000):
        s.cut(s.trainer(run, step) / SHARD.format(2))


def _no_checkpoint(run: Path) -> None:
    run.mkdir(parents=True)
    (run / "train.log").write_text("step 10 loss 3.1\n")


def _last_is_newest(run: Path) -> Path:
    for step in (750, 1000):
        s.as_if_from(s.lightning(run, step), 900)
    return s.lightning(run, 1100, name="last.ckpt")


def _last_leads_nowhere(run: Path) -> Path:
    made = [s.lightning(run, step) for step in (750, 1000, 1250)]
    (run / "checkpoints" / "last.ckpt").symlink_to("epoch=6-step=1500.ckpt")
    s.zero_tail(made[-1])
    return made[-2]


def _latest_is_gone(run: Path) -> Path:
    made = [s.deepspeed(run, step) for step in (900, 1000, 1100)]
    (run / "latest").write_text("global_step1200")
    return made[-1]


RUNS: dict[str, Make] = {
    "nanogpt": _run(s.nanogpt),
    "nanogpt_cut": _run(s.nanogpt, damage=s.cut),
    "nanogpt_flip": _run(s.nanogpt, damage=s.flip),
    "nanogpt_zeros": _run(s.nanogpt, damage=s.zero_tail),
    "nanogpt_nan": _run(s.nanogpt, s.bad_value(NAN)),
    "nanogpt_moment": _run(s.nanogpt, s.bad_moment),
    "nanogpt_old_optimizer": _run(s.nanogpt, s.optimizer_of_step(300)),
    "nanogpt_other_optimizer": _run(s.nanogpt, s.optimizer_of_another_model),
    "nanogpt_reset": _run(s.nanogpt, s.fresh_optimizer),
    "nanogpt_weights_only": _run(s.nanogpt, s.weights_only),
    "backup_copied_back": _backup_copied_back,
    "newest_without_a_number": _newest_without_a_number,
    "newest_without_a_number_cut": _newest_without_a_number_cut,
    "renamed": _renamed,
    "two_bad": _two_bad,
    "trainer_900_1000": _run(s.trainer, steps=(800, 900, 1000)),
    "trainer_shard_gone": _run(s.trainer, damage=_without(SHARD.format(3))),
    "trainer_shards_swapped": _run(s.trainer, damage=lambda f: s.swap(f, SHARD.format(1), SHARD.format(2))),
    "trainer_index_gone": _run(s.trainer, damage=_without("model.safetensors.index.json")),
    "trainer_shard_zeros": _run(s.trainer, damage=_inside(SHARD.format(2), s.zero_tail)),
    "trainer_nan": _run(s.trainer, s.bad_value(NAN, "head.weight")),
    "trainer_old_optimizer": _run(s.trainer, s.optimizer_of_step(600)),
    "trainer_other_optimizer": _run(s.trainer, s.optimizer_of_another_model),
    "trainer_optimizer_cut": _run(s.trainer, damage=_inside("optimizer.pt", lambda path: s.cut(path, 0.9))),
    "trainer_optimizer_flip": _run(s.trainer, damage=_inside("optimizer.pt", s.flip)),
    "trainer_json_cut": _run(s.trainer, damage=_inside("trainer_state.json", s.cut)),
    "trainer_says_700": _run(s.trainer, s.says_step(700)),
    "trainer_rank_gone": _run(s.trainer, damage=_without("rng_state_1.pth"), ranks=4),
    "trainer_killed": _run(s.trainer, damage=_without("trainer_state.json", "rng_state.pth", "scheduler.pt")),
    "trainer_tmp": _temporary("tmp-checkpoint-1100"),
    "trainer_tmp_behind": _temporary("checkpoint-1100.tmp"),
    "half_rotated": _half_rotated,
    "all_bad": _all_bad,
    "no_checkpoint": _no_checkpoint,
    "accelerate_model_gone": _run(s.accelerate, damage=_without("model.safetensors")),
    "accelerate_rank_gone": _run(s.accelerate, damage=_without("random_states_0.pkl")),
    "accelerate_reset": _run(s.accelerate, s.fresh_optimizer),
    "accelerate_zeros": _run(s.accelerate, damage=_inside("model.safetensors", s.zero_tail)),
    "last_is_newest": _last_is_newest,
    "last_leads_nowhere": _last_leads_nowhere,
    "lightning_old_optimizer": _run(s.lightning, s.optimizer_of_step(500), steps=(500, 750, 1000)),
    "litgpt_inf": _run(s.litgpt, s.bad_value(INF)),
    "litgpt_empty": _run(s.litgpt, damage=_without("lit_model.pth")),
    "dcp_900_1000": _run(s.distributed, steps=(900, 1000)),
    "dcp_without_metadata": _run(s.distributed, damage=_without(".metadata"), steps=(900, 1000)),
    "dcp_cut": _run(s.distributed, damage=_inside("__0_0.distcp", s.cut), steps=(900, 1000, 1100)),
    "latest_is_gone": _latest_is_gone,
    "deepspeed_rank_gone": _run(s.deepspeed, damage=_without("zero_pp_rank_1_mp_rank_00_optim_states.pt")),
    "deepspeed_says_600": _run(s.deepspeed, s.says_step(600)),
}  # fmt: skip
