"""Draws figure.png, figure.pdf and figure.svg from source_data.csv, and from nothing else. Edit it freely.

`rgt render figures` runs it and compares what it draws with source_data.csv. It finds the data by the gids (mean, run,
spread, line), the titles of the panels, the legend's colours and the labels below the marks: keep those. Anything else
that is drawn is disclosed.
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

Row = dict[str, str]


def main() -> None:
    with open("source_data.csv", newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    set_style()
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    colours = dict(zip(dict.fromkeys(row["label"] for row in rows), COLOURS, strict=False))
    lines = -(-len(panels) // COLUMNS)
    figure, axes = plt.subplots(lines, COLUMNS, figsize=SIZE_IN, squeeze=False, layout="constrained")
    for axis in axes.flat[len(panels) :]:
        axis.remove()
    draw = draw_points if "mark" in rows[0] else draw_curves
    for number, (axis, panel) in enumerate(zip(axes.flat, panels, strict=False)):
        draw(axis, [row for row in rows if row["panel"] == panel], colours, 10000 * number + 1)
        axis.set_title(panel.replace("$", r"\$"), wrap=True)
    figure.canvas.draw()
    figure.set_layout_engine("none")  # one layout for the three files
    figure.savefig("figure.png", metadata={"Software": None})
    figure.savefig("figure.pdf", metadata={"CreationDate": None})  # no date: the same data give the same bytes
    figure.savefig("figure.svg", metadata={"Date": None})


def set_style() -> None:
    plt.rcdefaults()  # whatever the user's matplotlibrc says
    plt.rc("font", family="DejaVu Sans", size=8)
    plt.rc("axes", titlesize=8, titlelocation="left", unicode_minus=False)
    plt.rc("axes.spines", top=False, right=False)
    plt.rc("axes.formatter", useoffset=False)
    plt.rc("legend", frameon=False)
    plt.rc("lines", linewidth=1.0)
    plt.rc("path", simplify=False)
    plt.rc("pdf", fonttype=42)
    plt.rc("svg", fonttype="path", hashsalt="figure")
    plt.rc("savefig", dpi=DPI)


def draw_points(axis: Any, rows: list[Row], colours: dict[str, str], first: int) -> None:
    """A square for every mean with its spread, a dot beside it for every run; numbers make each gid unique."""
    labels = list(dict.fromkeys(row["label"] for row in rows))
    axis.margins(0.2, 0.1)
    for number, row in enumerate(rows, first):
        x, y, colour = labels.index(row["label"]), float(row["y"]), colours[row["label"]]
        if row["mark"] == "run":
            axis.plot(x + 0.15, y, "o", color=colour, markersize=2.5, gid=f"run-{number}")
            continue
        if row["spread"]:
            spread = float(row["spread"])
            axis.plot([x, x], [y - spread, y + spread], color=colour, linewidth=1.2, gid=f"spread-{number}")
        axis.plot(x, y, "s", color=colour, markersize=5, gid=f"mean-{number}")
    long = sum(map(len, labels)) * COLUMNS > 10 * SIZE_IN[0]
    turned = {"rotation": 30, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axis.set_xticks(range(len(labels)), [label.replace("$", r"\$") for label in labels], **turned)


def draw_curves(axis: Any, rows: list[Row], colours: dict[str, str], first: int) -> None:
    """A line for every run; the legend names each label once."""
    named: set[str] = set()
    lines = groupby(rows, key=lambda row: (row["label"], row["run_id"]))
    for number, ((label, _), points) in enumerate(lines, first):
        pairs = [(int(row["step"]), float(row["y"])) for row in points]
        shown = "_" if label in named else label.replace("$", r"\$")
        axis.plot(*zip(*pairs, strict=True), color=colours[label], label=shown, gid=f"line-{number}")
        named.add(label)
    axis.set_xlabel("step")
    axis.legend()


if __name__ == "__main__":
    main()
