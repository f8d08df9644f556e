"""Text files into token files, piece by piece: a corpus of any size needs the memory of one piece.

Example:
    write(Path("base/data/web"), [Path("a.txt")], known=None, width="uint16", val_share=0.01)

Without a tokenizer the bytes are the tokens. The end of each file goes to val.bin, the rest to train.bin, each behind
it the end-of-text token where there is one, so that no sample takes two documents for one.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from rgt import files
from rgt.errors import bad_input, lacking

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
    import numpy as np

    counts = {"train": 0, "val": 0}
    ends = [known.token_to_id(name) for name in _ENDS] if known else [END_OF_BYTES]
    end = [number for number in ends if number is not None][:1]

    def copy(train: IO[bytes], val: IO[bytes]) -> None:
        for path in texts:
            with path.open("rb") as text:
                size = os.fstat(text.fileno()).st_size
                cut = _character_start(text, size - int(size * val_share))
                for split, output, start, stop in (("train", train, 0, cut), ("val", val, cut, size)):
                    text.seek(start)
                    for ids in _tokens(_blocks(text, stop), known) if start < stop else ():
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


def _character_start(text: IO[bytes], position: int) -> int:
    """The next place that is not inside a character of UTF-8."""
    text.seek(position)
    ahead = text.read(3)
    return position + next((n for n, byte in enumerate(ahead) if byte & 0xC0 != 0x80), len(ahead))


def _blocks(text: IO[bytes], stop: int) -> Iterator[bytes]:
    while block := text.read(min(_PIECE, stop - text.tell())):
        yield block


def _tokens(blocks: Iterator[bytes], known: Any) -> Iterator[Any]:
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
