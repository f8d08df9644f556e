"""Figures are read back from their files: whatever is blank, cut off, wrong, swapped, stale or tampered with is named,
and a rebuild has the same bytes."""

from __future__ import annotations

import json
import os
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from delivery import figures, inspection, readback
from rgt import evidence, seal

from .delivered import call, edit, everything, findings, render


@pytest.fixture
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything(tmp_path_factory)


@pytest.fixture
def project(delivered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(delivered, tmp_path / "project"))


# -- figures: what is drawn wrongly is found in the files


def redraw(folder: Path, *edits: tuple[str, str], only: tuple[str, ...] = figures.OUTPUTS) -> None:
    """Run an edited figure.py in a copy; write and take over the named files."""
    room = folder.parent / f"{folder.name}-redrawn"
    shutil.copytree(folder, room)
    skipped = [(f'figure.savefig("{name}"', "dict(") for name in figures.OUTPUTS if name not in only]
    for old, new in [*edits, *((old, f"{new}name=0") for old, new in skipped)]:
        edit(room / "figure.py", old, new)
    before = Path.cwd()
    from matplotlib import pyplot

    os.chdir(room)
    try:
        runpy.run_path("figure.py", run_name="__main__")
    finally:
        os.chdir(before)
        pyplot.close("all")
    for name in only:
        shutil.copy(room / name, folder / name)


def shown_in(sentence: str) -> tuple[str, ...]:
    """The file in which a break shows; the others need not be drawn."""
    return (next((name for name in figures.OUTPUTS if name in sentence), "figure.svg"),)


PLOT = 'x, y, colour = labels.index(row["label"]), float(row["y"]), colours[row["label"]]'
LABELS = "axis.set_xticks(range(len(labels)), [label"
POINTS = {
    "blank": ([("for row in rows:", "for row in []:")], "blank", "figure.svg shows no data"),
    "wrong data": (
        [(PLOT, f"{PLOT}; y *= 1.01")],
        "drawn",
        "the mean 0.92 of Ours is not drawn; drawn instead: 0.9292",
    ),
    "one value": (
        [(PLOT, f"{PLOT}; y += 0.001 * (row['mark'] == 'run' and row['label'] == 'Ours')")],
        "drawn",
        "the run 0.916 of Ours",
    ),
    "wrong order": (
        [
            (LABELS, LABELS.replace("[label", "[label[::-1][::-1]")),
            ("for label in labels]", "for label in labels[::-1]]"),
        ],
        "wrong-order",
        "the labels read Baseline, Ours; source_data.csv has Ours, Baseline",
    ),
    "swapped": (
        [("x, y, colour = labels.index", "x, y, colour = 1 - labels.index")],
        "wrong-order",
        "is drawn above another label",
    ),
    "no spread": ([('if row["spread"]:', "if False:")], "drawn", "the spread 0.916 to 0.924 of Ours is not drawn"),
    "too much": (
        [("long = sum", 'axis.plot(0, 0.9, "o", color="#0072B2", gid="run-99")\n    long = sum')],
        "drawn",
        "1 marks (run)",
    ),
    "text cut off": (
        [("axis.set_title", 'axis.figure.text(0.97, 0.5, "a long remark")\n    axis.set_title')],
        "clipped",
        "the text 'a long remark' runs out of the picture",
    ),
    "a line to the edge": (
        [("axis.set_title", 'axis.axhline(0.9, clip_on=False, xmax=2, color="#000000")\n    axis.set_title')],
        "clipped",
        "figure.png has ink at its right edge",
    ),
    "text outside": (
        [("axis.set_title", 'axis.figure.text(1.2, 0.5, "a remark")\n    axis.set_title')],
        "clipped",
        "the text 'a remark' runs out of the picture",
    ),
    "data cut off": (
        [("axis.set_title", "axis.set_ylim(0.9, 0.93)\n    axis.set_title")],
        "clipped",
        "marks lie outside of the axes",
    ),
    "no title": ([("panel.replace", "''.replace")], "drawn", "no panel is titled 'accuracy CIFAR-10 test'"),
    "no scale": (
        [("axis.set_title", "axis.set_yticks([])\n    axis.set_title")],
        "unjudged",
        "the labels of the y axis give no scale",
    ),
    "tight": (
        [('"savefig.dpi": DPI', '"savefig.dpi": DPI, "savefig.bbox": "tight"')],
        "size",
        "SIZE_IN of figure.py says 3.5 x 2.6",
    ),
    "100 dpi": ([('"figure.png",', '"figure.png", dpi=100,')], "size", "figure.png has 350 x 260 pixels"),
    "Type 3": ([('"pdf.fonttype": 42', '"pdf.fonttype": 3')], "font", "figure.pdf has Type 3 fonts"),
    "no font": ([('"pdf.fonttype": 42', '"pdf.use14corefonts": True')], "font", "figure.pdf does not carry its font"),
    "live text": (
        [('"svg.fonttype": "path"', '"svg.fonttype": "none"')],
        "font",
        "leaves its letters to the reader's fonts",
    ),
    "red and green": (
        [('"#0072B2", "#D55E00"', '"#2CA02C", "#D62728"')],
        "colour",
        "#2ca02c and #d62728 look alike with deuteranopia",
    ),
}


