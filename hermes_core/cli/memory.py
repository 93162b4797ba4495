"""The commands `hermes-memory memory`: the agent's notes, and the choice of the provider.

Modules that only some commands need are imported in those commands, so that `memory status` starts quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from hermes_core.actions.notes import (
    NoteResult,
    ShownNote,
    change_note,
    deliver,
    notes_with_origins,
    pin_note,
    refusal_text,
    restore_version,
    set_field,
    source_of_change,
    undo_change,
)
from hermes_core.cli import Failure, Group, home_of
from hermes_core.cli.options import all_targets_option, home_to_read, target_option, with_memory
from hermes_core.cli.output import (
    finish,
    moment,
    print_done,
    print_result,
    print_table,
    wants_json,
    warn,
)
from hermes_core.cli.shell import complete_provider
from hermes_core.config import load_config, provider_name, set_value
from hermes_core.config.keys import COMPOSITE
from hermes_core.contract.values import ORIGIN_NAMES, MemoryTarget, Session
from hermes_core.curated.edits import preview
from hermes_core.curated.history import NoteVersion
from hermes_core.curated.waiting import waiting_sentence
from hermes_core.kit.cli import confirm, limit_option, yes_option
from hermes_core.memory import Memory
from hermes_core.safety.origin import as_origin
from hermes_core.safety.terminal import counted, hanging, printable
from hermes_core.shell_words import shell_word

if TYPE_CHECKING:
    from hermes_core.health.status import ProviderStatus, Status, StoreStatus
    from hermes_core.manager.stats import ProviderHealth


@click.group(
    cls=Group,
    lazy={
        "allow": "hermes_core.cli.allow:allow",
        "edit": "hermes_core.cli.note_editor:edit_notes",
        "setup": "hermes_core.cli.setup:setup",
    },
)
def memory() -> None:
    """Show, change and undo notes; choose the provider."""


@memory.command("show")
@click.option("--origin", "with_origin", is_flag=True, help="Show each entry with who or what it comes from.")
@with_memory(user=True, begins=False)
def show_notes(opened: Memory, session: Session, with_origin: bool) -> None:
    """Print MEMORY.md and USER.md as the next session's prompt will hold them.

    With --origin every entry is printed, also those that wait for hermes-memory review.
    """
    curated = opened.curated.of(session).read()
    broken = curated.problems
    stores = {target: curated.entries(target) for target in curated.files if target not in broken}
    withheld = curated.flagged()
    notes = {target: notes_with_origins(curated, target, entries) for target, entries in stores.items()}
    waiting = [note.origin for of_target in notes.values() for note in of_target if note.waits]
    if with_origin:
        print_result(notes, lambda: _print_origins(notes))
    else:
        text = curated.snapshot().render()
        nothing = "There are no notes yet." if stores else "The notes are switched off in config.yaml."
        if withheld:
            nothing = "No note is shown to the model."
        elif waiting:
            nothing = "No note is in the system prompt."
        print_result(stores, lambda: click.echo(printable(text) or nothing) if text or not broken else None)
    warn(one.problem for one in withheld)
    if waiting and not with_origin:
        option = f" --user {shell_word(session.owner)}" if session.owner else ""
        state = f"{'is' if len(waiting) == 1 else 'are'} in no system prompt"
        warn([f"{waiting_sentence(waiting)} and {state}: hermes-memory review{option}"])
    finish(click.get_current_context(), [str(conflict) for conflict in broken.values()])


def _print_origins(notes: Mapping[MemoryTarget, Sequence[ShownNote]]) -> None:
    rows = []
    for target, of_target in notes.items():
        for note in of_target:
            source = ORIGIN_NAMES[note.origin]
            if note.confirmed:
                source += f", who confirmed {ORIGIN_NAMES.get(as_origin(note.confirmed))}"
            states = ("pinned" if note.pinned else "", "waits for hermes-memory review" if note.waits else "")
            state = ", ".join(filter(None, states))
            rows.append((target, source, moment(note.at), note.session, note.entry, state))
    columns = ("file", "from", "when", "session", "entry", "state")
    print_table("", columns, rows, "There are no notes yet.")


@memory.command("add")
@click.argument("content")
@target_option
@with_memory(provider=None, user=True)
def add_notes(opened: Memory, session: Session, content: str, target: str) -> None:
    """Add CONTENT as an entry."""
    _say(change_note(opened, session, "add", target, content))


@memory.command("replace")
@click.argument("old_text")
@click.argument("content")
@target_option
@with_memory(provider=None, user=True, begins=False)
def replace_notes(opened: Memory, session: Session, content: str, target: str, old_text: str) -> None:
    """Replace the one entry that holds OLD_TEXT by CONTENT."""
    _say(change_note(opened, session, "replace", target, content, old_text))


@memory.command("remove")
@click.argument("old_text")
@target_option
@with_memory(provider=None, user=True, begins=False)
def remove_notes(opened: Memory, session: Session, target: str, old_text: str) -> None:
    """Remove the one entry that holds OLD_TEXT."""
    _say(change_note(opened, session, "remove", target, "", old_text))


@memory.command("pin")
@click.argument("old_text")
@click.option("--off", is_flag=True, help="Let the agent change it again.")
@target_option
@with_memory(user=True, begins=False)
def pin_notes(opened: Memory, session: Session, old_text: str, off: bool, target: str) -> None:
    """Pin the one entry that holds OLD_TEXT: only you can change or remove it, and it stands first in the prompt."""
    _say(pin_note(opened, session, target, old_text, on=not off))


@memory.command("set")
@click.argument("name")
@click.argument("value", required=False)
@with_memory(provider=None, user=True)
def set_profile_field(opened: Memory, session: Session, name: str, value: str | None) -> None:
    """Set the profile field NAME to VALUE; without VALUE, delete it.

    `memory.profile_fields` of config.yaml declares the fields. They are the first lines of USER.md.
    """
    _say(set_field(opened, session, name, value))


@memory.command("history")
@limit_option(20, 10_000)
@with_memory(user=True, begins=False)
def history_notes(opened: Memory, session: Session, limit: int) -> None:
    """List changes of the notes, the latest first."""
    changes = opened.curated.of(session).history(limit=limit)
    rows = [(c.id, moment(c.at), c.target, c.action, _summary(c), source_of_change(c)) for c in changes]
    columns = ("change", "when", "target", "action", "what", "from")
    print_result(changes, lambda: print_table("", columns, rows, "Nothing has changed yet."))


@memory.command("undo")
@click.argument("change", type=int, required=False)
@with_memory(provider=None, user=True, begins=False)
def undo_notes(opened: Memory, session: Session, change: int | None) -> None:
    """Undo the latest change, or the one with the id CHANGE."""
    _say(undo_change(opened, session, change))


@memory.command("restore")
@click.argument("change", type=int)
@with_memory(provider=None, user=True, begins=False)
def restore_notes(opened: Memory, session: Session, change: int) -> None:
    """Bring back all entries of a file as they were right after the change with the id CHANGE.

    This is a change too: `hermes-memory memory undo` takes it back.
    """
    _say(restore_version(opened, session, change))


@memory.command()
@click.pass_context
def status(ctx: click.Context) -> None:
    """Say what memory there is and whether it works. Exits with 3 when something configured does not."""
    from msgspec import structs

    from hermes_core.health.status import status_of

    with home_to_read(ctx) as home:
        report = structs.replace(status_of(home), home=str(home_of(ctx).path))
    print_result(report, lambda: _show_status(report))
    finish(ctx, report.problems)


@memory.command()
@click.argument("name", shell_complete=complete_provider)
@click.pass_context
def use(ctx: click.Context, name: str) -> None:
    """Make the provider NAME the active one, once it is known to load and to be available.

    `composite` makes the members in `composite.members` of config.yaml active together. `none`, `default`, `builtin` and
    `built-in` do what `memory off` does.
    """
    if not provider_name(name):
        ctx.invoke(off)
        return
    from hermes_core.loader.load import load_provider
    from hermes_core.manager.composite import routes_of
    from hermes_core.setup.candidate import require_available

    home = home_of(ctx)
    names = routes_of(load_config(home).composite) if name == COMPOSITE else (name,)
    chosen = [load_provider(one, home).entry.name for one in names]
    for one in chosen:
        require_available(home, one)
    set_value(home, "memory.provider", COMPOSITE if name == COMPOSITE else chosen[0])
    print_done(f"memory provider: {' and '.join(chosen)}, from the next start on", providers=chosen)


@memory.command()
@click.pass_context
def off(ctx: click.Context) -> None:
    """Switch the provider off, so that notes and past sessions remain; the provider's data stays."""
    set_value(home_of(ctx), "memory.provider", "")
    print_done("memory provider: built-in only", providers=[])


