"""Which runs a file or a folder holds, whoever wrote them: the readers are the siblings of this module.

Example:
    seen = look(Path("exp"), Ask())
    seen.runs         every run, read                 seen.unread       what looked like one and was not read, and why

A tracker's own folder or database says which runs it holds. Elsewhere the files of a folder are one run (a table, event
files, a log, a config), unless it holds several tables or logs: then each of them is one.
"""

from __future__ import annotations

import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from rgt import files, schema
from rgt.checkpoint.names import is_step_folder
from rgt.errors import RgtError, bad_input
from rgt.job import settings
from rgt.log.summary import head
from rgt.metrics.table import SPLITS, known, scope, split_and_rest, split_of
from rgt.run import discovery
from rgt.run.foreign import Ask, Foreign, as_number, databases, event_files, flat, strict, text_files, wandb_files
from rgt.walk import walk

_CONFIG = re.compile(
    r"(?:(?:train|training|run|exp|experiment|model|hyper)_?)?(?:config|cfg|conf|args|arguments|opts?|options|hparams"
    r"|hyperparameters|params|parameters|settings|flags|variant)\.(?:json|ya?ml)",
    re.I,
)
_CONFIGS_INSIDE = (".hydra/config.yaml", "files/config.yaml", "vis_data/config.py")
SECONDS = 30.0  # for one folder; half of it for the walk
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson")
_JSON_LINES = re.compile(r"(?:.*[-_.])?log\.json|\d{8}_\d{6}\.json|scalars\.json", re.I)  # mmcv's and mmengine's
_TEXTS = 5  # files in one folder of which it is looked whether they are logs: there may be a caption per image
_DATABASES = (".db", ".sqlite", ".sqlite3")
_EVALUATION = re.compile(
    r"(?:(?:all|eval|evaluation|test|train|val|valid|predict|final|best|wandb)[_-])?"
    r"(?:results?|metrics|scores?|summary|eval|evaluation|history)(?:_\d{4}-\d\d-\d\d.*)?\.json",
    re.I,
)
_SETTINGS = "config configs args arguments hparams hyperparameters hyperparams params parameters settings".split()
_EVALUATED_ON = "n-shot num_fewshot n-samples versions limit".split()  # lm-eval's
_HF_EVENTS = re.compile(r"[A-Z][a-z]{2}\d\d_\d\d-\d\d-\d\d_.+")  # runs/Nov17_22-44-43_host/ of HF Trainer
_INNER = discovery.INNER - {"out"}

Files = dict[str, list[Path]]  # kind -> files
Reader = Callable[[], Iterable[Foreign]]


