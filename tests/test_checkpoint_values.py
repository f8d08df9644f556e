"""Statistics against brute force: every number format, every cut of a file, every way zeros can lie."""

from __future__ import annotations

import hashlib
import math
import struct
from pathlib import Path

from rgt.checkpoint import tensor_values
from rgt.checkpoint.examine import examine
from rgt.checkpoint.layout import DTYPES, Artifact, role_of
from rgt.checkpoint.tensor_values import Stats

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file


def codes(artifact: Artifact) -> list[tuple[str, str]]:
    return sorted((problem.code, problem.where or "") for problem in artifact.problems if problem.severity != "info")


# -- number formats


@pytest.mark.parametrize(
    "name", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
)
def test_every_bit_pattern_means_what_torch_says(name: str) -> None:
    dtype = DTYPES[name]
    count = 1 << 8 * dtype.size
    raw = torch.arange(count).to(torch.uint16 if dtype.size == 2 else torch.uint8)
    theirs = raw.view(getattr(torch, name)).to(torch.float64).tolist()
    for bits, value in enumerate(theirs):
        ours = dtype.value(bits)
        assert (math.isnan(ours) and math.isnan(value)) or ours == value, (name, bits)


@given(st.floats(width=32), st.floats(1e-30, 1e30))
def test_the_limit_decides_like_a_comparison(value: float, limit: float) -> None:
    dtype = DTYPES["float32"]
    bits = int(np.float32(value).view(np.uint32))
    over = bits & dtype.magnitude > dtype.limit(limit)
    assert over == (not abs(value) <= limit)
    ours = dtype.value(bits)
    assert ours == value or (math.isnan(ours) and math.isnan(value))


SPECIAL = [0.0, -0.0, 1.0, -1.0, 5e5, 2e6, -3e6, 1e-41, math.inf, -math.inf, math.nan]


@given(
    st.lists(st.sampled_from(SPECIAL), min_size=1, max_size=50),
    st.sampled_from(["f2", "f4", "f8", "c8", "c16"]),
    st.integers(1, 7),
)
def test_statistics_against_numpy(values: list[float], code: str, step: int) -> None:
    """In blocks of any length; numpy's own conversions are the judge."""
    with np.errstate(all="ignore"):
        array = np.array(values).astype(code)
    dtype = DTYPES[array.dtype.name]
    parts = array.view(f"f{dtype.word}")
    found = Stats(dtype, dtype.limit(1e6))
    for at in range(0, len(parts), step):
        found.update(parts[at : at + step].view(f"u{dtype.word}"))
    with np.errstate(all="ignore"):
        over = np.isfinite(parts) & (np.abs(parts) > 1e6)
    assert found.nan.count == np.isnan(parts).sum()
    assert found.inf.count == np.isinf(parts).sum()
    assert found.over.count == over.sum()
    assert found.zero == (not parts.any())
    assert found.constant == (len(set(parts.view(f"u{dtype.word}").tolist())) == 1)
    for tally, where in ((found.nan, np.isnan(parts)), (found.inf, np.isinf(parts)), (found.over, over)):
        assert tally.first == (int(where.argmax()) if where.any() else -1)


def test_scales_and_two_in_a_byte_are_judged_as_far_as_they_can_be(tmp_path: Path) -> None:
    scale = torch.full((4, 4), 100, dtype=torch.uint8)
    scale[1, 2] = 0xFF
    torch.save({"scale": scale.view(torch.float8_e8m0fnu)}, tmp_path / "x.pt")
    assert codes(examine(tmp_path / "x.pt")) == [("nan", "scale")]


# -- reading in blocks


