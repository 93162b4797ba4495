"""Honcho: a model of the person, kept by Honcho's server in the cloud or at home, asked before every turn."""

from __future__ import annotations

from hermes_honcho.provider import HonchoProvider

__all__ = ["HonchoProvider"]
