"""Nine hundred pictures of four classes that look alike; a third of the test ones are training pictures in disguise."""

from __future__ import annotations

from pathlib import Path

from trials.case import Box, Case
from worlds import parts

import numpy as np
from PIL import Image

SIZE, SEED = 600, 31
COPIES = 110  # of SIZE // 2 test pictures


def _plan() -> dict[int, tuple[int, int]]:
    """Test number: the train number it is and the way it was altered; 7 is the same pixels in another format."""
    noise = np.random.default_rng(SEED + 1)
    places = noise.permutation(SIZE // 2)[:COPIES].tolist()
    return {place: (int(noise.integers(SIZE)), count % 8) for count, place in enumerate(places)}


def _name(number: int, way: int | None) -> str:
    return f"t{number:03d}." + ("bmp" if way == 7 else "png")


def make(box: Box) -> None:
    planted = parts.of_tests("planted")
    noise = np.random.default_rng(SEED)
    train, test = box.work / "photos" / "train", box.work / "photos" / "test"
    train.mkdir(parents=True)
    test.mkdir()
    plan = _plan()
    wanted = {source for source, _ in plan.values()}
    kept: dict[int, Image.Image] = {}
    for number in range(SIZE):
        image = planted._photo(noise, number % 4, 96)
        image.save(train / f"{number:03d}.png", compress_level=1)
        if number in wanted:
            kept[number] = image
    for number in range(SIZE // 2):
        source, way = plan.get(number, (0, None))
        if way is None:
            planted._photo(noise, number % 4, 96).save(test / _name(number, way), compress_level=1)
        elif way == 7:
            kept[source].save(test / _name(number, way))
        else:
            (test / _name(number, way)).write_bytes(planted._alter(noise, kept[source], way))
    for split in (train, test):
        Image.new("RGB", (64, 64), "white").save(split / "blank.png")


def verify(box: Box) -> list[str]:
    given = {str(name).split("/")[-1]: str(other).split("/")[-1] for name, other in box.read("copies.json").items()}
    truth = {_name(number, way): f"{source:03d}.png" for number, (source, way) in _plan().items()}
    right = sum(given.get(name) == other for name, other in truth.items())
    wrong = len(given) - sum(name in truth for name in given)
    problems = []
    if right < 0.95 * len(truth):
        problems.append(f"{len(truth) - right} of {len(truth)} copies are missing or have another partner")
    if wrong > 0.02 * max(1, len(given)):
        problems.append(f"{wrong} of {len(given)} named pictures are no copies")
    return problems


def reference(box: Box) -> None:
    report = box.script("leak_probe.py", "overlap", "--train", "photos/train", "--test", "photos/test")
    leaks = [match for match in report["matches"] if match["kind"] in ("exact", "near")]
    box.write("copies.json", {Path(m["item"]).name: Path(m["same_as"]).name for m in leaks})


def naive(box: Box) -> None:
    """A difference hash, of the picture and of its mirror, and the nearest within ten bits."""

    def code(image: Image.Image) -> np.ndarray:
        small = np.asarray(image.convert("L").resize((9, 8)), dtype=np.int16)
        return (small[:, 1:] > small[:, :-1]).ravel()

    root = box.work / "photos"
    names = sorted(path.name for path in (root / "train").iterdir())
    codes = np.stack([code(Image.open(root / "train" / name)) for name in names])
    found = {}
    for path in sorted((root / "test").iterdir()):
        image = Image.open(path)
        tries = [image, image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)]
        far = np.stack([(codes != code(each)).sum(axis=1) for each in tries]).min(axis=0)
        if far.min() <= 10:
            found[path.name] = names[int(far.argmin())]
    box.write("copies.json", found)


CASE = Case(
    route="is the test set clean? copies, near-duplicates, shared patients, changed splits",
    minutes=8,
    commands=10,
    held_out=True,
    expected="copies.json pairs the disguised copies with their training pictures and names no look-alike.",
)
