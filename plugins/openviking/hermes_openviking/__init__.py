"""Memory on an OpenViking server, over HTTP; nothing of OpenViking itself is imported."""

from __future__ import annotations

from hermes_openviking.provider import OpenVikingProvider

__all__ = ["OpenVikingProvider"]