@pytest.mark.parametrize("chunk", [2 * 4096, 3 * 4096 + 16, 1 << 22])
def test_small_buffers_find_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """NaN at both sides of every cut, in a file of three tensors that start at odd places."""
    tensors = {"a": torch.randn(3), "b": torch.randn(50_000), "c": torch.randn(40_001)}
    for place in (0, 1023, 1024, 3071, 3072, 49_999):
        tensors["b"][place] = math.nan
    tensors["c"][40_000] = math.inf
    save_file({"odd": torch.ones(3, dtype=torch.bool), **tensors}, tmp_path / "x.safetensors")
    monkeypatch.setattr(tensor_values, "READ", chunk)
    monkeypatch.setattr(tensor_values, "BLOCK", 4096)
    artifact = examine(tmp_path / "x.safetensors")
    messages = {problem.where: problem.message for problem in artifact.problems if problem.severity == "error"}
    assert messages == {"b": "6 of 50000 values are NaN", "c": "1 of 40001 values is infinite"}


# -- views


@settings(max_examples=60)
@given(data=st.data())
def test_a_nan_in_any_view_is_found(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """Slices, steps and transposes of one storage with one NaN; what shares bytes is judged together."""
    base = torch.randn(12, 10)
    row, column = data.draw(st.integers(0, 11)), data.draw(st.integers(0, 9))
    base[row, column] = math.nan
    views = {}
    for number in range(data.draw(st.integers(1, 4))):
        top, left = data.draw(st.integers(0, 11)), data.draw(st.integers(0, 9))
        view = base[top :: data.draw(st.integers(1, 3)), left : data.draw(st.integers(left + 1, 10))]
        views[f"v{number}"] = view.t() if data.draw(st.booleans()) else view
    path = tmp_path_factory.mktemp("views") / "x.pt"
    torch.save(views, path)
    found = [problem for problem in examine(path).problems if problem.code == "nan"]
    bad = {name: view for name, view in views.items() if view.isnan().any()}
    assert len(found) == 1 or not bad
    for problem in found:
        byte = int(str(problem.evidence).partition("byte ")[2].split()[0])
        assert math.isnan(struct.unpack("<f", path.read_bytes()[byte : byte + 4])[0])
        named = bad.get(str(problem.where))
        if named is not None:
            assert f"first at {named.isnan().nonzero()[0].tolist()}" in str(problem.evidence)


def test_overlapping_windows_are_judged_as_a_whole(tmp_path: Path) -> None:
    """unfold: rows share values, so there are no gaps between them."""
    base = torch.randn(12)
    base[11] = math.nan
    torch.save({"windows": base.unfold(0, 3, 1)}, tmp_path / "x.pt")
    assert codes(examine(tmp_path / "x.pt")) == [("nan", "windows")]


def test_garbage_outside_of_all_tensors_is_no_finding(tmp_path: Path) -> None:
    """torch.save writes the whole storage, also what the tensor does not show."""
    base = torch.full((1000,), math.nan)
    base[:10] = 1.5
    base[0] = 2.5
    torch.save({"w": base[:10]}, tmp_path / "x.pt")
    assert codes(examine(tmp_path / "x.pt")) == []


# -- zeros


def safetensors_with(folder: Path, tensor: torch.Tensor, name: str = "w") -> tuple[Path, int]:
    """The file and where the tensor starts in it."""
    path = folder / "x.safetensors"
    save_file({name: tensor}, path)
    return path, path.stat().st_size - tensor.nbytes


def holed(
    folder: Path, tensor: torch.Tensor, begin: int, end: int, *, paged: bool = False, name: str = "w"
) -> Artifact:
    """Zeros from byte `begin` to `end` of the tensor; `paged`: moved to the next page boundaries of the file."""
    path, start = safetensors_with(folder, tensor, name)
    begin, end = start + begin, start + end
    if paged:
        begin, end = -(-begin // 4096) * 4096, -(-end // 4096) * 4096
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))
    return examine(path)


DENSE = (1000, 301)  # 1204 bytes a row: never on a page boundary
ROW = 301 * 4


def dense(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape).to(dtype)


