"""Token files: data/<source>/{train,val}.bin, 16 or 32 bits a token as nanoGPT has them, and what a step reads of them.

Example:
    write(Path("data/web"), [Path("a.txt")], None)            bytes as tokens; or a tokenizer.json
    stream = Stream(config, folder)                            stream[n]: the n-th sample of the whole run

Which tokens sample n holds depends on the seed and n alone. So a resumed run needs no data position in its checkpoint,
and a sampler that a framework restores wrongly cannot matter.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import files
from rgt.errors import bad_input, from_os_error, lacking
from rgt.run.phases import Schedule

if TYPE_CHECKING:
    import numpy as np

META = "meta.json"
END_OF_TEXT = 256  # behind each file, when bytes are the tokens
VAL_SHARE = 0.01


def write(folder: Path, texts: list[Path], tokenizer: Path | None, val_share: float = VAL_SHARE) -> dict[str, Any]:
    """Tokenize text files into train.bin and val.bin (the last part of each file). Whole or not at all."""
    import numpy as np

    known: Any = None
    if tokenizer:
        try:
            from tokenizers import Tokenizer
        except ImportError:
            raise lacking("tokenizers cannot be imported; pip install tokenizers, or leave --tokenizer out") from None
        try:
            known = Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # the library raises a bare Exception
            raise bad_input(f"{tokenizer} is not a tokenizer.json: {str(error)[:200]}") from None
    vocab_size = known.get_vocab_size() if known else END_OF_TEXT + 1
    width = "uint16" if vocab_size <= 1 << 16 else "uint32"
    parts: dict[str, list[Any]] = {"train": [], "val": []}
    try:
        for path in texts:
            text = path.read_bytes()
            if known:
                ids = np.asarray(known.encode(text.decode(errors="replace")).ids, dtype=width)
            else:
                ids = np.append(np.frombuffer(text, "uint8").astype(width), np.asarray([END_OF_TEXT], width))
            cut = len(ids) - int(len(ids) * val_share)
            parts["train"].append(ids[:cut])
            parts["val"].append(ids[cut:])
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise from_os_error(error) from None
    counts = {split: sum(map(len, arrays)) for split, arrays in parts.items()}
    if not counts["train"] or not counts["val"]:
        seen = f"{counts['train']} tokens to train on, {counts['val']} to validate with"
        raise bad_input(f"too little text for {folder.name}: {seen}; both must be there")
    meta = {
        "vocab_size": vocab_size,
        "dtype": width,
        "train_tokens": counts["train"],
        "val_tokens": counts["val"],
        "tokenizer": tokenizer.name if tokenizer else "bytes",
    }
    for split, arrays in parts.items():
        files.write_bytes(folder / f"{split}.bin", np.concatenate(arrays).tobytes())
    files.write_json(folder / META, meta)
    return meta


class Source:
    """One folder of token files."""

    def __init__(self, folder: Path) -> None:
        import numpy as np

        meta = files.read_json(folder / META) if (folder / META).exists() else {}
        self.name, self.vocab_size = folder.name, meta.get("vocab_size")
        self.dtype = np.dtype(meta.get("dtype", "uint16"))  # nanoGPT's own files have no meta.json
        self.splits: dict[str, Any] = {}
        for split in ("train", "val"):
            path = folder / f"{split}.bin"
            try:
                self.splits[split] = np.memmap(path, dtype=self.dtype, mode="r")
            except (OSError, ValueError) as error:
                why = "does not exist" if not path.exists() else f"is no token file: {error}"
                advice = f"make it with `scaffold_training.py data <folder> {folder.name} <text files>`"
                raise bad_input(f"{path} {why}; {advice}") from None


def sources(config: dict[str, Any], folder: Path) -> dict[str, Source]:
    """Every source that a phase names; too short ones, and tokens that the model does not know, are refused."""
    wanted = sorted({name for phase in config["phases"] for name in phase["mix"]})
    found = {name: Source(folder / name) for name in wanted}
    need, vocab = config["data"]["block_size"] + 1, config["model"]["vocab_size"]
    for name, source in found.items():
        for split, tokens in source.splits.items():
            if len(tokens) < need:
                raise bad_input(f"{folder / name}/{split}.bin has {len(tokens)} tokens; one sample needs {need}")
        if source.vocab_size and source.vocab_size > vocab:
            raise bad_input(f"{folder / name} has a vocabulary of {source.vocab_size}, the model one of {vocab}")
    return found


class Stream:
    """Sample n of the run: block_size + 1 tokens from a source drawn by the mix of its phase."""

    def __init__(self, config: dict[str, Any], folder: Path, start: int = 0) -> None:
        self.block: int = config["data"]["block_size"]
        self.seed: int = config["seed"]
        self.per_step: int = config["batch"]["micro_batch"] * config["batch"]["accumulation"] * config["devices"]
        self.schedule, self.sources = Schedule.of(config), sources(config, folder)
        self.start = start  # samples that are done: what is behind them is sample 0 of this stream
        self.edges = {phase.name: list(itertools.accumulate(phase.mix.values())) for phase in self.schedule.phases}

    def __len__(self) -> int:
        return self.schedule.total * self.per_step - self.start

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        import numpy as np

        sample = index + self.start
        # a counter-based generator: the draw for sample n needs none of the draws before it
        dice = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, sample])).random(2)
        phase = self.schedule.at(sample // self.per_step)
        names, edges = list(phase.mix), self.edges[phase.name]
        drawn = bisect.bisect(edges, dice[0] * edges[-1])
        tokens = self.sources[names[min(drawn, len(names) - 1)]].splits["train"]
        begin = int(dice[1] * (len(tokens) - self.block))
        return np.asarray(tokens[begin : begin + self.block + 1], dtype=np.int64)


class Validation:
    """The same samples at every validation: evenly spread over the val.bin of all sources, whatever the phase."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.block: int = config["data"]["block_size"]
        self.tokens = [source.splits["val"] for source in sources(config, folder).values()]
        self.samples: int = max(len(self.tokens), config["eval"]["samples"])

    def __len__(self) -> int:
        return self.samples

    @property
    def sha256(self) -> str:
        digest = hashlib.sha256()
        for index in range(len(self)):
            digest.update(self[index].tobytes())
        return digest.hexdigest()

    def __getitem__(self, index: int) -> np.ndarray[Any, Any]:
        import numpy as np

        if not 0 <= index < self.samples:
            raise IndexError(index)
        tokens = self.tokens[index % len(self.tokens)]
        rows = -(-self.samples // len(self.tokens))
        begin = (index // len(self.tokens)) * (len(tokens) - self.block - 1) // max(1, rows - 1) if rows > 1 else 0
        return np.asarray(tokens[begin : begin + self.block + 1], dtype=np.int64)


def mixed(config: dict[str, Any], folder: Path, phase_name: str, target: Path) -> int:
    """One train.bin and val.bin for a trainer that reads one folder (nanoGPT): blocks drawn by the phase's mix."""
    import numpy as np

    schedule = Schedule.of(config)
    phase = next(phase for phase in schedule.phases if phase.name == phase_name)
    stream, val = Stream(config, folder), Validation(config, folder)
    available = sum(len(source.splits["train"]) for source in stream.sources.values())
    wanted = min(phase.steps * stream.per_step, max(2, 2 * available // stream.block))
    width = "uint16" if config["model"]["vocab_size"] <= 1 << 16 else "uint32"
    target.mkdir(parents=True, exist_ok=True)
    first = phase.start * stream.per_step

    def copy(file: Any, samples: Any) -> None:
        for sample in samples:
            file.write(np.asarray(sample, dtype=width).tobytes())

    files.write_with(target / "train.bin", lambda file: copy(file, (stream[first + n] for n in range(wanted))))
    files.write_with(target / "val.bin", lambda file: copy(file, (val[n] for n in range(len(val)))))
    return wanted * (stream.block + 1)
