"""The providers with their states, the latency of the active one, and the writes that wait for one."""

from __future__ import annotations

from hermes_core.actions.dead_letters import chosen_rows, delete_rows, retry_rows
from hermes_core.errors import ConfigError
from hermes_core.health.provider import hook_records
from hermes_core.outbox.rows import Row
from hermes_memory_ui.answers import Page, PageRequest, Redirect
from hermes_memory_ui.site import Site, address

MAX_ROWS = 50


def show(site: Site, request: PageRequest) -> Page:
    """Show the providers and the outbox, its dead letters first, a page at a time."""
    memory, outbox = site.memory, site.memory.manager.outbox
    health = {report.name: report for report in memory.manager.health() if report.name != "builtin"}
    rows: list[Row] = []
    after, waiting = request.number("after", 0) or 0, request.query.get("waiting") == "1"
    if not site.owner:
        if not waiting:
            rows = outbox.dead_letters(limit=MAX_ROWS + 1, after=after)
        rows += outbox.pending(limit=MAX_ROWS + 1 - len(rows), after=after if waiting else 0)
    last = rows[MAX_ROWS - 1] if len(rows) > MAX_ROWS else None
    more = None
    if last is not None:
        more = address("/providers", after=last.number, waiting="1" if last.state == "pending" else "")
    backlogs = outbox.backlogs()
    return Page(
        "providers.html",
        {
            "entries": [entry for entry in memory.providers() if entry.state != "shadowed"],
            "health": health,
            "hooks": {name: hook_records(memory.home, name, report.hooks) for name, report in health.items()},
            "selected": memory.config.memory.provider,
            "rows": rows[:MAX_ROWS],
            "more": more,
            "count": sum(backlog.depth + backlog.dead_letters for backlog in backlogs.values()),
            "of_user": bool(site.owner),
        },
    )


def retry(site: Site, request: PageRequest) -> Redirect:
    """Try a dead letter again."""
    _require_home(site)
    sentence, again = retry_rows(site.memory, chosen_rows(site.memory, [request.required_number("row")]))
    return Redirect("/providers", "\n".join([sentence, *again]), failed=bool(again))


def ask_drop(site: Site, request: PageRequest) -> Page:
    """Show the row that would be dropped."""
    _require_home(site)
    number = request.required_number("row")
    chosen_rows(site.memory, [number], waiting=True)
    return Page("drop.html", {"row": number})


def drop(site: Site, request: PageRequest) -> Redirect:
    """Delete a row; the provider never sees it."""
    _require_home(site)
    rows = chosen_rows(site.memory, [request.required_number("row")], waiting=True)
    return Redirect("/providers", delete_rows(site.memory, rows))


def _require_home(site: Site) -> None:
    """Raise `ConfigError` on a page of one user: the outbox holds writes of all users."""
    if site.owner:
        raise ConfigError("the outbox holds writes of all users", "start hermes-memory ui without --user")
