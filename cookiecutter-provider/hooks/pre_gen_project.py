"""Refuses names that would be in somebody's way, before a file is written."""

import re
import sys

NAME = {{ cookiecutter.name | string | tojson }}

BUNDLED = "holographic honcho mem0 byterover openviking hindsight retaindb supermemory"
COMMANDS = "backup capture chat claw completion config costs demo doctor eval export extensions forget identity import install-alias keys logs mcp memory migrate outbox plugins providers recall restore review serve sessions setup skills storage turns ui verify"
YAML = "false no null off on true yes"
DEVICES = "aux con nul prn " + " ".join(f"com{n} lpt{n}" for n in range(10))
EXTENSIONS = "archive eval http importers openclaw postgresql rerank semantic telemetry testing"
PACKAGES = "agent cli constants core logging state time"
TAKEN = {
    "builtin": "the name of the built-in memory",
    **{name: "the name of a provider that comes with the project" for name in BUNDLED.split()},
    **{name: "the name of an extension that comes with the project" for name in EXTENSIONS.split()},
    **{name: f"a command of its own: 'hermes-memory {name}'" for name in COMMANDS.split()},
    **{name: "no name in config.yaml, where it means something else without quotes" for name in YAML.split()},
    **{name: "the name of a device on Windows, where no file can have it" for name in DEVICES.split()},
    **{name: f"taken: there is a package 'hermes_{name}'" for name in PACKAGES.split()},
}
MAX_NAME_CHARS = 30


def fault(name: str) -> str:
    """What is wrong with the name, with what to write instead; "" for a good one."""
    if re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) is None:
        better = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-0123456789")
        hint = f": {better!r} for example" if better else ""
        return f"{name!r} can't be the name; use small letters, digits and single hyphens{hint}"
    if len(name) > MAX_NAME_CHARS:
        return f"{name!r} is too long; use at most {MAX_NAME_CHARS} characters"
    if name in TAKEN:
        return f"{name!r} is {TAKEN[name]}; choose another name"
    if name.startswith(("hermes-", "memory-")):
        return f"{name!r} would make 'hermes-memory-{name}'; leave the prefix out"
    return ""


if problem := fault(NAME):
    sys.exit(f"error: {problem}")