@pytest.mark.parametrize("name", POINTS)
def test_a_wrong_figure_is_found_in_its_files(project: Path, name: str) -> None:
    edits, code, sentence = POINTS[name]
    folder = project / "figures/acc"
    redraw(folder, *edits, only=shown_in(sentence))
    found = inspection.look(folder)
    assert any(problem.code == code and sentence in problem.message for problem in found), found


CURVES = {
    "wrong data": ([('float(row["y"]))', 'float(row["y"]) + 0.05)')], "drawn", "no line follows the data of Ours"),
    "wrong order": (
        [("label=shown,", "label={'Ours': 'Baseline', 'Baseline': 'Ours'}.get(shown, shown),")],
        "wrong-order",
        "has the colour of Baseline",
    ),
    "a line less": (
        [("number += 1\n", "number += 1\n        if number == 3:\n            continue\n")],
        "drawn",
        "no line follows",
    ),
    "a line more": (
        [("axis.legend()", 'axis.plot([0, 190], [1, 1], color="#0072B2", gid="line-99")\n    axis.legend()')],
        "drawn",
        "1 lines are drawn that source_data.csv does not have",
    ),
    "one colour": ([("color=colours[label]", 'color="#0072B2"')], "colour", "two labels of the legend have one colour"),
    "no legend": ([("axis.legend()", "pass")], "drawn", "the legend does not name Ours"),
    "one point": (
        [
            (
                "axis.plot(*zip",
                "pairs = [(s, y * (0.9 if i == 4 else 1)) for i, (s, y) in enumerate(pairs)]\n        axis.plot(*zip",
            )
        ],
        "drawn",
        "no line follows",
    ),
}


@pytest.mark.parametrize("name", CURVES)
def test_a_wrong_curve_is_found_in_its_files(project: Path, name: str) -> None:
    edits, code, sentence = CURVES[name]
    redraw(project / "figures/loss", *edits, only=shown_in(sentence))
    found = inspection.look(project / "figures/loss")
    assert any(problem.code == code and sentence in problem.message for problem in found), found


def test_another_scale_is_read_as_well(project: Path) -> None:
    redraw(
        project / "figures/loss",
        ("axis.legend()", 'axis.set_yscale("log"); axis.set_ylim(0.01, 10); axis.legend()'),
    )
    assert inspection.look(project / "figures/loss") == []


BESIDE = {
    "lines": 'axis.axhline(1, color="#0072B2", ls=":"); axis.errorbar([9, 50], [1, 1.2], 0.1, color="#D55E00")',
    "areas": 'axis.fill_between([0, 90], 0.2, [1, 1.2], color="#0072B2", alpha=0.3); axis.bar(30, 0.3, 9)',
    "signs": 'axis.scatter([9, 50], [1, 1.2], color="#0072B2"); axis.plot([9, 50], [0.5, 0.6], "x", color="#D55E00")',
    "words": 'axis.text(50, 0.7, "a word", color="#0072B2", rotation=30); axis.set_ylabel("$x^2$", color="#D55E00")',
    "hatches": 'axis.bar(30, 0.3, 9, color="#0072B2", hatch="//")',
}


