"""The settings, with the names that `honcho.json` has had since Hermes Agent, and values derived from them."""

from __future__ import annotations

from typing import Any

from hermes_core import Field
from hermes_core.kit import ConfigError, Settings
from hermes_core.kit.http import base_url

NAME = "honcho"
KEY = "HONCHO_API_KEY"
CLOUD = "https://api.honcho.dev"
LOCAL = "http://localhost:8000"
LEVELS = ("minimal", "low", "medium", "high", "max")
MODES = ("hybrid", "context", "tools")
STRATEGIES = ("per-session", "per-directory", "per-repo", "global")
MAX_MESSAGE_CHARS = 25_000
"""Characters of one message that Honcho takes."""

SETTINGS = (
    Field("baseUrl", str, "", "Address of your own server; empty: Honcho's cloud.", env="HONCHO_BASE_URL", identity=True),
    Field("environment", str, "production", "Server when there is no baseUrl: the cloud, or localhost:8000.",
          choices=("production", "local"), env="HONCHO_ENVIRONMENT", identity=True, advanced=True),
    Field("apiKey", env=KEY, secret=True, required=True, help="Key of the workspace or account.",
          url="https://app.honcho.dev", when={"baseUrl": "", "environment": "production"}),
    Field("workspace", str, "", "Workspace in Honcho; empty: hermes, in a profile hermes_<profile>.", identity=True),
    Field("peerName", str, "", "Your name in Honcho; empty: user.", identity=True),
    Field("aiPeer", str, "", "The agent's name in Honcho; empty: as the workspace.", identity=True, advanced=True),
    Field("recallMode", str, "hybrid", "hybrid: recall and tools; context: recall alone; tools: tools alone.",
          choices=(*MODES, "auto")),
    Field("sessionStrategy", str, "per-session", "What shares a session in Honcho.", choices=STRATEGIES),
    Field("saveMessages", bool, True, "Send what is said. Off: only conclusions are kept."),
    Field("writeFrequency", str, "async", "When turns are sent: async or turn, session, or after so many turns."),
    Field("observationMode", str, "directional", "unified: the agent watches you and has no image of itself.",
          choices=("directional", "unified")),
    Field("contextCadence", int, 1, "Turns from one look at what Honcho knows to the next.", minimum=1),
    Field("dialecticCadence", int, 1, "Turns from one question to Honcho's reasoning to the next.", minimum=1),
    Field("dialecticReasoningLevel", str, "low", "How hard Honcho thinks about it.", choices=LEVELS),
    Field("enabled", bool, True, "Off: Honcho is left alone.", advanced=True),
    Field("timeout", float, 30.0, "Seconds for one answer.", minimum=1, maximum=50, clamp=True,
          env="HONCHO_TIMEOUT", aliases=("requestTimeout",), advanced=True),
    Field("injectionFrequency", str, "every-turn", "When what Honcho knows is recalled.",
          choices=("every-turn", "first-turn"), advanced=True),
    Field("contextTokens", int, help="Tokens of recall at most; empty: the host's budget.", minimum=50, advanced=True),
    Field("searchMaxDistance", float, 0.8, "Conclusions farther from the message are no match; 0 is the same text.",
          minimum=0, maximum=1, advanced=True),
    Field("firstTurnBaseWait", float, 3.0, "Seconds that a turn waits for what Honcho knows; 0: the first does not.",
          minimum=0, maximum=30, clamp=True, advanced=True),
    Field("firstTurnDialecticWait", float, 2.0, "Seconds that the first turn waits for Honcho's reasoning.",
          minimum=0, maximum=30, clamp=True, advanced=True),
    Field("dialecticDepth", int, 1, "Rounds of reasoning.", minimum=1, maximum=3, clamp=True, advanced=True),
    Field("dialecticDepthLevels", list, help="Level of each round; empty: by depth.", advanced=True),
    Field("reasoningHeuristic", bool, True, "Think harder about long messages.", advanced=True),
    Field("reasoningLevelCap", str, "high", "But not harder than this.", choices=LEVELS, advanced=True),
    Field("dialecticDynamic", bool, True, "Let the model choose the level in honcho_reasoning.", advanced=True),
    Field("dialecticMaxChars", int, 600, "Characters of reasoning that are recalled.", minimum=50, advanced=True),
    Field("dialecticMaxInputChars", int, 10_000, "Characters of a question.", minimum=100, maximum=10_000, advanced=True),
    Field("messageMaxChars", int, MAX_MESSAGE_CHARS, "Longer messages are sent in parts.", minimum=100,
          maximum=MAX_MESSAGE_CHARS, advanced=True),
    Field("observation", dict, help="observeMe and observeOthers of user and ai, over observationMode.", advanced=True),
    Field("pinUserPeer", bool, False, "All users of a gateway are you.", identity=True, aliases=("pinPeerName",),
          advanced=True),
    Field("userPeerAliases", dict, help="Name in Honcho by platform:id or id of a user.", identity=True, advanced=True),
    Field("runtimePeerPrefix", str, help="Put before a user's id instead of the platform.", identity=True, advanced=True),
    Field("sessionPeerPrefix", bool, False, "Put your name before the session's.", advanced=True),
    Field("sessions", dict, help="Session in Honcho by folder.", advanced=True),
)  # fmt: skip


