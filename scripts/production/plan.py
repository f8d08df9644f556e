"""A production config, and where it goes, as a job description for launch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import backends
from rgt import job, schema, submit
from rgt.errors import bad_input
from rgt.hosts import Host

JOB_KEYS = ("command", "script", "args", "workdir", "python", "env", "secrets", "image", "time_limit", "grace",
            "max_restarts")  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """One production run: its config, and where it goes."""

    config: dict[str, Any]
    path: Path
    name: str
    target: str
    gpus: int
    epoch_time: float | None
    max_loss: float

    @property
    def kind(self) -> str:
        return backends.parse_target(self.target)[0]

    @property
    def hosts(self) -> list[Host]:
        return backends.parse_target(self.target)[1]

    @property
    def nodes(self) -> int:
        return int(self.config.get("nodes", len(self.hosts)))

    @property
    def processes(self) -> int:
        return self.nodes * max(1, self.gpus)

    @property
    def shipped(self) -> str:
        """Where {config} is, seen from workdir: its own file for each content, so that a run keeps what it read."""
        return f".rgt/{self.path.stem}-{hashlib.sha256(self.path.read_bytes()).hexdigest()[:8]}.yaml"

    def spec(self) -> dict[str, Any]:
        """The job description for launch."""
        given = {key: self.config[key] for key in JOB_KEYS if key in self.config}
        if ("command" in given) == ("script" in given):
            raise bad_input(f"{self.path} must say what to start: either command (words) or script (with args)")
        scalars = {key: value for key, value in self.config.items() if isinstance(value, (str, int, float))}
        values = {key: submit.text(value) for key, value in scalars.items()}
        values["config"] = self.shipped
        missing = sorted(submit.holes(given) - set(values))
        if missing:
            raise bad_input(f"{self.path} asks for {{{missing[0]}}} in its words, but has no {missing[0]}")
        size = {"name": self.name, "nodes": self.nodes, "gpus_per_node": self.gpus}
        spec = {**submit.fill(given, values), **size, "output": self.config.get("output_dir", "runs")}
        schema.check(spec, "job", f"the job of {self.path}")
        return {**spec, "workdir": job.from_dict(spec, self.path.parent).workdir}

    def job(self) -> job.Job:
        return job.from_dict(self.spec(), self.path.parent)

    def there(self, path: str) -> str:
        """A path of the config on the machine of the job."""
        return path if path.startswith(("/", "~")) else f"{self.job().workdir}/{path}"

    @property
    def output(self) -> str:
        """Folder of the run directories on the machine of the job."""
        return self.there(self.config.get("output_dir", "runs"))

    @property
    def ships_config(self) -> bool:
        return "config" in submit.holes({key: self.config[key] for key in JOB_KEYS if key in self.config})

    @property
    def estimate(self) -> dict[str, Any] | None:
        """epochs x measured time of one; None when nobody measured."""
        if self.epoch_time is None:
            return None
        epochs = self.config["epochs"]
        return {"epochs": epochs, "epoch_time": self.epoch_time, "seconds": epochs * self.epoch_time}