@dataclass
class Survey:
    root: Path
    runs: list[Foreign] = field(default_factory=list)
    empty: list[Foreign] = field(default_factory=list)  # without a point or a result; they may have other values
    unread: list[tuple[Path, str]] = field(default_factory=list)
    ours: list[Path] = field(default_factory=list)  # run directories already
    stopped: list[str] = field(default_factory=list)  # places that were not looked at

    def take(self, where: Path, read: Reader) -> list[Foreign]:
        """The runs that `read` gives; a failure is kept as a sentence and ends nothing else."""
        found: list[Foreign] = []
        try:
            for run in read():
                found.append(run)  # one by one: what came before a failure stays
        except RgtError as error:
            self.unread.append((where, error.message))
        except (OSError, ValueError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            self.unread.append((where, f"{where} cannot be read: {type(error).__name__}: {str(error)[:200]}"))
        self.runs += found
        return found


def look(path: Path, ask: Ask, seconds: float = SECONDS) -> Survey:
    """Everything that `path` holds, as far as the time goes. What is in a run directory of ours is only named."""
    if not path.is_dir() and not path.is_file():
        raise bad_input(f"{path} is neither a file nor a folder" if path.exists() else f"{path} does not exist")
    seen, began = Survey(path), time.monotonic()
    # a file that is given by hand and has no name of a kind
    by_name = "evaluation" if path.suffix.lower() == ".json" else "log"
    homes = _homes(seen, began + seconds / 2) if path.is_dir() else {path.parent: {_kind(path) or by_name: [path]}}
    records: list[wandb_files.Tracked] = []  # all together: a resumed run has several files
    wandb = sorted(file for kinds in homes.values() for file in kinds.get("wandb", []))
    tasks: list[tuple[Path, Callable[[], object]]] = [
        (file, partial(_add_records, seen, records, file)) for file in wandb
    ]
    tasks.append((path, lambda: seen.take(path, partial(wandb_files.read, records))))
    for home, kinds in sorted(homes.items()):
        for kind, read in (("database", databases.read), ("mlflow", databases.read_mlflow_folder)):
            tasks += [(place, partial(seen.take, place, partial(read, place))) for place in kinds.get(kind, [])]
        for part, stem in _parts(kinds):
            tasks.append((home / stem, partial(_read_home, seen, home, part, ask, stem)))
    for number, (where, task) in enumerate(tasks):
        if time.monotonic() > began + seconds:
            unread = f"{len(tasks) - number} of {len(tasks)} places, the first is {where}"
            seen.stopped.append(f"not read in {seconds:.0f} s: {unread}; name it alone, or give adopt more --patience")
            break
        task()
    for run in seen.runs:
        run.unnamed = ask.split or run.unnamed
        run.gaps += run.doubts() if not ask.split else []
    seen.empty = [run for run in seen.runs if not run.points and not run.results]
    for run in seen.empty:
        seen.unread.append((Path(run.source), f"{run.name}: {'; '.join(run.gaps[:2]) or 'no value in it'}"))
    seen.runs = [run for run in seen.runs if run.points or run.results]
    return seen


def _add_records(seen: Survey, records: list[wandb_files.Tracked], file: Path) -> None:
    try:
        records += wandb_files.Offline(file).runs()
    except (RgtError, OSError, ValueError) as error:
        seen.unread.append((file, str(error)))


def _homes(seen: Survey, deadline: float) -> dict[Path, Files]:
    """The folder of a run -> its files. What lies inside a tracker's own folder is the tracker's."""
    found: dict[Path, Files] = defaultdict(lambda: defaultdict(list))
    ours: set[str] = set()
    texts: Counter[str] = Counter()
    for directory, entry, prepared in walk(str(seen.root), deadline, seen.stopped):
        folder, path = Path(directory), Path(entry.path)
        ours |= {prepared} - {""}
        if prepared or not path.is_file():
            continue
        kind = _kind(path)
        if not kind and path.suffix == ".txt" and texts[directory] < _TEXTS:
            texts[directory] += 1
            kind = "log" if discovery.prints_training(path) else ""
        if kind:
            found[folder][kind].append(folder if kind == "mlflow" else path)
    seen.ours = sorted(map(Path, ours))
    homes: dict[Path, Files] = defaultdict(lambda: defaultdict(list))
    holding = {folder for folder, kinds in found.items() if "events" in kinds}
    owned = {folder for folder, kinds in found.items() if {"wandb", "mlflow"} & kinds.keys()}
    for folder, kinds in found.items():
        if owned & {*folder.parents}:
            continue
        home = folder
        # checkpoint-500/ and logs/ are parts of the run around them
        while home != seen.root and (home.name.lower() in _INNER or is_step_folder(home.name)):
            home = home.parent
        for kind, paths in kinds.items():
            above = folder.parent.parent
            whole = _HF_EVENTS.fullmatch(folder.name) and text_files.belongs_to_trainer(above, set(found))
            top = above if whole else event_files.home(folder, holding)
            homes[top if kind == "events" and top != folder else home][kind] += paths
    return homes


def configs(folder: Path) -> list[Path]:
    """The files beside a run that hold its settings; Hydra, W&B and mmengine keep them in a folder."""
    found = [path for path in folder.iterdir() if _CONFIG.fullmatch(path.name)] if folder.is_dir() else []
    found = sorted([*found, *(folder / inner for inner in _CONFIGS_INSIDE)])
    return [path for path in found if path.is_file() and path.stat().st_size]


def is_evaluation(name: str) -> bool:
    """Is this what an evaluation is usually called? results.json, eval_metrics.json, all_results.json"""
    return bool(_EVALUATION.fullmatch(name))


def _kind(path: Path) -> str:
    """What a file is to a run; empty when it is nothing."""
    name, suffix = path.name, path.suffix.lower()
    kinds = {
        "wandb": suffix == ".wandb",
        "mlflow": name == "meta.yaml" and databases.is_mlflow_run(path.parent),
        "events": event_files.is_event_file(name),
        "state": name == text_files.TRAINER_STATE,
        "database": suffix in _DATABASES and head(path, 16) == databases.MAGIC,
        "evaluation": is_evaluation(name),
        "table": (suffix in _TABLES and name not in ("events.jsonl", "SEALS.jsonl")) or _is_json_lines(path),
        "log": discovery.is_log(name),
    }
    return next((kind for kind, is_one in kinds.items() if is_one), "")


def _is_json_lines(path: Path) -> bool:
    """By name and first byte; mmengine writes the same lines under two names."""
    twice = path.name != "scalars.json" and (path.parent / "scalars.json").is_file()
    return bool(_JSON_LINES.fullmatch(path.name)) and not twice and head(path, 1) == b"{"


def _parts(kinds: Files) -> Iterator[tuple[Files, str]]:
    """The runs of one folder: a record with the logs beside it; of several tables, or logs alone, each by its name."""
    rest = {kind: kinds[kind] for kind in ("state", "events", "evaluation") if kinds.get(kind)}
    named = {"table": sorted(kinds.get("table", [])), "log": sorted(kinds.get("log", []))}
    if len(named["table"]) > 1 or (len(named["log"]) > 1 and not named["table"] and not {*rest} & {"state", "events"}):
        by_stem: dict[str, Files] = {}
        for kind, path in ((kind, path) for kind, paths in named.items() for path in paths):
            by_stem.setdefault(path.stem.removesuffix(".log"), {}).setdefault(kind, []).append(path)
        yield from ((part, stem) for stem, part in by_stem.items())
    elif named["table"] or named["log"]:
        rest |= named
    if rest:
        yield rest, ""


def _readers(kinds: Files, home: Path, ask: Ask) -> Iterator[tuple[Path, Reader]]:
    """The ways to read one run, the best first."""
    if states := kinds.get("state"):
        yield home, partial(text_files.read_trainer_states, states)
    for table in kinds.get("table", []):
        yield table, partial(text_files.read_table, table, ask)
    if events := kinds.get("events"):
        yield home, partial(event_files.read, events, home)
    for log in kinds.get("log", []):
        yield log, partial(text_files.read_log, log)
    for path in kinds.get("evaluation", []):
        yield path, partial(_evaluated, path, ask)


def _read_home(seen: Survey, home: Path, kinds: Files, ask: Ask, stem: str) -> None:
    """One run by the first way that works, with what lies beside its record; a table may hold several runs."""
    beside = Survey(home)
    runs: list[Foreign] = []
    for where, read in _readers(kinds, home, ask):
        if not runs:
            runs = beside.take(where, read)
        elif len(runs) == 1 and where == home:  # event files beside a table: their hparams
            for other in beside.take(where, read):
                runs[0].config = {**other.config, **runs[0].config}
    if len(runs) == 1:
        run, logs = runs[0], kinds.get("log", [])
        run.log = run.log or (logs[0] if logs else None)
        own = bool(run.results)
        evaluated = run.config if run.format == "results" else {}  # has a batch_size of its own
        run.config = {} if evaluated else run.config
        for path in configs(home):
            try:
                run.config = {**flat({one.key: one.value for one in settings.read(path)}), **run.config}
            except RgtError as error:
                run.gaps.append(f"its settings cannot be read: {error.message}")
        run.config = {**evaluated, **run.config}
        for path in (path for path in kinds.get("evaluation", []) if path != run.source):
            for other in beside.take(path, partial(_evaluated, path, ask)):
                run.values += other.values
                run.config = {**other.config, **run.config}
                run.results += [] if own else other.results
        inside = home.relative_to(seen.root).as_posix() if seen.root.is_dir() and home != seen.root else ""
        name = "/".join(filter(None, (inside, stem)))
        run.name = name or (seen.root.resolve().name if seen.root.is_dir() else seen.root.stem)
    for run in runs:
        run.gaps += [f"beside it, not read: {why}" for _, why in beside.unread]
    seen.unread += beside.unread if not runs else []
    seen.runs += runs


def _take_value(run: Foreign, one: settings.Setting, stem: str, unsaid: str | None, typed: dict[str, str]) -> None:
    """A number, a curve of them, or a word about all: {"model": "vit", "acc": 0.9, "history": [0.5, 0.7]}."""
    above, _, name = one.key.rpartition(".")
    value = as_number(one.value)
    if isinstance(one.value, list):
        for at, number in enumerate(map(as_number, one.value), 1):
            run.add(at, {name: number})
    elif value is None and isinstance(one.value, (str, bool)) and not above:
        run.config[one.key] = one.value
    elif value is not None:
        run.values.append((one.key if split_of(one.key) or not stem else f"{stem}.{one.key}", value))
        of = (scope(above) or "").split()  # {"test-clean": {"wer": 6.6}}: of the data set test-clean
        of_data = {"dataset": above} if set(of) - {*SPLITS} else {}
        if known(split_and_rest(name)[1]):
            split = next((word for word in of if word in SPLITS), stem or unsaid)
            run.report(name, value, split, Path(run.source), **typed, **of_data)


def _evaluated(path: Path, ask: Ask) -> Iterator[Foreign]:
    """results.json in our form, or an evaluation's summary. One without rule and source was typed, or may be."""
    try:
        data = files.read_json(path)
    except RgtError:
        data = None
    if not isinstance(data, dict):  # a list of rows, or a row per line
        yield from text_files.read_table(path, ask)
        return
    run = Foreign(path.parent.name, "results", path)
    if isinstance(rows := data.get("metrics"), list):
        schema.check({"run_id": "20000101-000000-x-000000", "metrics": rows}, "results", str(path))
        run.results = [{"rule": "typed", **row} for row in rows]
    else:
        typed = {"rule": "typed"} if path.name == "results.json" else {}
        stem = next((split for split in SPLITS if re.match(f"{split}(id)?[_-]", path.stem)), "")
        for one in settings.flatten(data):
            top, _, inner = one.key.partition(".")
            if top.lower() in _SETTINGS and inner:
                run.config[inner] = strict(one.value)
            elif settings.is_seed(one.key) or top.lower() in _EVALUATED_ON:
                run.config[one.key] = strict(one.value)
            elif not top.startswith("_"):
                _take_value(run, one, stem, ask.split, typed)
    if not run.results and not run.values and not run.points:
        raise bad_input(f"{path} has no number")
    if not run.results and not run.gaps:
        run.gaps.append(f"{path} has no number that is known to be a metric")
    yield run.settle(path)
