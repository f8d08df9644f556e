"""rgt watch serve: who may read it, what is sent and when, what hostile runs and boxes can do to it; and --tell."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from bench import board as bench
from bench.board import Served, make_runs, page_open, serving
from rgt import schema
from rgt.host.ssh import parse_place
from rgt.run.record import Run
from rgt.watch import board as boards
from rgt.watch import board_curves, board_server
from rgt.watch.look import Target
from rgt.watch.look import look as real_look

import pytest

from . import notice_sink
from .front_door import call, executable
from .gate_box import until

ROOT = Path(__file__).resolve().parent.parent
EVIL = "<img src=x onerror=alert(1)>"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("CACHE", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name.lower()))
    return tmp_path


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, list[Run]]]:
    folder = tmp_path_factory.mktemp("served")
    runs = make_runs(folder / "runs", 4, 1)
    with serving(folder, "runs") as server, page_open(server) as page:
        page.until(lambda: len(page.rows) == 4 and not any(row.get("pending") for row in page.rows.values()))
        yield server, runs


def get(server: Served, path: str, method: str = "GET", **headers: str) -> tuple[int, str, http.client.HTTPMessage]:
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    link.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        link.putheader(name, value)
    link.endheaders()
    answer = link.getresponse()
    text = answer.read().decode()
    link.close()
    return answer.status, text, answer.headers


def bare(folder: Path, points: dict[int, float], log: str = "") -> Path:
    """A folder with metrics, and nothing that says who made it."""
    folder.mkdir(parents=True, exist_ok=True)
    add(folder, points)
    if log:
        (folder / "train.log").write_text(log)
    return folder


def add(folder: Path, points: dict[int, float], mode: str = "a", more: dict[str, float] | None = None) -> None:
    with (folder / "metrics.jsonl").open(mode) as file:
        for step, loss in points.items():
            file.write(
                json.dumps({"step": step, "time": time.time(), "split": "train", "loss": loss, **(more or {})}) + "\n"
            )


# -- who may read it


def test_only_the_url_with_the_token_opens_it(served: tuple[Served, list[Run]]) -> None:
    server, _ = served
    token = server.url.partition("token=")[2]
    for path in ("/", "/events", "/board.js", "/api/curves?runs=a", f"/?token={token[:-1]}x", "/?token="):
        assert get(server, path)[0] == 403, path
    assert get(server, "/", Cookie=f"rgt_board_{server.port}={token}x")[0] == 403
    code, _, headers = get(server, f"/?token={token}")
    assert (code, headers["Location"]) == (303, "/")
    assert headers["Set-Cookie"] == f"rgt_board_{server.port}={token}; HttpOnly; SameSite=Lax; Path=/"
    code, text, headers = get(server, "/", **server.cookie)
    assert code == 200 and "board.js" in text and token not in text
    assert headers["Content-Security-Policy"].startswith("default-src 'self';")
    assert (headers["X-Content-Type-Options"], headers["Cache-Control"]) == ("nosniff", "no-store")


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", "[::2]"])
def test_a_foreign_name_that_leads_here_is_refused(served: tuple[Served, list[Run]], host: str) -> None:
    server, _ = served
    assert get(server, "/", Host=host, **server.cookie)[0] == 421
    assert get(server, server.url.partition(str(server.port))[2], Host=host)[0] == 421  # also with the token


@pytest.mark.parametrize("host", ["localhost:9999", "127.0.0.1", "[::1]:80"])
def test_a_forwarded_port_is_fine(served: tuple[Served, list[Run]], host: str) -> None:
    assert get(served[0], "/", Host=host, **served[0].cookie)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_it_is_read_only(served: tuple[Served, list[Run]], method: str) -> None:
    code, _, headers = get(served[0], "/", method, **served[0].cookie)
    assert (code, headers["Allow"]) == (405, "GET")


@pytest.mark.parametrize(
    "path",
    """/../../../../etc/passwd /%2e%2e/%2e%2e/etc/passwd //etc/passwd /board.js/../board.py /api/run/../../etc/passwd
    /api/run/..%2f..%2fetc%2fpasswd /api/run/ /api/curves?runs=../../etc /uplot.LICENSE /api/nothing""".split(),
)
def test_there_is_no_way_to_other_files(served: tuple[Served, list[Run]], path: str) -> None:
    code, text, _ = get(served[0], path, **served[0].cookie)
    assert (code, text) == (404, "there is no such page or run")


def test_it_listens_on_loopback_only_and_says_when_a_port_is_taken(
    served: tuple[Served, list[Run]], home: Path
) -> None:
    port = served[0].port
    others = {row[4][0] for row in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} - {"127.0.0.1"}
    for address in others:
        with socket.socket() as probe:
            assert probe.connect_ex((address, port)) != 0
    (home / "runs").mkdir()
    done = call("watch.py", "serve", "--port", port, home / "runs")
    assert (done.returncode, done.stdout) == (3, "") and f"port {port} cannot be used" in done.stderr
    assert call("watch.py", "serve", home / "nothing").returncode == 2


def test_the_token_outlives_the_server_and_only_its_user_reads_it(home: Path) -> None:
    token = board_server.own_token()
    path = home / "state" / "rgt" / "board" / "token"
    assert len(token) >= 32 and stat.S_IMODE(path.stat().st_mode) == 0o600
    assert board_server.own_token() == token
    path.chmod(0o644)  # others have seen it
    assert board_server.own_token() != token


# -- what is sent


def test_rows_pages_and_curves(served: tuple[Served, list[Run]]) -> None:
    server, runs = served
    with page_open(server) as page:
        page.until(lambda: len(page.rows) == 4)
    row = next(row for row in page.rows.values() if row["name"] == runs[-1].id)
    assert (row["state"], row["total"], row["metric"]) == ("running", bench.TOTAL, "loss")
    assert len(row["spark"]) > 10 and row["metrics"] == ["grad_norm", "loss", "lr", "val_loss"]
    detail = json.loads(get(server, f"/api/run/{row['id']}", **server.cookie)[1])
    last = runs[-1].log.read_text().splitlines()[-1]
    assert detail["log"]["lines"][-1] == last and detail["decision"]["word"] == "continue"
    assert detail["record"]["command"][:2] == ["python", "train.py"]
    assert [event["event"] for event in detail["events"]] == ["launched"]
    ended = next(row for row in page.rows.values() if row["state"] == "finished")
    found = json.loads(get(server, f"/api/run/{ended['id']}", **server.cookie)[1])
    assert [one["step"] for one in found["checkpoints"]] == [4000, 8000, 12000, 16000]
    assert found["results"][0]["name"] == "loss"
    query = f"/api/curves?runs={row['id']},{ended['id']}&metric=val_loss&width=50&low=1000&high=2000"
    answer = json.loads(get(server, query, **server.cookie)[1])
    assert answer["names"] == ["loss", "val_loss", "grad_norm", "lr"]
    assert answer["curves"][ended["id"]][0] == [0, 1000, 2000, 3000]  # the range and one beyond


def test_only_what_changed_is_sent_and_a_page_that_comes_back_gets_the_rest(home: Path) -> None:
    for name in "abc":
        bare(home / "runs" / name, dict.fromkeys(range(5), 1.0))
    with serving(home, "runs") as server:
        with page_open(server) as page:
            page.until(lambda: {row["state"] for row in page.rows.values()} == {"running"} and len(page.rows) == 3)
            first, count = page.messages[0], len(page.messages)
            assert first["full"] is True
            add(home / "runs" / "b", {9: 0.25})
            page.until(lambda: any(row["value"] == 0.25 for row in page.rows.values()))
            assert {row["name"] for change in page.messages[count:] for row in change["rows"]} == {"b"}
            assert not any(change["full"] for change in page.messages[1:])
        for path in (home / "runs" / "c").iterdir():
            path.unlink()
        (home / "runs" / "c").rmdir()
        bare(home / "runs" / "d", {1: 3.0})
        with page_open(server, last=page.id) as again:
            again.until(lambda: "d" in {row["name"] for row in again.rows.values()})
            again.until(lambda: any(change["gone"] for change in again.messages))
            assert "a" not in {row["name"] for row in again.rows.values()} and not again.messages[0]["full"]
        with page_open(server, last="other:7") as whole:  # of another server's life
            whole.until(lambda: {row["name"] for row in whole.rows.values()} == {"a", "b", "d"})
            assert whole.messages[0]["full"]


def test_runs_are_only_read(home: Path) -> None:
    runs = make_runs(home / "runs", 3, 1)
    before = {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (home / "runs").rglob("*")}
    call("watch.py", "serve", "--json", home / "runs")
    call("watch.py", "serve", "--static", home / "page.html", home / "runs")
    assert {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in (home / "runs").rglob("*")} == before
    assert not (runs[0].path / "watch").exists()


def test_two_hundred_runs_are_read_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(200):
        folder = bare(home / "runs" / f"r{number:03d}", dict.fromkeys(range(3), 1.0))
        (folder / "events.jsonl").write_text('{"event": "launched", "time": 1}\n{"event": "finished", "time": 2}\n')
    looks: list[str] = []

    def look(target: Target, **more: Any) -> dict[str, Any]:
        looks.append(target.where)
        return real_look(target, **more)

    monkeypatch.setattr("rgt.watch.board.look", look)
    place = parse_place(str(home / "runs"))
    first = boards.look_once([place])
    assert len(looks) == len(first.rows) == 200 and {row["state"] for _, row in first.rows.values()} == {"finished"}
    add(home / "runs" / "r007", {9: 2.0})
    again = boards.look_once([place])  # a new server: what is over and unchanged is recalled
    assert len(looks) == 201 and looks[-1].endswith("r007")
    differing = {run_id for run_id in first.rows if again.rows[run_id][1] != first.rows[run_id][1]}
    assert {again.rows[run_id][1]["name"] for run_id in differing} == {"r007"}
    kept = list((home / "cache" / "rgt" / "board").glob("*/state.json"))
    assert kept == []  # and what a look remembered of it is gone


# -- strangers


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)


def test_hostile_names_logs_and_files_stay_text(home: Path) -> None:
    attack = f"</script><script>alert(1)</script>{EVIL}\x1b]0;x\x07\u202e"
    folder = bare(home / "runs" / EVIL, {1: 2.0}, log=f"step 1 loss 2.0\n{attack}\nnull\x00byte\r\nbar 1\rbar 2\n")
    (folder / "events.jsonl").write_text(json.dumps({"event": attack, "time": "now", "x": [attack]}) + "\nnot json\n")
    (folder / "checkpoints_index.json").write_text('{"checkpoints": [null, 3, {"step": "<b>", "time": {}}]}')
    (folder / "results.json").write_text("[" * 5000)
    (folder / "run.json").write_text(json.dumps({"command": [attack], "created": {"a": 1}}))
    add(folder, {2: float("nan")}, more={attack: 1.0})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('[1]\n{"step": 1e999, "loss": 1}\n{"step": {"a": 1}, "loss": 1}\n{"loss": 3}\n"\\ud800"\n{\n')
    os.symlink("/dev/zero", folder / "x.log")
    os.mkfifo(folder / "y.log")
    bare(home / "runs" / b"\xff\xfe".decode(errors="surrogateescape"), {1: 1.0})
    with serving(home, "runs") as server, page_open(server) as page:
        page.until(lambda: len(page.rows) == 2 and not any(row.get("pending") for row in page.rows.values()))
        row = next(row for row in page.rows.values() if row["name"] == EVIL)
        detail = json.loads(get(server, f"/api/run/{row['id']}", **server.cookie)[1])
        assert get(server, f"/api/curves?runs={row['id']}&metric=loss", **server.cookie)[0] == 200
    assert "bar 2" in detail["log"]["lines"] and not any("\x1b" in line for line in detail["log"]["lines"])
    assert detail["checkpoints"] == [{"step": "<b>", "time": {}}]
    done = call("watch.py", "serve", "--static", home / "page.html", home / "runs")
    assert done.returncode == 0, done.stderr
    page_text = (home / "page.html").read_text()
    tags = Tags()
    tags.feed(page_text)
    assert "img" not in tags.names and tags.names.count("script") == 3  # the data, uPlot and ours
    data = re.search(r'id="data">(.*?)</script>', page_text, re.S)
    assert data and EVIL in {row["name"] for row in json.loads(data[1])["rows"]}
    assert "default-src 'none'; style-src 'sha256-" in page_text and "http://" not in page_text.replace(
        "//www.w3.org", ""
    )


def test_the_page_never_makes_markup_of_text() -> None:
    text = (ROOT / "scripts" / "templates" / "board" / "board.js").read_text()
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert "MIT" in (ROOT / "scripts" / "templates" / "board" / "uplot.LICENSE").read_text()


SSH = 'for word; do last="$word"; done; exec sh -c "$last"'  # an ssh that reaches this machine


def test_runs_of_another_machine_and_one_that_does_not_answer(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare(home / "far" / "deep", dict.fromkeys(range(9), 2.0), log="step 8 loss 2.0\n")
    ssh = executable(home / "bin" / "ssh", SSH)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    place = parse_place(f"box:{home}/far")
    board = boards.look_once([place])
    ((_, row),) = board.rows.values()
    assert (row["name"], row["place"], row["state"], row["value"]) == ("deep", place.text, "running", 2.0)
    detail = board.detail(row["id"])
    assert detail["log"]["lines"] == ["step 8 loss 2.0"] and detail["curves"]["loss"][1] == [2.0] * 9
    assert board.curves([row["id"]], "loss")["curves"][row["id"]][0] == list(range(9))
    executable(ssh, "echo 'ssh: connect to host box port 22: No route to host' >&2; exit 255")
    board.ask(place)
    rows = {row["name"]: row for _, row in board.rows.values()}
    assert rows["deep"]["stale"] is True and "box cannot be reached" in rows[place.text]["problem"]
    executable(ssh, """echo '{"runs": [{"path": "x", "state": "<b>"}], "queue": [], "leases": []}'""")
    board.ask(place)
    rows = {row["name"]: row for _, row in board.rows.values()}
    assert "does not fit the board schema" in rows[place.text]["problem"]
    executable(ssh, SSH)
    board.ask(place)
    assert [(row["name"], row.get("stale")) for _, row in board.rows.values()] == [("deep", None)]


def test_a_box_that_hangs_is_a_row_and_holds_up_nobody(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bare(home / "runs" / "here", {1: 1.0})
    ssh = executable(home / "bin" / "ssh", "exec sleep 300")
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    with serving(home, "runs", "box:runs") as server, page_open(server) as page:
        page.until(lambda: [row for row in page.rows.values() if row["state"] == "running"] and len(page.rows) == 2, 30)
        assert {row["name"]: row.get("problem") for row in page.rows.values()} == {
            "here": None,
            "box:runs": "no answer yet",
        }


def test_queue_and_leases_of_this_machine_are_shown(home: Path) -> None:
    jobs = home / "state" / "rgt" / "gate" / os.uname().nodename / "jobs"
    jobs.mkdir(parents=True)
    empty: dict[str, Any] = dict.fromkeys("reason gate job started ended exit_code".split())
    record = {
        **empty,
        "id": "j1",
        "name": EVIL,
        "state": "done",
        "submitted": 1.0,
        "command": [],
        "log": "",
        "asked": {},
    }
    (jobs / "j1.json").write_text(json.dumps(record))
    broken = home / "state" / "rgt" / "leases" / "pod-1"
    broken.mkdir(parents=True)
    (broken / "lease").write_text("/nowhere\n")
    (home / "runs").mkdir()
    found = json.loads(call("watch.py", "serve", "--json", home / "runs").stdout)
    assert schema.problems(found, "board") == [] and found["runs"] == []
    assert [(job["name"], job["state"]) for job in found["queue"]] == [(EVIL, "done")]
    assert found["leases"] == [{"box": "pod-1", "problem": "its file is gone or broken"}]


# -- curves


def test_curves_read_only_what_is_new_whatever_happens_to_the_file(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bare(home / "run", {step: float(step) for step in range(100)})
    curves = board_curves.Curves(folder)
    assert curves.read() and not curves.read()
    taken: list[str] = []
    monkeypatch.setattr(curves, "_take_row", taken.append)
    add(folder, {100: 7.0})
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 101, "loss"')  # a line that is still being written
    assert curves.read() and len(taken) == 1 and json.loads(taken[0])["loss"] == 7.0
    monkeypatch.undo()
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(": 8.0}\n")
    assert curves.read() and curves.by_name["loss"].xs[-1] == 101
    add(folder, {50: -1.0})  # resumed: what was computed again counts
    curves.read()
    assert list(curves.by_name["loss"].xs)[-2:] == [49, 50] and curves.by_name["loss"].ys[-1] == -1.0
    add(folder, {3: 3.0}, mode="w")  # truncated
    assert curves.read() and list(curves.by_name["loss"].xs) == [3]
    os.rename(folder / "metrics.jsonl", folder / "old")
    add(folder, dict.fromkeys(range(4), 1.0))  # rotated
    assert curves.read() and list(curves.by_name["loss"].xs) == [0, 1, 2, 3]


def test_a_loss_that_is_not_a_number_is_shown_as_such(home: Path) -> None:
    bare(home / "runs" / "a", {step: 2.0 + step % 3 for step in range(9)} | {9: float("nan")})
    (row,) = json.loads(call("watch.py", "serve", "--json", home / "runs").stdout)["runs"]
    assert (row["value"], max(row["spark"]), row["findings"][0]["code"]) == ("NaN", 4.0, "nan")


def test_a_log_without_metrics_has_curves(home: Path) -> None:
    (home / "run").mkdir()
    log = home / "run" / "train.log"
    log.write_text("".join(f"iter {step}: loss {2 - step / 4000:.4f}, time 12ms\n" for step in range(3000)))
    curves = board_curves.Curves(home / "run")
    curves.read()
    assert len(curves.by_name["loss"].xs) == 3000  # all of them, not a sample
    with log.open("a") as file:
        file.write("iter 3000: loss 0.5, time 12ms\n")
    assert curves.read() and curves.by_name["loss"].ys[-1] == 0.5


def test_thinning_keeps_every_peak_and_memory_is_bounded() -> None:
    curve = board_curves.Curve()
    for step in range(100_000):
        curve.add(step, 99.0 if step == 31_337 else -5.0 if step == 77_777 else step % 7)
    assert len(curve.xs) <= 8192
    xs, ys = curve.thinned(100)
    assert len(xs) <= 200 and (max(ys), min(ys)) == (99.0, -5.0) and list(xs) == sorted(xs)
    near, _ = curve.thinned(100, 31_000, 32_000)
    assert 30_000 < near[0] <= 31_000 and 32_000 <= near[-1] < 33_000


# -- telling


@pytest.fixture
def sink(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[notice_sink.Sink]:
    with notice_sink.listening() as sink:
        (home / "config" / "rgt").mkdir(parents=True)
        (home / "config" / "rgt" / "notify.yaml").write_text("channels: [{kind: slack, url: {env: HOOK}}]\n")
        monkeypatch.setenv("HOOK", sink.url)
        yield sink


def test_an_end_and_a_failure_are_told_once(home: Path, sink: notice_sink.Sink) -> None:
    run = bare(home / "run", dict.fromkeys(range(9), 2.0), log="step 8 loss 2.0\n")
    assert call("watch.py", run, "--tell").returncode == 0 and sink.titles == []  # nothing has happened
    with (run / "train.log").open("a") as log:
        log.write("torch.OutOfMemoryError: CUDA out of memory\n")
    for _ in range(2):
        assert call("watch.py", run, "--tell").returncode == 1
    assert sink.titles == ["run: oom: ran out of memory"]
    done = bare(home / "done", {8: 2.0}, log="step 8 loss 2.0\nTraining finished\n")
    for _ in range(2):
        call("watch.py", done, "--tell", "--follow")
    assert sink.titles[1:] == ["done: finished"] and "step 8" in sink.texts[-1]


def test_divergence_and_a_stall_are_told_once_and_a_second_stall_again(home: Path, sink: notice_sink.Sink) -> None:
    run = bare(home / "nan", dict.fromkeys(range(50), 2.0) | {50: float("nan"), 51: float("nan")})
    call("watch.py", run, "--tell")
    add(run, {52: float("nan")})
    call("watch.py", run, "--tell")
    assert sink.titles == ["nan: nan: loss is not a number since 50"]
    quiet = bare(home / "quiet", dict.fromkeys(range(9), 2.0), log="step 8 loss 2.0\n")
    writer = subprocess.Popen(["sleep", "600"], stdout=(quiet / "train.log").open("ab"))  # it lives, and says nothing

    def rest() -> None:
        for path in (quiet / "train.log", quiet / "metrics.jsonl"):
            os.utime(path, (time.time() - 7200,) * 2)
        call("watch.py", quiet, "--tell")

    rest()
    rest()
    assert [title.split(":")[1] for title in sink.titles[1:]] == [" stalled"]
    add(quiet, {20: 1.9})
    rest()
    writer.kill()
    writer.wait()
    assert len(sink.titles) == 3


def test_the_daemon_and_a_poll_tell_and_without_a_channel_they_refuse(
    home: Path, sink: notice_sink.Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bare(home / "run", {8: 2.0}, log="step 8 loss 2.0\n")
    command = [sys.executable, str(ROOT / "scripts" / "watch.py"), "daemon", str(run), "--every", "1s", "--tell"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    with (run / "train.log").open("a") as log:
        log.write("Training finished\n")
    until(lambda: sink.titles)
    assert sink.titles == ["run: finished"]
    ssh = executable(home / "bin" / "ssh", SSH)
    monkeypatch.setenv("PATH", f"{ssh.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    for _ in range(2):
        assert call("watch.py", "poll", f"box:{run}", "--tell").returncode == 0
    assert sink.titles == ["run: finished"] * 2  # another machine's run, as far as anybody here knows
    (home / "config" / "rgt" / "notify.yaml").unlink()
    for words in ((run,), ("daemon", run), ("poll", f"box:{run}")):
        done = call("watch.py", *words, "--tell")
        assert done.returncode == 3 and "nobody would be told" in done.stderr, words


def test_a_channel_that_fails_is_said_and_tried_again(home: Path, sink: notice_sink.Sink) -> None:
    run = bare(home / "run", {8: 2.0}, log="step 8 loss 2.0\nTraining finished\n")
    sink.answers = [(403, "no", {}), notice_sink.OK["slack"]]
    done = call("watch.py", run, "--tell")
    assert done.returncode == 0 and "was not told of finished" in done.stderr
    call("watch.py", run, "--tell")
    call("watch.py", run, "--tell")
    assert sink.titles == ["run: finished"] * 2


def test_a_reader_that_stands_still_does_not_stop_the_others(served: tuple[Served, list[Run]]) -> None:
    server, _ = served
    with socket.create_connection(("127.0.0.1", server.port)) as slow:
        head = "".join(f"{name}: {value}\r\n" for name, value in server.cookie.items())
        slow.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\n{head}\r\n".encode())  # and never reads
        with page_open(server) as page:
            page.until(lambda: len(page.rows) == 4, 30)
    assert threading.active_count() < 50
