"""The words of a command: options in their spellings, their values, and the operands."""

from __future__ import annotations


def after_options(words: list[str], valued: set[str] | frozenset[str], skip: int = 0) -> list[str]:
    """What follows the options and `skip` further words."""
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "-":
        if words[i] == "--":
            i += 1
            break
        i += 2 if words[i] in valued else 1
    return words[i + skip :]


def option(words: list[str], *names: str) -> str | None:
    """The value of an option in one of its spellings: -o v, -ov, --out v, --out=v, -sX v, -sXv."""
    for i, word in enumerate(words):
        if word[:1] != "-":
            continue
        for name in names:
            following = words[i + 1] if i + 1 < len(words) else ""
            if word == name:
                return following
            if name.startswith("--"):
                if word.startswith(name + "="):
                    return word[len(name) + 1 :]
                continue
            letters, letter, value = word[1:].partition(name[1:])
            if letter and letters.isalpha() and len(name) == 2 and len(letters) < 4:
                if not value or name[1].isupper():  # -sX VALUE is -s -X VALUE; curl -sXDELETE
                    return value or following
            elif letter and not letters and len(name) == 2 and not word.startswith("--"):
                return value
    return None


def values_of(words: list[str], *names: str) -> list[str]:
    """Each value of an option that may come several times."""
    given = [option(words[i : i + 2], *names) for i, word in enumerate(words) if word.startswith("-")]
    return [value for value in given if value]


def has_flag(words: list[str], *names: str) -> bool:
    """-r alone or in a cluster (-rf), --recursive."""
    for word in words:
        if word == "--":
            return False
        if word[:1] != "-":
            continue
        for name in names:
            if word == name or (len(name) > 2 and word.startswith(name + "=")):
                return True
            if len(name) == 2 and name[1] in word[1:] and word[1:].isalnum() and word.isascii():
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