def address(options: Settings) -> str:
    """Return the server's address without a version at the end of its path, which the SDK adds itself."""
    url = str(options.baseUrl or (LOCAL if options.environment == "local" else CLOUD)).rstrip("/")
    head, _, tail = url.rpartition("/")
    return head if tail.startswith("v") and tail[1:].isdigit() else url


def turns_a_batch(options: Settings) -> int:
    """Return after how many turns they are sent: 1, a number, or 0 for the end of the session. Raises `ConfigError`."""
    chosen = str(options.writeFrequency).strip().lower()
    if chosen in ("async", "turn"):
        return 1
    if chosen == "session":
        return 0
    if chosen.isdecimal() and int(chosen):
        return int(chosen)
    raise ConfigError(
        f"'writeFrequency' is {options.writeFrequency!r}",
        "write 'async', 'turn', 'session' or a number of turns",
    )


def rounds(options: Settings) -> list[str]:
    """Return the level of each round of reasoning. Raises `ConfigError` for an unknown level."""
    base = options.dialecticReasoningLevel
    usual = {1: [base], 2: ["minimal", base], 3: ["minimal", base, "low"]}[options.dialecticDepth]
    chosen = [*(options.dialecticDepthLevels or [])][: len(usual)]
    if strange := [level for level in chosen if level not in LEVELS]:
        raise ConfigError(
            f"'dialecticDepthLevels' holds {strange[0]!r}", f"write some of {', '.join(LEVELS)}"
        )
    return [*chosen, *usual[len(chosen) :]]


def observed(options: Settings) -> dict[str, tuple[bool, bool]]:
    """Return (observe me, observe others) of "user" and "ai" in every session. Raises `ConfigError`.

    Users observe nobody unless `observation` says so: nothing here asks for what they observed, and Honcho allows ten
    observers in a session, which a group chat soon has.
    """
    flags = {"user": (True, False), "ai": (options.observationMode != "unified", True)}
    for who, given in (options.observation or {}).items():
        if who not in flags or not isinstance(given, dict) or given.keys() - {"observeMe", "observeOthers"}:
            raise ConfigError(
                f"'observation' holds {who!r}: {given!r}",
                "write observeMe and observeOthers under user and ai",
            )
        flags[who] = (_flag(given, "observeMe", flags[who][0]), _flag(given, "observeOthers", flags[who][1]))
    return flags


def validate(options: Settings) -> None:
    """Raise `ConfigError` for what a single field can't tell."""
    if options.baseUrl:
        base_url(options.baseUrl, "'baseUrl'")
    turns_a_batch(options)
    rounds(options)
    observed(options)


def _flag(given: dict[str, Any], name: str, default: bool) -> bool:
    value = given.get(name, default)
    if not isinstance(value, bool):
        raise ConfigError(f"'observation' has {name} as {value!r}", "write true or false")
    return value
