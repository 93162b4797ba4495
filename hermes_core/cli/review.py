"""`hermes-memory review`: a person confirms or rejects the notes that nobody said."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click
from msgspec import Struct, field

from hermes_core.actions.approval import Approval, WaitingItem, named_item
from hermes_core.actions.notes import deliver, session_of_user
from hermes_core.cli.options import with_memory
from hermes_core.cli.output import finish, moment, print_result, print_styled, wants_json
from hermes_core.contract.extensions import PartItem
from hermes_core.contract.values import ORIGIN_NAMES, Origin, Session
from hermes_core.curated.store import Notes
from hermes_core.curated.waiting import (
    WaitingNote,
    waiting_sentence,
)
from hermes_core.memory import Memory
from hermes_core.noted import drop_expired
from hermes_core.safety.origin import LOW_ORIGINS
from hermes_core.safety.terminal import escape_hidden, printable


class ReviewReport(Struct):
    """The result of a review: handles of what was accepted and rejected, what still waits, and sentences on what expired."""

    accepted: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    waiting: list[WaitingNote] = field(default_factory=list)
    parts: dict[str, list[PartItem]] = field(default_factory=dict)
    accepted_origins: list[str] = field(default_factory=list)
    expired: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON data: the fields, with a list for each part under its own name."""
        names = ("accepted", "rejected", "waiting", "accepted_origins", "expired")
        return {**{name: getattr(self, name) for name in names}, **self.parts}


@click.command()
@click.option(
    "--accept", "accept", multiple=True, metavar="HANDLE", help="Confirm this note or skill; may be repeated."
)
@click.option(
    "--reject", "reject", multiple=True, metavar="HANDLE", help="Remove this note or skill; may be repeated."
)
@click.option("--accept-all", is_flag=True, help="Confirm every note and skill that waits.")
@click.option(
    "--always",
    type=click.Choice(LOW_ORIGINS),
    help="Accept all notes from this origin, also later ones, without looking.",
)
@with_memory(provider=None, user=True, begins=False)
def review(
    opened: Memory,
    session: Session,
    accept: tuple[str, ...],
    reject: tuple[str, ...],
    accept_all: bool,
    always: Origin | None,
) -> None:
    """Show notes and skills that come from a tool, a web page, an import, a provider or another user; confirm or reject them.

    Until then such notes are data for the model and stand in no system prompt, and such skills are in no list. In a
    terminal each is shown and asked about. Without one, they are only listed, unless an option says what to do with them.
    """
    if accept_all and (accept or reject):
        raise click.UsageError("--accept-all leaves no note for --accept and --reject")
    acts = bool(accept or reject or accept_all or always)
    store = opened.curated.of(session)
    step = ReviewDialog(opened, store, session, quiet=wants_json())
    days = opened.config.memory.waiting_days
    for sentence in drop_expired(store, store.read().waiting_notes(), session, days):
        step.report.expired.append(sentence)
        if not wants_json():
            click.echo(printable(sentence))
    if always:
        step.always(always)
    if acts:
        step.act(accept, reject, accept_all=accept_all)
    elif not wants_json():
        step.ask() if is_interactive() else step.list()
    step.finish()
    late = deliver(opened, session) if step.report.rejected or step.report.expired else ""
    others = "" if session.owner else _others(opened)
    print_result(step.report.to_dict(), lambda: click.echo(printable(others), nl=bool(others)))
    finish(click.get_current_context(), [*filter(None, [late]), *opened.problems(session)])


def is_interactive() -> bool:
    """Return True if a person can answer questions."""
    return sys.stdin.isatty()


