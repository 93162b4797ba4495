"""The provider: hooks, and the tools that the model sees."""

from __future__ import annotations

import logging
import re
import shutil
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from hermes_byterover.client import CONNECT, FIRST_PAUSE_S, STALE, Brv, Curation, changes, program
from hermes_byterover.settings import NAME, SETTINGS
from hermes_byterover.tree import Tree, body_of, folder_of
from hermes_core import (
    Availability,
    Capabilities,
    Delegation,
    MemoryWrite,
    Message,
    Query,
    Recall,
    RecallItem,
    Session,
    SessionSwitch,
    Turn,
)
from hermes_core.contract.values import Check, Erasure, MemoryPage, MemoryRecord
from hermes_core.kit import (
    BackendAuthError,
    BackendProvider,
    BackendRefused,
    BackendUnavailable,
    ProviderUnavailable,
    Settings,
    clip,
    fold_space,
    is_trivial,
    key_of,
    later_session,
    page_of,
    poll,
    query_text,
    recall_within,
    tool,
    utc_time,
    write_atomic,
)

log = logging.getLogger(__name__)

MAX_RECALLED = 8
MAX_SEARCH_CHARS, MAX_QUESTION_CHARS = 1000, 5000
MAX_ANSWER_CHARS = 8000
MAX_TURN_CHARS, MAX_CURATED_CHARS = 4000, 20_000
LAST_MESSAGES, MAX_MESSAGE_CHARS = 20, 1000
WHOLE_LOG = 500

SWITCH_TIMEOUT_S, COMPRESSION_TIMEOUT_S = 25.0, 100.0
"""Seconds that a curation is followed where those hooks wait."""

INDEX_LAG_S = 8.0
"""Seconds after which a new file must be found: brv looks at the tree every five."""

STILL_CURATED_S = 5.0
"""Seconds after which to look again whether a curation has ended."""

CLOCK_SKEW_S = 0.01
"""Seconds by which a curation may seem to be older than its order: brv's clock has milliseconds."""

_MARK = re.compile(r"\[hermes \w+ [^\]\s]+\]")

PROMPT = """# ByteRover
A knowledge tree keeps what was decided and learned in earlier conversations."""
RECALLS = "What fits a message is recalled by itself."
TOOLS = """Ask it with `brv_query` for a worked-out answer; keep lasting decisions, patterns and facts with
`brv_curate`; see with `brv_status` whether it works and what waits for the person's review."""


IMPORTED = "imported"
"""Folder of notes that came from another provider."""


