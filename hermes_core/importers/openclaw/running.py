"""Whether OpenClaw, or a gateway of ours, still runs: two programs with one bot token disturb each other."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

Probe = Callable[[], Iterable[str]]
"""Gives the command line of every process."""

_OPENCLAW = ("openclaw", "clawdbot", "moltbot")
_INTERPRETERS = ("node", "bun", "deno", "npx", "python")


def command_lines() -> list[str]:
    """The command lines of this machine's processes, ours and its parents' left out; [] where they can't be read."""
    own = {os.getpid(), os.getppid()}
    proc = Path("/proc")
    if (proc / "self" / "cmdline").exists():
        pids = [entry.name for entry in proc.iterdir() if entry.name.isdigit() and int(entry.name) not in own]
        return [line for pid in pids if (line := _of_proc(proc / pid / "cmdline"))]
    listing = ["tasklist", "/FO", "CSV", "/NH"] if os.name == "nt" else ["ps", "-axww", "-o", "command="]
    try:
        done = subprocess.run(
            listing, capture_output=True, text=True, errors="replace", timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()


def running_warnings(probe: Probe = command_lines) -> list[str]:
    """What should be stopped before a migration or a cleanup, a sentence each."""
    lines = list(probe())
    found = []
    if any(_is_openclaw(line) for line in lines):
        found.append(
            "OpenClaw seems to be running: stop it first, since messaging platforms refuse two programs with one "
            "bot token, and it may still write to its folder"
        )
    if any(_is_gateway(line) for line in lines):
        found.append(
            "the Hermes gateway seems to be running: restart it afterwards, so that it sees what came"
        )
    return found


def _of_proc(path: Path) -> str:
    try:
        return path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return ""


def _is_openclaw(line: str) -> bool:
    """Whether the program is OpenClaw, or an interpreter that runs it: `node /opt/openclaw/dist/index.js`."""
    words = [Path(word.strip('"')) for word in line.replace("\\", "/").lower().split()[:2]]
    runs = words[1:] if words and words[0].stem.startswith(_INTERPRETERS) else words[:1]
    return any(path.stem.startswith(_OPENCLAW) or set(_OPENCLAW) & set(path.parts) for path in runs)


def _is_gateway(line: str) -> bool:
    words = [Path(word).stem for word in line.replace("\\", "/").lower().split()[:4]]
    return "gateway" in words and bool({"hermes", "hermes-memory"} & set(words))