class ReviewDialog:
    """The steps of a review of one owner's notes and skills.

    Attributes:
        report: What was done so far.
    """

    def __init__(self, memory: Memory, store: Notes, session: Session, *, quiet: bool = False) -> None:
        self.store, self.report = store, ReviewReport()
        self._memory, self._quiet = memory, quiet
        self._approval = Approval(memory, store, session)

    def always(self, origin: Origin) -> None:
        """Accept all notes of this origin from now on."""
        sentence = self._approval.accept_origin(origin)
        self.report.accepted_origins = self._approval.accepted_origins
        self._say(sentence)

    def waiting(self) -> list[WaitingItem]:
        """Return the notes and skills that wait, without those of an origin that this review accepts always."""
        return self._approval.waiting()

    def act(self, accept: Iterable[str], reject: Iterable[str], *, accept_all: bool) -> None:
        """Confirm and remove what these handles name. If one of them names nothing, do nothing."""
        items = self.waiting()
        chosen = items if accept_all else [named_item(items, handle) for handle in accept]
        unwanted = [named_item(items, handle) for handle in reject]
        for item in chosen if not self._quiet else ():
            self.show(item)
        self.accept(chosen)
        self.reject(unwanted)

    def accept(self, items: Sequence[WaitingItem]) -> None:
        """Confirm the texts of notes and skills as they were shown."""
        for sentence in self._approval.accept_all(items):
            self._say(sentence)
        self.report.accepted += [item.handle for item in items]

    def reject(self, items: Sequence[WaitingItem]) -> None:
        """Remove notes and skills."""
        for item in items:
            sentence = self._approval.reject(item)
            self.report.rejected.append(item.handle)
            self._say(sentence)

    def show(self, item: WaitingItem, number: str = "") -> None:
        """Print a note or skill with all that a person needs to judge it."""
        parts = [f"from {ORIGIN_NAMES[item.origin]}"]
        if isinstance(item, PartItem):
            name, lines, flag = f"{item.noun} {item.name}", item.text.split("\n"), ""
        else:
            name, lines, flag = item.target, item.diff(), item.flag
            parts += [moment(item.at), f"session {item.session}" if item.session else ""]
            parts += [f"change {item.change}" if item.change is not None else ""]
        click.echo()
        source = printable(", ".join(filter(None, parts)))
        print_styled((f"{number}{printable(name)}  {item.handle}", "bold"), f"  {source}")
        for line in lines:
            print_styled(f"  {escape_hidden(line)}")
        if flag:
            print_styled((f"  the safety scan: {printable(flag)}", "yellow"))

    def list(self) -> None:
        """Print what waits by where it comes from, and how to act on it."""
        items = self.waiting()
        for group in groups_of(items):
            self._show_group(group)
        if items:
            click.echo("\nConfirm with --accept HANDLE or --accept-all, remove with --reject HANDLE.")
        else:
            self._say_nothing_waits()

    def ask(self) -> None:
        """Show what waits by where it comes from, and ask what to do with each group or with each note and skill of it."""
        items = self.waiting()
        if not items:
            self._say_nothing_waits()
        for group in groups_of(items):
            if group[0].origin not in self.report.accepted_origins:
                self._show_group(group)
                if not self._ask_of(group):
                    return

    def _ask_of(self, group: Sequence[WaitingItem]) -> bool:
        """Ask what to do with the notes and skills of a group. Return False if the person quits."""
        source = ORIGIN_NAMES[group[0].origin]
        for place, item in enumerate(group):
            rest = group[place:]
            many = f"; [A]ccept, [R]eject, [S]kip all {len(rest)}" if len(rest) > 1 else ""
            if place:
                self.show(item, f"{place + 1} of {len(group)}  ")
            answer: str = click.prompt(
                f"[a]ccept, [r]eject, [s]kip{f' the first of {len(rest)}' if many and not place else ''}{many}; "
                f"a[l]ways accept from {source}, [q]uit",
                type=click.Choice(["a", "r", "s", "l", "q", *("ARS" if many else "")]),
                default="s",
                show_choices=False,
            )
            if answer in "aA":
                self.accept(rest if answer == "A" else [item])
            elif answer in "rR":
                self.reject(rest if answer == "R" else [item])
            elif answer == "l":
                self.always(item.origin)
            if answer in "ARSlq":
                return answer != "q"
        return True

    def _show_group(self, group: Sequence[WaitingItem]) -> None:
        if len(group) > 1:
            first = group[0]
            session = "" if isinstance(first, PartItem) or not first.session else f", session {first.session}"
            click.echo(printable(f"\n{len(group)} from {ORIGIN_NAMES[first.origin]}{session}:"))
        for place, item in enumerate(group, 1):
            self.show(item, f"{place} of {len(group)}  ")

    def finish(self) -> None:
        """Put what still waits into the report."""
        self.report.parts = {name: [] for name in self._approval.parts}
        for item in self.waiting():
            if isinstance(item, PartItem):
                self.report.parts[self._approval.name_of(item)].append(item)
            else:
                self.report.waiting.append(item)

    def _say_nothing_waits(self) -> None:
        trust = self._memory.config.memory.trust
        click.echo("Nothing waits: memory.trust is open." if trust == "open" else "Nothing waits.")

    def _say(self, text: str) -> None:
        if not self._quiet:
            click.echo(printable(text))


def groups_of(items: Sequence[WaitingItem]) -> list[list[WaitingItem]]:
    """Return notes and skills by where they come from: their origin, and for notes the session."""
    groups: dict[tuple[str, str], list[WaitingItem]] = {}
    for item in items:
        session = "" if isinstance(item, PartItem) else item.session
        groups.setdefault((item.origin, session), []).append(item)
    return [*groups.values()]


def _others(memory: Memory) -> str:
    """Return a sentence that names the users whose notes wait; "" for none."""
    sentences = []
    if memory.config.memory.per_user:
        for owner in memory.curated.places.owners():
            session = session_of_user(memory, owner)
            if not session.owner:  # `identity.owners` names this user: the notes of the home are theirs
                continue
            store = memory.curated.of(session)
            if sentence := waiting_sentence([note.origin.origin for note in store.read().waiting_notes()]):
                sentences.append(f"{sentence} in the memory of {owner}: hermes-memory review --user {owner}")
    return "\n".join(sentences)
