"""The words of a command: options in their spellings, their values, and the operands."""

from __future__ import annotations

import re


def after_options(words: list[str], valued: set[str], skip: int = 0) -> list[str]:
    """What follows the options and `skip` further words."""
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "-":
        if words[i] == "--":
            i += 1
            break
        i += 2 if words[i] in valued else 1
    return words[i + skip :]


def option(words: list[str], *names: str) -> str | None:
    """The value of an option in one of its spellings: -o v, -ov, --out v, --out=v."""
    for i, word in enumerate(words):
        for name in names:
            if word == name or _ends_cluster(word, name):
                return words[i + 1] if i + 1 < len(words) else ""
            if name.startswith("--") and word.startswith(name + "="):
                return word[len(name) + 1 :]
            if not name.startswith("--") and word.startswith(name) and len(word) > 2:
                return word[2:]
            if name[1:].isupper() and (match := re.fullmatch(rf"-[a-z]+{name[1]}(\S+)", word)):  # curl -sXDELETE
                return match[1]
    return None


def _ends_cluster(word: str, name: str) -> bool:
    """-sX VALUE is -s -X VALUE."""
    return len(name) == 2 and word.endswith(name[1]) and bool(re.fullmatch(r"-[A-Za-z]{2,4}", word))


def has_flag(words: list[str], *names: str) -> bool:
    """-r alone or in a cluster (-rf), --recursive."""
    for word in words:
        if word == "--":
            return False
        for name in names:
            if word == name or (name.startswith("--") and word.startswith(name + "=")):
                return True
            if len(name) == 2 and re.fullmatch(r"-[A-Za-z0-9]+", word) and name[1] in word[1:]:
                return True
    return False


def operands(words: list[str], valued: str = "") -> list[str]:
    """The words that are neither options nor their values."""
    found: list[str] = []
    takes, i = set(valued.split()), 0
    while i < len(words):
        if words[i] == "--":
            return found + words[i + 1 :]
        if words[i].startswith("-") and len(words[i]) > 1:
            letters = [f"-{letter}" in takes for letter in words[i][1:]] if words[i][1] != "-" else []
            i += words[i] in takes or (True in letters and letters.index(True) == len(letters) - 1)  # -XPUT has its own
        else:
            found.append(words[i])
        i += 1
    return found


def shlex_words(text: str) -> list[str]:
    import shlex

    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
