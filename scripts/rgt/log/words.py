"""What the words before a number make of it: a step, an epoch, a total, a time, a metric by another name, or nothing.

Example:
    "num_updates" in STEPS        SAME["objective"]     "loss"        SHORT_SPLITS["ho"]     "val"
"""

from __future__ import annotations

import re

from rgt.metrics.table import SPLIT_WORDS

STEPS = set(
    """global_step step iter iteration it iter_num batch_idx _step num_updates update num_update updates_done
    total_timesteps     timesteps timestep env_steps
    micro_step train_step completed_step training_step global_steps current_step
    episode current_iter current_steps trainer_global_step optimizer_step up_ #""".split()  # up_: Marian's "Up. 500"
)
SURE_STEPS = {"step", "global_step", "num_updates", "trainer_global_step", "total_timesteps"}
COUNTERS = {"step", "total", "epoch", "epochs", "batch", "batches"}
EPOCHS = {"epoch", "ep", "ep_", "e", "current_epoch"}
PLURALS = {"steps", "iters", "iterations", "updates"}  # a counter only when nothing stands before them
TOTAL = set(
    """max_steps max_iters max_iterations max_train_steps num_steps num_training_steps total_steps total_iters
    total_optimization_steps train_iters train_steps max_update total_num_update""".split()
)
TOTAL_EPOCHS = set("epochs max_epochs max_epoch num_epochs num_train_epochs n_epochs total_epochs train_epochs".split())
TIMES = set(
    """time dt seconds sec batch_cost time_ms t time_elapsed elapsed elapsed_time total_time _runtime walltime
    wall_time wall_clock wall total duration last_time step_avg took secs""".split()
)
# step_time, seconds_per_iteration, time_this_iter_s: all words of these, and time_step is a counter
TIME_WORDS = set("time seconds sec secs ms duration took elapsed timing".split())
STEP_WORDS = set("step iter iteration it batch update".split())
OF_ONE = {"per", "this", "last", "each"}
TIMED_WORDS = {*TIME_WORDS, *STEP_WORDS, *OF_ONE, *"epoch train avg average mean s in for".split()}
SECONDS_IN_NAME = re.compile(r"(?<=time|psed)_(?:s|secs?|seconds)$")
SINCE_START = set("time_elapsed elapsed elapsed_time total_time _runtime walltime wall_time wall_clock".split())
CLOCKS = {"time", "timestamp", "_timestamp", "wall_time"}
QUALIFIERS = {
    *SPLIT_WORDS,
    *"best avg mean running total grad gradient learning lm max num global optimization iter step elapsed per".split(),
    *"time loss skipped nan param params seconds sec ms".split(),
}
PLAYERS = set("d g gen disc critic generator discriminator actor policy value q td kl recon box cls obj".split())
AFTER = {"value", "is", "was", "now", "of", "mean", "avg", "average", "this"}  # "lm loss value: 2.3"
# "Gradient Accumulation steps = 4" and "number of skipped iterations: 10" count something else
SPOILERS = set(
    """accumulation warmup per save saving eval evaluation logging log decay of micro every inner max
    best start end profile offset""".split()
)
NOT_METRICS = set(
    """v_num rank local_rank world_size cuda gpu pid port seed line node version eta train time speed data_time
    instances     size images gpu_mem class speed device""".split()
)
VAL = {"valid": "val", "validation": "val", "cv": "val"}
# what else a trainer calls them; in a document these words mean other things
SAME = {
    **dict.fromkeys(("objective", "cost", "criterion", "energy", "neg_elbo", "l", "j"), "loss"),
    **dict.fromkeys(("step_size", "stepsize", "rate", "learnrate", "learn_rate", "lrate", "l_r_"), "lr"),
    **dict.fromkeys(("ret", "rew", "ep_ret"), "reward"),
    "top1": "acc",
    "η": "lr",
    "bcer": "cer",
    "bwer": "wer",  # Tesseract
    **dict.fromkeys(("grad", "gradient", "gnorm", "gradnorm", "gn", "grad_global", "grad_l2"), "grad_norm"),
    "losses": "loss",
}
SHORT_SPLITS = {
    **dict.fromkeys(("t", "tr", "trn", "trn_set", "training"), "train"),
    **dict.fromkeys(("v", "va", "vl", "vld", "ho", "held_out", "holdout"), "val"),
    **dict.fromkeys(("ts", "tst"), "test"),
    **SPLIT_WORDS,
}
SHORT_NAMES = {**dict.fromkeys(("l", "obj", "cost", "energy"), "loss"), "err": "error", "top1": "acc"}
SHORT_NAMES |= {name: name for name in "loss nll ce mse mae acc ppl f1 auc".split()}
LETTERS = {"ep": "epoch", "e": "epoch", "it": "iter", "s": "step", "b": "batch"}
NO_NAMES = set("to from than by in at is of and for after with took about".split())
