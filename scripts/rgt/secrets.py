"""What is secret: files by their names, values by the words before them. For all that is sent, kept or shown.

Example:
    is_secret(".kube/config")                       True
    redact("train.py --token abc --max-tokens 5")   "train.py --token *** --max-tokens 5"
"""

from __future__ import annotations

import fnmatch
import re

# names, or ends of paths, under which credentials lie; what they hold goes by stdin
NAMES = tuple(
    """.env .env.* *.env .envrc .netrc _netrc .pypirc .npmrc .yarnrc.yml .pgpass .my.cnf .boto .s3cfg rclone.conf
    .rclone.conf .git-credentials .htpasswd .vault-token *.pem *.key *.p12 *.pfx *.jks *.keystore *.kdbx *.ovpn *.ppk
    id_rsa id_dsa id_ed25519 id_ecdsa id_*_sk authorized_keys credentials credentials.* *credentials*.json kaggle.json
    service-account*.json service_account*.json *-sa.json client_secret*.json access_tokens.db hf_token *_token *.token
    token token.json secrets.* secret.* *.secret *secrets.y*ml *secret*.json kubeconfig *.kubeconfig .kube/config
    .docker/config.json .aws/* .azure/* .config/gcloud/* gcloud/*.db .ssh/* huggingface/token .config/gh/hosts.yml
    .modal.toml .runpod/config.toml vast_api_key .vast_api_key api_key api_key.* apikey.* *_api_key *_api_key.txt
    wandb_key* .wandb_api_key terraform.tfstate terraform.tfvars""".split()
)
_HARMLESS = "*.example *.sample *.template *.dist *.pub *.py *.md tokenizer* special_tokens_map.json".split()


def is_secret(path: str) -> bool:
    """By its name alone; `path` is relative, with slashes."""
    name = path.lower()
    base = name.rpartition("/")[2]
    if any(fnmatch.fnmatchcase(base, pattern) for pattern in _HARMLESS):
        return False
    return any(
        fnmatch.fnmatchcase(name, f"*/{pattern}") or fnmatch.fnmatchcase(name, pattern)
        if "/" in pattern
        else fnmatch.fnmatchcase(base, pattern)
        for pattern in NAMES
    )


_HIDDEN = "***"
_NAME = r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key|credential|private[_-]?key)"
# --token X, --token=X, HF_TOKEN=X, "password": "X": the words before the value, its quote, the value
_NAMED = re.compile(
    rf"""(?i)((?<![\w-])-{{0,2}}[\w-]*{_NAME}[\w-]*["']?(?:\s*[=:]\s*|\0?\s+))(["']?)([^\s\0"',;&}}]+)"""
)
_OF_TOKENS = re.compile(  # counts and names of tokens, as trainings have them
    r"(?i)tokens|tokeniz|token[_-]?(?:id|len|count|size|type|map)|(?:max|num|per|pad|eos|bos|cls|sep|mask|unk)[_-]?token"
)
_LOOKS = (
    (re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/@]+@"), rf"\1:{_HIDDEN}@"),  # a password in a URL
    (re.compile(r"(?i)(\bbearer|authorization\W+\w+)\s+[\w.~+/=-]{8,}"), rf"\1 {_HIDDEN}"),
    (re.compile(r"\b(?:hf_\w{8,}|sk-[\w-]{16,}|gh[pousr]_\w{8,}|github_pat_\w{8,})"), _HIDDEN),
    (re.compile(r"\b(?:AKIA[0-9A-Z]{16}|xox[abp]-[\w-]{20,}|rpa_\w{30,}|glpat-[\w-]{20,})"), _HIDDEN),
)


def redact(text: str) -> str:
    """The same text without values that are named, or look, like secrets."""

    def hide(match: re.Match[str]) -> str:
        harmless = _OF_TOKENS.search(match[1]) or re.fullmatch(r"[\d.,_]+|true|false|none|null|-.*", match[3], re.I)
        return match[0] if harmless else f"{match[1]}{match[2]}{_HIDDEN}"

    text = _NAMED.sub(hide, text)
    for pattern, instead in _LOOKS:
        text = pattern.sub(instead, text)
    return text


def redact_words(words: list[str]) -> list[str]:
    """A command line, word by word: a value may follow its option."""
    return redact("\0 ".join(words)).split("\0 ")
