"""What a log's own numbers say when no line does: a loss that turned nan, exploded or is 0 at once, a loss scale that
collapsed, steps that are nearly all skipped.

Example:
    curve = Curve(); curve.sample(block, first_line=1)         curve.shows() -> Shown("nan", line, ...)

A run of gigabytes is sampled, its end is read line by line. The words are those of an entry's `curve:` attribute.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from rgt.catalogue.entries import CURVES
from rgt.log.line import parse_line
from rgt.log.printed import bare_line

NAN, EXPLODES, SCALE, ZERO = CURVES
_LONGEST = 4000  # bytes of a line
_EACH = 8  # lines of a block that are parsed
_END = 64 << 10  # bytes of the log's end that are read whole
_KEPT = 2000  # points
_SHOWN = 200  # characters of a line
_LAST = 5  # points that are the end of the curve
_TIMES, _FAR = 10, 1000  # the loss at its start, and its best: it exploded; of a few points only
_FEW = 10
_BEFORE, _AFTER = 3, 4  # losses on each side of a jump that has come to stay
_ZEROS, _FROM = 3, 0.5  # exact zeros at the end, and the loss just before them: it did not get there by learning
_COUNTED = re.compile(r"\bstep=(\d+), skipped=(\d+)")  # DeepSpeed's
_SKIPPED, _STEPS = 0.5, 20  # this part of so many steps
SKIPS = 3  # finite losses after a single nan
_OVERFLOW = re.compile(
    r"(?:[Gg]radient overflow|OVERFLOW!|[Oo]verflow detected|[Ss]kipping step).{0,200}?"
    r"(?:loss scale|scale)(?: (?:of|to|from))?[ :=]+(?:[\d.e+-]+ (?:->|to) )?(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
)
_SMALL, _TINY = 2.0, 1e-4  # a loss scale that is doubtful when two steps in a row are skipped, or hopeless at once
_ABSURD = 1e7  # a loss at the log's end, wherever it began
_LOSS = re.compile(r"(?:.*[_/.])?loss(?:[_/.](?!scale).*)?|.*loss")


@dataclass(frozen=True)
class Shown:
    """What a curve shows: the word of CURVES, the line where it began, a sentence."""

    word: str
    line: int
    text: str
    sentence: str


@dataclass
class Curve:
    points: list[tuple[int, str, float, str]] = field(default_factory=list)  # line, name, value, text
    scales: list[tuple[int, float, str]] = field(default_factory=list)  # line, scale, text: of skipped steps in a row
    counted: tuple[int, int, int, str] = (0, 0, 0, "")  # line, steps, skipped, text: DeepSpeed's last count of them

    def sample(self, block: bytes, first_line: int, thinly: bool = False) -> None:
        """Take some of the block's lines that name a loss, evenly spread; thinly: the first one."""
        self._take_lines(block[:_LONGEST] if thinly else block, first_line, len(block) // (1 if thinly else _EACH))
        if len(self.points) > _KEPT:
            self.points = self.points[: -_KEPT // 4 : 2] + self.points[-_KEPT // 4 :]

    def sample_end(self, block: bytes, first_line: int) -> None:
        """Take every line of the last block's end instead of some."""
        cut = block.find(b"\n", max(0, len(block) - _END)) + 1 if len(block) > _END else 0
        first_line += block.count(b"\n", 0, cut)
        self.points = [point for point in self.points if point[0] < first_line]
        self.scales = [scale for scale in self.scales if scale[0] < first_line]
        self._take_lines(block[cut:], first_line, 1)

    def _take_lines(self, block: bytes, first_line: int, apart: int) -> None:
        number, counted, after = first_line, 0, 0
        word = block.find(b"oss")
        while word >= 0:
            start = max(block.rfind(b"\n", after, word), block.rfind(b"\r", after, word), word - _LONGEST) + 1
            after = min(end for end in (block.find(b"\n", word), block.find(b"\r", word), len(block)) if end >= 0)
            number += block.count(b"\n", counted, start)
            counted = start
            self.take(number, bare_line(block[start : min(after, start + _LONGEST)]).text)
            word = block.find(b"oss", max(after, start + apart))
        word = block.rfind(b"skipped=")
        if word >= 0:
            start = max(block.rfind(b"\n", 0, word), word - _LONGEST) + 1
            text = bare_line(block[start : word + _SHOWN]).text
            if match := _COUNTED.search(text):
                number = first_line + block.count(b"\n", 0, start)
                self.counted = (number, int(match[1]), int(match[2]), match[0])

    def take(self, number: int, text: str) -> None:
        if skipped := _OVERFLOW.search(text):
            self.scales.append((number, float(skipped[1]), text))
            self.scales = self.scales[-_KEPT:]
            return
        for name, value in parse_line(text).get("metrics", {}).items():
            ours = _LOSS.fullmatch(name) or name.endswith("grad_norm")
            if ours and not name.startswith(("val", "test", "eval", "best", "min")):
                self.points.append((number, name, value, text[:_SHOWN]))
                if math.isfinite(value) and self.scales and len(self.scales) < _FEW:
                    self.scales.clear()  # a scaler finds its scale by skipping some steps

    def _has_slope(self, line: int) -> bool:
        """Whether that line has a gradient norm that is a number and not 0: then the loss is only printed as 0."""
        return any(
            number == line and name.endswith("grad_norm") and math.isfinite(value) and value
            for number, name, value, _ in self.points
        )

    def _skips(self) -> Shown | None:
        scales = [scale for _, scale, _ in self.scales]
        if (len(scales) >= 2 and scales[-1] <= _SMALL) or (scales and scales[-1] < _TINY):
            number, scale, text = self.scales[-1]
            return Shown(SCALE, number, text, f"{len(scales)} skipped steps, the loss scale is down to {scale:g}")
        number, steps, left_out, text = self.counted
        if steps >= _STEPS and left_out > _SKIPPED * steps:
            return Shown(SCALE, number, text, f"{left_out} of {steps} optimizer steps were skipped: it does not train")
        return None

    def _turned(self, curve: list[tuple[int, str, float, str]], values: list[float], few: bool) -> Shown | None:
        """A loss that is another one from one line to the next, and stays so."""
        zeros = next((n for n, value in enumerate(reversed(values)) if value), len(values))
        before = values[-zeros - 1] if _ZEROS <= zeros < len(values) else 0
        if before > _FROM and not self._has_slope(curve[-1][0]):
            sentence = f"it is exactly 0 in the last {zeros} lines, after {before:.4g}"
            return Shown(ZERO, curve[-zeros][0], curve[-zeros][3], sentence)
        for at in range(_BEFORE, len(values) - _AFTER + 1) if few else ():
            if min(values[at:]) > _TIMES * max(values[:at]) > 0:
                sentence = f"it jumped from {values[at - 1]:.4g} to {values[at]:.4g} and stays there"
                return Shown(EXPLODES, curve[at][0], curve[at][3], sentence)
        return None

    def shows(self) -> Shown | None:
        """What is wrong at the end of the log; None: nothing."""
        if skips := self._skips():
            return skips
        names = Counter(point[1] for point in self.points)
        losses = Counter({name: count for name, count in names.items() if _LOSS.fullmatch(name)})
        if not names:
            return None
        name = max(losses or names, key=lambda name: (names[name], name == "loss"))  # of equals the sum, not a part
        curve = [point for point in self.points if point[1] == name]
        bad = [not math.isfinite(point[2]) for point in curve]
        if all(bad[-2:]):
            since = len(bad) - next((n for n, one in enumerate(reversed(bad)) if not one), len(bad))
            first = curve[since]
            return Shown(NAN, first[0], first[3], f"{first[1]} is {curve[-1][2]:g} from here to the end of the log")
        lately = bad[-2 * _LAST :]
        skipped = sum(lately) == 1 and not any(bad[-SKIPS:])  # a step that a scaler left out
        if losses and not skipped and sum(lately) * _LAST >= len(lately):
            first, seen = curve[bad.index(True)], f"{sum(lately)} of the last {len(lately)} lines"
            return Shown(NAN, first[0], first[3], f"{first[1]} is not finite in {seen}")
        values = [point[2] for point in curve if math.isfinite(point[2])]
        many = len(values) >= 2 * _LAST
        if losses and len(values) > 1 and min(values[-2:]) > _ABSURD:
            return Shown(EXPLODES, curve[-1][0], curve[-1][3], f"it is {values[-1]:.4g} at the end of the log")
        if losses and (shown := self._turned(curve, values, few=not many)):
            return shown
        if len(values) < _LAST or not losses:
            return None
        start, end, best = median(values[:_LAST]) if many else values[0], median(values[-_LAST:]), min(values)
        level = (_TIMES if many else _FAR) * max(start, best)
        if many and values[0] > 0 and start > _FAR * values[0]:  # it began in the middle of the explosion
            start, level = values[0], _FAR * values[0]
        if best > 0 and end > level:
            first = next(point for point in curve if point[2] > level)
            return Shown(EXPLODES, first[0], first[3], f"it rose from {start:.4g} (best {best:.4g}) to {end:.4g}")
        return None
