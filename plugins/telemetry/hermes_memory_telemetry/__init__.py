"""Telemetry of a memory: OpenTelemetry spans and metrics. `telemetry.Telemetry` holds the settings."""
