"""The board in a real browser: 200 runs, 20 of them live, a server that is killed and comes back, no console errors."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from bench.board import make_runs, serving, training
from rgt.run import record

from ..front_door import call
from .browser import Browser, browser
from .sshd import Sshd
from .support import free_port, wait_for

EVIL = "<img src=x onerror=document.title='owned'>"
ROWS = "document.querySelectorAll('.runs tbody tr').length"


def text(page: Browser, selector: str) -> str:
    return str(page.value(f"document.querySelector({json.dumps(selector)})?.textContent ?? ''"))


def click(page: Browser, selector: str) -> None:
    page.value(f"document.querySelector({json.dumps(selector)}).click()")


def test_two_hundred_runs_live_in_a_browser(tmp_path: Path) -> None:
    runs = make_runs(tmp_path / "runs", 200, 20)
    port = free_port()
    with browser() as page:
        page.look(1280)
        with serving(tmp_path, "runs", port=port) as server, training(runs[-20:]):
            page.open(server.url)
            page.until(f"{ROWS} === 200")
            page.until("[...state.rows.values()].filter((row) => row.state === 'running').length === 20", 120)
            assert text(page, "#link") == "live" and page.value("location.search") == ""  # the token is in the cookie
            cell = f"tr[data-id='{page.value('document.querySelector(`.runs tbody tr`).dataset.id')}'] .progress"
            before = text(page, cell)
            page.until(f"document.querySelector({json.dumps(cell)}).textContent !== {json.dumps(before)}")
            filters(page)
            compare(page)
            one_run(page)
            page.value("location.hash = '#/'")
            server.process.send_signal(signal.SIGKILL)
            page.until("document.body.classList.contains('offline')")
            assert text(page, "#link").startswith("disconnected for") and page.value(ROWS) == 20  # what was known stays
        page.errors.clear()  # of the connection that was refused meanwhile: the browser itself reports it
        with serving(tmp_path, "runs", port=port), training(runs[-20:]):
            page.until(
                "!document.body.classList.contains('offline') && document.getElementById('link').textContent === 'live'"
            )
            moved = page.until(f"document.querySelector({json.dumps(cell)})?.textContent")
            page.until(f"document.querySelector({json.dumps(cell)})?.textContent !== {json.dumps(moved)}")
            assert [error for error in page.errors if "ERR_CONNECTION_REFUSED" not in error] == []
            for width in (1280, 390):
                page.look(width)
                for place in ("#/", f"#/run/{page.value('[...state.rows.keys()][0]')}"):
                    page.value(f"location.hash = {json.dumps(place)}")
                    page.until("document.querySelector('main').children.length > 0")
                    assert page.value("document.documentElement.scrollWidth") == width, (width, place)


def filters(page: Browser) -> None:
    page.value("document.querySelector('input[type=search]').focus()")
    page.call("Input.insertText", text="gpt wide")
    page.until(f"{ROWS} < 100")
    names = page.value("[...document.querySelectorAll('.runs tbody .name a')].map((link) => link.textContent)")
    assert names and all("gpt-wide" in name for name in names)
    page.value("state.text = ''; document.querySelector('input[type=search]').value = ''")
    page.value("[...document.querySelectorAll('.bar button')].find((one) => one.textContent === 'running').click()")
    page.until(f"{ROWS} === 20")
    page.value("[...document.querySelectorAll('th button')].find((one) => one.textContent === 'loss').click()")
    losses = page.value("[...document.querySelectorAll('.runs tbody .value')].map((cell) => Number(cell.textContent))")
    assert len(losses) == 20 and losses == sorted(losses)


def compare(page: Browser) -> None:
    page.value("[...document.querySelectorAll('.runs tbody .pick input')].slice(0, 5).forEach((box) => box.click())")
    assert text(page, "#chosen").startswith("5 chosen")
    click(page, "#chosen a")
    page.until("document.querySelectorAll('.chart canvas').length === 4")
    page.until("document.querySelector('.chart .read').textContent === ''")
    assert page.value("document.querySelectorAll('.legend a').length") == 5
    left, top, right, bottom = page.value(
        "(() => { const box = document.querySelector('.chart .u-over').getBoundingClientRect();"
        " return [box.left, box.top, box.right, box.bottom]; })()"
    )
    middle = (top + bottom) / 2
    page.drag((left + 40, middle), (left + (right - left) / 3, middle))  # zoom
    page.until("[...document.querySelectorAll('.chart button')].every((one) => !one.hidden)")
    click(page, ".chart button:not([hidden])")
    page.until("[...document.querySelectorAll('.chart button')].every((one) => one.hidden)")
    for control in ("input[type=range]", "main input[type=checkbox]"):
        page.value(
            f"(() => {{ const one = document.querySelector({json.dumps(control)}); one.value = 0.9;"
            " one.dispatchEvent(new Event('input')); if (one.type === 'checkbox') one.click(); })()"
        )
    assert page.value("look.smooth === 0.9 && look.log")


def one_run(page: Browser) -> None:
    click(page, ".legend a")
    page.until("document.querySelector('pre')?.textContent.includes('loss')")
    page.until("document.querySelectorAll('.chart canvas').length === 4")
    before = text(page, "pre")
    page.until(f"document.querySelector('pre').textContent !== {json.dumps(before)}")  # it goes on
    assert "Checkpoints" in text(page, "main") and "launched" in text(page, "main")


def test_hostile_runs_and_the_page_in_one_file(tmp_path: Path) -> None:
    run = tmp_path / "runs" / EVIL
    run.mkdir(parents=True)
    points = [{"step": step, "split": "train", "loss": 2 - step / 50, EVIL: 1.0} for step in range(50)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(point) + "\n" for point in points))
    (run / "train.log").write_text(f"{EVIL}\n</script><script>document.title='owned'</script>\n")
    (run / "events.jsonl").write_text(json.dumps({"event": EVIL, "time": 1e300, "why": {EVIL: [EVIL]}}) + "\n")
    env = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_STATE_HOME": str(tmp_path / "state")}
    assert call("watch.py", "serve", "--static", tmp_path / "page.html", tmp_path / "runs", env=env).returncode == 0
    with serving(tmp_path, "runs") as server, browser() as page:
        for url in (server.url, (tmp_path / "page.html").as_uri()):
            page.look(900)
            page.open(url)
            page.until(f"{ROWS} === 1")
            assert text(page, ".runs .name a") == EVIL
            click(page, ".runs .name a")
            page.until("document.querySelectorAll('.chart canvas').length === 2")
            wait_for("the log", lambda: "</script>" in text(page, "pre"), 30)
            assert page.value("document.title") == EVIL and page.value("document.querySelectorAll('img').length") == 0
        fetched = "performance.getEntriesByType('resource').map((entry) => entry.name)"
        assert page.value(fetched) == []  # of the one file
        assert page.errors == []


def test_runs_behind_a_real_sshd_and_a_record_of_one(sshd: Sshd, tmp_path: Path) -> None:
    there = tmp_path / "there"
    job = {"name": "tiny", "command": ["true"], "workdir": str(there), "output": "runs"}
    far = {"target": "ssh:box", "spec": job}
    kept = record.create(tmp_path / "here", "tiny", command=["true"], config=job, backend="ssh", job=far)
    for name in (kept.id, "other"):
        (there / "runs" / name).mkdir(parents=True)
        lines = "".join(f"step {step} loss {2 - step / 100:.3f}\n" for step in range(60))
        (there / "runs" / name / "train.log").write_text(lines)
    env = {"RGT_SSH_CONFIG": str(sshd.config), "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    places = [f"box:{there}/runs", str(kept.path.parent)]
    rows = json.loads(call("watch.py", "serve", "--json", *places, env=env).stdout)["runs"]
    seen = sorted((row["place"], row["name"], row["state"], row["step"], row["value"]) for row in rows)
    assert seen == sorted(
        [
            (places[0], kept.id, "running", 59, 1.41),
            (places[0], "other", "running", 59, 1.41),
            (places[1], kept.id, "lost", 59, 1.41),
        ]
    )
    sshd.stop()
    rows = json.loads(call("watch.py", "serve", "--json", *places, env=env).stdout)["runs"]
    assert ["box cannot be reached" in row["problem"] for row in rows] == [True, True]
