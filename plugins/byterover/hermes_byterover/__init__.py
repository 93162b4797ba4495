"""ByteRover: a knowledge tree of Markdown files in the profile, curated and searched by the `brv` program."""

from __future__ import annotations

from hermes_byterover.provider import ByteRoverProvider

__all__ = ["ByteRoverProvider"]
