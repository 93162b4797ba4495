"""The provider: hooks and tools. What Honcho is asked for a turn is in `recall`, its API in `client`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from hermes_core import (
    Availability,
    Capabilities,
    Delegation,
    HermesError,
    HermesHome,
    MemoryWrite,
    Query,
    Recall,
    Session,
    SessionSwitch,
    Turn,
    open_notes,
)
from hermes_core.contract.values import Check, Erasure, MemoryPage, MemoryRecord
from hermes_core.errors import BackendNotFound, BackendRefused, BackendUnavailable
from hermes_core.kit import (
    BackendProvider,
    Range,
    Settings,
    ToolInputInvalid,
    clip,
    epoch_time,
    is_trivial,
    page_of,
    redact,
    tool,
    utc_time,
)
from hermes_honcho import names
from hermes_honcho.checks import self_test
from hermes_honcho.client import (
    MAX_CONCLUSION_CHARS,
    Client,
    Line,
    sdk_fault,
    sdk_version,
    split_time,
    with_time,
)
from hermes_honcho.ledger import Ledger
from hermes_honcho.pending import PendingWrites, store_each
from hermes_honcho.recall import Layers, Place
from hermes_honcho.settings import NAME, SETTINGS, address, observed, turns_a_batch, validate

log = logging.getLogger(__name__)

MAX_EXPORTED = 100_000
"""Conclusions about one person that are listed at most."""

PROMPTS = {
    "hybrid": """# Honcho memory
Honcho keeps an image of the person, which grows with every conversation; what fits a message is recalled by itself.
Look further with `honcho_search` (what was said), `honcho_context` and `honcho_profile` (what is known), and
`honcho_reasoning` (a question that needs thought). Keep lasting facts with `honcho_conclude`.""",
    "context": """# Honcho memory
Honcho keeps an image of the person, which grows with every conversation; what fits a message is recalled by itself.""",
    "tools": """# Honcho memory
