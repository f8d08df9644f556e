"""Token files as nanoGPT has them: data/<source>/{train,val}.bin, 16 bits a token; and what a step reads of them.

Example:
    stream = Stream(config, folder)                            stream[n]: the n-th sample of the whole run

A model with a vocabulary above 65,536 reads 32 bits a token. Which tokens sample n holds depends on the seed and n
alone. So a resumed run needs no data position in its checkpoint, and a sampler that a framework restores wrongly cannot
matter.
"""

from __future__ import annotations

import bisect
import hashlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rgt import files
from rgt.errors import bad_input
from rgt.run.phases import Schedule

if TYPE_CHECKING:
    import numpy as np

_LOOKED_AT = 1 << 20  # tokens of a file that are held against the vocabulary
Splits = dict[str, Any]  # train and val, memory-mapped


def width(config: dict[str, Any]) -> str:
    return "uint16" if config["model"]["vocab_size"] <= 1 << 16 else "uint32"


def sources(config: dict[str, Any], folder: Path) -> dict[str, Splits]:
    """Every source that a phase names; too short ones, and tokens that the model does not know, are refused."""
    import numpy as np

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
        import numpy as np

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
