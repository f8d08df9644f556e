"""The hosted service, through the wandb library's public API."""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rgt.errors import RgtError, lacking
from rgt.report import progress
from tracker.shape import Row, Tracked

_PAGE = 1000
_RELIST = (0, 2, 5, 10)  # seconds between looks after a deletion: the service's list lags behind
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}  # how the service says them


@dataclass
class Hosted:
    """entity/project, or entity/project/run."""

    path: str
    _runs: dict[str, Any] = field(default_factory=dict)

    def runs(self) -> list[Tracked]:
        entity, project, *run = self.path.split("/")
        with _said(self.path):
            found = [_api().run(self.path)] if run else list(_api().runs(f"{entity}/{project}", lazy=False))
            return [self._tracked(one, project) for one in found]

    def _tracked(self, run: Any, project: str) -> Tracked:
        self._runs[run.id] = run
        return Tracked(
            run.id,
            run.name or "",
            project,
            run.state,
            created=str(run.created_at or ""),
            config=dict(run.config),
            summary=_plain(run.summary),
            group=run.group or "",
            tags=list(run.tags or []),
            where=run.url,
        )

    def details(self, run: Tracked) -> None:
        """The metadata file is one request per run: asked for only where it is shown."""
        with _said(run.where):
            metadata = self._runs[run.id].metadata or {}
        git = metadata.get("git") or {}
        run.git = {"commit": git["commit"], "remote": git.get("remote", "")} if git.get("commit") else {}
        run.host = metadata.get("host", "")
        run.command = [metadata["program"], *metadata.get("args", [])] if metadata.get("program") else []

    def history(self, run: Tracked) -> Iterator[Row]:
        """scan_history gives every row; `history` would give 500 of them, sampled."""
        with _said(run.where):
            for row in self._runs[run.id].scan_history(page_size=_PAGE):
                yield {key: _number(value) for key, value in row.items() if value is not None}

    def delete(self, run: Tracked) -> str:
        with _said(run.where):
            self._runs[run.id].delete(delete_artifacts=False)
        return "deleted at the service; its artifacts stay"

    def remaining(self, deleted: list[Tracked]) -> list[Tracked]:
        project = Hosted("/".join(self.path.split("/")[:2]))  # a run alone is not found any more
        left = deleted
        for pause in _RELIST:
            time.sleep(pause)
            try:
                listed = {run.where for run in project.runs()}
            except RgtError as error:
                progress(f"{', '.join(run.id for run in left)} was not seen gone: {error.message}")
                return left
            left = [run for run in deleted if run.where in listed]
            if not left:
                break
        return left


def _api() -> Any:
    """A new one each time: it remembers its answers."""
    try:
        import wandb
    except ImportError:
        raise lacking("the hosted service needs the wandb package: pip install wandb") from None
    return wandb.Api(timeout=30)


def _number(value: Any) -> Any:
    return _WORDS.get(value, value) if isinstance(value, str) else value


def _plain(summary: Any) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(json.dumps(dict(summary), default=str))
    return data


@contextlib.contextmanager
def _said(path: str) -> Iterator[None]:
    """Whatever the library raises becomes one sentence: it raises a dozen kinds for one broken link."""
    try:
        yield
    except RgtError:
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise lacking(f"the hosted service did not give {path}: {text or type(error).__name__}") from None
