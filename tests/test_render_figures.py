"""Figures are compared with their data: what is blank, cut off, wrong, swapped, undeclared, stale or tampered with is
named, and a rebuild has the same bytes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from rgt.evidence import claims
from rgt.render import artists, figure_check, figures
from rgt.run import seal

from .delivered import add_claim, edit, everything, findings, render


@pytest.fixture
def delivered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everything(tmp_path_factory)


@pytest.fixture
def project(delivered: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(delivered, tmp_path / "project"))


# -- what is drawn wrongly is found


def redrawn(folder: Path, *edits: tuple[str, str], only: str = "") -> list[figure_check.Problem]:
    """Run an edited figure.py as `render.py figures` does, in this process; what is wrong with the figure."""
    from matplotlib import pyplot

    skipped = [name for name in figure_check.OUTPUTS if only and name != only]
    for old, new in [*edits, *((f'figure.savefig("{name}"', "dict(name=0") for name in skipped)]:
        edit(folder / "figure.py", old, new)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        artists.record("figure.py", figure_check.ARTISTS)
    pyplot.close("all")
    return figure_check.figure_problems(folder)


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
    "drawn: the run 0.916 of Ours": [(PLOT, f"{PLOT}; y += 1e-6 * (row['mark'] == 'run')")],
    "wrong-order: the labels read Baseline, Ours; source_data.csv has Ours, Baseline": [
        ('[label.replace("$", r"\\$") for label in labels]', "labels[::-1]")
    ],
    "wrong-order: drawn above another label": [("colour = labels.index", "colour = 1 - labels.index")],
    "drawn: the spread 0.916 to 0.924 of Ours is not drawn": [('if row["spread"]:', "if False:")],
    "drawn: the mean 0.92 of Ours is not drawn": [
        (MEAN, f"visible=False, {MEAN}"),
        ('"s", color=colour', '"s", color="white"'),
        ('y, "s", color', 'y, ls="", color'),
    ],
    "drawn: the mean 0.92 of Ours is not drawn; drawn instead: 0.92": [(MEAN, f"{SHIFTED}, {MEAN}")],
    "drawn: 1 marks (run) are drawn that source_data": [also('axis.plot(0, 0.9, "o", gid="run-99")')],
    "drawn: 1 marks (line) are drawn": [also('axis.plot([0, 1], [1, 1], gid="line-9")')],
    "drawn: 1 marks are drawn in a panel that source_data.csv does not have": [
        also('axis.inset_axes([0, 0, 0.3, 0.3]).plot(0, 0.9, "o", gid="mean-9")')
    ],
    "drawn: the y axis says 0.90 at 0.88": [also('axis.set_yticks([0.88, 0.92], ["0.90", "0.99"])')],
    "clipped: 'a long remark' runs out": [also('axis.figure.text(0.97, 0.5, "a long remark")')],
    "clipped: 'a remark' runs out": [also('axis.figure.text(1.2, 0.5, "a remark")')],
    "clipped: figure.png has ink at its right": [also("axis.axhline(0.9, clip_on=False, xmax=2)")],
    "clipped: marks lie outside of the axes": [also("axis.set_ylim(0.9, 0.93)")],
    "drawn: no panel is titled 'accuracy CIFAR-10 test'": [("panel.replace", "''.replace")],
    "unjudged: the y axis has fewer than two numbers": [also("axis.set_yticks([])")],
    "size: its size is not the 3.5 x 2.6 in": [('"savefig", dpi', '"savefig", bbox="tight", dpi')],
    "size: figure.png has 100 dpi, which is coarse": [('"figure.png",', '"figure.png", dpi=100,')],
    "font: figure.pdf has Type 3 fonts": [("fonttype=42", "fonttype=3")],
    "font: figure.pdf does not carry its font": [("fonttype=42", "use14corefonts=True")],
    "font: figure.svg leaves its letters": [('fonttype="path"', 'fonttype="none"')],
    "colour: #2ca02c and #d62728 look alike with deuteranopia": [('"#0072B2", "#D55E00"', '"#2CA02C", "#D62728"')],
    "unjudged: figure.svg was not written by savefig": [(SVG, 'open("figure.svg", "w")')],
    "digest: figure.svg is not the one that was made": [(SVG, f'{SVG}; open("figure.svg", "w")')],
}
SWAP = "label={'Ours': 'Baseline', 'Baseline': 'Ours'}.get(shown, shown),"
CURVES = {
    "drawn: of Ours is not drawn": [('float(row["y"]))', 'float(row["y"]) + 0.05)')],
    "wrong-order: the line of Ours, Baseline is drawn in the colour of another label": [("label=shown,", SWAP)],
    "drawn: is not drawn": [
        ('gid=f"line-', 'visible=number != 3, gid=f"line-'),
        ("in points]", "in points]; pairs[4] = (pairs[4][0], 0.9)"),
    ],
    "drawn: 1 marks (line) are drawn": [also('axis.plot([0, 190], [1, 1], color="#0072B2", gid="line-99")')],
    "colour: two labels of the legend have one colour": [("color=colours[label]", 'color="#0072B2"')],
    "drawn: the legend does not name Ours": [("axis.legend()", "pass")],
    "undeclared: 1 LineCollection": [also('axis.axhline(1, ls=":"); axis.errorbar([9, 50], [1, 1.2], 0.1)')],
    "undeclared: PolyCollection, 1 Rectangle": [also("axis.fill_between([0, 90], 0.2, 1); axis.bar(30, 0.3, 9)")],
    "undeclared: 1 PathCollection": [also("axis.scatter([9, 50], [1, 1.2])")],
    "undeclared: 1 Line2D": [also("axis.figure.add_artist(plt.Line2D([0, 1], [0, 1]))")],
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
    """What is drawn beside the data is listed once, as a warning."""
    code, _, sentence = expected.partition(": ")
    only = next((one for one in figure_check.OUTPUTS if one in sentence), "figure.svg")
    found = redrawn(project / "figures" / name, change, only="" if "by savefig" in sentence else only)
    named = [problem for problem in found if problem.code == code and sentence in problem.message]
    assert named, found
    if code == "undeclared":
        assert [problem.code for problem in found].count(code) == 1 and named[0].severity == "warn"


def test_what_shows_the_same_numbers_in_another_way_passes(project: Path) -> None:
    log = also('axis.set_yscale("log"); axis.set_ylim(0.01, 10)')
    assert redrawn(project / "figures/loss", log) == []
    bars = ('axis.plot(x, y, "s", color=colour, markersize=5, ', "axis.bar(x, y, 0.1, color=colour, ")
    dots = ('axis.plot(x + 0.15, y, "o", color=colour, markersize=2.5, ', "axis.scatter(x + 0.15, y, color=colour, ")
    spread = ("axis.plot([x, x], [y - spread, y + spread], ", "axis.vlines(x, y - spread, y + spread, ")
    edit(project / "figures/acc/source_data.csv", "0.0040000000000000036", "0.0")  # runs that agree to the last digit
    assert redrawn(project / "figures/acc", bars, dots, spread) == []


def test_a_declared_line_and_a_text_are_disclosed_and_pass(project: Path) -> None:
    code = 'axis.axhline(0.9, gid="beside-chance"); axis.text(0.5, 0.9, "p < 0.001")'
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


def test_one_wrong_file_among_three_is_found(project: Path) -> None:
    change = '    axes[0, 0].lines[1].set_ydata([0.91])\n    figure.savefig("figure.pdf"'
    found = redrawn(project / "figures/acc", ('    figure.savefig("figure.pdf"', change))
    where, _, said = found[0].message.partition(": ")
    assert (len(found), found[0].code, where) == (1, "drawn", "figure.pdf, figure.svg")
    assert "the mean 0.92 of Ours is not drawn; drawn instead: 0.91" in said


def white(path: Path) -> None:
    """A blank picture that is recorded as the one that was made."""
    from PIL import Image

    old = seal.digest_of(path)
    Image.new("RGB", (1050, 780), "white").save(path, dpi=(300, 300))
    edit(path.parent / figure_check.ARTISTS, old, seal.digest_of(path))


def becomes(content: str) -> Callable[[Path], object]:
    return lambda path: path.write_text(content)


def edits(old: str, new: str) -> Callable[[Path], object]:
    return lambda path: edit(path, old, new)


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    ("figure.png", white, "figure.png is blank: 0.00% of its pixels"),
    ("figure.png", lambda path: path.write_bytes(path.read_bytes()[:9000]), "figure.png is not the one"),
    ("figure.png", Path.unlink, "figure.png does not exist"),
    ("figure.pdf", becomes("hello"), "figure.pdf is not the one"),
    ("figure.svg", becomes(""), "figure.svg is not the one"),
    (figure_check.ARTISTS, Path.unlink, "figure.artists.json does not exist"),
    (figure_check.ARTISTS, becomes('{"drawings": [{}]}'), "does not fit the figure_artists schema"),
    ("source_data.csv", becomes(""), "source_data.csv has no rows"),
    ("source_data.csv", becomes("y\nx\n"), "a row has no panel"),
    ("source_data.csv", edits("0.92,", "x,"), "not a table that figures are drawn from"),
    ("source_data.csv", edits("panel", "pane"), "a row has no panel"),
    ("source_data.csv", edits(",mean,", ",meen,"), "'meen' is neither mean nor run"),
    ("source_data.csv", lambda path: path.write_text(path.read_text() + "x,y,run,1"), "a row has no"),
]


def test_damaged_files_get_a_sentence(delivered: Path, tmp_path: Path) -> None:
    for number, (file, damage, sentence) in enumerate(DAMAGE):
        folder = Path(shutil.copytree(delivered / "figures/acc", tmp_path / str(number)))
        damage(folder / file)
        assert any(sentence in problem.message for problem in figure_check.figure_problems(folder)), sentence


# -- tampering


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
    (folder / "figure.provenance.json").write_text(json.dumps({**record, "sha256": figures.digest(record)}))


def new_evidence(project: Path) -> None:
    """A claim is made anew from fewer runs; the figure is not drawn again."""
    runs = sorted((project / "runs").glob("*-ours-*"))[:2]
    assert add_claim(project, "acc-ours", "accuracy", "test", "Ours", runs, "acc").returncode == 0


def of_acc(name: str, change: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda project: change(project / "figures/acc" / name)


def old_picture(project: Path) -> None:
    shutil.copy(project / "figures/loss/figure.png", project / "figures/acc/figure.png")


STALE = "stale-source: source_data.csv is not what the runs and claims say now"
TAMPERINGS: dict[str, tuple[Callable[[Path], object], str]] = {
    "a sealed run": (change_run, "digest: results.json changed since it was sealed"),
    "a csv": (
        of_acc("source_data.csv", edits("0.92,", "0.95,")),
        "digest: source_data.csv is not the one that was made",
    ),
    "a sidecar": (of_acc(figures.SIDECAR, edits('"acc-ours"', '"acc-x"')), "digest: figure.provenance.json was edited"),
    "csv and sidecar": (reforge, STALE),
    "a stale source": (new_evidence, STALE),
    "an old picture": (old_picture, "digest: figure.png is not the one that was made"),
    "what was drawn": (of_acc(figure_check.ARTISTS, edits("0.916", "0.917")), "digest: artists.json is not the one"),
    "the code": (of_acc("figure.py", edits("DPI = 300", "DPI = 300 ")), "stale: figure.py was edited"),
    "no sidecar": (of_acc(figures.SIDECAR, Path.unlink), "missing: does not exist"),
    "half a sidecar": (of_acc(figures.SIDECAR, becomes("{")), "malformed: is not JSON"),
    "a run gone": (lambda project: shutil.rmtree(next((project / "runs").glob("*-ours-*"))), "missing: no run"),
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
acc: 1 panels, marks compared: 2 mean, 6 run, 2 spread; 1050 x 780 pixels at 300 dpi, 3.5 x 2.6 in, 2 colours
loss: 1 panels, marks compared: 6 line; 1050 x 780 pixels at 300 dpi, 3.5 x 2.6 in, 2 colours
2 figures pass, 0 findings
"""
    assert done.stdout == expected
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
    settings = {"TZ": "Asia/Shanghai", "LANG": "de_DE.UTF-8", "LC_ALL": "C"}
    for command in ("figures", "tables", "report"):
        assert render(project, command, **settings, MATPLOTLIBRC=str(project / "matplotlibrc")).returncode == 0
    assert render(delivered, "report").returncode == 0
    names = [path.relative_to(delivered) for top in ("figures", "tables") for path in (delivered / top).rglob("*.*")]
    assert len(names) == 18
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


def test_signs_without_a_picture_are_named_and_other_signs_and_long_titles_match(project: Path) -> None:
    edit(project / "EVIDENCE.json", '"method": "Ours"', '"method": "我们"')
    found = findings(render(project, "figures", "acc", "--json"))
    assert [code for code, _ in found] == ["font"] and "2 signs have no picture in the font" in found[0][1]
    edit(project / "EVIDENCE.json", '"method": "我们"', '"method": "a$b$ x_y--z <&> 100% of a long name"')
    edit(project / "EVIDENCE.json", '"split": "test"', '"split": "test", "unit": "share"')
    edit(project / "EVIDENCE.json", '"metric": "accuracy"', '"metric": "ACCURACY"')
    done = render(project, "figures", "acc")
    assert (done.returncode, "2 mean, 6 run, 2 spread" in done.stdout) == (0, True), done.stdout + done.stderr
