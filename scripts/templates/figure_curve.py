"""Draws figure.png, figure.pdf and figure.svg from source_data.csv, and from nothing else. Edit it freely.

`render.py figures` runs it and reads the written files back. It finds the data by the gids (line), the titles of the
panels, the legend's colours and the tick labels: keep those. The files must have the size and resolution named here.
"""

import csv
from itertools import groupby
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SIZE_IN = (3.5, 2.6)
DPI = 300
COLUMNS = 1  # panels beside each other
COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000"]  # Okabe and Ito
STYLE: dict[Any, Any] = {
    "font.family": "DejaVu Sans", "font.size": 8, "axes.titlesize": 8, "axes.titlelocation": "left",
    "axes.spines.top": False, "axes.spines.right": False, "axes.unicode_minus": False,
    "axes.formatter.useoffset": False, "legend.frameon": False, "legend.loc": "best", "lines.linewidth": 1.0,
    "path.simplify": False, "pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "figure", "savefig.dpi": DPI,
}  # fmt: skip

Row = dict[str, str]


def main() -> None:
    with open("source_data.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    plt.rcdefaults()  # whatever the user's matplotlibrc says
    plt.rcParams.update(STYLE)
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    colours = dict(zip(dict.fromkeys(row["label"] for row in rows), COLOURS, strict=False))
    lines = -(-len(panels) // COLUMNS)
    figure, axes = plt.subplots(lines, COLUMNS, figsize=SIZE_IN, squeeze=False, layout="constrained")
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    for axis, panel in zip(axes.flat, panels, strict=False):
        draw(axis, panel, [row for row in rows if row["panel"] == panel], colours)
    save(figure)


def draw(axis: Any, panel: str, rows: list[Row], colours: dict[str, str]) -> None:
    number = axis.get_subplotspec().num1 * 10000  # so that every gid is there once
    named: set[str] = set()
    for (label, _), points in groupby(rows, key=lambda row: (row["label"], row["run_id"])):
        number += 1
        pairs = [(int(row["step"]), float(row["y"])) for row in points]
        shown = "_" if label in named else label.replace("$", r"\$")  # one entry per label, not per run
        axis.plot(*zip(*pairs, strict=True), color=colours[label], label=shown, gid=f"line-{number}")
        named.add(label)
    axis.set_title(panel.replace("$", r"\$"), wrap=True)
    axis.set_xlabel("step")
    axis.legend()


def save(figure: Any) -> None:
    figure.canvas.draw()
    figure.set_layout_engine("none")  # one layout for the three files
    figure.savefig("figure.png", metadata={"Software": None})
    figure.savefig("figure.pdf", metadata={"CreationDate": None})  # no date: the same data give the same bytes
    figure.savefig("figure.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
