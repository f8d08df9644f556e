"""What one line of a log says of the run's fate: saved, ended, out of memory, killed, crashed.

Example:
    problem_in("RuntimeError: CUDA out of memory.")     "oom"        says_ended("Training finished.")     True
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_SAVED = re.compile(
    r"\bsav(?:ing|ed)\b.{0,80}?(?:checkpoint|ckpt|\.pth?\b|\.safetensors|model|weights)|checkpoint.{0,60}?\bsaved\b"
    r"|\bwrote checkpoint|\bsave (?:checkpoint|model)\b(?! (?:every|interval|step|freq))"
    r"|^\W*writing model shards: 100%",
    re.I,
)
_WORK = r"(?:train(?:ing)?|fit(?:ting)?|finetun(?:e|ing)|pretraining|run|job|experiment|optimi[sz]ation|process \d+)"
_DONE = r"(?:complete[d]?|finished|done|ended|successful(?:ly)?|exits? successfully|stopped early|is over)"
_ENDED = re.compile(
    rf"\b{_WORK}\W+(?:\w+ ){{0,3}}?{_DONE}\b|\b(?:done|finished|completed?|ended)(?: with)?(?: the)? {_WORK}\b"
    r"|\btotal train(?:ing)? time|\btraining (?:took|time)\b"
    r"|^\W*(?:final evaluation\b|(?:all )?done[.!,;:]? *(?:best|final|total|in \d|$)|(?:finished|exiting|bye)\W*$)",
    re.I,
)
_NOT_ENDED = re.compile(
    r"\b(?:epoch|step|iter\w*|phase|stage|round|fold)s? *[#:]? *\d|\b(?:not|pre|data|setup|warm-?up|tokeniz|compil)",
    re.I,
)
_SURELY_ENDED = re.compile(
    r"`Trainer\.fit` stopped: `max_|[\"']train_runtime[\"']|\bexit(?:s|ed|ing)? successfully|\d+ epochs completed in"
    r"|\bearly[ _-]?stopp|signaling trainer to stop|训练(?:完成|结束|完毕)|(?:学習|訓練).{0,4}(?:完了|終了)"
    r"|(?:학습|훈련).{0,3}(?:완료|종료)"
    # "Finished training at step 5350", timm, TF's Estimator
    rf"|\b(?:{_DONE} training|training (?:was )?{_DONE}) (?:at|after|in) (?:step|epoch|iter\w*|update)"
    r"|\*\*\* best metric: "
    r"|\bclosing the engine\b|^mean reward over \d+ evaluation episodes|^shrink model to first \d"
    r"|^\W*end\b.*\bstatus=ok\b"
    r"|^\S*loss for final step: |\b(?:stopping|stopped|finish(?:ed|ing)) early\b|\bat the end of training\b"
    r"|[\"']?(?:event|status|state)[\"']?[:=] ?[\"'](?:train(?:ing)?_(?:end|done|complete)|completed|finished)\b"
    r"|\b(?:обучение|тренировка) (?:завершен|окончен)|\btraining (?:beendet|abgeschlossen)"
    r"|entra[iî]nement (?:est )?termin|entrenamiento (?:completa|finaliza|termina)|treinamento (?:conclu|finaliza)"
    r"|reached max\w*[ _-](?:steps|epochs|iter\w*)"
    r"|max(?:imum)?\W+(?:number of )?(?:steps|epochs|iterations?|updates?)(?: \d+)? reached|^\W*end of training\b"
    r"|^\W*finished\b(?! (?:train\w* )?(?:epoch|step|iter|load|read|prepar|download|evaluat|valid|sav|build|compil))"
    r"|max\w*[ _-](?:steps?|epochs?|iter\w*) reached|"
    r"reach(?:ed|ing) (?:the )?(?:max\w*|last|final)[ _](?:steps?|epochs?|iter\w*)"
    r"|\ball (?:\d+ )?(?:epochs|steps|iterations) (?:are )?(?:finished|done|completed?|processed)"
    r"|\bsaving (?:the )?final (?:model|epoch|checkpoint|weights)|overall training speed: |optimizer stripped from"
    r"|^\W*(?:early stopping, )?best iteration(?: is|: \d+, eval score)"
    r"|\bexit(?:ed|ing)?(?: with)?(?: code| status)?[ :=]+0\b|\bsaved (?:the )?final (?:model|checkpoint|weights)",
    re.I,
)
_SENTENCE = 2000  # characters in which a trainer says something; a row of 200,000 digits took minutes

# The few that decide whether a run is dead; the catalogue of causes is another tool's.
MARKS = {
    "oom": "out of memory|OutOfGPUMemory|Out of memory|OOMKilled|OutOfMemoryError|OUT_OF_MEMORY|RESOURCE_EXHAUSTED"
    "|oom-kill|oom_kill|Cannot allocate|Out Of Memory|job memory limit|step memory limit",
    "no-space": "No space left on device|Disk quota exceeded",
    "hang": "watchdog got stuck|Watchdog caught collective operation timeout|NCCL timeout",
    "killed": "Killed|CANCELLED AT|DUE TO TIME LIMIT|SignalException",
    "crash": "Traceback (most recent call last)|Segmentation fault|Bus error|ChildFailedError|Aborted (core dumped)",
}
SENTENCES = {
    "nan": "the loss is not a number",
    "oom": "ran out of memory",
    "no-space": "the disk was full",
    "hang": "a collective operation timed out",
    "killed": "was killed",
    "crash": "ended in an error",
}
_CODE_OF = {mark: code for code, marks in MARKS.items() for mark in marks.split("|")}
_ANY_MARK = re.compile(f"(?:{'|'.join(map(re.escape, _CODE_OF))})(?!-mapped)")
_NOTICE = r"\bspot (?:instance )?(?:interruption|reclaim)|\bpreemption notice|\bwill be (?:terminated|preempted) in \d"
# what dies says so in many words: signals, exit codes, and an exception's last line
_DEATHS = {
    "nan": r"(?:loss|gradients?|grads?|logits|params?|weights) (?:is|are|was|became|went) (?:nan|inf\b|non-?finite)"
    r"|(?:nan|non-?finite|infinite) (?:loss|gradients?|values?)\b.{0,40}(?:detected|encountered|found|stop|abort)"
    r"|minimum loss scale reached|\b(?:loss\w*|tensor) (?:is|had|has|contains) (?:inf or )?nan\b|\breturned nan values"
    r"|\bdiverged with loss",
    # said of whatever it is: a run that goes on after it was not meant
    "killed": r"(?<![\w-])(?:kill(?:ed|ing)(?! (?!by|after|due|because|at|with|on|in|(?:sub)?process|job|task)[a-z\d])"
    r"|cancel(?:l?ed|l?ing)|terminat(?:ed|ing)|preempt(?:ed|ing|ion)|evict(?:ed|ing|ion)|reclaim(?:ed|ing)"
    r"|revoked|drained|interrupted|keyboardinterrupt|sig\W?(?:term|kill|int|hup|usr\d)|scancel|qdel|bkill)\b"
    r"(?!\W{0,3}(?:0|no|none|false|early|by callback)\b|\w*=)|\bsignal (?:9|15)\b|\b(?:closing|death) signal\b"
    r"|\b(?:wall|time|run)\W?(?:clock|time)?\W?limit\b|\bwall\W?time\b.*\bexceed|\bexceed.*\bwall\W?time\b"
    rf"|{_NOTICE}|connection to \S+ closed by remote host|^\^C"
    r"|已杀死|被(?:系统)?(?:杀死|终止|抢占)|收到信号|low on resource",
    "crash": r"^(?:\[?rank\d+\]?:? ?)?[a-z_][\w.]*(?:error|exception)(?:: |$)|^error executing job|\bfatal error\b"
    r"|^fatal\b"
    r"|\(core dumped\)|\bpanicked at\b|\bcheck failed: |check failure stack trace|^make: \*\*\*|terminate called"
    r"|\buncaught exception|\berror reported to coordinator: |异常(?:终止|退出)|\[ ?stack-?trace\b|\bjob failed\b",
}
_DEATH = {code: re.compile(pattern, re.I) for code, pattern in _DEATHS.items()}
_EXIT = re.compile(
    r"\b(?:exit(?:ed|s)?|return(?:ed)?)\W?(?: with)?\W?(?:exit |return |error )?(?:code|status)\W{1,4}(-?\d+)", re.I
)
_HANDLED = re.compile(r"\b(?:retry|skipp)ing\b.*\b(?:ok|succe\w+|batch|sample)", re.I)  # by the trainer itself
_CALM = re.compile(
    r"\bretr(?:y|ied)|\bskipp|\bhandler|\bregister|\binstall|\bcatch(?:ing)?\b|ignored in|^\W*(?:warning|info)\b"
    r"|(?<![\w-])(?:no|not|never|0(?!\.)|if|unless|when|would|could|may|might|can|to|early)\b.{0,40}(?:kill|cancel|terminat|preempt|evict)"
    r"|(?:kill|cancel|terminat|preempt|evict).{0,40}\b(?:if|when|unless)\b"
    r"|\b(?:time|walltime)[ _-]?limit\W{0,3}(?:is|of|set|left|remaining|=|:|\d)",
    re.I,
)

# lines that tell of a wait, a start, skipped steps and the next part of a job
WAITS = re.compile(
    r"\bwaiting\b|\bretry(?:ing)?\b|\bno (?:new )?step\b|not advancing|queue (?:is )?empty|"
    r"\bstill (?:waiting|\d)|step still|\bunchanged for|no (?:\w+ )?progress"
    r"|possible (?:hang|deadlock)|blocked for more than|process(?:es)? (?:is |are )?(?:still )?alive"
    r"|may be (?:hung|stuck)|not (?:completed|finished|advanced|moved) (?:in|for) \d"
    r"|without (?:making )?progress|last progress|\bstall(?:ed|_inspector)?\b|missing ranks|heartbeat|not responding"
    r"|等待|没有新|没有进展|卡住|心跳",
    re.I,
)
RESUMES = re.compile(
    r"\bresum|\brestart|\bcontinu(?:e|ing) (?:the )?train"
    r"|\bstart(?:ing|ed)? (?:the )?train|\brestor|\brequeu|from (?:the )?checkpoint"
    r"|\bload(?:ed|ing) (?:the )?checkpoint|恢复|断点|再開",
    re.I,
)
BEGINS = re.compile(r"\bbegin(?:ning)? (?:the )?train|训练(?:启动|开始)|开始训练", re.I)  # each epoch of some does
OVERFLOW = re.compile(r"overflow|reducing (?:loss|d?scale)|setting loss scale", re.I)
SCALED = re.compile(r"(?:\bto:?|scale:) ?([\d.]+(?:e[-+]?\d+)?)\b(?!.*\bto:? ?\d)", re.I)  # the last number named so
# the next of several trainings in one log, which counts from its own beginning; `seed: 3` is a setting, and no heading
CHAPTER = re.compile(
    r"^\W*(?:\w+\W+){0,4}?((?:(?:fold|stage|phase|trial|task|split|member|model|run|subject|part|round|experiment|config)"
    r"s?\W{0,3}|seed[ _#-]{0,2})\d{1,4})\b(?!.*(?:loss|\w=\S+ +\w+=|resum|start(?:ed)? again|restart|attempt|retr))"
    r"|第\s*\d+\s*折",
    re.I,
)


def says_saved(text: str) -> bool:
    """A checkpoint was written, or is being written: a claim until the file has been loaded."""
    return bool(_SAVED.search(text[:_SENTENCE]))


def says_ended(text: str) -> bool:
    """The trainer says of itself that it reached its end."""
    text = text[:_SENTENCE]
    return bool(_SURELY_ENDED.search(text) or (_ENDED.search(text) and not _NOT_ENDED.search(text)))


def problem_in(line: str) -> str | None:
    """The code of what this one line says went wrong, or None."""
    if _HANDLED.search(line):
        return None
    found = _ANY_MARK.search(line)
    # 'Killed' alone is the shell's word for SIGKILL; inside a sentence it is anything
    killed = found and "Killed" in line and _CODE_OF[found[0]] == "killed"
    if found and not (killed and not re.search(r"(?:^|\s|\d:?\s+)Killed(?:\s*$|\s{2,})|\d:?\s+Killed\b", line)):
        return _CODE_OF[found[0]]
    if len(line) > 400 or (_CALM.search(line) and not re.search(_NOTICE, line, re.I)):
        return None
    if (code := _EXIT.search(line)) and (number := int(code[1] or code[2])):
        return "killed" if number in (-9, -15, 9, 15, 130, 137, 143) else "crash"
    return next((code for code, pattern in _DEATH.items() if pattern.search(line)), None)


@dataclass
class Problem:
    """A line that says why a run is or will be dead; `recovered` when training went on after it."""

    code: str
    line: str
    recovered: bool = False
    moves: int = field(default=0, compare=False)  # steps since
