"""Extras of a package beside its provider: skills, chat commands, and hooks around the tools of the agent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from hermes_core.contract.values import Session


class ChatCommand(Struct, frozen=True):
    """A command for the chat: `run` gets the words after its name and returns the text to show."""

    description: str
    run: Callable[[str], str]


class ProviderExtras:
    """Extras that a package brings beside its provider, for the host's agent and chat. Here it is nothing.

    Attributes:
        skill_folders: Folders of skills, to be read beside the person's own.
        chat_commands: Commands for the chat, by name.
        watches_tools: True if `before_tool` and `after_tool` must be called for each tool.
    """

    skill_folders: tuple[Path, ...] = ()
    chat_commands: Mapping[str, ChatCommand] = MappingProxyType({})
    watches_tools = False

    def before_tool(self, name: str, arguments: Mapping[str, Any], session: Session) -> str:
        """Return why the tool may not run now, "" if it may."""
        del name, arguments, session
        return ""

    def after_tool(self, name: str, arguments: Mapping[str, Any], result: str, session: Session) -> str:
        """Return the result that the model gets."""
        del name, arguments, session
        return result


class CombinedExtras(ProviderExtras):
    """The extras of several packages. Of two chat commands of one name, the first package's counts."""

    def __init__(self, parts: Sequence[ProviderExtras]) -> None:
        self._parts = parts
        self.skill_folders = tuple(folder for part in parts for folder in part.skill_folders)
        self.chat_commands = {
            name: command for part in reversed(parts) for name, command in part.chat_commands.items()
        }
        self.watches_tools = any(part.watches_tools for part in parts)

    def before_tool(self, name: str, arguments: Mapping[str, Any], session: Session) -> str:
        """Return the first reason why the tool may not run now, "" if it may."""
        reasons = (part.before_tool(name, arguments, session) for part in self._parts)
        return next(filter(None, reasons), "")

    def after_tool(self, name: str, arguments: Mapping[str, Any], result: str, session: Session) -> str:
        """Return the result that the model gets, after each package has seen it."""
        for part in self._parts:
            result = part.after_tool(name, arguments, result, session)
        return result


NO_EXTRAS = ProviderExtras()
