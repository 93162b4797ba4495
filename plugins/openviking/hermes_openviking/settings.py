"""The settings, and OpenViking's own command-line file, which may name the server."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_core import Field
from hermes_core.kit import FILE_FOLDERS, RECALL_MODE, START_TIMEOUT, ConfigError, Settings

NAME = "openviking"
KEY = "OPENVIKING_API_KEY"


def _ours(name: str, default: str, text: str, env: str) -> Field:
    """Return a setting that identifies an account."""
    return Field(name, str, default, text, env=env, identity=True)


def _recall(
    name: str, default: float | bool, text: str, low: float | None = None, high: float | None = None
) -> Field:
    """Return a setting of recall, which an older variable may carry too."""
    env = f"OPENVIKING_RECALL_{name.upper()}"
    return Field(
        f"recall_{name}",
        type(default),
        default,
        text,
        env=env,
        minimum=low,
        maximum=high,
        clamp=True,
        advanced=True,
    )


_METHODS = ("find", "context")
_LOCAL = {"start_server": True}

SETTINGS = (
    _ours("endpoint", "http://127.0.0.1:1933", "Address of the server.", "OPENVIKING_ENDPOINT"),
    Field("api_key", env=KEY, secret=True, help="Key of a user; in trusted mode the server's root key."),
    _ours(
        "account", "default", "Account, for modes dev and trusted; else the key says.", "OPENVIKING_ACCOUNT"
    ),
    _ours("user", "default", "User of that account.", "OPENVIKING_USER"),
    _ours(
        "agent", "", "Name of our space below the user; empty: hermes, and the profile.", "OPENVIKING_AGENT"
    ),
    Field("use_ovcli_config", bool, False, "Take what is not set here from ovcli.conf.", identity=True),
    _ours("ovcli_config_path", "~/.openviking/ovcli.conf", "That file.", "OPENVIKING_CLI_CONFIG_FILE"),
    RECALL_MODE,
    Field(
        "recall_method",
        str,
        "find",
        "context lets the server choose and shorten (0.5).",
        choices=_METHODS,
        advanced=True,
    ),
    _recall("limit", 6, "Memories that a turn is given at most.", 1, 100),
    _recall("score_threshold", 0.2, "Cosine below which nothing is recalled.", 0, 1),
    _recall("max_injected_chars", 4000, "Characters of a recall, besides the turn's budget.", 100, 50_000),
    _recall("timeout_seconds", 4.0, "Seconds for a whole recall.", 0.25, 60),
    _recall("request_timeout_seconds", 3.0, "Seconds for one request of it.", 0.25, 60),
    _recall("full_read_limit", 2, "How many are read in full, rather than as an abstract.", 0, 100),
    _recall("prefer_abstract", False, "Never read the whole."),
    _recall("resources", False, "Recall documents as well."),
    Field(
        "recall_user_memory",
        bool,
        True,
        "At the default profile's terminal: also what others keep there.",
        advanced=True,
    ),
    FILE_FOLDERS,
    Field("timeout", float, 15.0, "Seconds to wait for an answer.", minimum=0.1, maximum=55.0, advanced=True),
    Field(
        "start_server", bool, False, "Start a server on this machine when none answers; stop it at the end."
    ),
    START_TIMEOUT,
    Field("server_command", str, "openviking-server", "Program of that server.", when=_LOCAL, advanced=True),
    Field("server_config", str, "", "Its ov.conf; empty: where it looks itself.", when=_LOCAL, advanced=True),
)

_FROM_FILE = {
    "endpoint": ("url",),
    "api_key": ("api_key", "root_api_key"),
    "account": ("account", "account_id"),
    "user": ("user", "user_id"),
    "agent": ("actor_peer_id", "agent_id"),
}
"""Our names, and the keys of ovcli.conf that stand for them."""


@dataclass(frozen=True, slots=True)
class Server:
    """The server's address, and our account and user there. The key does not show in the `repr`."""

    endpoint: str
    api_key: str
    account: str
    user: str
    agent: str

    def __repr__(self) -> str:
        return (
            f"Server({self.endpoint!r}, account={self.account!r}, user={self.user!r}, agent={self.agent!r})"
        )


def server_of(options: Settings) -> Server:
    """Return the server that the settings and ovcli.conf name. Raises `ConfigError`."""
    filed = read_ovcli(options) if options.use_ovcli_config else {}
    chosen = {}
    for name, keys in _FROM_FILE.items():
        value = getattr(options, name) or ""
        if options.source(name) == "default":
            value = next((str(filed[key]) for key in keys if filed.get(key)), value)
        chosen[name] = value
    return Server(**chosen)


def ovcli_path(options: Settings) -> Path:
    """Return the path of ovcli.conf."""
    return Path(options.ovcli_config_path).expanduser()


def read_ovcli(options: Settings) -> dict[str, Any]:
    """Return the contents of ovcli.conf. Raises `ConfigError` if it is missing or no JSON object."""
    path = ovcli_path(options)
    try:
        data = json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError) as exc:
        raise ConfigError(
            f"can't read {str(path)!r}: {exc}", "correct it, or set use_ovcli_config to false"
        ) from exc
    if not isinstance(data, dict):
        raise ConfigError(f"{str(path)!r} holds {type(data).__name__!r}", "it has to be a JSON object")
    return data