@pytest.mark.parametrize("name", BESIDE)
def test_what_else_has_a_colour_of_the_data_is_no_finding(project: Path, name: str) -> None:
    redraw(project / "figures/loss", ("axis.legend()", f"{BESIDE[name]}; axis.legend()"))
    assert inspection.look(project / "figures/loss") == []


ONE_FILE = {
    "png wrong data": ([(PLOT, f"{PLOT}; y *= 1.01")], "figure.png", "drawn", "ticks of figure.png"),
    "png wrong order": (
        [("x, y, colour = labels.index", "x, y, colour = 1 - labels.index")],
        "figure.png",
        "drawn",
        "figure.png lacks",
    ),
    "pdf wrong data": ([(PLOT, f"{PLOT}; y *= 1.01")], "figure.pdf", "drawn", "ticks of the PDF"),
    "pdf wrong order": (
        [("x, y, colour = labels.index", "x, y, colour = 1 - labels.index")],
        "figure.pdf",
        "drawn",
        "not in the PDF",
    ),
}


@pytest.mark.parametrize("name", ONE_FILE)
def test_one_wrong_file_among_three_is_found(project: Path, name: str) -> None:
    edits, file, code, sentence = ONE_FILE[name]
    redraw(project / "figures/acc", *edits, only=(file,))
    found = inspection.look(project / "figures/acc")
    assert any(problem.code == code and sentence in problem.message for problem in found), found


def move_run(folder: Path, to: str) -> None:
    """The run of Ours at 0.92 lies elsewhere, in the data and in the three files."""
    edit(folder / "source_data.csv", ",Ours,run,0.92,", f",Ours,run,{to},")
    redraw(folder)


@pytest.mark.parametrize(  # another run lies at 0.916, less than a mark's size away
    ("was", "now", "file", "sentence"),
    [
        ("0.92", "0.91613", "figure.pdf", "1 marks of the SVG are not in the PDF, such as the run at 80, 49 points"),
        ("0.92", "0.91613", "figure.pdf", "1 marks of the PDF are not in the SVG, such as the spot at 80, 39 points"),
        ("0.92", "0.91613", "figure.png", "figure.png shows #0072b2 where the SVG has none: "),
        ("0.916", "0.9166", "figure.png", "figure.png lacks #0072b2 of the SVG: "),
    ],
)
def test_an_old_file_is_found_where_a_neighbour_covers_the_mark(
    project: Path, was: str, now: str, file: str, sentence: str
) -> None:
    folder = project / "figures/acc"
    old = Path(shutil.copytree(folder, project / "figures/old"))
    move_run(old, was)
    move_run(folder, now)
    assert (inspection.look(old), inspection.look(folder)) == ([], [])
    shutil.copy(old / file, folder / file)
    (problem, *more) = [problem for problem in inspection.look(folder) if sentence in problem.message]
    assert problem.code == "drawn" and not more


def white(path: Path) -> None:
    from PIL import Image

    Image.new("RGB", (1050, 780), "white").save(path, dpi=(300, 300))


DAMAGE: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "white": ("figure.png", white, "figure.png is blank: 0.00% of its pixels"),
    "half a png": (
        "figure.png",
        lambda path: path.write_bytes(path.read_bytes()[:9000]),
        "figure.png is not a whole PNG",
    ),
    "no png": ("figure.png", lambda path: path.unlink(), "figure.png does not exist"),
    "no pdf": ("figure.pdf", lambda path: path.write_bytes(b"hello"), "figure.pdf is not a PDF of one page"),
    "half a pdf": ("figure.pdf", lambda path: path.write_bytes(path.read_bytes()[:3000]), "figure.pdf is cut off"),
    "empty svg": ("figure.svg", lambda path: path.write_text(""), "figure.svg is not an SVG"),
    "another svg": ("figure.svg", lambda path: path.write_text("<svg/>"), "is not an SVG with its size in points"),
    "an odd place": ("figure.svg", lambda path: edit(path, 'd="M 0 ', 'd="M x 0 '), "svg has a shape that matplotlib"),
    "an odd width": (
        "figure.svg",
        lambda path: edit(path, "width: 1.2", "width: 1,2"),
        "svg has a shape that matplotlib",
    ),
    "empty csv": ("source_data.csv", lambda path: path.write_text(""), "source_data.csv has no rows"),
    "another csv": ("source_data.csv", lambda path: path.write_text("y\nx\n"), "a row has no panel"),
    "words": ("source_data.csv", lambda path: edit(path, "0.92,", "x,"), "not a table that figures are drawn from"),
    "no panel": ("source_data.csv", lambda path: edit(path, "panel", "pane"), "a row has no panel"),
    "an odd mark": ("source_data.csv", lambda path: edit(path, ",mean,", ",meen,"), "'meen' is neither mean nor run"),
    "half a row": ("source_data.csv", lambda path: path.write_text(path.read_text() + "x,y,run,1"), "a row has no"),
    "no size": ("figure.py", lambda path: path.write_text("DPI = 300"), "figure.py does not say SIZE_IN"),
    "coarse": ("figure.py", lambda path: edit(path, "DPI = 300", "DPI = 72"), "DPI = 72 is coarse"),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_files_get_a_sentence(project: Path, name: str) -> None:
    file, damage, sentence = DAMAGE[name]
    damage(project / "figures/acc" / file)
    assert any(sentence in problem.message for problem in inspection.look(project / "figures/acc"))


