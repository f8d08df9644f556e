"""setup-china-mirrors.sh in a home of its own: what it writes works, what was there stays, --undo gives it back."""

from __future__ import annotations

import configparser
import os
import stat
import subprocess
from pathlib import Path

import pytest
import yaml

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "setup-china-mirrors.sh"
# the distributions' own hosts, which the script rewrites; put together, so that no search takes them for a setting
UBUNTU, DEBIAN = ".".join(("archive", "ubuntu", "com")), ".".join(("deb", "debian", "org"))
MIRROR = "mirrors.tuna.tsinghua.edu.cn"


class Home:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.apt = path / "etc-apt"
        (self.apt / "sources.list.d").mkdir(parents=True)

    def run(self, *words: str, **extra: str) -> subprocess.CompletedProcess[str]:
        env = {"PATH": os.environ["PATH"], "HOME": str(self.path), "RGT_APT_DIR": str(self.apt), **extra}
        return subprocess.run(["sh", SCRIPT, *words], capture_output=True, text=True, env=env)

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def files(self) -> dict[str, tuple[bytes, int]]:
        """Every file with its bytes and mode: what a user would call `as it was`."""
        found = [file for file in self.path.rglob("*") if file.is_file()]
        return {str(f.relative_to(self.path)): (f.read_bytes(), stat.S_IMODE(f.stat().st_mode)) for f in found}

    def shell(self, command: str, **extra: str) -> str:
        """What a job started over ssh sees: bash that nobody types into, with .bashrc read."""
        env = {"PATH": os.environ["PATH"], "HOME": str(self.path), **extra}
        done = subprocess.run(["bash", "-c", f". ~/.bashrc; {command}"], capture_output=True, text=True, env=env)
        return done.stdout.strip()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def lived_in(home: Home) -> Home:
    home.write(".bashrc", "case $- in *i*) ;; *) return ;; esac\nexport MINE=1")  # no newline at the end
    home.write(".profile", "umask 022\n").chmod(0o600)
    home.write(".config/pip/pip.conf", "[global]\ntimeout = 60\n")
    home.write(".condarc", "auto_activate_base: false")
    lines = f"deb http://{UBUNTU}/ubuntu noble main\ndeb https://vendor.example/x y\n"
    home.write("etc-apt/sources.list", lines)
    home.write("etc-apt/sources.list.d/debian.sources", f"Types: deb\nURIs: http://{DEBIAN}/debian\n")
    return home


@pytest.mark.parametrize("fixture", ["lived_in", "home"])
def test_second_run_changes_nothing_and_undo_gives_all_back(fixture: str, request: pytest.FixtureRequest) -> None:
    home: Home = request.getfixturevalue(fixture)
    before = home.files()
    assert home.run().returncode == 0
    once = home.files()
    assert once != before and "change " not in home.run().stdout and home.files() == once
    done = home.run("--undo")
    assert (done.returncode, done.stderr, home.files()) == (0, "", before)


def test_dry_run_names_every_file_and_changes_none(lived_in: Home) -> None:
    before = lived_in.files()
    dry = lived_in.run("--dry-run")
    assert lived_in.files() == before
    assert dry.stdout.replace("would change", "change").splitlines() == lived_in.run().stdout.splitlines()[:-2]
    after = lived_in.files()
    undo = lived_in.run("--undo", "--dry-run")
    assert (undo.returncode, lived_in.files()) == (0, after)
    assert undo.stdout.count("would ") == 7


def test_what_is_written_is_what_the_tools_and_jobs_read(lived_in: Home) -> None:
    lived_in.run()
    settings = configparser.ConfigParser()
    settings.read(lived_in.path / ".config/pip/pip.conf")
    assert dict(settings["global"]) == {"index-url": f"https://{MIRROR}/pypi/web/simple", "timeout": "60"}
    conda = yaml.safe_load((lived_in.path / ".condarc").read_text())
    assert conda["auto_activate_base"] is False
    assert conda["custom_channels"]["conda-forge"] == f"https://{MIRROR}/anaconda/cloud"
    apt = (lived_in.apt / "sources.list").read_text()
    assert apt == f"deb http://{MIRROR}/ubuntu noble main\ndeb https://vendor.example/x y\n"
    assert f"URIs: http://{MIRROR}/debian\n" in (lived_in.apt / "sources.list.d/debian.sources").read_text()
    # a job that nobody types into
    seen = lived_in.shell("printenv HF_ENDPOINT HF_HUB_DISABLE_XET UV_DEFAULT_INDEX MODELSCOPE_DOMAIN")
    assert seen.split() == ["https://hf-mirror.com", "1", f"https://{MIRROR}/pypi/web/simple", "www.modelscope.cn"]
    # mirrors and this machine stay off a proxy that is set later; none is ever written
    twice = lived_in.shell(". ~/.bashrc; printenv no_proxy NO_PROXY; printenv http_proxy", no_proxy="node-7")
    value = f"localhost,127.0.0.1,::1,{MIRROR},hf-mirror.com,www.modelscope.cn,node-7"
    assert twice.split() == [value, value]
    text = "\n".join(content.decode() for content, _ in lived_in.files().values()).lower()
    assert "proxy" not in text.replace("no_proxy", "")