HOLES = [
    (200_000, 300_000, True, [("hole", "w")]),  # pages lost in the middle
    (200_000, 300_000, False, [("hole", "w")]),  # neither pages nor rows: nothing natural ends in mid row
    (1_000_001, 1_204_000, False, [("hole", "w")]),  # the tail was never written
    (0, 100_000, True, [("hole", "w")]),  # the head neither
    (ROW * 100, ROW * 200, False, []),  # rows of tokens that were never seen
    (ROW * 900, ROW * 1000, False, []),  # a vocabulary padded to a multiple of 64
    (0, ROW * 80, False, []),  # reserved tokens first
    (200_000, 260_000, True, [("hole", "w")]),
    (200_000, 204_096, True, [("hole", "w")]),  # one page
    (200_000, 204_200, False, [("hole", "w")]),
    (200_000, 203_000, False, []),  # too short to be told from pruning
]


@pytest.mark.parametrize(("begin", "end", "paged", "expected"), HOLES)
def test_holes_and_zero_rows(
    tmp_path: Path, begin: int, end: int, paged: bool, expected: list[tuple[str, str]]
) -> None:
    assert codes(holed(tmp_path, dense(*DENSE), begin, end, paged=paged)) == expected


def test_rows_of_whole_pages_cannot_be_told_apart_and_are_only_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, dense(200, 1024).numpy())
    content = path.read_bytes()
    header = content[: len(content) - 200 * 4096]
    padded = header[:-1] + b" " * (4096 - len(header)) + b"\n"
    length = (4096 - 10).to_bytes(2, "little")
    body = bytearray(content[len(header) :])
    body[4096 * 50 : 4096 * 90] = bytes(4096 * 40)
    path.write_bytes(padded[:8] + length + padded[10:] + body)
    assert [(p.code, p.severity) for p in examine(path).problems] == [("hole", "warn")]


def test_pages_lost_in_other_tensors(tmp_path: Path) -> None:
    half_zero = dense(600, 501).bfloat16().float()  # half of all bytes are zero anyway
    numbers = torch.randint(1, 100, (600, 501), dtype=torch.int32)
    for tensor in (dense(300_000), dense(600, 500, dtype=torch.bfloat16), half_zero, numbers):
        assert codes(holed(tmp_path, tensor, 150_000, 350_000, paged=True)) == [("hole", "w")], tensor.dtype
    mask = torch.rand(900, 901) > 0.5  # may be anything
    assert codes(holed(tmp_path, mask, 150_000, 350_000, paged=True)) == []
    assert codes(holed(tmp_path, dense(300_000), 1_000_004, 1_200_000)) == []  # the padding of a flat vector


def test_pruned_weights_are_not_holes(tmp_path: Path) -> None:
    tensor = dense(1000, 1000) * (torch.rand(1000, 1000) > 0.999)
    path, _ = safetensors_with(tmp_path, tensor)
    assert codes(examine(path)) == []


# -- roles


ROLES = [
    ("weight", "model.h.0.attn.weight schema.weight opt_head.weight optical_flow.weight model.optimus.weight"),
    ("optimizer", "optimizer.state.3.exp_avg state.3.step optimizer_states.0.state.1.exp_avg_sq"),
    ("ema", "ema.h.weight model_ema.h.weight ema_state_dict.w"),
    ("other", "callbacks.ModelCheckpoint.kth_value lr_schedulers.0.x cuda_rng_state.0"),
]


@pytest.mark.parametrize(("role", "names"), ROLES)
def test_roles_by_name(role: str, names: str) -> None:
    assert {name: role_of(name) for name in names.split()} == dict.fromkeys(names.split(), role)


def test_a_name_of_megabytes_costs_nothing(tmp_path: Path) -> None:
    save_file({"a_" * 1_000_000 + "position": torch.randn(3, 3)}, tmp_path / "x.safetensors")
    assert examine(tmp_path / "x.safetensors").real


@pytest.mark.parametrize("chunk", [2 * 4096, 1 << 16, 1 << 22])
def test_the_digest_is_that_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Also when the file fills the buffer many times and ends in an odd place."""
    torch.save({"w": torch.randn(300, 301), "b": torch.randn(7)}, tmp_path / "x.pt")
    monkeypatch.setattr(tensor_values, "READ", chunk)
    artifact = examine(tmp_path / "x.pt")
    assert artifact.sha256 == hashlib.sha256((tmp_path / "x.pt").read_bytes()).hexdigest()
    assert artifact.real