# -- figures: tampering


def change_run(project: Path) -> None:
    run = next((project / "runs").glob("*-ours-*"))
    edit(run / "results.json", '"n": 1000', '"n": 1001')


def reforge(project: Path) -> None:
    """A forger who changes the data and makes every hash anew."""
    folder = project / "figures/acc"
    edit(folder / "source_data.csv", "0.92,", "0.95,")
    record = json.loads((folder / "figure.provenance.json").read_text())
    record.pop("sha256")
    record["inputs"]["figures/acc/source_data.csv"] = seal.digest_of(folder / "source_data.csv")
    (folder / "figure.provenance.json").write_text(json.dumps({**record, "sha256": figures._digest(record)}))


def new_evidence(project: Path) -> None:
    """A claim is made anew from fewer runs; the figure is not drawn again."""
    runs = sorted((project / "runs").glob("*-ours-*"))[:2]
    words = [word for run in runs for word in ("--run", run)]
    named = ["--metric", "accuracy", "--split", "test", "--dataset", "CIFAR-10", "--method", "Ours", "--figure", "acc"]
    assert call(project, "manifest_scaffold.py", "claim", "add", "acc-ours", *named, *words).returncode == 0


TAMPERINGS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a sealed run": (change_run, "digest", "results.json changed since it was sealed"),
    "a csv": (
        lambda project: edit(project / "figures/acc/source_data.csv", "0.92,", "0.95,"),
        "digest",
        "source_data.csv is not the one that was made",
    ),
    "a sidecar": (
        lambda project: edit(project / "figures/acc/figure.provenance.json", '"acc-ours"', '"acc-best"'),
        "digest",
        "figure.provenance.json was edited",
    ),
    "csv and sidecar": (reforge, "stale-source", "source_data.csv is not what the runs and claims say now"),
    "a stale source": (new_evidence, "stale-source", "source_data.csv is not what the runs and claims say now"),
    "a picture": (
        lambda project: white(project / "figures/acc/figure.png"),
        "digest",
        "figure.png is not the one that was made",
    ),
    "the code": (
        lambda project: edit(project / "figures/acc/figure.py", "DPI = 300", "DPI = 300 "),
        "stale",
        "figure.py was edited",
    ),
    "no sidecar": (
        lambda project: (project / "figures/acc/figure.provenance.json").unlink(),
        "missing",
        "does not exist",
    ),
    "half a sidecar": (
        lambda project: (project / "figures/acc/figure.provenance.json").write_text("{"),
        "malformed",
        "is not JSON",
    ),
    "a run gone": (lambda project: shutil.rmtree(next((project / "runs").glob("*-ours-*"))), "missing", "no run"),
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_detected(project: Path, name: str) -> None:
    tamper, code, sentence = TAMPERINGS[name]
    layer = evidence.load(project / "EVIDENCE.json")
    assert figures.audit(layer, "acc") == []
    tamper(project)
    found = figures.audit(evidence.load(project / "EVIDENCE.json"), "acc")
    assert any(problem.code == code and sentence in problem.message for problem in found), found


