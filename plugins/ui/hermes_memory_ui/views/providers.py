"""The providers with their states, the latency of the active one, and the writes that wait for one."""

from __future__ import annotations

from hermes_core import load_provider
from hermes_core.actions.dead_letters import chosen_rows, delete_rows, retry_rows
from hermes_core.config import Credentials, load_config
from hermes_core.errors import ConfigError, HermesError
from hermes_core.health.provider import hook_records
from hermes_core.kit import redact
from hermes_core.outbox.rows import Row
from hermes_core.setup.answers import persist, require_complete, select_provider
from hermes_core.setup.candidate import missing_extras, questions, try_out
from hermes_memory_ui.answers import Page, PageRequest, Redirect, question
from hermes_memory_ui.site import Site, address
from hermes_memory_ui.views.settings import NEXT_START, require_home, shown_value

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
        more = site.link("/providers", after=last.number, waiting="1" if last.state == "pending" else "")
    backlogs = outbox.backlogs()
    return Page(
        "providers.html",
        {
            "entries": [entry for entry in memory.internals.selection.entries() if entry.state != "shadowed"],
            "health": health,
            "hooks": {name: hook_records(memory.home, name, report.hooks) for name, report in health.items()},
            "selected": load_config(memory.home).memory.provider,
            "rows": rows[:MAX_ROWS],
            "more": more,
            "count": sum(backlog.depth + backlog.dead_letters for backlog in backlogs.values()),
            "of_user": bool(site.owner),
        },
    )


def show_one(site: Site, request: PageRequest) -> Page:
    """Show what a provider is, and its settings with their meaning."""
    require_home(site)
    home, name = site.memory.home, request.query.get("name", "")
    entries = site.memory.internals.selection.entries()
    entry = next((one for one in entries if one.name == name and one.state != "shadowed"), None)
    if entry is None:
        raise ConfigError(f"there is no provider {name!r}", "the page of the providers lists all")
    command, reason, rows = f"hermes-memory memory setup {name}", "", []
    try:
        if site.read_only or not entry.installed or entry.kind == "hermes_agent":
            reason = "This page can't do that."
        else:
            known, keys = questions(home, load_provider(name, home)), Credentials(home)
            rows = [
                {
                    "field": field,
                    "value": ""
                    if field.secret
                    else shown_value(known.value(field.name) or known.default(field)),
                    "known": keys.masked(field.env) if field.secret and field.env else "",
                }
                for field in known.fields
                if not (field.secret and not field.env)
            ]
            command = ""
    except HermesError as exc:
        reason = f"{exc}."
    return Page("provider.html", {"entry": entry, "command": command, "reason": reason, "rows": rows})


def set_up(site: Site, request: PageRequest) -> Redirect:
    """Save the settings of a provider, try it, and choose it if it works."""
    require_home(site)
    home, name = site.memory.home, request.form.get("name", "")
    try:
        loaded = load_provider(name, home)
        given = questions(home, loaded)
        for field in given.fields:
            text = request.form.get(f"set.{field.name}", "").strip()
            if text and text != shown_value(given.value(field.name)):
                given.give(field.name, text)
        given.settle()
        require_complete(given, name)
        if missing := missing_extras(loaded, given):
            raise ConfigError(f"it needs {' and '.join(missing)}", f"run hermes-memory memory setup {name}")
        persist(home, name, given, loaded.factory())
    except HermesError as exc:
        return Redirect(address("/provider", name=name), redact(str(exc)), failed=True)
    findings = try_out(home, loaded)
    text = "\n".join(": ".join(filter(None, (one.what, one.detail, one.remedy))) for one in findings)
    if any(one.state == "failed" for one in findings):
        return Redirect(address("/provider", name=name), text, failed=True)
    select_provider(home, name)
    return Redirect("/providers", f"{text}\n{name} is chosen. {NEXT_START}")


def choose_none(site: Site, request: PageRequest) -> Redirect:
    """Use no provider. What it holds stays there."""
    del request
    require_home(site)
    select_provider(site.memory.home, "")
    return Redirect("/providers", f"No provider is chosen. {NEXT_START}")


def retry(site: Site, request: PageRequest) -> Redirect:
    """Try a dead letter again."""
    require_home(site)
    sentence, again = retry_rows(site.memory, chosen_rows(site.memory, [request.required_number("row")]))
    return Redirect("/providers", "\n".join([sentence, *again]), failed=bool(again))


def ask_drop(site: Site, request: PageRequest) -> Page:
    """Show the row that would be dropped."""
    require_home(site)
    number = request.required_number("row")
    chosen_rows(site.memory, [number], waiting=True)
    return question(
        f"Delete row {number}?",
        "The provider will never see this write.",
        ("/outbox/drop/confirmed", "Delete it", {"row": number}),
        "/providers",
    )


def drop(site: Site, request: PageRequest) -> Redirect:
    """Delete a row; the provider never sees it."""
    require_home(site)
    rows = chosen_rows(site.memory, [request.required_number("row")], waiting=True)
    return Redirect("/providers", delete_rows(site.memory, rows))