Honcho keeps an image of the person, which grows with every conversation. Nothing is recalled by itself: ask with
`honcho_context` and `honcho_profile` (what is known), `honcho_search` (what was said) and `honcho_reasoning` (a
question that needs thought). Keep lasting facts with `honcho_conclude`.""",
}

CHARS_PER_TOKEN = 4

MemoryTarget = Literal["memory", "user"]
PeerName = Annotated[str, "'user' (default), 'ai' for yourself, or the name of another peer"]
Level = Literal["minimal", "low", "medium", "high", "max"]


class HonchoProvider(BackendProvider[Client]):
    """One workspace of Honcho a profile, in it one peer a person and one for the agent."""

    name = NAME
    settings = SETTINGS
    # The reasoning takes seconds, and the HTTP client serves many threads. The ledger of what was sent is a file.
    capabilities = Capabilities(concurrent=8, slow_prefetch=True, local=True)
    commands = "hermes_honcho.cli:COMMANDS"

    def __init__(self, folder: Callable[[], Path] = Path.cwd) -> None:
        self._folder = folder
        self._decided: set[str] = set()

    # -------------------------------------------------------------- setup

    @property
    def mode(self) -> str:
        """The recall mode, by the name that users of Honcho know; "auto" is an older word for hybrid."""
        return str(self.options.recallMode).replace("auto", "hybrid")

    def read_settings(self, home: Path) -> Settings:
        """Return the settings of a home. Raises `ConfigError` also for faults that a single field can't show."""
        options = super().read_settings(home)
        validate(options)
        return options

    def availability(self, options: Settings) -> Availability:
        """Return whether Honcho's SDK is there, and a key or a server of your own."""
        if fault := sdk_fault(sdk_version()):
            return Availability.no(fault, 'pip install "honcho-ai>=2.7,<3"')
        if not options.enabled:
            return Availability.no("it is switched off in honcho.json", "hermes-memory honcho enable")
        return options.availability

    def connect(self, options: Settings) -> Client:
        """Return the client. It asks Honcho only when needed, so that the server may be down now."""
        hurry = min(options.firstTurnBaseWait or 3.0, options.timeout)
        workspace = names.workspace(options, self._profile)
        client = Client(address(options), options.apiKey, workspace, options.timeout, hurry)
        self.ledger = Ledger(self.home)
        self.pending = PendingWrites(client, self.ledger, self._send)
        self.layers = Layers(client, options, sieve=self.pending.sieve)
        self._decided = set()
        return client

    def open(self, home: Path, profile: str = "default") -> Client:
        """Open the client for a profile of that home."""
        self._profile = profile
        return super().open(home)

    def initialize(self, session: Session) -> None:
        """Open the home of the session, as its profile."""
        self.open(Path(session.home), session.identity)

    def check(self, session: Session) -> Sequence[Check]:
        """Write messages and a conclusion of a peer of its own, recall them, delete them."""
        return self_test(self.client, session)

    def export_memories(self, cursor: str, session: Session) -> MemoryPage:
        """Return the conclusions about the session's user, newest first. Messages stay: the host has them itself."""
        place = self.place(session)
        found = self.client.conclusions(place.observer, place.user, limit=MAX_EXPORTED)
        records = []
        for one in found:
            text, said = split_time(one.text)
            records.append(MemoryRecord(text, one.id, epoch_time(said) or one.at.timestamp()))
        return page_of(records, cursor)

    def import_memory(self, record: MemoryRecord, session: Session) -> None:
        """Store a memory as a conclusion about the session's user, once, with its time at the end of its text."""
        said = utc_time(record.created_at or record.updated_at)
        text = with_time(record.text.strip(), said)
        if not record.text.strip() or len(text) > MAX_CONCLUSION_CHARS:
            raise BackendRefused(
                f"the text has {len(text):,} characters", f"a conclusion has 1 to {MAX_CONCLUSION_CHARS:,}"
            )
        place = self.place(session)
        self._ensure(place)
        self.client.conclude(place.observer, place.user, [text])

    def pending_writes(self) -> int:
        """Return the number of turns that wait for their batch, and of notes that Honcho can't take now."""
        return self.ledger.waiting_turns() + self.ledger.waiting_notes()

    # --------------------------------------------------------------- turn

    def get_tool_schemas(self) -> Sequence[dict[str, Any]]:
        """Return the five tools, none in the mode that only recalls."""
        schemas = super().get_tool_schemas()
        if not self.options.dialecticDynamic:
            for schema in schemas:
                schema["parameters"]["properties"].pop("reasoning_level", None)
        return schemas

    def system_prompt_block(self) -> str:
        """Return what Honcho is, and the purpose of the tools."""
        return PROMPTS[self.mode]

    def on_turn_start(self, session: Session) -> None:
        """Count the turn, and note in which folder the session began."""
        self.layers.talks.of(session.id).turn += 1
        self.place(session)

    def prefetch(self, query: Query, session: Session) -> Recall:
        """Return what Honcho knows and concludes about this message, nothing for small talk."""
        if not self.recalls or is_trivial(query.text):
            return Recall()
        place = self.place(session)
        talk = self.layers.talks.of(session.id)
        return Recall(text=self.layers.recall(talk, query.text, place, query.budget))

    def queue_prefetch(self, query: Query, session: Session) -> Recall:
        """Ask Honcho's reasoning about the turn, for the next turn."""
        if not self.recalls or is_trivial(query.text):
            return Recall()
        place = self.place(session)
        self._ensure(place)  # the turn itself may arrive later, and the reasoning needs its peers
        talk = self.layers.talks.of(session.id)
        return Recall(text=self.layers.prepare(talk, query.text, place, query.budget))

    # ------------------------------------------------------------- writes

    def sync_turn(self, turn: Turn, session: Session) -> None:
        """Store both messages of the turn, or keep them until their batch is full."""
        self._decide_migration(session)
        if self.options.saveMessages:
            place = self.place(session)
            said = Line(place.user, turn.user, turn.id, "user", turn.user_at or turn.at)
            answered = Line(place.ai, turn.assistant, turn.id, "assistant", turn.at)
            self._store(turn.id, [said, answered], session)
        self.ledger.end_turn(session.id, turn.id)
        self.pending.catch_up(session.id)

    def on_delegation(self, delegation: Delegation, session: Session) -> None:
        """Store what a subagent found as a message of the agent."""
        if self.options.saveMessages:
            text = f"A subagent was given this task: {delegation.task}\n\nIts result: {delegation.result}"
            line = Line(self.place(session).ai, text, delegation.id, "delegation")
            self._store(delegation.id, [line], session)

    def on_memory_write(self, write: MemoryWrite, session: Session) -> None:
        """Mirror an entry of MEMORY.md or USER.md as a conclusion about the person."""
        self._decide_migration(session)
        place = self.place(session)
        self._ensure(place)
        old, whole = (write.previous, True) if write.previous else (write.old_text, False)
        if write.action != "add" and old and old != write.content:
            self.pending.retract(place.observer, place.user, old, whole=whole)
            self.layers.talks.outdated()
        if write.content:
            self.pending.conclude(place.observer, place.user, write.content)

    def on_session_end(self, session: Session) -> None:
        """Send the turns that waited for their batch."""
        self.pending.flush(session.id)
        self.pending.catch_up(session.id)

    def on_session_switch(self, switch: SessionSwitch) -> None:
        """Send what waited under the old session; take back turns that were taken back."""
        self.ledger.release(switch.rewound_turns)
        if switch.rewound_turns:
            place = self.place(switch.old)
            self._ensure(place)
            self.pending.rewind(place, switch.old.id, switch.rewound_turns)
            self.layers.talks.outdated()
        self.pending.flush(switch.old.id)
        if switch.reset:
            self.layers.talks.forget(switch.old.id)
        else:
            self.layers.talks.move(switch.old.id, switch.new.id)

    def forget_user(self, user: str, session: Session) -> Erasure:
        """Delete the user's sessions, the conclusions about the user, the cards, and what waits in the home."""
        place = self.place(session)
        self.ledger.forget(session.id, place.name, "" if place.owner else place.user)
        self.layers.talks.forget(session.id)
        self.layers.talks.outdated()
        where, ai = f"the workspace {self.client.workspace!r} of {self.client.place}", (place.ai,)
        conclusions, kept = 0, list[str]()
        if place.owner:
            # Aliases or pinUserPeer make this user the person at home: what others of that peer said stays.
            own = session.gateway_session_key or self.options.sessionStrategy == "per-session"
            count, shared = self.client.erase(place.user, ai, place.name) if own else (0, [place.name])
            kept = [
                f"what Honcho has concluded of {user}, whom the settings make the peer {place.user!r}, in {where}:"
                f" delete it by id, as `honcho_conclude` lists it"
            ]
        else:
            count, shared = self.client.erase(place.user, ai)
            conclusions = self.client.erase_image(place.user, (place.ai, place.user))
        deleted = {"session": count, "conclusion": conclusions}
        kept += [
            f"messages of {user} in the session {name!r}, which other people share, in {where}: they are hidden from"
            " searches, and Honcho deletes only whole sessions"
            for name in shared
        ]
        told = (f"{n} {what}{'' if n == 1 else 's'} in {where}" for what, n in deleted.items() if n)
        return Erasure(tuple(told), tuple(kept))

    def close(self) -> None:
        """Close the connections and the file."""
        if self._client is not None:
            self.ledger.close()
        super().close()

    # ------------------------------- tools; the docstring is what the model reads

    @tool()
    def honcho_profile(
        self,
        session: Session,
        peer: PeerName = "user",
        card: Annotated[list[str] | None, "facts that replace the whole card; [] clears it"] = None,
    ) -> dict[str, Any]:
        """Read or rewrite the card of a peer: the few facts about it that matter most."""
        place, about = self._about(peer, session)
        if card is not None:
            self._decide_migration(session)
            kept = self.client.set_card(place.observer_of(about), about, card)
            self.layers.talks.outdated()
            return {
                "result": f"Peer card updated ({len(kept)} fact{'' if len(kept) == 1 else 's'}).",
                "card": kept,
            }
        facts = self.client.card(place.observer_of(about), about)
        if facts:
            return {"result": facts}
        hint = "Honcho writes the card as it learns; honcho_context may know more already."
        return {"result": "No profile facts available yet.", "hint": hint}

    @tool()
    def honcho_search(
        self,
        query: Annotated[str, "words or a question"],
        session: Session,
        peer: PeerName = "user",
        max_tokens: Annotated[int, Range(100, 2000), "size of the answer"] = 800,
    ) -> str:
        """Find what was said in earlier conversations, word for word. Quick; no reasoning."""
        about = self._about(peer, session)[1]
        most = max_tokens * CHARS_PER_TOKEN
        found = self.client.search(query, max(3, min(most // 300, 20)), seen_by=about)
        lines = [f"[{one.who} · {one.session}] {clip(one.text, 1200)}" for one in found]
        return clip("\n\n".join(lines), most) or "No relevant context found."

    @tool()
    def honcho_context(self, session: Session, peer: PeerName = "user") -> str:
        """Read all that is known of a peer at a glance: summary, image, card, last messages. No reasoning."""
        place, about = self._about(peer, session)
        known = self.client.context(place.name, place.observer_of(about), about, tokens=2000)
        recent = "\n".join(f"[{one.who}] {clip(one.text, 200)}" for one in known.recent[-5:])
        parts = {
            "Summary": known.summary,
            "Representation": self.pending.sieve(known.representation),
            "Card": "\n".join(f"- {fact}" for fact in known.card),
            "Recent messages": recent,
        }
        told = "\n\n".join(f"## {title}\n{text}" for title, text in parts.items() if text)
        return told or "Nothing is known yet."

    @tool()
    def honcho_reasoning(
        self,
        query: Annotated[str, "a question in plain words"],
        session: Session,
        peer: PeerName = "user",
        reasoning_level: Annotated[Level | None, "how hard to think; harder takes longer"] = None,
    ) -> str:
        """Ask Honcho's reasoning about a peer. It thinks with a language model: slow, for what needs judgement."""
        question = clip(query.strip(), self.options.dialecticMaxInputChars)
        place, about = self._about(peer, session)
        level = reasoning_level if self.options.dialecticDynamic else None
        chosen = level or self.layers.level(self.options.dialecticReasoningLevel, question)
        answer = self.client.ask(place.observer_of(about), about, question, chosen, session=place.name)
        return answer or "No result from Honcho."

    @tool()
    def honcho_conclude(
        self,
        session: Session,
        conclusion: Annotated[str | None, "a lasting fact to keep, one sentence that stands alone"] = None,
        delete_id: Annotated[str | None, "id of a conclusion that is wrong"] = None,
        list: Annotated[bool | None, "true: list conclusions with their ids"] = None,  # noqa: A002  its name
        query: Annotated[str | None, "with list: those that fit these words"] = None,
        peer: PeerName = "user",
    ) -> dict[str, Any]:
        """Keep a fact about a peer, delete a wrong one by its id, or list them: one of the three a call."""
        if sum((bool(conclusion and conclusion.strip()), bool(delete_id), bool(list))) != 1 or (
            query and not list
        ):
            raise ToolInputInvalid(
                "exactly one of conclusion, delete_id and list is needed", "send query with list only"
            )
        place, about = self._about(peer, session)
        observer = place.observer_of(about)
        if list:
            found = self.client.conclusions(observer, about, query or "")
            return {"conclusions": [{"id": one.id, "content": one.text} for one in found]}
        if delete_id:
            if not self.client.drop(observer, about, delete_id):
                raise ToolInputInvalid(f"there is no conclusion {delete_id!r}", "send an id from a list")
            self.layers.talks.outdated()
            return {"result": f"Conclusion {delete_id} deleted."}
        text = (conclusion or "").strip()
        self._decide_migration(session)
        self.ledger.add_conclusions(session.id, self.client.conclude(observer, about, [text]))
        return {"result": f"Conclusion saved for {about}: {text}"}

    # ------------------------------------------------------------ private

    def place(self, session: Session) -> Place:
        """Return where the memory of this session is. A session without a person has a place without a
        name, which stores nothing.
        """
        options, peers = self.options, names.who(self.options, session)

        seen = observed(options)
        if not session.primary:
            where = ""
        elif names.by_folder(options):
            # Settled when the session begins: its writes may be sent by another process, from another folder.
            where = self.ledger.name_of(
                session.id, lambda: names.session_name(options, session, self._folder(), self.ledger.claim)
            )
        else:
            where = names.session_name(options, session, Path())
        observer = peers.ai if seen["ai"][1] else peers.user
        return Place(where, peers.user, peers.ai, observer, peers.owner and seen["ai"][0], peers.owner)

    def _ensure(self, place: Place, *, again: bool = False) -> None:
        """Make the session in Honcho. Of users of a gateway the agent learns no image of itself: it would tell of others.

        Recall before a turn needs no session: what only asks leaves nothing at Honcho.
        """
        if not place.name:
            return
        seen = observed(self.options)
        own_image, others = seen["ai"]
        peers = {place.user: seen["user"], place.ai: (own_image and place.owner, others)}
        try:
            self.client.ensure(place.name, peers, again=again)
            self.client.configure(place.name, peers)
        except BackendNotFound:
            raise
        except BackendRefused as exc:
            # Ten members observe others already, the most that Honcho allows. Who joins now observes nobody; members
            # keep their configuration.
            log.debug("whoever joins %r now observes nobody: %s", place.name, exc)
            joining = {peer: (me, False) for peer, (me, _) in peers.items()}
            self.client.ensure(place.name, joining, again=again)

    def _send(self, place: Place, lines: Sequence[Line]) -> None:
        """Store messages in the session, which is made again if somebody deleted it."""
        self._ensure(place, again=True)
        self.client.store(place.name, lines, self.options.messageMaxChars)

    def _about(self, peer: str, session: Session) -> tuple[Place, str]:
        """Return the peer that a tool asks about. A user of a gateway learns of nobody else. Raises
        `ToolInputInvalid`.
        """
        place = self.place(session)
        about = {"user": place.user, "ai": place.ai, "": place.user}.get(peer.strip(), peer.strip())
        if about != place.user and not place.owner:
            raise ToolInputInvalid(
                f"peer can't be {peer!r} here", "leave it out: only the user's own memory is open"
            )
        if names.clean(about) != about:
            raise ToolInputInvalid(
                f"there is no peer {peer!r}", "send 'user', 'ai' or a name that Honcho knows"
            )
        self._ensure(place)
        return place, about

    def _store(self, key: str, lines: Sequence[Line], session: Session) -> None:
        """Send messages, or keep them with the others of the session until there are enough."""
        batch, place = turns_a_batch(self.options), self.place(session)
        if batch == 1:
            self.pending.flush(session.id)  # from a time when turns were sent in batches
            self._send(place, lines)
        else:
            self.pending.hold(key, lines, place, session.id, batch)

    def _decide_migration(self, session: Session) -> None:
        """Decide, before this home's first write, whether Honcho gets its notes: if it knows nothing of the owner yet.

        Decided once a home and person, since after the first write Honcho knows something.
        """
        place = self.place(session)
        if not place.name or not place.owner or place.user in self._decided:
            return
        person = f"{self.client.workspace}/{place.user}"
        try:
            if not self.ledger.is_known(person):
                self._ensure(place)
                empty = not self.client.view(place.observer, place.user)
                entries = self.local_entries() if empty else []
                self.ledger.know(person, place.observer, place.user, entries)
            self._decided.add(place.user)
        except (BackendRefused, BackendUnavailable) as exc:
            # The write itself goes on, and fails with the same reason if Honcho is down.
            log.debug("whether Honcho gets the notes is decided later: %s", exc)

    def migrate(self, session: Session) -> tuple[int, dict[str, str]]:
        """Store the entries of MEMORY.md and USER.md as conclusions; return how many were new, and why others failed."""
        place = self.place(session)
        self._ensure(place)
        return store_each(self.client, place.observer, place.user, self.local_entries())

    def local_entries(self) -> list[str]:
        """Return the entries of USER.md and MEMORY.md that may be sent, without secrets.

        Raises:
            BackendUnavailable: The notes are on a server that can't be reached.
        """
        targets: tuple[MemoryTarget, ...] = ("user", "memory")
        try:
            with open_notes(HermesHome(self.home)) as store:
                notes = store.read()
            flagged = {one.entry for one in notes.flagged()}
            found = [
                entry for target in targets if target not in notes.problems for entry in notes.entries(target)
            ]
        except HermesError as exc:
            raise BackendUnavailable(f"the notes can't be read: {exc.message}", exc.remedy) from exc
        return [redact(entry) for entry in found if entry not in flagged]
