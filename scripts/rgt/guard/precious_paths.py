"""Is this path a result? A run directory, a checkpoint, a proof; or a folder that holds one, or a file inside one.

On this machine the file system is asked, within a budget. A path on another machine, or one that is not there, is
judged by its name: the names of `rgt.checkpoint.names`, the usual folders, and the storage tiers of the profiles.
"""

from __future__ import annotations

import os

from rgt.guard.quick_start import LIKE, WORDS, re

ENTRIES = 4000  # directory entries read for one command line
UP = 7  # folders above a path that may be a run directory
RECORDS, PROOFS = WORDS["records"], WORDS["proofs"]
CACHES, FOLDERS, WEIGHTS = WORDS["caches"], WORDS["result folders"], WORDS["weights"]
SYSTEM = {f"/{name}" for name in "bin boot etc home lib lib64 media mnt opt root sbin srv usr var Users".split()}
VOLATILE = ("/tmp/", "/var/tmp/", "/dev/shm/", "/private/tmp/")
_CODE = tuple(WORDS["code endings"])
_ROOTS = WORDS["roots"] | {""}
# raw data of training: what lies in such a folder and can hardly be made again
_DATA, _DERIVED = WORDS["data folders"], WORDS["derived data"]
OWN = "/tmp/tmp.guard0000"  # stands for the folder that mktemp makes


def marker(text: str) -> str:
    """A value that is not known, with a word about where it came from."""
    plain = text.replace("\ue001", "").replace("\ue002", "")  # one that was cut short has only the first of the two
    return "\ue001" + "\ue006".join(plain.split())[:300] + "\ue002"


def origin_of(text: str, sign: str = "") -> str:
    """Text whose markers are replaced by the words about where their values came from."""
    return LIKE.unknown.sub(lambda match: sign + match[1].replace("\ue006", " "), text)


def listed(path: str) -> str:
    """A pattern that nothing here matches, as a listing of another place: names that are not known."""
    return re.sub(r"[*?]+", marker("any"), path)


def is_result_file(name: str) -> bool:
    """A file that is a result by its name alone."""
    from rgt.checkpoint import names  # here and below: its expressions take a while, and few lines need them

    if name in RECORDS or name in PROOFS:
        return True
    named = names.is_checkpoint(name) or LIKE.event_file.fullmatch(name) or LIKE.other_results.fullmatch(name)
    return bool(named) and not names.is_partial_copy(name)


