"""render.py report in a real browser, offline: every picture decodes, nothing is fetched, nothing runs off the page."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ..delivered import make, render
from .support import need, private_dir, run

PROBE = """<script>
addEventListener("load", () => {
  const images = [...document.images].map((image) => [image.naturalWidth, image.naturalHeight]);
  const wide = document.documentElement.scrollWidth > innerWidth;
  const fetched = performance.getEntriesByType("resource").filter((entry) => !entry.name.startsWith("data:")).length;
  document.title = JSON.stringify({images, wide, fetched, heads: document.querySelectorAll("h2, h3").length});
});
</script>"""
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --host-resolver-rules=MAP*~NOTFOUND --window-size=1000,2400"
).split()


def test_the_report_opens_in_a_browser_without_a_network(tmp_path: Path) -> None:
    chromium = need("chromium", "chromium")
    make(tmp_path)
    assert render(tmp_path, "figures", "loss", "--kind", "curve").returncode == 0
    assert render(tmp_path, "figures", "acc").returncode == 0
    assert render(tmp_path, "report").returncode == 0
    page = tmp_path / "report.html"
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</body>", f"{PROBE}</body>"))
    with private_dir("chromium-") as profile:
        flags = [*FLAGS, f"--user-data-dir={profile}"]
        dom = run([chromium, *flags, "--dump-dom", probed.as_uri()], timeout=120).stdout
        run([chromium, *flags, f"--screenshot={tmp_path / 'page.png'}", page.as_uri()], timeout=120)
    seen = re.search(r"<title>(\{.*\})</title>", dom)
    assert seen, dom[:500]
    assert json.loads(seen[1]) == {"images": [[336, 250], [336, 250]], "wide": False, "fetched": 0, "heads": 7}
    assert "92.0" not in dom and "0.920 ± 0.004 (n = 3)" in dom
    assert colours(tmp_path / "page.png") >= {(0, 114, 178), (213, 94, 0)}  # the two methods' colours are on the screen


def colours(path: Path) -> set[tuple[int, ...]]:
    from PIL import Image

    with Image.open(path) as image:
        counted = image.convert("RGB").getcolors(2**24)
    return {tuple(colour) for _, colour in counted or []}
