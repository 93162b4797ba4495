"""`hermes-memory review`: a person confirms or rejects the notes that nobody said."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

import click

from hermes_core.cli import Failure, home_of
from hermes_core.cli.memory import deliver, session_of_user, user_option
from hermes_core.cli.output import finish, json_option, moment, print_document, print_styled
from hermes_core.config import set_value
from hermes_core.contract.values import ORIGIN_NAMES, Origin, Session
from hermes_core.curated.store import MemoryStore
from hermes_core.curated.waiting import (
    WaitingNote,
    accept_notes,
    named_note,
    origins_fault,
    owners_with_notes,
    rebuild_origins,
    reject_note,
    waiting_notes,
    waiting_sentence,
)
from hermes_core.memory import Memory, open_memory
from hermes_core.safety.origin import RANKS, may_command
from hermes_core.safety.terminal import counted, hanging, printable

LOW_ORIGINS = tuple(name for name in RANKS if not may_command(name))

# Line ends and tabs change how a text looks, and nothing else.
_VISIBLE_CONTROLS = frozenset("\n\t")
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp"})


@dataclass(slots=True)
class ReviewReport:
    """The result of a review: handles of accepted and rejected notes, and the notes that still wait."""

    accepted: list[str] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    waiting: list[WaitingNote] = field(default_factory=list)
    accepted_origins: list[str] = field(default_factory=list)


@click.command()
@click.option(
    "--accept", "accept", multiple=True, metavar="HANDLE", help="Confirm this note; may be repeated."
)
@click.option(
    "--reject", "reject", multiple=True, metavar="HANDLE", help="Remove this note; may be repeated."
)
@click.option("--accept-all", is_flag=True, help="Confirm every note that waits.")
@click.option(
    "--always",
    type=click.Choice(LOW_ORIGINS),
    help="Accept all notes from this origin, also later ones, without looking.",
)
@click.option(
    "--rebuild", is_flag=True, help="Replace an unusable file of origins; all notes of this owner wait then."
)
@user_option
@json_option
@click.pass_context
def review(
    ctx: click.Context,
    accept: tuple[str, ...],
    reject: tuple[str, ...],
    accept_all: bool,
    always: Origin | None,
    rebuild: bool,
    user: str,
    as_json: bool,
) -> None:
    """Show the notes that come from a tool, a web page, an import, a provider or another user, and confirm or reject them.

    Until then they are data for the model and stand in no system prompt. In a terminal each note is shown and asked
    about. Without one, notes are only listed, unless an option says what to do with them.
    """
    if accept_all and (accept or reject):
        raise click.UsageError("--accept-all leaves no note for --accept and --reject")
    acts = bool(accept or reject or accept_all or always)
    with open_memory(home_of(ctx)) as opened:
        session = session_of_user(opened, user)
        step = ReviewDialog(opened, opened.curated.of(session), session, quiet=as_json)
        step.require_origins(rebuild=rebuild)
        if always:
            step.always(always)
        shown = waiting_notes(step.store)
        chosen = shown if accept_all else [named_note(shown, handle) for handle in accept]
        unwanted = [named_note(shown, handle) for handle in reject]
        for note in chosen if not as_json else ():
            step.show(note)
        step.accept(chosen)
        for note in unwanted:
            step.reject(note)
        if not acts and not as_json:
            step.ask(shown) if is_interactive() else step.list(shown)
        step.report.waiting = waiting_notes(step.store)
        late = deliver(opened, session) if step.report.rejected else ""
        others = "" if user else _others(opened)
        problems = opened.problems(session)
    if as_json:
        print_document(step.report)
    elif others:
        click.echo(printable(others))
    finish(ctx, [*filter(None, [late]), *problems])


def is_interactive() -> bool:
    """Return True if a person can answer questions."""
    return sys.stdin.isatty()


class ReviewDialog:
    """The steps of a review of one owner's notes.

    Attributes:
        report: What was done so far.
    """

    def __init__(self, memory: Memory, store: MemoryStore, session: Session, *, quiet: bool = False) -> None:
        self.store, self.report = store, ReviewReport()
        self._memory, self._session, self._quiet = memory, session, quiet

    def require_origins(self, *, rebuild: bool = False) -> None:
        """Rebuild an unusable file of origins if the person agrees. Raise `Failure` if not."""
        fault = origins_fault(self.store)
        if not fault:
            return
        if not rebuild and (self._quiet or not is_interactive()):
            raise Failure(f"{fault}: give --rebuild, after which all notes wait")
        if not rebuild:
            click.echo(hanging(fault))
            click.confirm("Make the file anew? All notes wait for you then.", abort=True)
        count = rebuild_origins(self.store)
        self._say(f"{counted(count, 'note')} wait now")

    def always(self, origin: Origin) -> None:
        """Accept all notes of this origin from now on."""
        origins = [*dict.fromkeys((*self._memory.config.memory.accepted_origins, origin))]
        self.report.accepted_origins = origins
        set_value(self._memory.home, "memory.accepted_origins", origins)
        self._say(
            f"notes from {ORIGIN_NAMES[origin]} are accepted from now on, without looking; "
            "hermes-memory config unset memory.accepted_origins takes that back"
        )

    def accept(self, notes: Sequence[WaitingNote]) -> None:
        """Confirm the texts of these notes, all or none."""
        accept_notes(self.store, notes)
        for note in notes:
            self.report.accepted.append(note.handle)
            self._say(f"accepted {note.handle}" + (f"; {_flag_remedy(note)}" if note.flag else ""))

    def reject(self, note: WaitingNote) -> None:
        """Remove a note."""
        result = reject_note(self.store, note, self._session)
        if not result.get("success"):
            raise Failure(f"{note.handle} was not removed: {result.get('error')}")
        self.report.rejected.append(note.handle)
        self._say(f"rejected {note.handle}; hermes-memory memory undo brings it back")

    def show(self, note: WaitingNote, number: str = "") -> None:
        """Print a note with all that a person needs to judge it."""
        when = moment(note.at)
        source = ", ".join(
            filter(
                None,
                (
                    f"from {ORIGIN_NAMES[note.origin]}",
                    when,
                    f"session {note.session}" if note.session else "",
                    f"change {note.change}" if note.change is not None else "",
                ),
            )
        )
        click.echo()
        print_styled((f"{number}{note.target}  {note.handle}", "bold"), f"  {printable(source)}")
        for line in note.diff():
            print_styled(f"  {visible(line)}")
        if note.flag:
            print_styled((f"  the safety scan: {printable(note.flag)}", "yellow"))

    def list(self, notes: Sequence[WaitingNote]) -> None:
        """Print the notes that wait, and how to act on them."""
        for note in notes:
            self.show(note)
        if notes:
            click.echo("\nConfirm with --accept HANDLE or --accept-all, remove with --reject HANDLE.")
        else:
            self._say_nothing_waits()

    def ask(self, notes: Sequence[WaitingNote]) -> None:
        """Show each note and ask what to do with it."""
        if not notes:
            self._say_nothing_waits()
        for place, note in enumerate(notes, 1):
            if note.origin in self.report.accepted_origins:
                continue
            self.show(note, f"{place} of {len(notes)}  ")
            answer = click.prompt(
                f"[a]ccept, [r]eject, a[l]ways accept from {ORIGIN_NAMES[note.origin]}, [s]kip, [q]uit",
                type=click.Choice(["a", "r", "l", "s", "q"]),
                default="s",
                show_choices=False,
            )
            if answer == "q":
                return
            if answer == "l":
                self.always(note.origin)
            elif answer == "a":
                self.accept([note])
            elif answer == "r":
                self.reject(note)

    def _say_nothing_waits(self) -> None:
        trust = self._memory.config.memory.trust
        click.echo("No note waits: memory.trust is open." if trust == "open" else "No note waits.")

    def _say(self, text: str) -> None:
        if not self._quiet:
            click.echo(printable(text))


def visible(text: str) -> str:
    r"""Return a text in which each character that a terminal hides is an escape, so that a person sees what is confirmed.

    >>> print(visible("tea\u200b and cake"))
    tea\u200b and cake
    """
    return "".join(
        f"\\u{ord(char):04x}" if _is_hidden(char) and char not in _VISIBLE_CONTROLS else char for char in text
    )


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in _HIDDEN_CATEGORIES


def _flag_remedy(note: WaitingNote) -> str:
    return f"it stays data, because of the safety scan: {note.flag}"


def _others(memory: Memory) -> str:
    """Return a sentence that names the users whose notes wait; "" for none."""
    sentences = []
    if memory.config.memory.per_user:
        for owner in owners_with_notes(memory.home):
            session = session_of_user(memory, owner)
            if not session.owner:  # `identity.owners` names this user: the notes of the home are theirs
                continue
            store = memory.curated.of(session)
            if sentence := waiting_sentence([note.origin.origin for note in store.waiting_notes()]):
                sentences.append(f"{sentence} in the memory of {owner}: hermes-memory review --user {owner}")
    return "\n".join(sentences)
