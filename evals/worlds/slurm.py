"""A batch script under Slurm's rules without a Slurm: copied away from its folder, signalled as --signal says.

`B:` signals the batch shell alone; without it only what srun started hears anything. The log follows --open-mode, and
`scontrol`, `srun` and `sbatch` on the PATH write down how they were called.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

JOB = "4242"
_SHORT = {"J": "job-name", "o": "output", "t": "time", "c": "cpus-per-task", "d": "dependency", "D": "chdir",
          "G": "gpus", "N": "nodes", "n": "ntasks", "p": "partition", "e": "error", "a": "array"}  # fmt: skip
_TOOL = '#!/bin/sh\necho "{name} $*" >> "$SLURM_SIM/calls"\n'
_SRUN = (
    "#!/bin/sh\n"
    'while [ "${1#-}" != "$1" ]; do case $1 in -n|-N|-c|-G) shift;; esac; shift; done\n'
    'echo $$ > "$SLURM_SIM/step"\nexec "$@"\n'
)


@dataclass
class Ended:
    code: int | None  # None: it had to be killed
    calls: list[str] = field(default_factory=list)

    @property
    def requeued(self) -> int:
        """Put back into the queue: by requeue, or by a submit of its own."""
        return self.submitted + sum(c.split()[:2] == ["scontrol", "requeue"] and JOB in c for c in self.calls)

    @property
    def submitted(self) -> int:
        return sum(call.startswith("sbatch ") for call in self.calls)


def options(script: Path) -> dict[str, str]:
    """The #SBATCH lines before the first command."""
    found: dict[str, str] = {}
    for line in script.read_text().splitlines():
        if line.startswith("#SBATCH"):
            words = shlex.split(line[len("#SBATCH") :], comments=True)
            while words:
                word = words.pop(0)
                name, _, value = word.lstrip("-").partition("=")
                if not word.startswith("--"):
                    name, value = _SHORT.get(word[1:2], word[1:2]), word[2:].lstrip("=")
                if not value and words and not words[0].startswith("-"):
                    value = words.pop(0)
                found[name] = value
        elif line.strip() and not line.startswith("#"):
            break
    return found


def minutes(text: str) -> float:
    """Of a time limit: minutes, m:s, h:m:s, d-h, d-h:m, d-h:m:s."""
    days, dash, rest = text.rpartition("-")
    parts = [float(part) for part in rest.split(":")]
    if dash:
        hours, mins, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 1:
        hours, mins, seconds = 0, parts[0], 0
    else:
        hours, mins, seconds = [0, *parts] if len(parts) == 2 else parts
    return float(days or 0) * 1440 + hours * 60 + mins + seconds / 60


def warning(given: dict[str, str]) -> tuple[bool, int, int] | None:
    """Of --signal: to the batch shell only, the signal, seconds before the end."""
    found = re.fullmatch(r"(?:([BR]*):)?(?:SIG)?(\w+?)(?:@(\d+))?", given.get("signal", ""))
    if not found:
        return None
    number = int(found[2]) if found[2].isdigit() else getattr(signal, f"SIG{found[2]}", None)
    return None if number is None else ("B" in (found[1] or ""), int(number), int(found[3] or 60))


@dataclass
class Cluster:
    work: Path
    room: Path  # for the spool, tools and what they wrote
    refuses: bool = False  # to put a job back

    def run(self, script: Path, env: dict[str, str], started: Path, hit: str = "", restarts: int = 0) -> Ended:
        """`hit`: warn or cancel, once `started` is there."""
        given = options(script)
        shutil.rmtree(self.room, ignore_errors=True)
        (self.room / "bin").mkdir(parents=True)
        self._tools()
        spool = self.room / "slurm_script"
        shutil.copy(script, spool)
        home = Path(given.get("chdir") or self.room)
        log = home / given.get("output", "slurm-%j.out").replace("%j", JOB).replace("%x", given.get("job-name", ""))
        variables = {
            "SLURM_SIM": str(self.room), "SLURM_JOB_ID": JOB, "SLURM_JOBID": JOB, "SLURM_JOB_NUM_NODES": "1",
            **({"SLURM_RESTART_COUNT": str(restarts)} if restarts else {}), "SLURM_SUBMIT_DIR": str(self.room),
            "PATH": f"{self.room}/bin:{env['PATH']}",
        }  # fmt: skip
        started.unlink(missing_ok=True)
        with log.open("ab" if given.get("open-mode") == "append" else "wb") as out:
            batch = subprocess.Popen(["bash", str(spool)], cwd=home, env={**env, **variables}, stdin=subprocess.DEVNULL,
                                     stdout=out, stderr=out, start_new_session=True)  # fmt: skip
            try:
                if hit and self._wait(batch, started):
                    self._hit(batch.pid, hit, given)
                code: int | None = batch.wait(20)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                self._end(batch)
        calls = self.room / "calls"
        return Ended(code, calls.read_text().splitlines() if calls.exists() else [])

    def _tools(self) -> None:
        for name in ("scontrol", "sbatch", "scancel"):
            (self.room / "bin" / name).write_text(_TOOL.format(name=name) + f"exit {self.refuses:d}\n")
        (self.room / "bin" / "srun").write_text(_SRUN)
        for path in (self.room / "bin").iterdir():
            path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def _wait(self, batch: subprocess.Popen[bytes], started: Path) -> bool:
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline and batch.poll() is None:
            if started.exists():
                return True
            time.sleep(0.05)
        return False

    def _hit(self, pid: int, hit: str, given: dict[str, str]) -> None:
        if hit == "cancel":
            os.killpg(pid, signal.SIGTERM)  # everybody; what lives when the batch shell has ended is killed
            return
        shell, number, _ = warning(given) or (False, 0, 0)
        step = self.room / "step"
        if shell:
            os.kill(pid, number)
        elif number and step.exists():
            os.kill(int(step.read_text()), number)

    def _end(self, batch: subprocess.Popen[bytes]) -> None:
        try:
            os.killpg(batch.pid, signal.SIGKILL)  # what it left behind
        except ProcessLookupError:
            pass
        batch.wait()