class ByteRoverProvider(BackendProvider[Brv]):
    """A knowledge tree for each user of the profile, curated and searched by `brv`.

    `pause` are the seconds before the first look at a curation that was handed over.
    """

    name = NAME
    settings = SETTINGS
    capabilities = Capabilities(local=True)
    commands = "hermes_byterover.cli:COMMANDS"

    def __init__(self, pause: float = FIRST_PAUSE_S) -> None:
        self._pause = pause

    # -------------------------------------------------------------- setup

    def availability(self, options: Settings) -> Availability:
        """Return whether the program is there."""
        try:
            program(options.command)
        except ProviderUnavailable as exc:
            return Availability.no(exc.message, exc.remedy)
        return Availability()

    def connect(self, options: Settings) -> Brv:
        """Return `brv` with the data of this profile, without starting it."""
        data = self.home / "byterover-data" if options.isolated else None
        return Brv(options.command, data, pause=self._pause)

    def initialize(self, session: Session) -> None:
        """Ask brv once whether it works; log in and connect the model that the settings name, if need be."""
        brv, tree = self.open(Path(session.home)), self.tree(session)
        status = brv.status(tree.folder, self.options.start_timeout)
        if self.options.api_key and status.get("authStatus") != "logged_in":
            try:
                brv.log_in(tree.folder, self.options.api_key, self.options.start_timeout)
            except BackendAuthError as exc:
                log.warning("%s; going on without an account", exc)
        if self.options.model_provider:
            self._connect(brv, tree)

    def check(self, session: Session) -> Sequence[Check]:
        """Check the daemon; write a note, find it in another session, delete it; check model, account, and changes that wait for review."""
        brv, tree = self.client, self.tree(session)
        status, model = (
            brv.status(tree.folder, self.options.query_timeout),
            brv.model(tree.folder, self.options.query_timeout),
        )
        pending, word = brv.pending(tree.folder, self.options.query_timeout), f"check{uuid.uuid4().hex}"
        text = f"{word} is what the self-test wrote."
        note = str(tree.add("memory", text))
        try:
            found = self._found(self.tree(later_session(session)), word, note)
        finally:
            tree.remove("memory", text)
        where, account = str(tree.root), status.get("authStatus", "unknown")
        logged_in = account == "logged_in" or not self.options.api_key
        return [
            Check("program", True, f"brv {status.get('cliVersion', '')}, its daemon answers"),
            Check("write and recall", found, where, "" if found else "hermes-memory byterover brv restart"),
            Check("delete", not tree.holds(note), where),
            Check("model", bool(model), model or "none is connected, so nothing is curated", CONNECT),
            Check("account", logged_in, str(account), "" if logged_in else "check BRV_API_KEY"),
            Check(
                "review",
                True,
                f"{pending} change{' waits' if pending == 1 else 's wait'} for it",
                "hermes-memory byterover brv review pending",
            ),
        ]

    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        """Return every note of the tree of the session's user, also what brv curated, as its text."""
        notes = self.tree(session).texts()
        return page_of([MemoryRecord(text, path, made) for path, text, made in notes], cursor)

    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        """Write a note into the tree; no model is asked. A note keeps its text and its time."""
        if not record.text.strip():
            raise BackendRefused("the text is empty", "a note needs one")
        self.tree(session).add(IMPORTED, record.text, record.created_at or record.updated_at)

    def backup_paths(self) -> Sequence[str]:
        """Return the tree if settings put it outside the home."""
        home = self.home
        setting = self.options.folder
        folder = home / Path(setting).expanduser()
        return [str(folder)] if setting and not folder.is_relative_to(home) else []

    # --------------------------------------------------------------- turn

    def system_prompt_block(self) -> str:
        """Return the purpose of recall and tools."""
        parts = (PROMPT, RECALLS if self.recalls else "", TOOLS if self.offers_tools else "")
        return "\n".join(filter(None, parts))

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Return results of brv's own search within the budget, without a model; none for small talk."""
        if not self.recalls or is_trivial(query.text):
            return Recall()
        tree, words = self.tree(session), query_text(query.text, MAX_SEARCH_CHARS)
        found = self.client.search(tree.folder, words, MAX_RECALLED, self.options.search_timeout)
        items: list[RecallItem] = []
        for one in found:
            path, score = str(one.get("path", "")), float(one.get("score") or 0)
            item = RecallItem(readable(str(one.get("excerpt", ""))), score, path, ref=path)
            if not item.text or score < self.options.min_score:
                continue
            if one.get("origin", "local") == "local" and not tree.holds(path):
                continue
            items.append(item)
        return recall_within(items, query.budget)

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Have the turn curated, once; small talk is not worth a model's work."""
        if self.options.auto_extract and not is_trivial(turn.user):
            said = (
                f"User: {clip(turn.user, MAX_TURN_CHARS)}\nAssistant: {clip(turn.assistant, MAX_TURN_CHARS)}"
            )
            when = utc_time(turn.user_at or turn.at or time.time())[:16].replace("T", " ") + " UTC"
            self._curate(session, f"[hermes turn {turn.id}]", f"Conversation of {when}.\n{said}")

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Mirror MEMORY.md and USER.md, a file of the tree for each entry."""
        tree = self.tree(session)
        if write.previous:
            tree.remove(write.target, write.previous)
        elif write.action != "add" and write.old_text:
            tree.remove_containing(write.target, write.old_text)
        if write.content.strip():
            tree.add(write.target, write.content)

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Have what a subagent found curated, once."""
        if self.options.auto_extract:
            task, result = clip(delegation.task, MAX_TURN_CHARS), clip(delegation.result, MAX_TURN_CHARS)
            mark = f"[hermes delegation {delegation.id}]"
            self._curate(session, mark, f"A subagent finished a task.\nTask: {task}\nResult: {result}")

    # ----------------------------------------------------------- boundary

    def on_pre_compress(self, messages: Sequence[Message], compression_count: int, session: Session) -> str:
        """Have what leaves the context curated; what was saved of it."""
        lines = [
            f"{message['role']}: {clip(message.get('content', ''), MAX_MESSAGE_CHARS)}"
            for message in messages[-LAST_MESSAGES:]
            if message.get("role") in ("user", "assistant") and not is_trivial(message.get("content", ""))
        ]
        if not lines:
            return ""
        text = "\n".join(["These messages leave the conversation. Keep what will matter later.", *lines])
        mark = f"[hermes compression {_key(f'{session.id} {compression_count} {text}')}]"
        saved = self._curate(session, mark, text, COMPRESSION_TIMEOUT_S)
        return "Saved in ByteRover:\n" + "\n".join(f"- {line}" for line in changes(saved))

    def on_session_switch(self, switch: SessionSwitch) -> None:
        """Take out what was curated from the turns that the person took back."""
        if not switch.rewound_turns:
            return
        until, tree = time.monotonic() + SWITCH_TIMEOUT_S, self.tree(switch.old)
        entries = self.client.log(tree.folder, self.options.query_timeout, WHOLE_LOG)
        for turn in switch.rewound_turns:
            known = [e for e in entries if e.context.startswith(f"[hermes turn {turn}]") and e.kept]
            if known:
                order = (
                    "The person took this exchange back. Delete what was kept from it and from nothing else."
                )
                mark, text = f"[hermes rewind {turn}]", f"{order}\n{known[0].context}"
                left = max(1.0, until - time.monotonic())
                self.client.curate(tree.folder, mark, text, left, must_keep=False)

    def forget_user(self, user: str, session: Session) -> Erasure:
        """Delete the user's tree, and what brv keeps of its project beside it: tasks, curations, messages of the model."""
        folder = folder_of(session, self.home, self.options.folder)
        if self.options.folder:
            kept = f"what brv has curated of {user} in {folder}, the tree of everybody, and in brv's log: delete those notes"
            return Erasure((), (kept,))
        places = [folder, *(self.home / "byterover-data" / "brv" / "projects").glob(f"*--{folder.name}")]
        there = [place for place in places if place.is_dir()]
        if folder in there and any(
            self._is_under_way(one) for one in self.client.log(folder, self.options.query_timeout)
        ):
            raise BackendUnavailable(f"brv still curates in {folder}", retry_after=STILL_CURATED_S)
        for place in there:
            try:
                shutil.rmtree(place)
            except OSError as exc:
                raise BackendUnavailable(f"{place} can't be deleted: {exc}") from exc
        return Erasure(
            tuple(map(str, there)),
            ()
            if self.options.isolated or not there
            else (
                f"what brv noted of the project {folder} in its own data folder: see `brv locations`, and delete it there",
            ),
        )

    # ------------------------------- tools; the docstring is what the model reads

    @tool()
    def brv_query(
        self, query: Annotated[str, "a specific question, a sentence"], session: Session
    ) -> dict[str, Any]:
        """Ask the knowledge tree of earlier conversations. Slower than recall; answers with sources."""
        question = query_text(query, MAX_QUESTION_CHARS)
        folder, timeout = self.tree(session).folder, self.options.query_timeout
        answer, sources = self.client.query(folder, question, timeout)
        if not answer:
            return {"result": "No relevant memories found."}
        return {"result": clip(answer, MAX_ANSWER_CHARS), "sources": sources}

    @tool()
    def brv_curate(
        self,
        content: Annotated[str, "what to keep: decisions, patterns, facts, with their reasons"],
        session: Session,
    ) -> dict[str, Any]:
        """Keep lasting knowledge in the tree. Takes some seconds; a file is made or brought up to date."""
        text = clip(content.strip(), MAX_CURATED_CHARS)
        mark, tree, now = f"[hermes note {_key(text)}]", self.tree(session), time.time()
        saved = self._curate(session, mark, text)
        if saved.started < now - CLOCK_SKEW_S and not any(tree.holds(path) for path, _ in saved.changes):
            # It was kept before, and what was kept of it has been taken out since.
            saved = self._curate(session, f"{mark} [hermes again {uuid.uuid4().hex}]", text)
        done: dict[str, Any] = {"result": "Memory curated successfully.", "changes": list(changes(saved))}
        return {**done, "pending_review": saved.pending} if saved.pending else done

    @tool()
    def brv_status(self, session: Session) -> dict[str, Any]:
        """Show the state of the knowledge tree: version, account, model, and changes that wait for the person's review."""
        return {"status": self.state(session)}

    # ------------------------------------------------------------ private

    def state(self, session: Session) -> dict[str, Any]:
        """Return the facts for `brv_status` and `hermes-memory byterover status`."""
        folder = self.tree(session).folder
        status = self.client.status(folder, self.options.query_timeout)
        return {
            "version": status.get("cliVersion", ""),
            "account": status.get("userEmail") or status.get("authStatus", "unknown"),
            "model": self.client.model(folder, self.options.query_timeout) or f"none; {CONNECT}",
            "tree": str(folder / ".brv" / "context-tree"),
            "pending_review": self.client.pending(folder, self.options.query_timeout),
        }

    def tree(self, session: Session) -> Tree:
        """Return the tree of a session's user."""
        return Tree(folder_of(session, self.home, self.options.folder))

    def _connect(self, brv: Brv, tree: Tree) -> None:
        """Connect the model of the settings, unless they are those that were connected last: the person may have chosen
        another since, and asking brv each time would double the time of a start."""
        options = {
            "base-url": self.options.model_base_url,
            "api-key": self.options.model_key or "",
            "model": self.options.model,
        }
        wanted = _key("\n".join([self.options.model_provider, *options.values()]))
        connected = self.home / "byterover-data" / "connected"
        if not connected.exists() or connected.read_text("utf-8") != wanted:
            brv.connect(tree.folder, self.options.model_provider, options, self.options.start_timeout)
            write_atomic(connected, wanted.encode())

    def _curate(self, session: Session, mark: str, text: str, timeout: float = 0.0) -> Curation:
        folder, seconds = self.tree(session).folder, timeout or self.options.curate_timeout
        saved = self.client.curate(folder, mark, text, seconds)
        if saved.pending:
            log.info(
                "%d changes of the knowledge tree wait for review (brv review approve %s)",
                saved.pending,
                saved.task,
            )
        return saved

    def _is_under_way(self, curation: Curation) -> bool:
        return curation.status == "processing" and time.time() - curation.started < STALE

    def _found(self, tree: Tree, word: str, note: str) -> bool:
        """Return whether a search finds a new note, once brv has looked at the tree again."""
        search = self.client.search
        return poll(
            lambda: any(
                one.get("path") == note for one in search(tree.folder, word, 1, self.options.query_timeout)
            ),
            INDEX_LAG_S,
            1.0,
        )


def readable(excerpt: str) -> str:
    """Return an excerpt as one line of text, without front matter, Markdown's structure and our own marks."""
    lines = [re.sub(r"^#+\s+", "", line) for line in body_of(excerpt).splitlines() if line.strip() != "---"]
    return fold_space(_MARK.sub("", " ".join(lines).replace("**", "")))


def _key(text: str) -> str:
    return key_of(text, length=16)