def test_settings_of_the_user_stay(home: Home) -> None:
    pip = home.write(".pip/pip.conf", "[global]\nindex-url = https://company.example/simple\n")
    conda = home.write(".condarc", "channels: [https://company.example]\n")
    before = pip.read_text(), conda.read_text()
    done = home.run()
    assert f"kept {pip}: it names an index-url\n" in done.stdout
    assert f"kept {conda}: it names channels\n" in done.stdout
    assert (pip.read_text(), conda.read_text()) == before


def test_what_was_changed_since_is_not_overwritten(lived_in: Home) -> None:
    lived_in.run()
    pip, bashrc = lived_in.path / ".config/pip/pip.conf", lived_in.path / ".bashrc"
    pip.write_text(pip.read_text() + "retries = 9\n")
    torn = "".join(line for line in bashrc.read_text().splitlines(True) if not line.startswith("# <<<"))
    whole = bashrc.read_text()
    bashrc.write_text(torn)  # a block without its end
    done = lived_in.run("--undo")
    assert done.returncode == 1 and "delete the block by hand" in done.stdout
    assert f"not restored {pip}: it was changed since; the original is " in done.stdout
    assert "retries = 9" in pip.read_text() and bashrc.read_text() == torn
    assert (lived_in.path / ".condarc").read_text() == "auto_activate_base: false"
    backup = Path(done.stdout.split("the original is ")[1].split("\n")[0])
    assert backup.read_text() == "[global]\ntimeout = 60\n"
    pip.write_text(backup.read_text())  # put right by hand: nothing is left to complain about
    bashrc.write_text(whole)
    assert lived_in.run("--undo").returncode == 0


def test_a_linked_dotfile_stays_a_link(home: Home) -> None:
    real = home.write("dotfiles/bashrc", "export MINE=1\n")
    (home.path / ".bashrc").symlink_to(real)
    home.run()
    assert (home.path / ".bashrc").is_symlink()
    assert real.read_text().startswith("# >>> china mirrors")
    home.run("--undo")
    assert ((home.path / ".bashrc").is_symlink(), real.read_text()) == (True, "export MINE=1\n")


PROXIES = [
    (".bashrc", "export https_proxy=http://me:pw@10.0.0.1:1\n", "http://***@10.0.0.1:1"),
    (".bashrc", "source /etc/network_turbo\n", "source /etc/network_turbo"),
    (".gitconfig", "[http]\n\tproxy = http://10.0.0.1:1\n", "proxy = http://10.0.0.1:1"),
    (".config/pip/pip.conf", "[global]\nproxy = http://10.0.0.1:1\n", "proxy = http://10.0.0.1:1"),
    ("etc-apt/apt.conf", 'Acquire::http::Proxy "http://10.0.0.1:1";\n', "Acquire::http::Proxy"),
]


def test_a_proxy_that_would_stay_on_is_a_finding_without_its_password(home: Home) -> None:
    home.write(".bashrc", "export no_proxy=node-7\nNO_PROXY=node-7\n")
    assert home.run("--dry-run").returncode == 0
    for file, text, line in PROXIES:
        place = home.write(file, text)
        done = home.run("--dry-run")
        assert (done.returncode, "pw@" in done.stdout) == (1, False)
        for part in ("a proxy is on; training must not inherit it:\n", f"{place}:", line):
            assert part in done.stdout
        place.unlink()
    done = home.run(https_proxy="http://me:pw@10.0.0.1:1")
    assert done.returncode == 1
    assert "environment: https_proxy=http://***@10.0.0.1:1\n  fix: unset https_proxy\n" in done.stdout


def test_bad_words_and_homes(home: Home, tmp_path: Path) -> None:
    wrong = home.run("--gone")
    assert (wrong.returncode, wrong.stderr) == (2, "error: no option --gone; see --help\n")
    lost = home.run(HOME=str(tmp_path / "none"))
    assert lost.returncode == 3
    assert "is not a folder that can be written; set it to the home of the user who trains" in lost.stderr
    assert home.files() == {}
    home.write(".config/pip", "a file where a folder has to be\n")
    done = home.run()
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith(f"error: cannot write {home.path}/.config/pip/pip.conf")