@memory.command()
@all_targets_option
@yes_option
@with_memory(provider=None, begins=False)
def reset(opened: Memory, target: str) -> None:
    """Remove every entry of the notes; hermes-memory memory undo brings them back."""
    enabled, session = opened.curated.enabled_targets, opened.local_session
    targets = [one for one in opened.curated.files.targets if target in (one, "all") and one in enabled]
    counts = {name: len(opened.curated.entries(name)) for name in targets}
    if not any(counts.values()):
        print_done("Nothing to reset.", removed=counts)
        return
    confirm(f"Remove all entries ({' and '.join(f'{n} in {name}' for name, n in counts.items() if n)})?")
    opened.manager.initialize_all(session)
    done = [opened.curated.reset(name, session=session) for name in counts]
    warn(filter(None, [*(result.get("warning") for result in done), deliver(opened, session)]))
    if refused := [refusal_text(result) for result in done if not result.get("success")]:
        finish(click.get_current_context(), [*refused, *opened.problems()], failed=True)
    each = ", one file each time" if sum(map(bool, counts.values())) > 1 else ""
    removed = counted(sum(counts.values()), "entry", "entries")
    undo = f"hermes-memory memory undo brings back what was there{each}"
    print_done(f"{removed} removed; {undo}", removed=counts)


