"""The costs: the tokens that memory added to requests on each day, and the share of the input from a cache."""

from __future__ import annotations

from hermes_core.sessions.daily_usage import daily_usage
from hermes_memory_ui.answers import Page, PageRequest
from hermes_memory_ui.drawings import bars
from hermes_memory_ui.site import Site

DAYS = 30


def show(site: Site, request: PageRequest) -> Page:
    """Show the last days with turns."""
    del request
    usages = daily_usage(site.memory.sessions.database, user=site.owner, days=DAYS)
    injected = [(usage.day, float(usage.recall_tokens + usage.prompt_tokens)) for usage in usages]
    shares = [(usage.day, 100 * usage.cache_share) for usage in usages if usage.cache_share is not None]
    return Page(
        "costs.html",
        {
            "usages": usages[::-1],
            "injected": bars("Tokens of memory in requests, by day", injected, "tokens") if injected else "",
            "cached": bars("Share of the input from the cache, by day", shares, "%", top=100)
            if shares
            else "",
        },
    )
