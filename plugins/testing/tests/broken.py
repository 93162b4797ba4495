"""Providers that are broken in one way each, by the one check that must catch them."""

from __future__ import annotations

import itertools
import json
import locale
import logging
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from notebook import SEARCH, TOKEN, Notebook, NotebookContract

from hermes_core import (
    Availability,
    Capabilities,
    Delegation,
    Field,
    HermesHome,
    MemoryWrite,
    Message,
    Query,
    Recall,
    RecallItem,
    Session,
    SessionSwitch,
    ToolCall,
    Turn,
)
from hermes_core.contract.hooks import TranscriptReader
from hermes_core.contract.values import Check, Erasure, MemoryPage, MemoryRecord
from hermes_core.kit import BackendUnavailable

SUITES: dict[str, type[NotebookContract]] = {}
"""The suite of each broken provider, by the name of the check that must be the only one that is red."""

ALSO: dict[str, set[str]] = {}
"""Checks of other groups that such a fault can't be kept from, by the same name."""

BRIEF = 0.02
"""Seconds of a deadline that is passed on purpose."""

START = 0.1
"""The same for the start, which is more work than the hook alone."""

_kept: list[Any] = []
"""What broken providers forget to close."""


def caught_by(
    check: str, variant: str = "", *, also: set[str] | None = None, **suite: Any
) -> Callable[[type[Notebook]], type[Notebook]]:
    """Say which check must catch the provider below; `suite` are attributes of its suite."""

    def enter(provider: type[Notebook]) -> type[Notebook]:
        proof = f"{check}{variant and ':'}{variant}"
        ALSO[proof] = also or set()
        if "deadlines" in suite:
            suite["deadlines"] = {**NotebookContract.deadlines, **suite["deadlines"]}
        members = {"provider": provider, "__module__": __name__, "label": lambda self: proof, **suite}
        SUITES[proof] = type("TestBroken", (NotebookContract,), members)
        return provider

    return enter


def _told(*error: Any) -> None:
    sys.__excepthook__(*error)


def _thread_told(error: Any) -> None:
    threading.__excepthook__(error)


class Late(Notebook):
    """Takes a note and finds it only after some questions, as a backend does that files it in the background."""

    def __init__(self) -> None:
        super().__init__()
        self.filed: dict[str, int] = {}
        self.asked = 0

    def add(self, key: str, text: str, session: Session) -> None:
        self.filed.setdefault(key, self.asked + QUESTIONS)
        super().add(key, text, session)

    def find(self, text: str, scope: str) -> list[list[str]]:
        self.asked += 1
        return [note for note in super().find(text, scope) if self.filed.get(note[0], 0) < self.asked]


QUESTIONS = 8
"""Those after which a late notebook finds a note."""

PATIENT: dict[str, Any] = {
    "eventually": lambda self, seen: any(seen() for _ in range(20)),
    "received": lambda self: None,
}
"""A suite that waits for such a backend, and can't look into it."""


# ------------------------------------------------------------------- lifecycle


@caught_by("test_it_keeps_to_the_forms_of_the_contract", "misspelt")
class Misspelt(Notebook):
    def sync_turns(self, turn: Turn) -> None: ...


@caught_by("test_it_keeps_to_the_forms_of_the_contract", "default")
class WithDefault(Notebook):
    def prefetch(self, query: Query, session: Session | None = None) -> Any: ...


@caught_by("test_it_keeps_to_the_forms_of_the_contract", "unmade")
class Unmade(Notebook):
    def __init__(self) -> None:
        raise ImportError("no module named 'vendor_sdk'")


@caught_by(
    "test_it_keeps_to_the_forms_of_the_contract",
    "class",
    make_provider=lambda self: Notebook,
)
class NotMade(Notebook): ...


@caught_by("test_it_keeps_to_the_forms_of_the_contract", "nothing", make_provider=lambda self: None)
class NotReturned(Notebook): ...


@caught_by("test_it_keeps_to_the_forms_of_the_contract", "name", also={"it can run here"}, name="note-book")
class CalledOtherwise(Notebook): ...


@caught_by("test_it_can_run_here")
class Unavailable(Notebook):
    def is_available(self) -> Availability:
        return Availability.no("there is no pen", "buy one")


@caught_by("test_it_is_looked_at_without_network_or_child_process")
class Calling(Notebook):
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        with socket.socket() as line:
            line.settimeout(0.01)
            line.connect_ex(("127.0.0.1", 9))
        return [SEARCH]

    def is_available(self) -> Availability:
        try:
            socket.getaddrinfo("localhost", 80)
        except OSError:
            pass
        return super().is_available()


@caught_by("test_it_starts")
class Stillborn(Notebook):
    def initialize(self, session: Session) -> None:
        raise RuntimeError("no ink")


@caught_by("test_it_may_be_started_again")
class StartsOnce(Notebook):
    def initialize(self, session: Session) -> None:
        if self.path != Path():
            raise RuntimeError("the notebook is open already")
        super().initialize(session)


