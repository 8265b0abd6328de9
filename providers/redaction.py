"""Keys and passwords are taken out of a text before it is stored."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

MARK = "[redacted]"

DETECTORS = (
    "AWSKeyDetector",
    "AzureStorageKeyDetector",
    "BasicAuthDetector",
    "CloudantDetector",
    "DiscordBotTokenDetector",
    "GitHubTokenDetector",
    "GitLabTokenDetector",
    "IbmCloudIamDetector",
    "IbmCosHmacDetector",
    "JwtTokenDetector",
    "MailchimpDetector",
    "NpmDetector",
    "OpenAIDetector",
    "PypiTokenDetector",
    "SendGridDetector",
    "SlackDetector",
    "SoftlayerDetector",
    "SquareOAuthDetector",
    "StripeDetector",
    "TelegramBotTokenDetector",
    "TwilioKeyDetector",
)
"""Those of detect-secrets that know a key by its form. Its entropy detectors would take record ids and hashes for keys,
its detector of addresses finds no secrets, and of private keys it finds the first line alone."""

OWN = (
    re.compile(r"\b(?:Bearer|Basic)\s+([A-Za-z0-9+/_.~-]{16,}=*)"),
    re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"),
    re.compile(r"\bAIza[A-Za-z0-9_-]{35}"),
    re.compile(
        r"(?i)\b\w*(?:password|passwd|pwd|passphrase|secret|api_?key|access_?key|auth_?token|access_?token|_pass)\s*[:=]\s*"
        r"(?![\"'\[])((?=\S*[\d!@#$%^&*])\S{6,})"
    ),
)
"""What the library leaves out: bearer tokens, two common kinds of key, passwords without quotes."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)

CLOSING = 2
"""Characters that may follow the secret within a match: a quote, an @."""

_LINE = re.compile(r"[^\r\n]+")
_TOKEN = re.compile(r"[A-Za-z0-9_.+/=-]+")
_SUSPICIOUS = re.compile(
    r"(?i)[a-z0-9+/_-]{16}|key|pass|pwd|secret|contrase|token|auth|bearer|basic|credential|://[^/\s]*@|-----begin"
)
"""No detector matches a text without any of these; most texts have none."""


@lru_cache(maxsize=4096)
def redact(text: str) -> tuple[str, int]:
    """`text` with every secret replaced by `MARK`, and how many were replaced."""
    if not _SUSPICIOUS.search(text):
        return text, 0
    redacted, end, count = "", 0, 0
    for start, stop in sorted(_secrets(text)):
        if stop > end:
            if start >= end:
                redacted += text[end:start] + MARK
                count += 1
            end = stop
    return redacted + text[end:], count


def _secrets(text: str) -> Iterator[tuple[int, int]]:
    """Where secrets stand in `text`, in no order; they may overlap. But for private keys they keep to a line."""
    for match in _PRIVATE_KEY.finditer(text):
        yield match.span()
    patterns, assignments = _detectors()
    for line in _LINE.finditer(text):
        if not _SUSPICIOUS.search(line[0]):
            continue
        for pattern in (*OWN, *patterns):
            for match in pattern.finditer(text, *line.span()):
                yield _span(text, match)
        for secret in assignments.analyze_string(line[0]):
            start = text.find(secret, line.start()) if secret.strip() else -1
            if start >= 0:
                yield start, start + len(secret)


def _span(text: str, match: re.Match[str]) -> tuple[int, int]:
    """The secret of a match: its last group where the match ends with it, else all of it to the end of the token."""
    if match.lastindex and match.end() - match.end(match.lastindex) <= CLOSING:
        return match.span(match.lastindex)
    rest = _TOKEN.match(text, match.end())
    return match.start(), rest.end() if rest else match.end()


def redact_values(value: Any) -> tuple[Any, int]:
    """A JSON value with the secrets of all its strings replaced, keys included, and how many were replaced."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, Mapping):
        pairs = [(redact(str(key)), redact_values(part)) for key, part in value.items()]
        return {key[0]: part[0] for key, part in pairs}, sum(key[1] + part[1] for key, part in pairs)
    if isinstance(value, (list, tuple)):
        parts = [redact_values(part) for part in value]
        return type(value)(part for part, _ in parts), sum(count for _, count in parts)
    return value, 0


@cache
def _detectors() -> tuple[tuple[re.Pattern[str], ...], Any]:
    """The library's patterns, and its detector of what is assigned to words like `password`, which reads lines."""
    from detect_secrets.core.plugins.util import get_mapping_from_secret_type_to_class
    from detect_secrets.plugins.keyword import KeywordDetector

    found: list[Any] = list(get_mapping_from_secret_type_to_class().values())
    classes = {kind.__name__: kind for kind in found}
    return tuple(pattern for name in DETECTORS for pattern in classes[name]().denylist), KeywordDetector()
