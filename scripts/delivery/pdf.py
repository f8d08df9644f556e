"""A PDF that matplotlib wrote: its page size, its fonts, and where something is drawn in which colour."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path

from delivery.drawing import Mark, Point
from rgt.errors import bad_input, from_os_error

_LARGEST = 256 * 2**20
_OBJECT = re.compile(rb"(?:^|\n)(\d+) 0 obj\r?\n(.*?)\r?\nendobj", re.S)
_TEXT = re.compile(rb"\nBT\n.*?\nET\n", re.S)
_STRING = re.compile(rb"\(((?:\\.|[^\\()])*)\)", re.S)
_NUMBER = re.compile(rb"-?\d*\.?\d+(?:e-?\d+)?$")
_SMALL = 30.0  # points: a filled shape up to this size is a marker, a larger one an area

Matrix = tuple[float, float, float, float, float, float]


@dataclass
class Page:
    width: float
    height: float
    type3: bool  # fonts that many publishers refuse
    loose_fonts: list[str]  # named, not embedded
    texts: set[str] = field(default_factory=set)
    marks: list[Mark] = field(default_factory=list)  # kind "spot" or "line"; y downwards like in the SVG


def read(path: Path) -> Page:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise from_os_error(error, f"read {path}") from None
    objects = {int(match[1]): match[2] for match in _OBJECT.finditer(raw)}
    page = next((body for body in objects.values() if re.search(rb"/Type /Page\b(?!s)", body)), None)
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", page or b"")
    contents = re.search(rb"/Contents (\d+) 0 R", page or b"")
    if raw.startswith(b"%PDF-") and b"%%EOF" not in raw[-1024:]:
        raise bad_input(f"{path} is cut off: it has no end mark")
    if not raw.startswith(b"%PDF-") or not box or not contents or int(contents[1]) not in objects:
        raise bad_input(f"{path} is not a PDF of one page as matplotlib writes it")
    found = Page(float(box[1]), float(box[2]), b"/Subtype /Type3" in raw, _loose_fonts(objects))
    stream = _stream(path, objects[int(contents[1])])
    found.marks = _Reader(found.height).run(stream)
    found.texts = {_words(block) for block in _TEXT.findall(stream)}
    return found


def _words(block: bytes) -> str:
    """The letters of one text: a font of type 42 counts them in two bytes each."""
    letters = b"".join(re.sub(rb"\\(.)", rb"\1", piece, flags=re.S) for piece in _STRING.findall(block))
    return letters.decode("utf-16-be", errors="replace")


def _loose_fonts(objects: dict[int, bytes]) -> list[str]:
    bodies = b"\n".join(body for body in objects.values() if b"/FontDescriptor" in body)
    named = re.findall(rb"/Type /FontDescriptor.*?/FontName /(\S+)(.*?)>>", bodies, re.S)
    without = [name.decode("latin-1") for name, rest in named if not re.search(rb"/FontFile[23]? ", rest)]
    bare = [body for body in objects.values() if b"/Subtype /Type1" in body and b"/FontDescriptor" not in body]
    return without + ["a base font"] * bool(bare)


def _stream(path: Path, body: bytes) -> bytes:
    head, _, packed = body.partition(b"stream\n")
    packed = packed.rpartition(b"\nendstream")[0]
    if b"/FlateDecode" not in head:
        return packed
    try:
        return zlib.decompressobj().decompress(packed, _LARGEST)
    except zlib.error as error:
        raise bad_input(f"{path} is damaged: its page does not unpack ({error})") from None


class _Reader:
    """The few operators that place and paint: state, matrix, colours, paths, markers."""

    def __init__(self, height: float) -> None:
        self.height = height
        self.matrix: Matrix = (1, 0, 0, 1, 0, 0)
        self.fill = self.stroke = "#000000"
        self.saved: list[tuple[Matrix, str, str]] = []
        self.path: list[Point] = []
        self.marks: list[Mark] = []

    def run(self, stream: bytes) -> list[Mark]:
        numbers: list[float] = []
        for token in _TEXT.sub(b"\n", stream).split():
            if _NUMBER.match(token):
                numbers.append(float(token))
            elif not token.startswith((b"/", b"[", b"]")):
                self.apply(token, numbers)
                numbers = []
        return self.marks

    def apply(self, operator: bytes, numbers: list[float]) -> None:
        if operator == b"q":
            self.saved.append((self.matrix, self.fill, self.stroke))
        elif operator == b"Q" and self.saved:
            self.matrix, self.fill, self.stroke = self.saved.pop()
        elif operator == b"cm" and len(numbers) == 6:
            self.matrix = _times(numbers, self.matrix)
        elif operator in (b"m", b"l", b"c") and len(numbers) >= 2:
            self.path.append(self.place(numbers[-2], numbers[-1]))
        elif operator in (b"rg", b"RG", b"g", b"G"):
            self.paint_with(operator, numbers)
        elif operator == b"Do":
            self.marks.append(Mark("spot", (self.place(0, 0),), self.fill))
        elif operator in (b"S", b"s", b"B", b"b", b"f", b"F", b"f*", b"B*", b"b*", b"n"):
            self.painted(operator)
            self.path = []

    def paint_with(self, operator: bytes, numbers: list[float]) -> None:
        colour = "#" + "".join(f"{round(255 * part):02x}" for part in (numbers * 3 if len(numbers) == 1 else numbers))
        if operator.islower():
            self.fill = colour
        else:
            self.stroke = colour

    def painted(self, operator: bytes) -> None:
        if not self.path or operator == b"n":
            return
        if operator in (b"S", b"s") or len(self.path) == 2:  # a tick is "filled", too
            self.marks.append(Mark("line", tuple(self.path), self.stroke))
            return
        across, down = zip(*self.path, strict=True)
        if max(across) - min(across) <= _SMALL and max(down) - min(down) <= _SMALL:
            middle = (min(across) + max(across)) / 2, (min(down) + max(down)) / 2
            self.marks.append(Mark("spot", (middle,), self.fill))

    def place(self, x: float, y: float) -> Point:
        a, b, c, d, e, f = self.matrix
        return a * x + c * y + e, self.height - (b * x + d * y + f)


def _times(inner: list[float], outer: Matrix) -> Matrix:
    a, b, c, d, e, f = inner
    g, h, i, j, k, m = outer
    return (
        a * g + b * i, a * h + b * j, c * g + d * i, c * h + d * j, e * g + f * i + k, e * h + f * j + m,
    )  # fmt: skip