@caught_by("test_it_ends_without_an_error")
class EndsBadly(Notebook):
    def shutdown(self) -> None:
        raise AttributeError("client")


@caught_by("test_it_may_be_ended_again")
class EndsOnce(Notebook):
    ended = False

    def shutdown(self) -> None:
        if self.ended:
            raise ValueError("I/O operation on closed file")
        self.ended = True


@caught_by("test_it_may_be_ended_after_a_start_that_failed", "at once")
class EndsWhatStarted(Notebook):
    def shutdown(self) -> None:
        str(self.options)


@caught_by("test_it_may_be_ended_after_a_start_that_failed", "outage")
class StartsByHalf(Notebook):
    """Opens its pages before it knows that it can read them."""

    pages: Path | None = None

    def initialize(self, session: Session) -> None:
        super().initialize(session)
        self.pages = self.path
        self.count = len(self.notes())

    def shutdown(self) -> None:
        if self.pages is not None and self.count < 0:
            raise ValueError("no notebook has so few notes")


@caught_by("test_a_restart_finds_what_was_stored")
class Forgetful(Notebook):
    """Keeps its notes in memory, by home."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[list[str]] = []

    def notes(self) -> list[list[str]]:
        if self.down.is_set():
            raise BackendUnavailable("the notebook is closed")
        return list(self.held)

    def save(self, notes: list[list[str]]) -> None:
        self.held = notes


@caught_by("test_what_was_taken_outlives_a_killed_process")
class WritesAtTheEnd(Forgetful):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        self.held = json.loads(self.path.read_text()) if self.path.exists() else []

    def shutdown(self) -> None:
        if self.path != Path():
            self.path.write_text(json.dumps(self.held))


@caught_by(
    "test_what_was_taken_outlives_a_killed_process",
    "last turn",
    received=lambda self: None,
    recalled_from=None,
)
class HoldsTheLastTurn(Notebook):
    last: Any = None

    def sync_turn(self, turn: Turn, session: Session) -> None:
        self.notes()
        self.shutdown()
        self.last = turn, session

    def shutdown(self) -> None:
        last, self.last = self.last, None
        if last is not None:
            super().sync_turn(*last)


@caught_by("test_no_thread_stays_behind")
class Busy(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        threading.Thread(target=threading.Event().wait, args=(3.0,), daemon=True, name="notes").start()


@caught_by("test_no_file_stays_open")
class HoldsFile(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        _kept.append(Path(session.home, "lock").open("w"))  # noqa: SIM115  left open on purpose


@caught_by("test_no_socket_stays_open")
class HoldsSocket(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        _kept.append(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))


@caught_by("test_the_process_is_left_as_it_was", "environment")
class SetsVariable(Notebook):
    number = itertools.count()

    def initialize(self, session: Session) -> None:
        super().initialize(session)
        os.environ["NOTEBOOK_HOME"] = f"{session.home}{next(self.number)}"


@caught_by("test_the_process_is_left_as_it_was", "environment once")
class SetsVariableOnce(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        os.environ["NOTEBOOK_LANGUAGE"] = "en"


@caught_by("test_the_process_is_left_as_it_was", "level")
class LogsEverything(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        logging.root.setLevel(logging.INFO)


@caught_by("test_the_process_is_left_as_it_was", "modules")
class AddsFolderOfModules(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        if "/notes/modules" not in sys.path:
            sys.path.append("/notes/modules")


@caught_by("test_the_process_is_left_as_it_was", "excepthook")
class TellsOfCrashes(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        sys.excepthook = _told


@caught_by("test_the_process_is_left_as_it_was", "threads")
class TellsOfThreads(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        threading.excepthook = _thread_told


@caught_by("test_the_process_is_left_as_it_was", "logging")
class Loud(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        logging.root.addHandler(logging.NullHandler())


@caught_by("test_the_process_is_left_as_it_was", "silenced")
class Silencing(Notebook):
    number = itertools.count(1)

    def initialize(self, session: Session) -> None:
        super().initialize(session)
        logging.disable(next(self.number))


@caught_by("test_the_process_is_left_as_it_was", "locale")
class SpeaksOtherwise(Notebook):
    locales = itertools.cycle(("C.UTF-8", "C"))

    def initialize(self, session: Session) -> None:
        super().initialize(session)
        locale.setlocale(locale.LC_NUMERIC, next(self.locales))


@caught_by("test_the_process_is_left_as_it_was", "umask")
class ChangesTheMask(Notebook):
    masks = itertools.cycle((0o026, 0o022))

    def initialize(self, session: Session) -> None:
        super().initialize(session)
        os.umask(next(self.masks))


@caught_by("test_the_process_is_left_as_it_was", "sockets")
class HurriesSockets(Notebook):
    number = itertools.count(100)

    def initialize(self, session: Session) -> None:
        super().initialize(session)
        socket.setdefaulttimeout(next(self.number))


@caught_by("test_nothing_is_printed")
class Talkative(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        print("looking for", query.text)
        return super().prefetch(query, session)


@caught_by("test_files_are_kept_in_the_home")
class Untidy(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        super().sync_turn(turn, session)
        Path("~/.notebook").expanduser().write_text(turn.id)


# ---------------------------------------------------------------------- recall


@caught_by("test_recall_answers_with_a_recall")
class WrongRecall(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        return {"notes": []}

    def queue_prefetch(self, query: Query, session: Session) -> Any:
        return Recall()


@caught_by("test_an_empty_memory_recalls_nothing")
class Chatty(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        return super().prefetch(query, session) or "No notes were found."


@caught_by("test_an_empty_memory_recalls_nothing", "question")
class KeepsQuestions(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        found = super().prefetch(query, session)
        self.add("the last question", query.text, session)
        return found


@caught_by("test_something_that_was_stored_is_recalled", recalled_from=None)
class Mute(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        self.notes()
        return Recall() if not self.down.is_set() else None


@caught_by("test_a_turn_is_recalled")
class SilentOnTurns(Notebook):
    """Keeps turns where recall does not look."""

    def sync_turn(self, turn: Turn, session: Session) -> None:
        with self.lock:
            others = [note for note in self.notes() if note[0] != turn.id]
            self.save([*others, [turn.id, session.id, "archive", turn.user]])


@caught_by("test_a_memory_write_is_recalled")
class DeafToWrites(Notebook):
    capabilities = Capabilities()

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        self.notes()


@caught_by("test_a_session_that_ended_is_recalled")
class DeafToEnds(Notebook):
    def on_session_end(self, reader: TranscriptReader, session: Session) -> None:
        self.notes()


@caught_by("test_what_one_session_says_is_recalled_in_another", also={"a switch keeps what was known"})
class OneSessionAtATime(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        items = super().prefetch(query, session).items
        return Recall(tuple(item for item in items if item.session_id == session.id))


@caught_by("test_recall_keeps_to_its_budget")
class Verbose(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        found = self.find(query.text, session.scope)
        return Recall(tuple(RecallItem(note[3], session_id=note[1]) for note in found))


@caught_by("test_recall_prepares_the_next_turn")
class BadAtPreparing(Notebook):
    def queue_prefetch(self, query: Query, session: Session) -> Any:
        return 7


@caught_by("test_recall_takes_note_of_a_turn")
class BadAtTurns(Notebook):
    def on_turn_start(self, message: str) -> None:
        raise KeyError(message)


@caught_by("test_hostile_questions_are_answered")
class UnquotedSearch(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        if "NEAR(" in query.text:
            raise ValueError("fts5: syntax error")
        return super().prefetch(query, session)


@caught_by("test_what_is_said_in_another_script_is_recalled", "damaged")
class WritesInLatin(Notebook):
    def add(self, key: str, text: str, session: Session) -> None:
        super().add(
            key, text if text.isascii() else f"{text} ".encode("cp1251", "ignore").decode("cp1251"), session
        )


@caught_by("test_what_is_said_in_another_script_is_recalled", "not found")
class SearchesInLatin(Notebook):
    def find(self, text: str, scope: str) -> list[list[str]]:
        return super().find("".join(filter(str.isascii, text)), scope)


@caught_by("test_a_turn_is_dated_when_it_was_said")
class DatesAtDelivery(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        today = time.strftime("%d %B %Y")
        return Recall(tuple(replace(item, when=today) for item in super().prefetch(query, session).items))


@caught_by("test_the_prompt_block_is_text")
class WrongPrompt(Notebook):
    def system_prompt_block(self) -> Any:
        return b"There is a notebook."


@caught_by("test_the_prompt_block_stays_the_same")
class RestlessPrompt(Notebook):
    number = itertools.count()

    def system_prompt_block(self) -> str:
        return f"Look number {next(self.number)}."


# ---------------------------------------------------------------------- writes


@caught_by("test_a_turn_is_taken", "dropped")
class DropsTurns(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        self.notes()


@caught_by("test_a_turn_is_taken", "refused")
class RefusesTurns(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        raise KeyError("messages")


@caught_by("test_an_added_entry_is_taken")
class RefusesAdds(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.content.strip() and write.target == "memory":
            raise KeyError("category")


@caught_by("test_a_replaced_entry_is_taken")
class RefusesReplaces(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.action == "replace" and write.target == "memory":
            raise NotImplementedError("replace")
        super().on_memory_write(write, session)


@caught_by("test_a_removed_entry_is_taken")
class RefusesRemoves(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.action == "remove" and write.target == "memory":
            raise NotImplementedError("remove")
        super().on_memory_write(write, session)


@caught_by("test_a_change_of_what_it_does_not_know_is_taken")
class WantsKnownEntries(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.action == "remove" and not any(write.old_text in note[3] for note in self.notes()):
            raise LookupError(write.old_text)
        super().on_memory_write(write, session)


@caught_by("test_a_replaced_entry_is_recalled_no_more")
class OnlyAdds(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.action == "replace":
            self.add(write.id, write.content, session)
        else:
            super().on_memory_write(write, session)


@caught_by("test_a_removed_entry_is_recalled_no_more")
class NeverRemoves(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.action != "remove":
            super().on_memory_write(write, session)


@caught_by("test_other_entries_stay", "removed")
class RemovesAll(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.action == "remove" and any(write.old_text in note[3] for note in self.notes()):
            self.save([note for note in self.notes() if note[2] != session.scope])
        super().on_memory_write(write, session)


@caught_by("test_other_entries_stay", "unknown")
class RemovesTheNearest(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.action != "add" and not any(write.old_text in note[3] for note in self.notes()):
            self.save(self.notes()[:-1])
        super().on_memory_write(write, session)


@caught_by("test_an_entry_that_is_not_kept_locally_is_removed")
class WantsWholeEntries(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        super().on_memory_write(replace(write, old_text=write.previous), session)


@caught_by("test_an_entry_that_is_not_kept_locally_is_recalled")
class OnlyMirrors(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.performed:
            super().on_memory_write(write, session)


@caught_by("test_a_turn_that_comes_twice_is_kept_once")
class RepeatsTurns(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        with self.lock:
            again = sum(note[0].startswith(turn.id) for note in self.notes())
            self.add(f"{turn.id}{'+' * again}", turn.user, session)


@caught_by("test_a_turn_that_comes_twice_is_kept_once", "late", **PATIENT)
class RepeatsTurnsLate(Late, RepeatsTurns):
    pass


@caught_by("test_a_memory_write_that_comes_twice_is_kept_once")
class RepeatsWrites(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        super().on_memory_write(write, session)
        notes = self.notes()
        if write.action == "add" and write.id in [note[0] for note in notes]:
            again = sum(note[0].startswith(write.id) for note in notes)
            if again > 1 or any(note[0] == f"{write.id}?" for note in notes):
                self.add(f"{write.id}+", write.content, session)
            self.add(f"{write.id}?", "", session)


@caught_by("test_a_memory_write_that_comes_twice_is_kept_once", "late", **PATIENT)
class RepeatsWritesLate(Late, RepeatsWrites):
    pass


@caught_by(
    "test_a_turn_leaves_the_one_before",
    also={
        "a turn that was taken back is forgotten",
        "a turn whose answer was lost is kept once",
        "an outage of ten minutes loses no turn",
        "two processes keep what the other stored",
    },
)
class OneTurnASession(Notebook):
    """Its key is the session and the number of the turn, which is for display."""

    def sync_turn(self, turn: Turn, session: Session) -> None:
        self.add(f"{session.id}/{turn.number}", turn.user, session)


@caught_by("test_a_turn_of_any_messages_is_taken", "tool")
class WantsPairs(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        if turn.messages:
            _asked, _answered = turn.messages
        super().sync_turn(turn, session)


@caught_by("test_a_turn_of_any_messages_is_taken", "none")
class ReadsMessagesOnly(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        self.add(turn.id, turn.messages[0]["content"], session)


@caught_by("test_a_delegation_is_taken")
class RefusesDelegations(Notebook):
    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        raise AttributeError("child_session")


@caught_by("test_hostile_turns_are_taken")
class WantsUtf8(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        turn.user.encode()
        super().sync_turn(turn, session)


@caught_by("test_hostile_memory_writes_are_taken")
class WantsShortWrites(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if len(write.content) > 8000:
            raise ValueError("413 too large")
        super().on_memory_write(write, session)


# ----------------------------------------------------------------------- tools


@caught_by("test_schemas_are_a_list")
class WrongSchemas(Notebook):
    def get_tool_schemas(self) -> Any:
        return {"notebook_search": SEARCH}


def _schema(**parameters: Any) -> dict[str, Any]:
    return {**SEARCH, "parameters": {**SEARCH["parameters"], **parameters}}


@caught_by("test_schemas_are_what_models_accept", "anyOf")
class TopLevelChoice(Notebook):
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [_schema(anyOf=[{"required": ["words"]}])]


@caught_by("test_schemas_are_what_models_accept", "name")
class BadToolName(Notebook):
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [{**SEARCH, "name": "notebook search"}]


@caught_by("test_schemas_are_what_models_accept", "items")
class ArrayOfWhat(Notebook):
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [_schema(properties={"words": {"type": "array"}})]


@caught_by("test_tool_names_are_its_own")
class TakesANameOfTheHost(Notebook):
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [SEARCH, {**SEARCH, "name": "memory"}]


@caught_by("test_schemas_stay_as_they_are")
class ToolsOnlyWhenStarted(Notebook):
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return [SEARCH] if self.path == Path() else [SEARCH, {**SEARCH, "name": "notebook_more"}]


class _Toolless(Notebook):
    handle_tool_call = None  # type: ignore[assignment]


caught_by("test_tools_can_be_called")(_Toolless)


@caught_by("test_every_tool_answers")
class BadTool(Notebook):
    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        raise NotImplementedError(call.name)


@caught_by("test_wrong_arguments_are_answered")
class TrustsTheModel(Notebook):
    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        return json.dumps({"found": [note[3] for note in self.find(call.arguments["words"], session.scope)]})


@caught_by("test_hostile_arguments_are_answered")
class NoNul(Notebook):
    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        if "\0" in str(call.arguments.get("words")):
            raise ValueError("embedded null character")
        return super().handle_tool_call(call, session)


# ------------------------------------------------------------------ boundaries


@caught_by("test_a_compression_is_answered_with_text")
class WrongCompression(Notebook):
    def on_pre_compress(self, messages: Sequence[Message]) -> Any:
        return [message["content"] for message in messages]


@caught_by("test_a_compression_of_nothing_is_answered")
class WantsMessages(Notebook):
    def on_pre_compress(self, messages: Sequence[Message]) -> Any:
        return messages[-1]["content"]


@caught_by("test_the_end_of_a_session_is_taken")
class RefusesEnds(Notebook):
    def on_session_end(self, reader: TranscriptReader, session: Session) -> None:
        raise TypeError("expected a list of messages")


@caught_by("test_the_end_of_an_empty_session_is_taken")
class WantsAConversation(Notebook):
    def on_session_end(self, reader: TranscriptReader, session: Session) -> None:
        reader.messages()[0]
        super().on_session_end(reader, session)


@caught_by("test_an_end_that_comes_twice_is_kept_once")
class RepeatsEnds(Notebook):
    def on_session_end(self, reader: TranscriptReader, session: Session) -> None:
        for message in reader.messages():
            if message["role"] == "user":
                self.add(f"{session.id}/{len(self.notes())}", message["content"], session)


@caught_by("test_an_end_that_comes_twice_is_kept_once", "late", **PATIENT)
class RepeatsEndsLate(Late, RepeatsEnds):
    pass


@caught_by("test_every_switch_is_taken")
class KnowsNoBranches(Notebook):
    def on_session_switch(self, switch: SessionSwitch) -> None:
        if switch.reason == "branch":
            raise ValueError("unknown reason 'branch'")
        super().on_session_switch(switch)


@caught_by("test_it_goes_on_after_a_switch")
class EndsWithTheSession(Notebook):
    over = False

    def on_session_switch(self, switch: SessionSwitch) -> None:
        self.over = switch.reason == "compression"
        super().on_session_switch(switch)

    def add(self, key: str, text: str, session: Session) -> None:
        if not self.over:
            super().add(key, text, session)


@caught_by("test_a_switch_keeps_what_was_known")
class StartsAfresh(Notebook):
    def on_session_switch(self, switch: SessionSwitch) -> None:
        if switch.reason == "compression":
            self.save([])
        super().on_session_switch(switch)


@caught_by("test_a_switch_keeps_what_was_known", "reset")
class ForgetsOnReset(Notebook):
    def on_session_switch(self, switch: SessionSwitch) -> None:
        if switch.reset:
            self.save([note for note in self.notes() if note[2] != switch.old.scope])
        super().on_session_switch(switch)


@caught_by("test_a_turn_that_was_taken_back_is_forgotten", "kept")
class NeverForgets(Notebook):
    def on_session_switch(self, switch: SessionSwitch) -> None:
        self.notes()


@caught_by("test_a_turn_that_was_taken_back_is_forgotten", "all")
class ForgetsAll(Notebook):
    def on_session_switch(self, switch: SessionSwitch) -> None:
        if switch.rewound_turns:
            self.save([])


# ------------------------------------------------------------------- isolation


@caught_by("test_interleaved_sessions_get_their_own_recall")
class OneSlot(Notebook):
    slot: Any = None

    def queue_prefetch(self, query: Query, session: Session) -> Any:
        self.slot = super().prefetch(query, session)

    def prefetch(self, query: Query, session: Session) -> Any:
        slot, self.slot = self.slot, None
        return slot or super().prefetch(query, session)


@caught_by("test_recall_names_the_session_that_it_comes_from")
class OneSession(Notebook):
    first = ""

    def add(self, key: str, text: str, session: Session) -> None:
        self.first = self.first or session.id
        with self.lock:
            others = [note for note in self.notes() if note[0] != key]
            self.save([*others, [key, self.first, session.scope, text]])


@caught_by("test_recall_names_the_session_that_it_comes_from", "late", **PATIENT)
class OneSessionLate(OneSession, Late):
    def add(self, key: str, text: str, session: Session) -> None:
        self.filed.setdefault(key, self.asked + QUESTIONS)
        super().add(key, text, session)


@caught_by("test_users_do_not_see_each_other")
class NoUsers(Notebook):
    def find(self, text: str, scope: str) -> list[list[str]]:
        scopes = {note[2] for note in self.notes()}
        found = [super(NoUsers, self).find(text, each) for each in sorted(scopes)]
        return list(itertools.chain(*found))


@caught_by("test_users_do_not_see_each_other", "chat of home")
class ChatsOfHome(Notebook):
    def find(self, text: str, scope: str) -> list[list[str]]:
        profile, _, user, _ = json.loads(scope)
        scopes = {scope, scope if user else Session("", identity=profile).scope}
        found = [super(ChatsOfHome, self).find(text, each) for each in sorted(scopes)]
        return list(itertools.chain(*found))


@caught_by("test_users_do_not_see_each_other", "chat of home, late", **PATIENT)
class ChatsOfHomeLate(Late, ChatsOfHome):
    pass


@caught_by("test_users_do_not_see_each_other", "chat of user")
class ChatsOfUsers(Notebook):
    """Goes by the user or the chat, whichever there is."""

    def find(self, text: str, scope: str) -> list[list[str]]:
        profile, platform, user, chat = json.loads(scope)
        namesake = Session("", identity=profile, platform=platform, user_id=chat).scope
        return super().find(text, scope) + ([] if user else super().find(text, namesake))


class _Everybodys(Notebook):
    """Shows everybody what it keeps for nobody."""

    def nobody(self, session: Session) -> Session:
        return replace(session, platform="", user_id="", chat_id="")

    def find(self, text: str, scope: str) -> list[list[str]]:
        return [*super().find(text, scope), *super().find(text, self.nobody(Session("")).scope)]


@caught_by("test_users_do_not_see_each_other", "entries")
class EntriesForAll(_Everybodys):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        super().on_memory_write(write, self.nobody(session))


@caught_by("test_users_do_not_see_each_other", "ends")
class EndsForAll(_Everybodys):
    def on_session_end(self, reader: TranscriptReader, session: Session) -> None:
        super().on_session_end(reader, self.nobody(session))


@caught_by("test_an_owner_has_the_memory_of_the_home_from_outside")
class OwnersApart(Notebook):
    """Goes by the id of the user, also if it is one of the person at home."""

    def prefetch(self, query: Query, session: Session) -> Any:
        return super().prefetch(query, replace(session, is_owner=False))


@caught_by("test_a_switch_of_one_user_shows_others_nothing")
class GoesWhereTheLastOneWent(Notebook):
    now = ""

    def on_session_switch(self, switch: SessionSwitch) -> None:
        self.now = switch.new.scope
        super().on_session_switch(switch)

    def find(self, text: str, scope: str) -> list[list[str]]:
        return super().find(text, self.now or scope)


@caught_by("test_tools_tell_users_nothing_of_each_other")
class ToolForAll(Notebook):
    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        scopes = sorted({note[2] for note in self.notes()})
        asked = call.arguments.get("words")
        if not isinstance(asked, str):
            return json.dumps({"error": "send words"})
        return json.dumps({"found": [note[3] for scope in scopes for note in self.find(asked, scope)]})


@caught_by("test_tools_tell_users_nothing_of_each_other", "late", **PATIENT)
class ToolForAllLate(Late, ToolForAll):
    pass


@caught_by("test_what_two_users_wrote_goes_for_the_one_who_removes_it")
class RemovesForAll(Notebook):
    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        if write.action == "remove":
            self.forget([note[0] for note in self.notes() if write.old_text in note[3]])
        super().on_memory_write(write, session)


@caught_by("test_homes_do_not_see_each_other")
class OneNotebookForAll(Notebook):
    """Keeps its file beside the home of whoever came first."""

    def initialize(self, session: Session) -> None:
        super().initialize(session)
        if Path(session.home).name == "elsewhere":
            self.path = Path(session.home).with_name("home") / self.path.name


@caught_by("test_two_processes_keep_what_the_other_stored")
class HoldsACopy(Notebook):
    """Reads its pages once, and writes them all."""

    def initialize(self, session: Session) -> None:
        super().initialize(session)
        self.pages = super().notes()

    def notes(self) -> list[list[str]]:
        if self.down.is_set():
            raise BackendUnavailable("the notebook is closed")
        return list(self.pages)

    def save(self, notes: list[list[str]]) -> None:
        self.pages = notes
        super().save(notes)


@caught_by("test_recall_and_writes_go_on_at_once")
class OneAtATime(Notebook):
    writing = False

    def sync_turn(self, turn: Turn, session: Session) -> None:
        self.writing = True
        threading.Event().wait(0.002)
        super().sync_turn(turn, session)
        self.writing = False

    def prefetch(self, query: Query, session: Session) -> Any:
        threading.Event().wait(0.001)
        if self.writing:
            raise RuntimeError("database is locked")
        return super().prefetch(query, session)


@caught_by("test_sessions_are_read_at_once")
class OneQuestionAtATime(Notebook):
    asked: Query

    def prefetch(self, query: Query, session: Session) -> Any:
        self.asked = query
        threading.Event().wait(0.002)
        return super().prefetch(self.asked, session)

    def queue_prefetch(self, query: Query, session: Session) -> Any:
        return super().prefetch(query, session)


@caught_by("test_a_preparation_goes_on_beside_recall")
class PreparesAlone(Notebook):
    preparing = False

    def queue_prefetch(self, query: Query, session: Session) -> Any:
        self.preparing = True
        threading.Event().wait(0.002)
        self.preparing = False
        return super().prefetch(query, session)

    def prefetch(self, query: Query, session: Session) -> Any:
        threading.Event().wait(0.001)
        if self.preparing:
            raise RuntimeError("database is locked")
        return super().prefetch(query, session)


@caught_by("test_odd_identities_are_borne", "refused")
class OneFileASession(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        Path(session.home, f"turn-{session.id}").write_text(turn.id)
        super().sync_turn(turn, session)


@caught_by("test_odd_identities_are_borne", "astray")
class FollowsPaths(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        if ".." in session.user_id:
            Path(session.home, session.user_id).write_text(turn.id)
        super().sync_turn(turn, session)


# --------------------------------------------------------------------- failure


def _waits() -> None:
    """Far longer than the deadline, lest a busy machine look too late; the end of the test ends it."""
    Notebook.released.wait(5.0)


@caught_by("test_it_is_looked_at_in_time", deadlines={"is_available": START})
class SlowToAnswer(Notebook):
    def is_available(self) -> Availability:
        _waits()
        return super().is_available()


@caught_by("test_it_starts_in_time", deadlines={"initialize": START})
class SlowToStart(Notebook):
    def initialize(self, session: Session) -> None:
        _waits()
        super().initialize(session)


def _slow(hook: str) -> type[Notebook]:
    """A notebook that takes too long in one hook."""
    source = getattr(Notebook, hook)
    names = source.__code__.co_varnames[: source.__code__.co_argcount]
    space: dict[str, Any] = {"source": source, "waits": _waits}
    exec(f"def {hook}({', '.join(names)}):\n    waits()\n    return source({', '.join(names)})", space)
    return type("Slow", (Notebook,), {hook: space[hook], "__module__": __name__})


def hanging(hook: str, calls: str) -> type[Notebook]:
    """Return a notebook whose `hook` hangs until the end of the check. Each call adds a line to the file `calls`."""

    def waits() -> None:
        with Path(calls).open("a") as file:
            file.write("call\n")
        Notebook.released.wait(4.0)  # longer than the deadline of the hook

    source = getattr(Notebook, hook)
    names = source.__code__.co_varnames[: source.__code__.co_argcount]
    space: dict[str, Any] = {"source": source, "waits": waits}
    exec(f"def {hook}({', '.join(names)}):\n    waits()\n    return source({', '.join(names)})", space)
    return type("Hanging", (Notebook,), {hook: space[hook], "__module__": __name__})


SLOW = (
    "check",
    "backup_paths",
    "pending_writes",
    "export_memories",
    "import_memory",
    "register_cli",
    "system_prompt_block",
    "on_turn_start",
    "prefetch",
)
SLOW += ("queue_prefetch", "handle_tool_call", "sync_turn", "on_memory_write", "on_delegation")
SLOW += ("on_pre_compress", "on_session_end", "on_session_switch", "forget_user", "shutdown")

for _hook in SLOW:
    caught_by(f"test_hooks_keep_their_deadlines[{_hook}]", deadlines={_hook: BRIEF})(_slow(_hook))


# ------------------------------------------------------------------ forgetting


@caught_by("test_a_forgotten_user_is_not_recalled")
class SaysItForgot(Notebook):
    def forget_user(self, session: Session) -> Erasure:
        return Erasure(("everything",))


@caught_by("test_a_forgotten_user_is_in_no_file_of_the_home")
class KeepsACopy(Notebook):
    def add(self, key: str, text: str, session: Session) -> None:
        super().add(key, text, session)
        with self.path.with_name("copy.txt").open("a") as copy:
            copy.write(text)


@caught_by("test_others_keep_their_memory_when_a_user_is_forgotten")
class ForgetsEverybody(Notebook):
    def forget_user(self, session: Session) -> Erasure:
        self.save([])
        return Erasure(("all notes",))


@caught_by("test_a_user_is_forgotten_twice_without_a_fault")
class ForgetsOnce(Notebook):
    def forget_user(self, session: Session) -> Erasure:
        done = super().forget_user(session)
        if not done.deleted:
            raise LookupError(session.owner)
        return done


@caught_by("test_a_turn_in_an_outage_is_not_taken")
class HidesOutageFromTurns(Notebook):
    def sync_turn(self, turn: Turn, session: Session) -> None:
        try:
            super().sync_turn(turn, session)
        except BackendUnavailable:
            logging.getLogger(__name__).debug("lost")


@caught_by("test_recall_in_an_outage_fails")
class HidesOutageFromRecall(Notebook):
    def prefetch(self, query: Query, session: Session) -> Any:
        return Recall() if self.down.is_set() else super().prefetch(query, session)


@caught_by("test_tools_in_an_outage_say_so")
class HidesOutageFromTools(Notebook):
    def handle_tool_call(self, call: ToolCall, session: Session) -> str:
        return '{"found": []}' if self.down.is_set() else super().handle_tool_call(call, session)


@caught_by("test_it_recovers_from_an_outage", deadlines={"sync_turn": 2.0})
class GivesUp(Notebook):
    lost = False

    def sync_turn(self, turn: Turn, session: Session) -> None:
        if self.lost:
            raise BackendUnavailable("the client is closed")
        self.lost = self.down.is_set()
        super().sync_turn(turn, session)


# ---------------------------------------------------------------------- outage


@caught_by("test_an_outage_of_ten_minutes_loses_no_turn")
class LosesPatience(Notebook):
    tries: int = 0

    def sync_turn(self, turn: Turn, session: Session) -> None:
        self.tries += self.down.is_set()
        if self.tries < 4:
            super().sync_turn(turn, session)


@caught_by("test_a_turn_whose_answer_was_lost_is_kept_once")
class TriesAnew(Notebook):
    unsure = ""

    def sync_turn(self, turn: Turn, session: Session) -> None:
        again = "+" * (self.unsure == turn.id)
        self.unsure = turn.id if self.mute.is_set() else ""
        self.add(turn.id + again, turn.user, session)


@caught_by("test_a_killed_process_loses_no_turn")
class KnowsItselfOnly(Notebook):
    """Its keys are those of one process, which dies before the first turn is told to have been taken."""

    def key(self, turn_id: str) -> str:
        return f"{os.getpid()}/{turn_id}"

    def sync_turn(self, turn: Turn, session: Session) -> None:
        self.add(self.key(turn.id), turn.user, session)
        if hasattr(sys.modules["__main__"], "make"):
            time.sleep(60)

    def on_session_switch(self, switch: SessionSwitch) -> None:
        self.forget([self.key(turn_id) for turn_id in switch.rewound_turns])


# --------------------------------------------------------------- configuration


def _with_field(*fields: Field) -> tuple[Field, ...]:
    return (*Notebook.settings, *fields)


@caught_by(
    "test_settings_are_declared_soundly",
    "'ink' in its declaration must be one of 'black', 'blue', is 'green'",
)
class BadDefault(Notebook):
    settings = _with_field(Field("ink", default="green", choices=("black", "blue"), help="colour"))


@caught_by("test_settings_are_declared_soundly", "secret")
class SecretWithoutVariable(Notebook):
    settings = _with_field(Field("pin", secret=True, help="the lock's"))


@caught_by("test_a_wrong_value_is_named")
class TakesAnyValue(Notebook):
    def is_available(self) -> Availability:
        path = HermesHome.resolve().path
        found = json.loads((path / "notebook.json").read_text()) if (path / "notebook.json").exists() else {}
        return Availability() if found.get("owner") else Availability.no("'owner' is not set")

    def initialize(self, session: Session) -> None:
        self.path = Path(session.home, "pages.json")


@caught_by("test_a_missing_setting_is_named")
class StartsWithoutOwner(Notebook):
    def is_available(self) -> Availability:
        return Availability()


@caught_by("test_secrets_stay_secret", "prompt")
class TellsTheModel(Notebook):
    def system_prompt_block(self) -> str:
        return f"There is a notebook, opened with {self.options.token}."


@caught_by("test_secrets_stay_secret", "file")
class WritesItDown(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        Path(session.home, "state").write_text(str(self.options.token))


@caught_by("test_secrets_stay_secret", "log")
class LogsIt(Notebook):
    def initialize(self, session: Session) -> None:
        super().initialize(session)
        logging.getLogger("notebook").debug("opened with %s", TOKEN)


@caught_by("test_secrets_stay_secret", "error")
class ComplainsWithIt(Notebook):
    def notes(self) -> list[list[str]]:
        if self.down.is_set():
            raise BackendUnavailable(f"no answer from /pages?reader={self.options.token}")
        return super().notes()


@caught_by("test_backup_paths_are_absolute")
class RelativeBackup(Notebook):
    def backup_paths(self) -> list[str]:
        return ["pages.json"]


@caught_by("test_what_it_keeps_is_exported")
class ExportsImportsAlone(Notebook):
    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        page = super().export_memories(cursor, session)
        return replace(page, records=tuple(one for one in page.records if "/" in one.id))


@caught_by("test_what_it_keeps_is_exported", "endless")
class ExportsForEver(Notebook):
    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        del cursor, session
        return MemoryPage((), "more")

    import_memory = None  # type: ignore[assignment]


@caught_by("test_an_imported_memory_is_exported_word_for_word")
class RewritesImports(Notebook):
    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        super().import_memory(replace(record, text=record.text.lower()), session)


@caught_by("test_an_imported_memory_that_comes_twice_is_kept_once")
class ImportsTwice(Notebook):
    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        self.add(f"{session.scope}/{time.monotonic_ns()}", record.text, session)


@caught_by("test_users_do_not_export_each_other")
class ExportsAll(Notebook):
    def export_memories(self, cursor: str) -> MemoryPage:
        del cursor
        return MemoryPage(tuple(MemoryRecord(note[3], note[0]) for note in self.notes()))


@caught_by("test_its_own_check_is_passed")
class Unwell(Notebook):
    def check(self) -> list[Check]:
        return [Check("ink", False, "the pen is dry", "refill it")]


@caught_by("test_commands_are_added")
class SilentCommand(Notebook):
    def register_cli(self, group: click.Group) -> None:
        group.add_command(click.Command("show"))
