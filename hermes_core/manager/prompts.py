"""The texts of providers for the system prompt, which are frozen for each session."""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable

from hermes_core.contract.values import Session
from hermes_core.manager.providers import ProviderHandle, ProviderRegistry
from hermes_core.manager.worker import PendingCall
from hermes_core.safety.fence import sanitize_context
from hermes_core.safety.templates import without_turns
from hermes_core.stopping import stopped

log = logging.getLogger(__name__)

# Characters that a provider may put into a prompt at once, as its block or for a summary: about 8,000
# tokens.
MAX_PROMPT_CHARS = 32_000

# Sessions whose system prompt is kept frozen, a few kilobytes each.
MAX_FROZEN_PROMPTS = 4096


class SystemPrompts:
    """The blocks of all providers for the system prompts of sessions. The text of a session is frozen."""

    def __init__(self, registry: ProviderRegistry) -> None:
        self._registry = registry
        # By owner as well: before its first turn, two users may have a session of one id.
        self._frozen: OrderedDict[tuple[str, str], str] = OrderedDict()
        # Turns of several threads freeze prompts.
        self._lock = threading.Lock()

    def get(self, session: Session) -> str | None:
        """Return the frozen text of a session, which may be empty; None if there is none in this process."""
        with self._lock:
            return self._frozen.get((session.id, session.owner))

    def build(self, session: Session, *, replace: bool) -> str:
        """Ask the providers for their blocks, freeze them, joined by a blank line, and return the frozen text.

        Args:
            replace: False to keep the text that another thread froze meanwhile.
        """
        calls = []
        for handle in self._registry.implementing("system_prompt_block"):
            instance = handle.instance(session, wait=True)
            calls.append((handle, instance.submit("system_prompt_block", {"session": session})))
        return self.freeze(session, joined_texts(calls, label=True), replace=replace)

    def freeze(self, session: Session, text: str, *, replace: bool = True) -> str:
        """Freeze a text for a session, such as the stored prompt of a session that another process began. Return it."""
        if stopped():  # the wait for a provider was cut short, so its block may be missing
            return text
        key = (session.id, session.owner)
        with self._lock:
            if replace or key not in self._frozen:
                self._frozen[key] = text
            self._frozen.move_to_end(key)
            if len(self._frozen) > MAX_FROZEN_PROMPTS:
                self._frozen.popitem(last=False)
            return self._frozen[key]

    def forget(self, session_id: str) -> None:
        """Drop the texts of a deleted session."""
        with self._lock:
            for key in [key for key in self._frozen if key[0] == session_id]:
                del self._frozen[key]


def joined_texts(calls: Iterable[tuple[ProviderHandle, PendingCall]], *, label: bool = False) -> str:
    """Wait for calls that return text for a prompt, and return their texts, joined by blank lines.

    The person installed the provider, so that its text stays. Fences and turns in it are removed, and what the safety
    scan finds is a warning.

    Args:
        label: True to begin each text of an external provider with its name.
    """
    texts = []
    for handle, call in calls:
        text = without_turns(call.wait().value or "").strip()
        if not handle.builtin:
            text = sanitize_context(text).strip()
        if len(text) > MAX_PROMPT_CHARS and not handle.builtin:
            log.warning(
                "%s: %d characters for a prompt are cut to %d", handle.name, len(text), MAX_PROMPT_CHARS
            )
            text = text[:MAX_PROMPT_CHARS]
        if label and not handle.builtin:
            handle.warn_of_threats("prompt block", text)
            for schema in handle.schemas:
                handle.warn_of_threats(f"tool {schema['name']!r}", json.dumps(schema, ensure_ascii=False))
        if text and label and not handle.builtin:
            text = f"[The memory provider {handle.name} says:]\n{text}"
        texts.append(text)
    return "\n\n".join(filter(None, texts))
