"""The first hour with an empty backend: doctor, status, the first turn and the first call of each tool must be clean.

    assert fresh_faults(home, "honcho", {"honcho_context": {}}) == []

"Nothing there yet" is a healthy answer. A provider that takes it for a failure shows here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hermes_core import HermesHome, open_memory
from hermes_core.health.doctor import examine
from hermes_core.health.status import status_of

MESSAGE = "What do you remember about the tortoise that I told you of last spring?"
"""No small talk, so that providers recall for it."""


def fresh_faults(
    home: HermesHome, provider: str, tools: Mapping[str, Mapping[str, Any]], *, user_id: str = ""
) -> list[str]:
    """Return what a person meets in the first hour that is not clean, a sentence each; the backend must be empty.

    Args:
        home: A home with the settings of the provider, which is selected here.
        provider: Name of the provider.
        tools: Arguments by the name of the tool, for each tool that is called.
        user_id: Somebody of a gateway; default: the person at home.
    """
    # A machine that has much else to do is no fault of an empty backend.
    home.config_yaml.write_text(f"memory:\n  provider: {provider}\nrecall:\n  deadline: 30\n")
    for settings in home.path.glob("*.json"):
        settings.chmod(0o600)  # as `memory setup` leaves it
    faults = []
    with open_memory(home) as memory:
        chat = memory.conversation(user_id=user_id, platform="telegram" if user_id else "cli")
        # The first import of an SDK may take longer than the start of a session waits.
        memory.manager.initialize_all(chat.session, wait=60.0)
        for name, arguments in tools.items():
            turn = chat.turn(MESSAGE)
            faults += [f"turn: {problem}" for problem in turn.problems if provider in problem.casefold()]
            answer = turn.call_tool(name, dict(arguments))
            if not answer.ok:
                faults.append(f"tool {name}: {answer.text}")
            turn.cancel()
        turn = chat.turn(MESSAGE)
        turn.finish("I remember none yet.")
        memory.manager.flush(30.0)
        faults += [
            f"health: {one.reason}" for one in memory.manager.health() if one.name == provider and one.reason
        ]
    faults += [f"status: {problem}" for problem in status_of(home).problems]
    for finding in examine(home).findings:
        if finding.failed or (finding.state == "warning" and provider in finding.what):
            faults.append(f"doctor: {finding.what}: {finding.detail}; {finding.remedy}")
    return faults