def test_check_says_what_it_saw_and_what_is_wrong(project: Path) -> None:
    done = render(project, "figures", "--check")
    assert (
        done.stdout
        == """\
acc: 1 panels, marks read back: 2 mean, 6 run, 2 spread; 1050 x 780 pixels at 300 dpi, 3.5 x 2.6 in, 2 colours
loss: 1 panels, marks read back: 6 line; 1050 x 780 pixels at 300 dpi, 3.5 x 2.6 in, 2 colours
2 figures pass, 0 findings
"""
    )
    new_evidence(project)
    before = (project / "figures/acc/source_data.csv").read_bytes()
    done = render(project, "figures", "acc", "--check")
    assert done.returncode == 1 and "fix: render.py figures acc draws it again" in done.stdout
    assert (project / "figures/acc/source_data.csv").read_bytes() == before
    done = render(project, "figures", "acc")
    assert done.returncode == 0 and "2 mean, 5 run" in done.stdout


def test_a_rebuild_elsewhere_has_the_same_bytes(delivered: Path, project: Path) -> None:
    for path in [*(project / "figures").glob("*/figure.[ps]*"), *(project / "figures").glob("*/source_data.csv")]:
        if path.suffix != ".py":
            path.unlink()
    (project / "matplotlibrc").write_text("font.size: 30\nsavefig.dpi: 50\n")
    settings = {
        "TZ": "Asia/Shanghai",
        "LANG": "de_DE.UTF-8",
        "LC_ALL": "C",
        "MATPLOTLIBRC": str(project / "matplotlibrc"),
    }
    assert render(project, "figures", **settings).returncode == 0
    assert render(project, "tables", **settings).returncode == 0
    assert render(project, "report", **settings).returncode == 0
    assert render(delivered, "report").returncode == 0
    names = [path.relative_to(delivered) for top in ("figures", "tables") for path in (delivered / top).rglob("*.*")]
    assert len(names) == 16
    for name in [*names, Path("report.html")]:
        assert (project / name).read_bytes() == (delivered / name).read_bytes(), name


def test_figure_py_of_the_user_is_kept_and_its_failure_is_told(project: Path) -> None:
    code = project / "figures/acc/figure.py"
    edit(code, "SIZE_IN = (3.5, 2.6)", "SIZE_IN = (4.0, 3.0)")
    assert "1200 x 900 pixels" in render(project, "figures", "acc").stdout
    before = (project / "figures/acc/figure.png").read_bytes()
    code.write_text("import missing_module\n")
    done = render(project, "figures", "acc")
    assert done.returncode == 2 and "ModuleNotFoundError: No module named 'missing_module'" in done.stderr
    code.write_text("pass\n")
    done = render(project, "figures", "acc")
    assert done.returncode == 2 and "ended without writing figure.png, figure.pdf, figure.svg" in done.stderr
    assert (project / "figures/acc/figure.png").read_bytes() == before


def test_signs_without_a_picture_are_named(project: Path) -> None:
    edit(project / "EVIDENCE.json", '"method": "Ours"', '"method": "我们"')
    found = findings(render(project, "figures", "acc", "--json"))
    assert [code for code, _ in found] == ["font"] and "2 signs have no picture in the font" in found[0][1]


def test_axis_reading() -> None:
    assert readback.axis_of([(10.0, "0"), (20.0, "1")], []) == readback.Axis(10.0, 10.0, False)
    assert readback.axis_of([(10.0, "0"), (20.0, "1")], ["1e−6"]) == readback.Axis(10.0, 1e7, False)
    assert readback.axis_of([(10.0, "0"), (20.0, "1"), (25.0, "2")], []) is None
    assert readback.axis_of([(10.0, "low"), (20.0, "high")], []) is None


def test_names_with_signs_and_long_titles_are_read_back(project: Path) -> None:
    edit(project / "EVIDENCE.json", '"method": "Ours"', '"method": "a$b$ x_y--z <&> 100% of a long name"')
    edit(project / "EVIDENCE.json", '"split": "test"', '"split": "test", "unit": "share"')
    edit(project / "EVIDENCE.json", '"metric": "accuracy"', '"metric": "ACCURACY"')
    done = render(project, "figures", "acc")
    assert (done.returncode, "2 mean, 6 run, 2 spread" in done.stdout) == (0, True), done.stdout + done.stderr
