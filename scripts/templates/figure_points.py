"""Draws figure.png, figure.pdf and figure.svg from source_data.csv, and from nothing else. Edit it freely.

`render.py figures` runs it and reads the written files back. It finds the data by the gids (mean, run, spread), the
titles of the panels and the tick labels: keep those. The files must have the size and resolution named here.
"""

import csv
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
    "axes.formatter.useoffset": False, "axes.xmargin": 0.2, "axes.ymargin": 0.1, "path.simplify": False,
    "pdf.fonttype": 42, "svg.fonttype": "path", "svg.hashsalt": "figure", "savefig.dpi": DPI,
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
    labels = list(dict.fromkeys(row["label"] for row in rows))
    number = axis.get_subplotspec().num1 * 10000  # so that every gid is there once
    for row in rows:
        number += 1
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
    axis.set_title(panel.replace("$", r"\$"), wrap=True)


def save(figure: Any) -> None:
    figure.canvas.draw()
    figure.set_layout_engine("none")  # one layout for the three files
    figure.savefig("figure.png", metadata={"Software": None})
    figure.savefig("figure.pdf", metadata={"CreationDate": None})  # no date: the same data give the same bytes
    figure.savefig("figure.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
