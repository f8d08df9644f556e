"""Splits with planted leaks and the ground truth: which test items are in train exactly, nearly, or only seem to be.

Every generator gives (train, test, exact, near): `exact` and `near` are indices of test items. All other test items are
clean, and many of them are hard negatives: one template with other content, a licence header above another text, images
of one class, rows that coincide by chance.
"""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageEnhance, ImageFont

Planted = tuple[list[Any], list[Any], set[int], set[int]]

LICENCE = (
    "Permission is hereby granted, free of charge, to any person obtaining a copy of this data, to deal in it without "
    "restriction, subject to the notice that stands above being kept in every copy or larger part of the data set."
)


def words(noise: random.Random, vocabulary: list[str], count: int) -> str:
    """Common words are common: Zipf's law gives unrelated texts something to share."""
    picks = noise.choices(vocabulary, weights=[1 / (rank + 3) for rank in range(len(vocabulary))], k=count)
    return " ".join(picks)


def _edit(noise: random.Random, text: str, vocabulary: list[str]) -> str:
    """What a copy goes through: a word in twenty replaced, dropped or added, a typing error, a head or tail lost."""
    tokens = text.split()
    for _ in range(max(1, len(tokens) // 20)):
        at = noise.randrange(len(tokens))
        kind = noise.choice(("replace", "drop", "add", "typo"))
        if kind == "drop":
            del tokens[at]
        elif kind == "typo":
            tokens[at] = tokens[at][:1] + "q" + tokens[at][1:]
        else:
            tokens[at : at + (kind == "replace")] = [noise.choice(vocabulary)]
    return " ".join(tokens)


def _disguise(noise: random.Random, text: str) -> str:
    """Exactly the same after normalisation."""
    return noise.choice((text.upper(), f"  {text}!", text.replace(" ", "  \t"), text.title() + ".", f'"{text}"'))


def texts(size: int, seed: int = 0) -> Planted:
    noise = random.Random(seed)
    vocabulary = ["".join(noise.choices("abcdefghijklmnopqrstuvwxyz", k=noise.randint(2, 9))) for _ in range(4000)]

    def clean() -> str:
        kind = noise.random()
        if kind < 0.15:  # one template, other content
            who, what = noise.choice(vocabulary), noise.choice(vocabulary)
            day, pieces = noise.randint(1, 999), noise.randint(1, 99)
            return f"On day {day} the customer {who} ordered {pieces} pieces of {what} from us."
        if kind < 0.3:  # mostly licence
            return LICENCE + " " + words(noise, vocabulary, 15)
        if kind < 0.35:
            return noise.choice(("yes", "no", "thank you", "I do not know"))
        return words(noise, vocabulary, noise.randint(20, 120))

    train = [clean() for _ in range(size)]
    templates = (LICENCE, "the customer")
    sources = [text for text in dict.fromkeys(train) if len(text) > 40 and not any(part in text for part in templates)]
    test, exact, near = [], set(), set()
    for index in range(size // 4):
        kind = noise.random()
        if kind < 0.1:
            test.append(_disguise(noise, noise.choice(sources)))
            exact.add(index)
        elif kind < 0.2:
            test.append(_edit(noise, noise.choice(sources), vocabulary))
            near.add(index)
        else:
            test.append(clean())
    return train, test, exact, near


def rows(size: int, seed: int = 0) -> Planted:
    """Ten columns: six measured, two counts, a yes/no, a class; an id in front."""
    noise = np.random.default_rng(seed)

    def clean() -> list[Any]:
        measured = np.round(noise.normal(0, (1, 5, 0.01, 100, 1, 30)), 5).tolist()
        counts = noise.poisson((3, 40)).tolist()
        return [*measured, *counts, int(noise.integers(2)), str(noise.choice(["a", "b", "c"]))]

    train = [clean() for _ in range(size)]
    test, exact, near = [], set(), set()
    for index in range(size // 4):
        kind = noise.random()
        row = list(train[noise.integers(size)])
        if kind < 0.1:
            exact.add(index)
            row[:6] = [f"{value:.8f}" for value in row[:6]]  # the same numbers, written otherwise
        elif kind < 0.15:
            near.add(index)
            scale = np.array((1, 5, 0.01, 100, 1, 30)) * 0.01
            row[:6] = (np.array(row[:6]) + noise.normal(0, scale)).round(7).tolist()
        elif kind < 0.2:
            near.add(index)
            row[:6] = [float(f"{value:.{places}f}") for value, places in zip(row[:6], (2, 1, 4, 0, 2, 0), strict=True)]
        elif kind < 0.4:  # a hard negative: the same in all but one column
            column = int(noise.integers(6))
            row[column] += (1, 5, 0.01, 100, 1, 30)[column] * noise.choice((-1, 1)) * noise.uniform(0.2, 2)
        else:
            row = clean()
        test.append(row)
    return train, test, exact, near


# -- images


def _photo(noise: np.random.Generator, kind: int, side: int = 128) -> Image.Image:
    """A scene of one of four classes: the same layout, other detail. It has structure at all scales."""
    picture = np.zeros((side, side, 3))
    y, x = np.mgrid[0:side, 0:side] / side
    picture += (90 + 80 * np.sin(2 * np.pi * (x if kind % 2 else y)))[..., None]  # what the class shares
    picture[..., kind % 3] += 60 * np.exp(-((x - 0.5) ** 2 + (y - 0.5) ** 2) * 8)
    for cells in (4, 8, 16, 32):
        coarse = noise.normal(0, 110 / cells**0.5, (cells, cells, 3))
        layers = [Image.fromarray(coarse[..., c].astype(np.float32)) for c in range(3)]
        picture += np.stack([np.asarray(layer.resize((side, side), Image.Resampling.BICUBIC)) for layer in layers], -1)
    for _ in range(6):
        cy, cx, r = noise.random(3) * (1, 1, 0.15)
        picture[((x - cx) ** 2 + (y - cy) ** 2) < r**2] = noise.integers(0, 255, 3)
    return Image.fromarray(picture.clip(0, 255).astype(np.uint8))


def _encoded(image: Image.Image, kind: str, **settings: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **settings)
    return out.getvalue()


def _alter(noise: np.random.Generator, image: Image.Image, way: int) -> bytes:
    side = image.width
    if way == 0:
        return _encoded(image, "JPEG", quality=int(noise.integers(25, 90)))
    if way in (1, 2):
        flips = (Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM)
        return _encoded(image.transpose(flips[way - 1]), "PNG")
    if way == 3:  # up to 15 % of the side lost, anywhere
        size = int(side * noise.uniform(0.85, 0.97))
        left, top = noise.integers(0, side - size + 1, 2)
        return _encoded(image.crop((left, top, left + size, top + size)), "JPEG", quality=90)
    if way == 4:
        return _encoded(image.resize((side // 2, side // 2)), "PNG")
    if way == 5:
        return _encoded(ImageEnhance.Brightness(image).enhance(1.25), "JPEG", quality=85)
    size = int(side * 0.92)  # flipped, cropped and encoded again
    cropped = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT).crop((3, 5, 3 + size, 5 + size))
    return _encoded(cropped, "JPEG", quality=75)


WAYS = 7


def images(folder: Path, size: int, seed: int = 0) -> tuple[Path, Path, set[str], set[str]]:
    """Folders train and test below `folder`; the names of the test images that are in train exactly and nearly."""
    noise = np.random.default_rng(seed)
    train, test = folder / "train", folder / "test"
    train.mkdir(parents=True)
    test.mkdir()
    kept = [_photo(noise, number % 4) for number in range(size)]
    for number, image in enumerate(kept):
        image.save(train / f"{number}.png")
    exact, near = set(), set()
    for number in range(size // 2):
        name, kind = f"t{number}.png", number % 5
        source = kept[int(noise.integers(size))]
        if kind == 0:
            source.save(test / f"t{number}.bmp")  # other bytes, the same pixels
            exact.add(f"t{number}.bmp")
        elif kind in (1, 2):
            (test / name).write_bytes(_alter(noise, source, number % WAYS))
            near.add(name)
        else:
            _photo(noise, number % 4).save(test / name)
    for split in (train, test):
        Image.new("RGB", (64, 64), "white").save(split / "blank.png")  # in both by chance
    return train, test, exact, near


def digits(folder: Path, size: int, seed: int = 0) -> tuple[Path, Path]:
    """Hard negatives: drawings of ten digits, each shifted, scaled and sheared anew. No test image is in train."""
    noise = np.random.default_rng(seed)
    font = ImageFont.load_default(size=22)
    for split, count in (("train", size), ("test", size // 2)):
        (folder / split).mkdir(parents=True)
        for number in range(count):
            image = Image.new("L", (28, 28), 0)
            ImageDraw.Draw(image).text((8, 1), str(number % 10), 255, font=font)
            a, b, c, d = noise.normal(0, 0.12, 4)
            y, x = noise.normal(0, 1.5, 2)
            turn = (1 + a, b, x - 14 * (a + b), c, 1 + d, y - 14 * (c + d))
            image = image.transform((28, 28), Image.Transform.AFFINE, turn, Image.Resampling.BICUBIC)
            image.save(folder / split / f"{number}.png")
    return folder / "train", folder / "test"
