"""Secrets in what stands under a name: an element of XML or HTML, a block of YAML, a section of an INI file."""

from __future__ import annotations

import re

from hermes_core.safety.names import NAME, kind_of, tells_no_secret
from hermes_core.safety.values import NO_SECRET, UNSEEN, compiled, looks_secret

_TAGGED = (
    rf"(?i)<(?:[\w.:-]{{0,60}}?(?P<name>{NAME})(?:\s[^<>]{{0,200}})?"
    rf"|[^<>]{{0,120}}?\b(?:name|key|id)\s?=\s?[\"'][^\"'<>]{{0,80}}?(?P<named>{NAME})[\"'][^<>]{{0,200}})"
    rf">\s{{0,4}}(?:<!\[CDATA\[)?{UNSEEN}{NO_SECRET}(?P<value>[^<\s][^<\n]{{2,398}}?[^<\s])\s{{0,4}}(?:\]\]>|</)"
)
_BLOCK = (
    rf"(?im)^\ufeff?(?:([ \t]*)(?:-[ \t]+)?[\"']?[\w.-]{{0,60}}?(?P<name>{NAME})s?[\"']?[ \t]*:[ \t]*(?:[|>][+-]?[ \t]*)?\r?\n"
    rf"(?P<deeper>(?:\1[ \t]+\S[^\n]*(?:\n|\Z))+)"
    rf"|[ \t]*{UNSEEN}\[[\w. :\"-]{{0,60}}?(?P<titled>{NAME})s?\"?\][ \t]*\r?\n(?P<section>(?:[^\[\n]+(?:\n|\Z))+))"
)
_LINE = (
    r"(?m)^[ \t]*(?:-[ \t]+)?(?:[\"']?(?P<key>[\w.-]{1,60})[\"']?[ \t]*[:=][ \t]*)?[\"']?"
    rf"{UNSEEN}{NO_SECRET}(?P<value>[^\s\"'#]{{6,}})[\"']?,?[ \t\r]*$"
)


def without_blocks(text: str) -> str:
    """`text` without the secrets in elements, blocks and sections that bear a secret's name."""
    if "<" in text:
        text = compiled(_TAGGED).sub(_without_content, text)
    return compiled(_BLOCK).sub(_without_lines, text) if "\n" in text else text


def _without_content(match: re.Match[str]) -> str:
    """An element of XML or HTML without its text."""
    kind = kind_of(match["name"] or match["named"])
    if kind != "password" and not looks_secret(match["value"], kind):
        return match[0]
    start, end = (at - match.start() for at in match.span("value"))
    return f"{match[0][:start]}[redacted:{kind}]{match[0][end:]}"


def _without_lines(match: re.Match[str]) -> str:
    """A block of YAML or a section of an INI file without what looks secret in its lines."""
    name = match["name"] or match["titled"]
    start, end = (at - match.start() for at in match.span("deeper" if match["name"] else "section"))

    def clean(line: re.Match[str]) -> str:
        if tells_no_secret(line["key"] or "") or not looks_secret(line["value"], kind):
            return line[0]
        begin, stop = (at - line.start() for at in line.span("value"))
        return f"{line[0][:begin]}[redacted:{kind}]{line[0][stop:]}"

    kind = kind_of(name)
    return match[0][:start] + compiled(_LINE).sub(clean, match[0][start:end]) + match[0][end:]
