"""Figures are compared with their data: what is blank, cut off, wrong, swapped, undeclared, stale or tampered with is
named, and a rebuild has the same bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from rgt.evidence import claims
from rgt.render import artists, figure_data, figures

import pytest

from .delivered import add_claim, edit, everything, findings, render


@pytest.fixture
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything(tmp_path_factory)


@pytest.fixture
def project(delivered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(delivered, tmp_path / "project"))


# -- what is drawn wrongly is found


def redrawn(project: Path, name: str, *edits: tuple[str, str]) -> list[figures.Problem]:
    """Run an edited figure.py as `render.py figures` does, in this process; what is wrong with the figure."""
    from matplotlib import pyplot

    folder = project / "figures" / name
    for old, new in edits:
        edit(folder / "figure.py", old, new)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        artists.record("figure.py", figures.ARTISTS)
    pyplot.close("all")
    rows = figure_data.collect(claims.load(project / "EVIDENCE.json"), name).rows
    return figures.figure_problems(folder, json.loads((folder / figures.ARTISTS).read_text()), rows)


TITLE = "        axis.set_title"


def also(code: str) -> tuple[str, str]:
    """The edit that makes figure.py do one more thing for every panel."""
    return TITLE, f"        {code}\n{TITLE}"


PLOT = 'x, y, colour = labels.index(row["label"]), float(row["y"]), colours[row["label"]]'
MEAN = "markersize=5, gid"
SHIFTED = "transform=axis.transData + plt.matplotlib.transforms.Affine2D().translate(0, 9)"
SVG = 'figure.savefig("figure.svg", metadata={"Date": None})'
# code and message -> the edits of figure.py that each lead to it
POINTS = {
    "blank: the figure shows no data": [("in enumerate(rows, first)", "in []")],
    "drawn: mean 0.92 of Ours is not drawn; drawn instead: 0.9292": [(PLOT, f"{PLOT}; y *= 1.01")],
    "drawn: the mean 0.92 of Ours is not drawn; drawn instead: 0.92 of Baseline": [
        ('[label.replace("$", r"\\$") for label in labels]', "labels[::-1]"),
        ("colour = labels.index", "colour = 1 - labels.index"),
    ],
    "drawn: the spread 0.916 to 0.924 of Ours is not drawn": [('if row["spread"]:', "if False:")],
    "drawn: the mean 0.92 of Ours is not drawn": [
        (MEAN, f"visible=False, {MEAN}"),
        ('y, "s", color', 'y, ls="", color'),
        (MEAN, f"{SHIFTED}, {MEAN}"),
        ("panel.replace", "''.replace"),
    ],
    "drawn: 1 marks (run) are drawn that source_data": [also('axis.plot(0, 0.9, "o", gid="run-99")')],
    "drawn: 1 marks (mean) are drawn": [also('axis.inset_axes([0, 0, 0.3, 0.3]).plot(0, 0.9, "o", gid="mean-9")')],
    "clipped: ink at its right": [
        also("axis.axhline(0.9, clip_on=False, xmax=2)"),
        also('axis.figure.text(0.97, 0.5, "remarks")'),
    ],
    "clipped: marks lie outside of the axes": [also("axis.set_ylim(0.9, 0.93)")],
    "unjudged: figure.svg was not written by savefig": [(SVG, 'open("figure.svg", "w")')],
    "digest: figure.svg is not what savefig wrote": [(SVG, f'{SVG}; open("figure.svg", "w")')],
    "drawn: the mean 0.92 of Ours is not drawn; drawn instead: 0.91": [
        (SVG, f"axes[0, 0].lines[1].set_ydata([0.91]); {SVG}")
    ],
}
SWAP = "label={'Ours': 'Baseline', 'Baseline': 'Ours'}.get(shown, shown),"
CURVES = {
    "drawn: of Ours is not drawn": [('float(row["y"]))', 'float(row["y"]) + 0.05)')],
    "drawn: of Baseline": [("label=shown,", SWAP)],
    "drawn: is not drawn": [
        ('gid=f"line-', 'visible=number != 3, gid=f"line-'),
        ("in points]", "in points]; pairs[4] = (pairs[4][0], 0.9)"),
    ],
    "drawn: of Baseline is not drawn": [("color=colours[label]", 'color="#0072B2"')],
    "drawn: of no label": [("axis.legend()", "pass")],
    "undeclared: 1 LineCollection": [also('axis.axhline(1, ls=":"); axis.errorbar([9, 50], [1, 1.2], 0.1)')],
    "undeclared: PolyCollection, 1 Rectangle": [also("axis.fill_between([0, 90], 0.2, 1); axis.bar(30, 0.3, 9)")],
    "undeclared: PolyCollection line-7": [also('axis.fill_between([0, 90], 0.2, 1, gid="line-7")')],
}
WRONG = [
    (name, expected, change)
    for name, table in (("acc", POINTS), ("loss", CURVES))
    for expected, changes in table.items()
    for change in changes
]


@pytest.mark.parametrize(("name", "expected", "change"), WRONG)
def test_a_wrong_figure_is_found(project: Path, name: str, expected: str, change: tuple[str, str]) -> None:
    code, _, sentence = expected.partition(": ")
    found = redrawn(project, name, change)
    assert any(problem.code == code and sentence in problem.message for problem in found), found
    assert code != "undeclared" or [problem.severity for problem in found if problem.code == code] == ["warn"]


def test_what_shows_the_same_numbers_in_another_way_passes(project: Path) -> None:
    assert redrawn(project, "loss", also('axis.set_yscale("log"); axis.set_ylim(0.01, 10)')) == []
    bars = ('axis.plot(x, y, "s", color=colour, markersize=5, ', "axis.bar(x, y, 0.1, color=colour, ")
    dots = ('axis.plot(x + 0.15, y, "o", color=colour, markersize=2.5, ', "axis.scatter(x + 0.15, y, color=colour, ")
    spread = ("axis.plot([x, x], [y - spread, y + spread], ", "axis.vlines(x, y - spread, y + spread, ")
    assert redrawn(project, "acc", bars, dots, spread) == []


def test_a_declared_line_and_a_text_are_disclosed_and_pass(project: Path) -> None:
    code = 'axis.axhline(0.9, gid="beside-chance"); axis.text(0.5, 0.9, "p < 0.001", gid="beside-p")'
    edit(project / "figures/acc/figure.py", *also(code))
    done = render(project, "figures", "acc", "--json")
    assert done.returncode == 0 and findings(done) == [
        ("undeclared", "the figure says what source_data.csv does not: 'p < 0.001'"),
        ("undeclared", "drawn beside the data: 1 Line2D beside-chance"),
    ]
    told = json.loads(render(project, "gate", "--json").stdout)["claims"][0]["disclose"]
    assert "figure acc: the figure says what source_data.csv does not: 'p < 0.001'" in told
    edit(project / "figures/acc/figure.py", ', gid="beside-chance"', "")
    done = render(project, "figures", "acc")
    assert done.returncode == 1 and "a gid such as beside-chance in figures/acc/figure.py" in done.stdout


# -- tampering


def new_evidence(project: Path) -> None:
    """A claim is made anew from fewer runs; the figure is not drawn again."""
    runs = sorted((project / "runs").glob("*-ours-*"))[:2]
    assert add_claim(project, "acc-ours", "accuracy", "test", "Ours", runs, "acc").returncode == 0


def edits(old: str, new: str) -> Callable[[Path], object]:
    return lambda path: edit(path, old, new)


def of_acc(name: str, change: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda project: change(project / "figures/acc" / name)


def old_picture(project: Path) -> None:
    shutil.copy(project / "figures/loss/figure.png", project / "figures/acc/figure.png")


STALE = "stale-source: source_data.csv is not what the runs and claims say now"
TAMPERINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a csv": (
        of_acc("source_data.csv", edits("0.92,", "0.95,")),
        "digest: source_data.csv is not the one that was made",
    ),
    "a sidecar": (of_acc(figures.SIDECAR, edits('"acc-ours"', '"acc-x"')), "digest: figure.provenance.json was edited"),
    "a stale source": (new_evidence, STALE),
    "an old picture": (old_picture, "digest: figure.png is not the one that was made"),
    "the code": (of_acc("figure.py", edits("DPI = 300", "DPI = 300 ")), "stale: figure.py was edited"),
    "no sidecar": (of_acc(figures.SIDECAR, Path.unlink), "missing: does not exist"),
    "a run gone": (
        lambda project: shutil.rmtree(next((project / "runs").glob("*-ours-*"))),
        "stale-source: its data cannot be computed anew: no run",
    ),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_detected(project: Path, name: str) -> None:
    tamper, expected = TAMPERINGS[name]
    code, _, sentence = expected.partition(": ")
    layer = claims.load(project / "EVIDENCE.json")
    assert figures.audit(layer, "acc") == []
    tamper(project)
    found = figures.audit(claims.load(project / "EVIDENCE.json"), "acc")
    assert any(problem.code == code and sentence in problem.message for problem in found), found


def test_check_says_what_it_saw_and_what_is_wrong(project: Path) -> None:
    done = render(project, "figures", "--check")
    expected = """\
