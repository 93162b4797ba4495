"""Type of a threat rule, and the categories that rules belong to."""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """Pattern of the threat scan.

    `needs` are words separated by spaces; `pattern` is tried only if one of them stands in the text ("" tries it
    always). `view` names the reading of the text that `pattern` is tried on: "plain" is lower case without disguise,
    "visible" keeps the script of the text, "unlatin" is "visible" if it holds more than ASCII, "letters" holds nothing
    but the letters.
    """

    id: str
    category: str
    needs: str
    pattern: str
    view: str = "plain"


CATEGORIES = {  # what a text of the category does, as the end of a sentence
    "invisible_unicode": "holds invisible characters that can hide instructions",
    "prompt_injection": "tells the agent to disregard its instructions",
    "role_hijack": "gives the agent another role or lifts its limits",
    "role_markup": "imitates the markup of a conversation or of a system message",
    "deception": "tells the agent to hide something from the person",
    "system_override": "claims authority over the system prompt",
    "prompt_leak": "asks for the agent's own instructions",
    "exfiltration": "sends secrets or private data elsewhere",
    "remote_code": "runs code that is fetched or decoded on the spot",
    "secret_read": "reads a file of secrets",
    "secret_path": "names a file that holds the agent's own secrets",
    "ssh_backdoor": "opens a way in over SSH",
    "persistence": "makes code run again later or at every login",
    "agent_control": "lets somebody else steer the agent or switch its safeguards off",
    "hidden_markup": "hides text for the agent in markup that a person doesn't see",
}