class Precious:
    """Asks the file system of this machine; `tiers` are storage roots of rented boxes, for names only."""

    def __init__(self, tiers: list[str], home: str, cwd: str = "/") -> None:
        self.tiers = set(tiers)
        self.home, self.cwd = home, cwd
        self.own = "/".join(cwd.split("/")[:3]) + "/"  # a project below /tmp is no scratch to who works in it
        self.left = ENTRIES
        self.listed: dict[str, list[tuple[str, bool]]] = {}

    # -- here

    def entries(self, folder: str) -> list[tuple[str, bool]]:
        """Name and whether it is a folder; nothing for what cannot be read."""
        if folder not in self.listed:
            rows: list[tuple[str, bool]] = []
            try:
                with os.scandir(folder) as scan:
                    for entry in scan:
                        if f"{folder}/" in VOLATILE and f"{self.home}/".startswith(f"{entry.path}/"):
                            continue  # a home below /tmp is not what `rm -rf /tmp/*` is about
                        rows.append((entry.name, entry.is_dir(follow_symlinks=False)))
                        self.left -= 1
                        if self.left <= 0:
                            break
            except OSError:
                pass
            self.listed[folder] = sorted(rows)
        return self.listed[folder]

    def is_run_folder(self, folder: str) -> bool:
        from rgt.checkpoint import names

        rows = self.entries(folder)
        here = {name for name, _ in rows}
        if here & {".git", "pyproject.toml", "setup.py", "SKILL.md"}:
            return False  # a project, whatever else lies in it
        if here & RECORDS or any(LIKE.event_file.fullmatch(name) for name in here):
            return True
        saved = any(names.is_checkpoint(name) for name, is_dir in rows if not is_dir)
        saved = saved or any(name.lower() in WEIGHTS or names.is_step_folder(name) for name, is_dir in rows if is_dir)
        return saved and any(name.endswith((".log", "metrics.csv", "config.json")) for name in here)

    def inside(self, path: str) -> str:
        """The run directory or checkpoint folder that the path lies in."""
        folder = os.path.dirname(path)
        for _ in range(UP):
            if folder in ("/", self.home, ""):
                return ""
            if self.is_run_folder(folder):
                return folder
            folder = os.path.dirname(folder)
        return ""

    def within(self, folder: str, depth: int = 8) -> str:
        """The first result below a folder, breadth first; empty when there is none within the budget."""
        level = [folder]
        for _ in range(depth):
            below = []
            for one in level:
                for name, is_dir in self.entries(one):
                    path = f"{one}/{name}"
                    logs = name == "train.log" and self.is_run_folder(one)
                    if is_dir:
                        below += [] if name in CACHES else [path]
                    elif logs or is_result_file(name) or self.is_raw(path, False):
                        return path
                    if self.left <= 0:
                        return ""
            level = below
        return ""

    def here(self, path: str, whole: bool = True) -> str:
        """What is lost when this existing path goes; `whole`: with all that is below it."""
        if os.path.islink(path):
            return ""  # only the link goes
        real = os.path.realpath(path)
        if CACHES & set(real.split("/")):
            return ""
        if self.is_volatile(real):
            return self.by_name(real, False)
        if os.path.isdir(real):
            if not whole:
                return ""
            if real in ("/", self.home, os.path.dirname(self.home)) or real in SYSTEM:
                return f"{real} with all that is in it"
            return self.within(real) or (self.inside(real) and real)
        if not os.path.exists(real):
            return ""
        named = is_result_file(os.path.basename(real)) or self.is_raw(real, False)
        return real if named or self.inside(real) else ""

    def is_raw(self, path: str, remote: bool) -> bool:
        """Raw training data: here a file, elsewhere by name a folder, too; no cache, no copy that was made of it."""
        parts = path.removeprefix(self.cwd).strip("/*").split("/")
        at = next((i for i, part in enumerate(parts) if part.lower() in _DATA), -1)
        if at < 0 or not (LIKE.data_file.fullmatch(parts[-1]) or (remote and at >= len(parts) - 2)):
            return False
        kept = parts[1:] if "scratch" in parts[0].lower() and at else parts  # /scratch/me/data: of a cluster
        tokens = {token for part in kept for token in re.split(r"[^a-z]+", part.lower())}
        return not tokens & _DERIVED and not CACHES & set(parts)

    def lost(self, path: str, remote: bool, whole: bool = True) -> str:
        """What of value goes with the path, or nothing. A path that is not here is judged by its name."""
        if path.startswith(OWN) or ("\ue001" in path and LIKE.fresh_value.search(path)):
            return ""
        if LIKE.version_store.search(path):
            return path
        if not remote and "\ue001" not in path and os.path.lexists(path):
            return self.here(path, whole)
        return self.by_name(path, remote)

    def is_volatile(self, path: str) -> bool:
        """A place that is emptied by itself; a home or a project below /tmp (a container's, a test's) is not."""
        return f"{path}/".startswith(VOLATILE) and not f"{path}/".startswith((self.home + "/", self.own))

    # -- by name

    def by_name(self, path: str, remote: bool) -> str:
        shown = known = path
        if "\ue001" in path:
            shown = origin_of(path, "$")
            known = LIKE.unknown.sub("", path)
            told = [re.split(r"[\ue006/]", match[1].lower()) for match in LIKE.unknown.finditer(path)]
            if any(LIKE.result_hint.search(one) for words in told for one in words if one.strip("*'\"") not in CACHES):
                return shown
        if "://" in known and re.match(r"[a-z0-9]+://", known):  # a bucket
            known = "/" + known.partition("://")[2].partition("/")[2]
        known = "~" + known[len(self.home) :] if known.startswith(f"{self.home}/") else known
        parts = [part.partition("(")[0] for part in known.split("/") if part not in ("", ".")]  # zsh: *.pt(N)
        scratch = self.is_volatile(known) or {"tmp", "temp", "build", "dist"} & set(parts)
        if known.endswith((".tmp", ".lock", ".swp", ".pyc", ".o")):  # beside results, and none
            return ""
        if CACHES & set(parts) or (scratch and not any("-" in part and LIKE.run_id.fullmatch(part) for part in parts)):
            return ""
        if (remote or known.startswith(("/", "~"))) and self.is_root(known):
            return shown
        if self.is_raw(known, remote):
            return shown
        last = len(parts) - 1
        for number, part in enumerate(parts):
            if self._names_result(part, number == last):
                return shown
        return ""

    def is_root(self, known: str) -> bool:
        parts = [part for part in known.split("/") if part not in ("", ".")]
        bare = "/" + "/".join(parts).rstrip("*").rstrip("/") if known.startswith("/") else known.rstrip("*/")
        return bare in self.tiers or bare in _ROOTS or bool(LIKE.own_root.fullmatch(bare))

    def _names_result(self, part: str, last: bool) -> bool:
        from rgt.checkpoint import names

        name = part.lower().strip("*?")
        if names.is_unfinished(part.lstrip(".")) or name.endswith(_CODE):
            return False
        if is_result_file(part) or is_result_file(name) or LIKE.run_id.fullmatch(part):
            return True
        if part.lower() in FOLDERS or names.is_step_folder(part):
            return True
        if LIKE.chinese_result.search(name) and not LIKE.chinese_light.search(name):
            return True
        tokens = set(re.split(r"[^a-z]+", name))
        return bool(tokens & WEIGHTS) or bool(tokens & {"runs"}) or (last and name.endswith((".pt", ".pth", ".ckpt")))