@memory.command("prune")
@yes_option
@with_memory(user=True, begins=False)
def prune_notes(opened: Memory, session: Session) -> None:
    """Forget the history of the notes and its copies, so that what was removed is nowhere in it.

    For a secret that was removed: until then undo could bring it back. The entries of now stay. Where it was said, in
    a past conversation, `hermes-memory sessions delete` deletes that; what a provider took is in the provider's hands.
    """
    confirm("Forget all changes? None of them can be undone any more.")
    gone = opened.curated.of(session).files.prune()
    print_done(counted(gone, "change or copy is gone", "changes and copies are gone"), removed=gone)


def _summary(change: NoteVersion) -> str:
    """Return the entries that a change added and removed, shortened."""
    lines = [f"+ {preview(entry)}" for entry in change.added] + [
        f"- {preview(entry)}" for entry in change.removed
    ]
    return "\n".join(lines) + (" (undone)" if change.undone else "")


def _show_status(report: Status) -> None:
    print_table("", ("what", "state", "remark"), list(_status_rows(report)), "")
    chosen = {provider.name for provider in (*report.members, report.selected) if provider}
    others = [e.name for e in report.installed if e.installed and e.state == "idle" and e.name not in chosen]
    if others:
        click.echo(printable(f"also installed: {', '.join(others)}; hermes-memory memory setup chooses"))


