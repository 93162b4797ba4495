"""What hypothesis tries is judged by what it does, never by the clock: a busy machine fails no test."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "behaviour", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("behaviour")
