"""One file of a folder as an item: an image by its pixels, an array by its values, JSON by its canonical form, text by
its words, anything else by its bytes."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from leakage import normal
from leakage.chance import SURE
from leakage.normal import Array
from leakage.pictures import FLAT, SIDE
from rgt.errors import RgtError, lacking

IMAGES = {".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}
PIXELS = 100_000_000  # of an image that is decoded
_WHOLE = 256 << 20  # bytes of a file that is decoded; a larger one is compared by its bytes
_TEXT = 4 << 20  # bytes of a text that are compared for near-duplicates
_SMALL = 16  # bytes of a file that is written twice by chance


@dataclass
class Content:
    exact: int
    bits: float = SURE
    text: bytes = b""
    picture: Array | None = None
    problem: tuple[str, str] | None = None  # code, sentence


def read(path: Path) -> Content:
    try:
        size = path.stat().st_size
        if size > _WHOLE:
            return Content(_digest_of(path), problem=("unjudged", "is larger than 256 MB: compared by its bytes only"))
        data = path.read_bytes()
    except OSError as error:
        return Content(0, problem=("unreadable", f"cannot be read: {error.strerror}"))
    if not data:
        return Content(0, bits=0.0)
    suffix = path.suffix.lower()
    if suffix in IMAGES:
        return _image(data)
    if suffix in (".npy", ".npz"):
        return _array(data, suffix)
    if suffix == ".json":
        return _json(data)
    return _text(data)


def _digest_of(path: Path) -> int:
    from rgt.seal import digest_of

    return int(digest_of(path)[:16], 16) or 1


def _bytes(data: bytes, problem: tuple[str, str] | None = None) -> Content:
    return Content(normal.digest(b"bytes" + data), SURE if len(data) > _SMALL else 0.0, problem=problem)


def _image(data: bytes) -> Content:
    try:
        from PIL import Image, ImageOps
    except ImportError:
        raise lacking("Pillow cannot be imported, and images are compared by pixels; pip install pillow") from None
    try:
        with warnings.catch_warnings(), Image.open(io.BytesIO(data)) as image:
            warnings.simplefilter("ignore")
            if image.width * image.height > PIXELS:
                sentence = f"would decode to {image.width} x {image.height} pixels: compared by its bytes only"
                return _bytes(data, ("bomb", sentence))
            turned = ImageOps.exif_transpose(image)
            pixels = turned if turned.mode in ("L", "RGB", "RGBA", "I", "I;16", "F") else turned.convert("RGBA")
            if pixels.mode == "RGBA" and np.asarray(pixels)[..., 3].min() == 255:
                pixels = pixels.convert("RGB")
            if pixels.mode == "RGB" and _is_grey(np.asarray(pixels)):
                pixels = pixels.convert("L")
            exact = normal.digest(f"{pixels.mode} {pixels.size}".encode() + pixels.tobytes())
            grey = pixels.convert("L") if pixels.mode not in ("I", "I;16", "F") else _scaled(pixels)
            picture = np.asarray(grey.resize((SIDE, SIDE), Image.Resampling.BOX))
    except Exception as error:  # Pillow's decoders raise anything: SyntaxError, struct.error, DecompressionBombError
        kind = "bomb" if "Bomb" in type(error).__name__ else "unreadable"
        return _bytes(data, (kind, f"is no image that can be decoded ({str(error)[:80]}): compared by its bytes only"))
    shows = float(picture.std()) >= FLAT
    return Content(exact, SURE if shows else 0.0, picture=picture)


def _is_grey(rgb: Array) -> bool:
    return bool((rgb[..., 0] == rgb[..., 1]).all() and (rgb[..., 1] == rgb[..., 2]).all())


def _scaled(image: Any) -> Any:
    """A 16-bit or float image to 8 bits by its own range."""
    from PIL import Image

    values = np.nan_to_num(np.asarray(image, dtype=np.float64))
    low, high = values.min(), values.max()
    return Image.fromarray(((values - low) / max(high - low, 1e-9) * 255).astype(np.uint8))


def _array(data: bytes, suffix: str) -> Content:
    try:
        if suffix == ".npz":
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > 1 << 30:
                return _bytes(data, ("bomb", f"would unpack to {unpacked >> 20} MB: compared by its bytes only"))
        found = np.load(io.BytesIO(data), allow_pickle=False)
        arrays = {"": found} if isinstance(found, np.ndarray) else {name: found[name] for name in found.files}
        total = 0
        for name, array in sorted(arrays.items()):
            shape = normal.digest(f"{name} {array.shape}".encode())
            values = array.astype(np.float64) if array.dtype.kind in "biuf" else array
            total = normal.digest(f"{total} {shape}".encode() + np.ascontiguousarray(values).tobytes())
    except Exception as error:  # a damaged header raises anything
        sentence = f"cannot be read as numpy data ({str(error)[:80]}): compared by its bytes only"
        return _bytes(data, ("unreadable", sentence))
    varied = any(array.size > 4 and (array != array.flat[0]).any() for array in arrays.values())
    return Content(total, SURE if varied else 0.0)


def _json(data: bytes) -> Content:
    try:
        value = _canonical(json.loads(data))
        plain = json.dumps(value, sort_keys=True, ensure_ascii=True).encode()
    except (ValueError, RecursionError, RgtError):
        return _text(data)
    words = normal.text(normal.cell_text(value))
    return Content(normal.digest(b"json" + plain), SURE if len(plain) > _SMALL else 0.0, words[:_TEXT])


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_canonical(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _text(data: bytes) -> Content:
    if b"\0" in data[:8192]:
        return _bytes(data)
    try:
        words = normal.text(data.decode("utf-8"))
    except UnicodeDecodeError:
        words = normal.text(data.decode("utf-8", "surrogateescape"))
    if not words:
        return _bytes(data)
    return Content(normal.digest(words), 0.0 if normal.is_short(words) else SURE, words[:_TEXT])
