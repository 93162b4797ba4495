"""Files of this machine that a tool hands to a backend at the model's wish."""

from __future__ import annotations

from pathlib import Path

from hermes_core.contract.values import Session
from hermes_core.errors import ToolInputInvalid


def file_to_send(path: str, session: Session, largest: int) -> Path:
    """The file at this path, with links followed, when it may leave the machine; else raises `ToolInputInvalid`.

    Only the person at the terminal has files here: a user of a gateway would read those of its owner. What is hidden
    holds keys, and so does the home, with the homes of other profiles. `largest` is in bytes.
    """
    named = repr(path[:100])
    if session.owner:
        raise ToolInputInvalid(f"{named} is a file of somebody else", "files are for the one at the terminal")
    try:
        real, home = Path(path).expanduser().resolve(), Path(session.home).resolve()
        fits = real.is_file() and real.stat().st_size <= largest
    except (OSError, RuntimeError, ValueError):
        fits = False
    if not fits:
        raise ToolInputInvalid(f"{named} is no file of up to {largest // 2**20} MiB", "send the path of one")
    homes = home.parent.parent if home.parent.name == "profiles" else home
    if real.is_relative_to(homes) or any(part.startswith(".") for part in real.parts):
        raise ToolInputInvalid(
            f"{named} is hidden, or of the agent's own home", "such files hold keys; send another"
        )
    return real
