"""Hindsight inside Hermes Agent, where `memory.provider` names it "core-hindsight"."""

from __future__ import annotations

from hermes_core import register_in_hermes_agent


def register(ctx: object) -> None:
    """Enter Hermes Agent as its memory provider; its entry point leads here."""
    register_in_hermes_agent(ctx, "hindsight")
