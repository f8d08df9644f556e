"""A picture of the demo's delivery report, for a document: report.png.

Usage:
    python examples/cpu_lifecycle/screenshots.py [--out demo-out] [--into DIR]

Needs chromium, which draws the pages of the newest demo as a browser of 1000 pixels shows them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import click

# rgt is not installed: the bundle is used from its folder
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))

from rgt import cli, errors, files

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
SECONDS = 60.0
PAGES = {"report.png": ("delivery/report.html", 1480)}  # picture: page, height


def newest(out: Path) -> Path:
    done = [path for path in out.glob("[0-9]*") if all((path / page).is_file() for page, _ in PAGES.values())]
    if not done:
        raise errors.bad_input(f"{out} holds no finished demo; run: python examples/cpu_lifecycle/demo.py")
    return max(done, key=lambda path: path.stat().st_mtime)


def draw(browser: str, page: Path, picture: Path, height: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "page.png"
        size = f"--window-size=1000,{height}"
        words = [browser, *QUIET, f"--user-data-dir={folder}/profile", size, f"--screenshot={made}", page.as_uri()]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            raise errors.lacking(f"{browser} drew nothing in {SECONDS:.0f} seconds") from None
        if not made.is_file():
            raise errors.lacking(f"{browser} drew nothing: {done.stderr.strip()[-200:]}")
        files.write_bytes(picture, made.read_bytes())


@click.command(cls=cli.Command)
@click.option("--out", type=click.Path(path_type=Path), default="demo-out", show_default=True, help="Of the demo.")
@click.option("--into", type=click.Path(path_type=Path), help="Where the pictures go. [default: beside this script]")
def main(out: Path, into: Path | None) -> None:
    """Draw report.png from the newest demo in --out."""
    browser = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    if browser is None:
        raise errors.lacking("chromium is not installed; it draws the pages")
    folder = newest(out)
    for name, (page, height) in PAGES.items():
        picture = (into or Path(__file__).parent) / name
        draw(browser, (folder / page).absolute(), picture, height)
        click.echo(f"{picture}  {picture.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
