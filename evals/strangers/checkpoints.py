"""How many healthy checkpoints of strangers verify_local calls damaged.

    python evals/strangers/checkpoints.py FOLDER...       --show lists every file that is not sound
    python evals/strangers/checkpoints.py --manifest FOLDER... > evals/strangers/checkpoints/<set>.tsv
    python evals/strangers/checkpoints.py --damage FOLDER...     the same files with lost and repeated pages

Below FOLDER lies one folder for each package or library that shipped or wrote the files. Every file with a checkpoint's
name is judged alone, and every folder that holds several is judged as one. All are healthy, so `damaged` is a false
alarm; `strangers` exits with 4; `unknown` is of no format that can be opened: that is said, and is no verdict.

--damage takes one file without checksums of each package, up to 24, and plants zeros and copies of other pages, of 4 to
256 KiB, at random pages. `found` are those called damaged, `told` those with a warning that names the place. In folders
with one file for each rank it loses each of them, swaps two, and copies one over another.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from rgt.checkpoint.examine import HEADERS, Options, examine  # noqa: E402
from rgt.checkpoint.layout import FILE  # noqa: E402
from rgt.checkpoint.survey import survey  # noqa: E402
from rgt.checkpoint.verify import verify  # noqa: E402
from rgt.errors import RgtError  # noqa: E402

NAMES = tuple(
    """
    .pt .pth .ckpt .bin .safetensors .onnx .h5 .hdf5 .keras .tflite .pkl .pickle .joblib .npy .npz .msgpack .gguf .jit
    .ts .ptl .pt2 .nemo .cpkt .th .t7 .distcp .pth.tar .pt.tar .pkl.gz
    """.split()
)
_SHOWN = 3  # problems of one file
_RANK = re.compile(r"(.*rank_?\d+.*|rng_state_\d+|random_states_\d+|__\d+_\d+|.*-\d{5}-of-\d{5})\.\w+")
_PAIRS = 6  # of one folder
_PAGE, _SMALLEST, _LARGEST = 4096, 512 << 10, 24 << 20  # bytes; of files that are damaged


def judge(path: Path) -> tuple[Path, str, str]:
    """The path, the verdict, and what speaks against it."""
    try:
        verdict = verify(survey(path), Options(), jobs=1)
    except RgtError as error:
        return path, "refused", str(error)
    except Exception as error:  # what nobody expected is a false alarm, too
        return path, "crashed", f"{type(error).__name__}: {error}"
    errors = [problem for _, problem in verdict.problems if problem.severity == "error"]
    why = "; ".join(f"{one.code}: {one.message} {one.where or ''}" for one in errors[:_SHOWN])
    return path, verdict.word, why or ", ".join(verdict.strangers[:10])


def targets(folders: list[Path]) -> tuple[list[Path], list[Path]]:
    files = sorted(path for folder in folders for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    files = [path for path in files if path.name.lower().endswith(NAMES)]
    count = Counter(path.parent for path in files)
    return files, sorted(folder for folder in count if count[folder] > 1 or any(folder.glob(".metadata")))


def package(path: Path, folders: list[Path]) -> str:
    return next(path.relative_to(folder).parts[0] for folder in folders if path.is_relative_to(folder))


def plant(folder: Path, path: Path, what: str, rng: random.Random) -> str | None:
    """found | told | missed; None when the damage changed nothing."""
    data = bytearray(path.read_bytes())
    size = rng.choice([4, 8, 16, 64, 256]) << 10
    pages = (len(data) - size) // _PAGE
    if pages < 16:
        return None
    at = rng.randrange(8, pages) * _PAGE
    source = rng.randrange(8, pages) * _PAGE
    new = bytes(size) if what == "hole" else bytes(data[source : source + size])
    if sum(map(bool, data[at : at + size])) < size // 2 or (what == "repeat" and abs(at - source) < size):
        return None
    data[at : at + size] = new
    copy = folder / path.name
    copy.write_bytes(data)
    problems = examine(copy, Options(digest=False)).problems
    if any(problem.severity == "error" for problem in problems):
        return "found"
    told = any(problem.code in ("hole", "duplicate") and problem.severity == "warn" for problem in problems)
    return "told" if told else "missed"


def damage(files: list[Path], folders: list[Path]) -> int:
    """One healthy file of each package whose bytes no checksum covers."""
    chosen: dict[str, Path] = {}
    for path in sorted(files, key=lambda path: -path.stat().st_size):
        if _SMALLEST <= path.stat().st_size <= _LARGEST and len(chosen) < 24 and package(path, folders) not in chosen:
            artifact = examine(path, HEADERS)
            in_place = any(tensor.source == FILE for tensor in artifact.layout.tensors)  # not unpacked or in a pickle
            if artifact.real and in_place and not (artifact.layout.spans or artifact.layout.packed):
                chosen[package(path, folders)] = path
    rng = random.Random(0)
    totals: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for path in chosen.values():
            rows = [f"{what} {plant(Path(folder), path, what, rng)}" for what in ["hole"] * 8 + ["repeat"] * 6]
            totals.update(rows)
            print(f"{path.name}: {dict(Counter(rows))}", flush=True)
    print(f"{len(chosen)} files: {dict(sorted(totals.items()))}")
    print(f"ranks: {dict(sorted(damage_ranks(folders, rng).items()))}")
    return 0


def damage_ranks(folders: list[Path], rng: random.Random) -> Counter[str]:
    totals: Counter[str] = Counter()
    places = {path.parent for folder in folders for path in folder.rglob("*") if _RANK.fullmatch(path.name)}
    for place in sorted(places):
        ranks: dict[bytes, str] = {}  # those whose bytes are their own
        for path in sorted(place.iterdir()):
            if _RANK.fullmatch(path.name) and path.is_file():
                ranks.setdefault(path.read_bytes(), path.name)
        pairs = [(one, other) for one in ranks.values() for other in ranks.values() if one < other]
        if not pairs or judge(place)[1] not in ("sound", "strangers"):
            continue
        rows: Counter[str] = Counter()
        for one, other in rng.sample(pairs, min(_PAIRS, len(pairs))):
            for what in ("lost", "swapped", "copied"):
                with tempfile.TemporaryDirectory() as folder:
                    copy = Path(shutil.copytree(place, Path(folder) / place.name))
                    (copy / other).rename(copy / "kept")
                    if what == "swapped":
                        (copy / one).rename(copy / other)
                        (copy / "kept").rename(copy / one)
                    else:
                        (copy / "kept").unlink()
                    if what == "copied":
                        shutil.copy(copy / one, copy / other)
                    rows[f"{what} {'found' if judge(copy)[1] == 'damaged' else 'missed'}"] += 1
        print(f"{place}: {dict(rows)}", flush=True)
        totals.update(rows)
    return totals


def main(words: list[str]) -> int:
    folders = [Path(word) for word in words if not word.startswith("--")]
    files, several = targets(folders)
    if "--damage" in words:
        return damage(files, folders)
    if "--manifest" in words:
        for path in files:
            digest, size = hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size
            inside = next(path.relative_to(folder).as_posix() for folder in folders if path.is_relative_to(folder))
            print(f"{package(path, folders)}\t{inside.partition('/')[2]}\t{size}\t{digest}")
        return 0
    with multiprocessing.Pool(os.cpu_count()) as pool:
        for what, paths in (("files", files), ("folders", several)):
            rows = pool.map(judge, paths, chunksize=4)
            verdicts = Counter(word for _, word, _ in rows)
            alarms = sum(verdicts[word] for word in ("damaged", "refused", "crashed"))
            share = f"{alarms / max(len(rows), 1):.1%}"
            print(f"{len(rows)} {what}: {alarms} false alarms ({share}), {dict(verdicts)}")
            for path, word, why in rows if "--show" in words else ():
                if word != "sound":
                    print(f"  {word:9} {path}  {why[:400]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
