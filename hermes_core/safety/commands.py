"""Passwords that known programs are called with, where the option's name does not say so: `mysql -phunter2`."""

from __future__ import annotations

from hermes_core.safety.values import NO_SECRET, UNSEEN, compiled

_LINE_OF = r"[^\n|;&]{0,300}?\s"
_TOLD = rf"(?(quote){UNSEEN}{NO_SECRET}[^\"'\n]{{1,400}}(?=[\"'])|{UNSEEN}{NO_SECRET}[^\s\"'`|;&]{{3,}})"
_COMMANDS = tuple(
    (programs, rf"(?P<kept>\b{before}){_TOLD}")
    for programs, before in (
        (("mysql", "mariadb"), rf"(?:mysql|mariadb)[\w-]{{0,12}}\b{_LINE_OF}-p(?P<quote>[\"'])?"),
        (("sshpass",), rf"sshpass\b{_LINE_OF}-p\s{{0,2}}(?P<quote>[\"'])?"),
        (("docker", "podman"), rf"(?:docker|podman)\s+login\b{_LINE_OF}-p\s{{0,2}}(?P<quote>[\"'])?"),
        (("redis-cli",), rf"redis-cli\b{_LINE_OF}-a\s{{1,2}}(?P<quote>[\"'])?"),
        (
            ("curl",),
            rf"curl\b{_LINE_OF}(?:-[uU]\s{{0,2}}|--(?:proxy-)?user[ =])(?P<quote>[\"'])?[^\s:\"']{{1,100}}:",
        ),
    )
)


def without_arguments(text: str) -> str:
    """`text` without the passwords that known programs are called with."""
    for programs, pattern in _COMMANDS:
        if any(program in text for program in programs):
            text = compiled(pattern).sub(r"\g<kept>[redacted:password]", text)
    return text
