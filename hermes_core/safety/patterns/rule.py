"""One rule of the threat scan, and the categories that rules belong to."""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """One pattern of the table. `view` names the reading that it is meant for, see "
    "`hermes_core.safety.views`."""

    id: str
    category: str
    needs: str
    pattern: str
    view: str = "plain"


CATEGORIES = {
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
