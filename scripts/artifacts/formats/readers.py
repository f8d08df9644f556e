"""From bytes to a Layout, whatever the format."""

from __future__ import annotations

from artifacts.formats import numpy_file, safetensors_file, sniff, torch_files, zipdir
from artifacts.formats.window import Window
from artifacts.formats.zipdir import Member
from artifacts.model import Broken, Layout
from artifacts.values import roles

_NAMED = 5


def read(window: Window, name: str) -> Layout:
    """Raises Broken when the file is not a checkpoint or its structure is beyond reading."""
    kind = sniff.kind(window, name)
    if kind == "zip":
        layout = _zip(window)
    elif kind == "npy":
        layout = numpy_file.read(window)
    elif kind == "safetensors":
        layout = safetensors_file.read(window)
    else:
        layout = torch_files.read_pickle(window)
    roles.assign(layout.tensors, name)
    return layout


def _zip(window: Window) -> Layout:
    members, problems = zipdir.read(window)
    layout = _zip_layout(window, members, bool(problems))
    layout.problems = problems + layout.problems
    layout.spans = zipdir.spans(members, window.start, layout)
    return layout


def _zip_layout(window: Window, members: list[Member], damaged: bool) -> Layout:
    pickles = [member.name for member in members if member.name.endswith("data.pkl") and member.name.count("/") == 1]
    if len(pickles) > 1:
        raise Broken("malformed", f"the zip holds {len(pickles)} checkpoints", evidence=", ".join(pickles[:3])[:200])
    if pickles:
        root = pickles[0].removesuffix("data.pkl")
        return torch_files.read_zip(window, [member for member in members if member.name.startswith(root)], root)
    if members and all(member.name.endswith(".npy") for member in members):
        return numpy_file.read_zip(window, members)
    if damaged:
        return Layout("zip")  # the zip's own problems say more than what is missing because of them
    names = ", ".join(member.name for member in members[:_NAMED])
    raise Broken("not-a-checkpoint", f"a zip of {len(members)} other files, without data.pkl", evidence=names[:200])
