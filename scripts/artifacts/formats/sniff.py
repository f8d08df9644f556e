"""What a file is, by its content. A name only helps where the content is damaged."""

from __future__ import annotations

from artifacts.formats.numpy_file import MAGIC as NPY
from artifacts.formats.window import Window
from artifacts.model import Broken

HEAD = 512
# what is often saved under a checkpoint's name, and what to call it
_STRANGERS = (
    (b"\x1f\x8b", "a gzip file", "unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd file", "unpack it first"),
    (b"BZh", "a bzip2 file", "unpack it first"),
    (b"\xfd7zXZ\0", "an xz file", "unpack it first"),
    (b"\x89HDF", "an HDF5 file (Keras, h5py)", "load it with h5py; it is not checked here"),
    (b"GGUF", "a GGUF file (llama.cpp)", "load it with gguf; it is not checked here"),
    (b"\x7fELF", "a program", "this is no checkpoint"),
)
_MARKUP = (b"<!doctype html", b"<html", b"<?xml", b"<error", b"<head")


def kind(window: Window, name: str) -> str:
    """zip | npy | safetensors | pickle; anything else raises Broken with its own name."""
    head = window.head(HEAD)
    if not head:
        raise Broken("empty", "the file has no bytes", fix="the save or the copy never happened; do it again")
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    if head.startswith(NPY):
        return "npy"
    if head[8:9] == b"{" and (head[6:8] == b"\0\0" or name.endswith(".safetensors")):
        return "safetensors"
    if head[:1] == b"\x80" and len(head) > 1 and head[1] <= 5:
        return "pickle"
    _name_the_stranger(window, head)
    if name.endswith(".safetensors"):
        return "safetensors"
    raise Broken("not-a-checkpoint", "no format that is known here starts like this", evidence=head[:16].hex(" "))


def _name_the_stranger(window: Window, head: bytes) -> None:
    if head.startswith(b"version https://git-lfs.github.com/spec/"):
        raise Broken("lfs-pointer", "a git-LFS pointer, not the file itself", fix="run: git lfs pull")
    if head.lstrip().lower().startswith(_MARKUP):
        raise Broken("error-page", "an HTML or XML page, as a server sends instead of a file", evidence=_text(head),
                     fix="check the address and the login, then download again")  # fmt: skip
    if head.lstrip()[:1] in (b"{", b"[") and _is_text(head):
        raise Broken("error-page", "JSON text, as a server sends instead of a file", evidence=_text(head),
                     fix="check the address and the login, then download again")  # fmt: skip
    if not any(head) and not any(window.read(window.length // 2, min(HEAD, window.length - window.length // 2))):
        raise Broken("hole", "begins with zeros: the space was reserved and never written", fix="copy it again")
    if head[257:262] == b"ustar":
        raise Broken("not-a-checkpoint", "a tar file", fix="unpack it first")
    for magic, what, fix in _STRANGERS:
        if head.startswith(magic):
            raise Broken("not-a-checkpoint", what, fix=fix)
    if _is_text(head):
        raise Broken("not-a-checkpoint", "plain text", evidence=_text(head))


def _is_text(head: bytes) -> bool:
    try:
        text = head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # a character cut off by HEAD is fine
            return False
        text = head[: error.start].decode("utf-8")
    return all(sign.isprintable() or sign in "\t\r\n" for sign in text)


def _text(head: bytes) -> str:
    return " ".join(head[:120].decode("utf-8", "replace").split())


def looks_like_one(head: bytes) -> bool:
    """Whether a file of any name is worth examining: its first bytes are those of a checkpoint."""
    from artifacts.formats.torch_files import MAGIC_PICKLE

    header = head[8:9] == b"{" and head[5:8] == b"\0\0\0"
    return head.startswith((NPY, MAGIC_PICKLE)) or header or (head.startswith(b"PK\x03\x04") and b"data.pkl" in head)