def _status_rows(report: Status) -> Iterator[tuple[object, ...]]:
    from hermes_core.health.provider import age

    yield "home", report.home, f"profile {report.profile}"
    for target, store in report.builtin.items():
        yield f"{target.upper()}.md", _store_state(store), "; ".join((*_fullness(store), *store.flagged))
    waiting = report.waiting
    if waiting.count or waiting.of_users:
        review = "hermes-memory review confirms or rejects them" if waiting.count else ""
        of_users = ", ".join(f"{count} of {owner}" for owner, count in waiting.of_users.items())
        yield "notes that wait", waiting.count, "; ".join(filter(None, (review, of_users)))
    accepted = ", ".join(ORIGIN_NAMES[origin] for origin in report.trust.accepted_origins)
    yield "trust", report.trust.trust, f"accepted without a look: notes from {accepted}" if accepted else ""
    who, box, stored = report.identity, report.outbox, report.sessions
    yield "owners", ", ".join(who.owners) or "nobody on other platforms", who.remark
    for provider in report.members or (report.selected,):
        name = provider.name if provider else ""
        yield from _provider_rows(provider, next((h for h in report.health if h.name == name), None))
    oldest = f", the oldest for {age(box.oldest_age_s)}" if box.oldest_age_s is not None else ""
    pending = "can't be read" if box.waiting is None else f"{box.waiting} waiting{oldest}"
    yield "outbox", pending, counted(box.dead_letters, "dead letter") if box.dead_letters else ""
    yield from (("lease", lease.name, lease.remark) for lease in report.leases)
    if "sessions" in stored:
        search = f"by meaning: {stored['by_meaning']}" if stored["search_enabled"] else "search is off"
        there = f"{counted(stored['sessions'], 'session')}, {counted(stored['messages'], 'message')}"
        yield "sessions", there, search
    yield from (("", "warning", text) for text in (*report.config_warnings, *report.warnings))


def _provider_rows(
    provider: ProviderStatus | None, health: ProviderHealth | None
) -> Iterator[tuple[object, ...]]:
    """The selected provider, its settings with their sources, and what went wrong last."""
    if provider is None:
        yield "provider", "built-in only", ""
        return
    version = f" {provider.version}" if provider.version else ""
    where = "" if provider.installed else "not installed"
    yield f"provider {provider.name}", f"{provider.state}{version}", provider.reason or where
    if health and (health.failed or health.late):
        yield "  calls", f"{health.calls}, {health.failed} failed, {health.late} late", health.last_error
    for line in provider.settings:
        remark = line.remedy if line.missing else f"from {line.source}" if line.source else ""
        yield f"  {line.name}", line.value or ("missing" if line.missing else "not set"), remark
    for hook in provider.hooks:
        when = f"last success {moment(hook.last_success)}" if hook.last_success else "no success yet"
        yield f"  {hook.hook}", when, hook.p95
    if provider.last_taken:
        yield "  last write taken", moment(provider.last_taken), ""
    if provider.last_error:
        found = provider.last_error
        yield "  last error", f"{found.hook}, {found.at[:19].replace('T', ' ')} UTC", found.error


def _store_state(store: StoreStatus) -> str:
    if not store.enabled:
        return "off"
    if store.entries is None:
        return "can't be read"
    entries = "entry" if store.entries == 1 else "entries"
    return f"{store.entries} {entries}, {store.used:,}/{store.limit:,} chars"


def _fullness(store: StoreStatus) -> Iterator[str]:
    if store.used is not None and store.limit is not None and store.used > store.limit:
        yield "over its limit, so it takes nothing more until some entries are removed"


def _say(done: NoteResult) -> None:
    """Print what a change came to, what to do when it was refused, and end with its exit code."""
    if not (done.ok or wants_json()):
        raise Failure(done.text)
    print_result(done.result, lambda: click.echo(printable(done.text)))
    if not done.ok:  # beside the JSON, for who reads the exit code
        click.secho(f"error: {hanging(done.text)}", fg="red", err=True)
    warn(filter(None, [done.result.get("caution"), done.late]))
    finish(click.get_current_context(), done.problems, failed=not done.ok)
