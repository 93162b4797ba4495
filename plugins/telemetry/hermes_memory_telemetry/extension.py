"""Entry module of the extension `telemetry`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl


@hookimpl
def make_tracer(config: Any) -> Any:
    """Return the telemetry that `telemetry.content` of config.yaml asks for."""
    # Imported here: most homes have telemetry off.
    from hermes_memory_telemetry.telemetry import Telemetry

    return Telemetry(content=config.content)
