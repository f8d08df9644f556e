"""Token files as nanoGPT has them: data/<source>/{train,val}.bin, 16 bits a token; and what a step reads of them.

Example:
    stream = Stream(config, folder)                            stream[n]: the n-th sample of the whole run

A model with a vocabulary above 65,536 reads 32 bits a token. Which tokens sample n holds depends on the seed and n
alone. So a resumed run needs no data position in its checkpoint, and a sampler that a framework restores wrongly cannot
matter.

Text becomes such files piece by piece (`write`): a corpus of any size needs the memory of one piece. Without a
tokenizer the bytes are the tokens. The end of each file goes to val.bin, the rest to train.bin; each part is followed
by the end-of-text token where there is one, so that no sample takes two documents for one.
"""

from __future__ import annotations

import bisect
import codecs
import hashlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from rgt import files
from rgt.errors import bad_input, lacking
from rgt.run.phases import Schedule

import numpy as np

_LOOKED_AT = 1 << 20  # tokens of a file that are held against the vocabulary
Splits = dict[str, Any]  # train and val, memory-mapped


def width(config: dict[str, Any]) -> str:
    return "uint16" if config["model"]["vocab_size"] <= 1 << 16 else "uint32"


def sources(config: dict[str, Any], folder: Path) -> dict[str, Splits]:
    """Every source that a phase names; too short ones, and tokens that the model does not know, are refused."""
    need, vocab = config["data"]["block_size"] + 1, config["model"]["vocab_size"]
    found: dict[str, Splits] = {}
    for name in sorted({name for phase in config["phases"] for name in phase["mix"]}):
        found[name] = {}
        for path in (folder / name / "train.bin", folder / name / "val.bin"):
            try:
                tokens = np.memmap(path, dtype=width(config), mode="r")
            except (OSError, ValueError) as error:
                why = "does not exist" if not path.exists() else f"is not a token file: {error}"
                raise bad_input(f"{path} {why}; token ids are expected, {width(config)}, nothing else") from None
            if len(tokens) < need:
                raise bad_input(f"{path} has {len(tokens)} tokens; one sample needs {need}")
            if (largest := int(tokens[:_LOOKED_AT].max())) >= vocab:
                why = f"has token {largest}, the model a vocabulary of {vocab}"
                raise bad_input(f"{path} {why}; are its tokens {width(config)}?")
            found[name][path.stem] = tokens
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
        sample = index + self.start
        # a counter-based generator: the draw for sample n needs none of the draws before it
        dice = np.random.Generator(np.random.Philox(key=self.seed, counter=[0, 0, 0, sample])).random(2)
        phase = self.schedule.at(sample // self.per_step)
        names, edges = list(phase.mix), self.edges[phase.name]
        drawn = bisect.bisect(edges, dice[0] * edges[-1])
        tokens = self.sources[names[min(drawn, len(names) - 1)]]["train"]
        begin = int(dice[1] * (len(tokens) - self.block))
        return np.asarray(tokens[begin : begin + self.block + 1], dtype=np.int64)


class Validation:
    """The same samples at every validation: evenly spread over the val.bin of all sources, whatever the phase."""

    def __init__(self, config: dict[str, Any], folder: Path) -> None:
        self.block: int = config["data"]["block_size"]
        self.tokens = [source["val"] for source in sources(config, folder).values()]
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
        if not 0 <= index < self.samples:
            raise IndexError(index)
        tokens = self.tokens[index % len(self.tokens)]
        rows = -(-self.samples // len(self.tokens))
        begin = (index // len(self.tokens)) * (len(tokens) - self.block - 1) // max(1, rows - 1) if rows > 1 else 0
        return np.asarray(tokens[begin : begin + self.block + 1], dtype=np.int64)


def mixed(config: dict[str, Any], folder: Path, phase_name: str, target: Path) -> int:
    """One train.bin and val.bin for a trainer that reads one folder (nanoGPT): blocks drawn by the phase's mix."""
    schedule = Schedule.of(config)
    phase = next(phase for phase in schedule.phases if phase.name == phase_name)
    stream, val = Stream(config, folder), Validation(config, folder)
    available = sum(len(source["train"]) for source in stream.sources.values())
    wanted = min(phase.steps * stream.per_step, max(2, 2 * available // stream.block))
    target.mkdir(parents=True, exist_ok=True)
    first = phase.start * stream.per_step

    def copy(file: Any, samples: Any) -> None:
        for sample in samples:
            file.write(np.asarray(sample, dtype=width(config)).tobytes())

    files.write_with(target / "train.bin", lambda file: copy(file, (stream[first + n] for n in range(wanted))))
    files.write_with(target / "val.bin", lambda file: copy(file, (val[n] for n in range(len(val)))))
    return wanted * (stream.block + 1)


# -- from text


END_OF_BYTES = 256  # the end-of-text token, when bytes are the tokens
_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>")
_PIECE = 1 << 20


def load_tokenizer(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise lacking("tokenizers cannot be imported; pip install tokenizers, or leave --tokenizer out") from None
    try:
        known = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises a bare Exception
        raise bad_input(f"{path} is not a tokenizer.json: {str(error)[:200]}") from None
    known.no_truncation()  # some files keep the settings of a fine-tuning
    known.no_padding()
    return known


def vocabulary(known: Any) -> int:
    return max(known.get_vocab().values()) + 1 if known else END_OF_BYTES + 1


def write(folder: Path, texts: list[Path], known: Any, width: str, val_share: float) -> dict[str, int]:
    """Both files or none; returns the tokens of each split."""
    counts = {"train": 0, "val": 0}
    ends = [known.token_to_id(name) for name in _ENDS] if known else [END_OF_BYTES]
    end = [number for number in ends if number is not None][:1]

    def copy(train: IO[bytes], val: IO[bytes]) -> None:
        for path in texts:
            with path.open("rb") as text:
                size = os.fstat(text.fileno()).st_size
                text.seek(size - int(size * val_share))
                ahead = text.read(3)  # up to the next place that is not inside a character of UTF-8
                inside = next((n for n, byte in enumerate(ahead) if byte & 0xC0 != 0x80), len(ahead))
                cut = size - int(size * val_share) + inside
                for split, output, start, stop in (("train", train, 0, cut), ("val", val, cut, size)):
                    text.seek(start)
                    for ids in _tokens(text, stop, known) if start < stop else ():
                        output.write(np.asarray(ids, dtype=width).tobytes())
                        counts[split] += len(ids)
                    output.write(np.asarray(end if start < stop else [], dtype=width).tobytes())
        if not all(counts.values()):
            seen = f"{counts['train']} tokens to train on, {counts['val']} to validate with"
            raise bad_input(f"too little text for {folder.name}: {seen}; both must be there")

    folder.mkdir(parents=True, exist_ok=True)
    train, val = folder / "train.bin", folder / "val.bin"
    files.write_with(train, lambda first: files.write_with(val, lambda second: copy(first, second)))
    return counts


def _tokens(text: IO[bytes], stop: int, known: Any) -> Iterator[Any]:
    blocks = iter(lambda: text.read(min(_PIECE, stop - text.tell())), b"")
    if known is None:
        yield from (memoryview(block) for block in blocks)
        return
    rest = ""
    for piece in codecs.iterdecode(blocks, "utf-8", errors="replace"):
        rest += piece
        # behind a line, else in front of a word: a token is torn only in a piece without either
        cut = rest.rfind("\n") + 1 or max(0, rest.rfind(" ")) or len(rest)
        yield known.encode(rest[:cut], add_special_tokens=False).ids
        rest = rest[cut:]
    yield known.encode(rest, add_special_tokens=False).ids