acc: 1 panels, marks compared: 2 mean, 6 run, 2 spread
loss: 1 panels, marks compared: 6 line
2 figures pass, 0 findings
"""
    assert done.stdout == expected
    new_evidence(project)
    before = (project / "figures/acc/source_data.csv").read_bytes()
    done = render(project, "figures", "acc", "--check")
    assert done.returncode == 1 and "fix: rgt render figures acc draws it again" in done.stdout
    assert (project / "figures/acc/source_data.csv").read_bytes() == before
    done = render(project, "figures", "acc")
    assert done.returncode == 0 and "2 mean, 5 run" in done.stdout


def test_a_rebuild_elsewhere_has_the_same_bytes(delivered: Path, project: Path) -> None:
    for path in [*(project / "figures").glob("*/figure.[ps]*"), *(project / "figures").glob("*/source_data.csv")]:
        if path.suffix != ".py":
            path.unlink()
    (project / "matplotlibrc").write_text("font.size: 30\nsavefig.dpi: 50\n")
    settings = {"TZ": "Asia/Shanghai", "LANG": "de_DE.UTF-8", "LC_ALL": "C"}
    for command in ("figures", "tables", "report"):
        assert render(project, command, **settings, MATPLOTLIBRC=str(project / "matplotlibrc")).returncode == 0
    assert render(delivered, "report").returncode == 0
    names = [path.relative_to(delivered) for top in ("figures", "tables") for path in (delivered / top).rglob("*.*")]
    assert len(names) == 15
    for name in [*names, Path("report.html")]:
        assert (project / name).read_bytes() == (delivered / name).read_bytes(), name


def test_figure_py_of_the_user_is_kept_and_its_failure_is_told(project: Path) -> None:
    code = project / "figures/acc/figure.py"
    before = (project / "figures/acc/figure.png").read_bytes()
    code.write_text("import missing_module\n")
    done = render(project, "figures", "acc")
    assert done.returncode == 2 and "ModuleNotFoundError: No module named 'missing_module'" in done.stderr
    code.write_text("pass\n")
    done = render(project, "figures", "acc")
    assert done.returncode == 2 and "ended without writing figure.png, figure.pdf, figure.svg" in done.stderr
    assert (project / "figures/acc/figure.png").read_bytes() == before


def test_signs_without_a_picture_are_named_and_other_signs_and_long_titles_match(project: Path) -> None:
    edit(project / "EVIDENCE.json", '"method": "Ours"', '"method": "我们"')
    found = findings(render(project, "figures", "acc", "--json"))
    assert [code for code, _ in found] == ["font"] and "2 signs have no picture in the font" in found[0][1]
    edit(project / "EVIDENCE.json", '"method": "我们"', '"method": "a$b$ x_y--z <&> 100% of a long name"')
    edit(project / "EVIDENCE.json", '"split": "test"', '"split": "test", "unit": "share"')
    edit(project / "EVIDENCE.json", '"metric": "accuracy"', '"metric": "ACCURACY"')
    done = render(project, "figures", "acc")
    assert (done.returncode, "2 mean, 6 run, 2 spread" in done.stdout) == (0, True), done.stdout + done.stderr
