"""Move of all memories from one provider to another: planned, copied, verified by count and hash, and only then chosen.

The source is only read. A move that was killed is run again: what the target has is not sent a second time. If one of the two
providers can't list or take memories, the stored turns are sent to the target instead, as if they had just been said.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from hermes_core import HermesHome, Memory, load_provider
from hermes_core.config import load_config, set_value
from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import MemoryRecord, MemoryWrite, Session, parse_outside_id
from hermes_core.errors import BackendRefused, BackendUnavailable, ConfigError, ProviderUnavailable
from hermes_core.kit import redact, write_atomic
from hermes_core.selection import account_of
from hermes_core.sessions.records import CompletedTurn
from hermes_core.setup.candidate import open_candidate
from hermes_core.storage.files import PRIVATE_FILE, ensure_folder
from hermes_memory_archive.memories import (
    UNSEEN,
    ProviderMemories,
    as_sent,
    disputed_sessions,
    owners_of,
)

Way = Literal["memories", "turns"]

ROUNDS = 3
"""Times that the source is listed: a program that still uses it may write meanwhile."""

VISIBLE_TIMEOUT_S = 60.0
"""Seconds that a backend which stores later gets until its list has what it took."""

ACKNOWLEDGED = (
    "{name!r} acknowledged these; what it made of them, and that it keeps them, can't be verified, since it can't be asked "
    "for the texts"
)
"""Sentence for people: what a count of answers says, and what it doesn't."""

_FLUSH_S = 5.0
_STALLED_S = 120.0
_NAMESPACE = uuid.UUID("0c9b5a52-6d0e-5f6f-8f57-53a8cf2d2f10")


@dataclass(frozen=True, slots=True)
class UserPlan:
    """Memories of one user: how many the source has, and how many of these the target has already (None if it can't say)."""

    user: str
    memories: int
    present: int | None


@dataclass(frozen=True, slots=True)
class MovePlan:
    """Plan of a move.

    Attributes:
        way: "memories" copies them word for word, "turns" sends stored turns and notes to the target instead.
        reason: Why turns are sent; "" if memories are copied.
        turns: Stored turns, if they are sent.
        unseen: The users whom the move can't know of, as a sentence; "" if the users were named.
        disputed: Sessions that are not moved, since their stored user and their identity disagree.
    """

    source: str
    target: str
    way: Way
    reason: str = ""
    users: tuple[UserPlan, ...] = ()
    turns: int = 0
    notes: int = 0
    unseen: str = ""
    disputed: tuple[str, ...] = ()


@dataclass(slots=True)
class MoveReceipt:
    """Receipt of a move.

    Attributes:
        memories: Memories of the source, or turns and notes that were sent.
        copied: Number that this run sent; the others were there.
        altered: Memories of which the target gives back another kind, time, tag or detail.
        refused: Memories that the target does not take, each with its reason.
        missing: Beginnings of the memories that the target neither has nor refused.
        verified: True if the target has every memory, word for word, except the refused ones. False if it took none.
        source_hash: Hash over the texts of the source, by user.
        target_hash: The same over those of these texts that the target has; "" if it can't list them.
        switched: True if `memory.provider` names the target now.
        unseen: The users whom the move can't know of, as a sentence; "" if the users were named.
        disputed: Sessions that were not moved, since their stored user and their identity disagree.
        acknowledged: Number of the memories, or turns and notes, that the target said it took, in this run or before.
        unverified: What could not be verified, as a sentence; "" if the target lists all of it.
    """

    source: str
    target: str
    way: Way
    reason: str = ""
    started_at: float = 0.0
    ended_at: float = 0.0
    users: int = 0
    memories: int = 0
    copied: int = 0
    altered: int = 0
    refused: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    source_hash: str = ""
    target_hash: str = ""
    verified: bool = False
    switched: bool = False
    unseen: str = ""
    disputed: list[str] = field(default_factory=list)
    acknowledged: int = 0
    unverified: str = ""

    @property
    def took_none(self) -> bool:
        """True if the source has memories, and the target refused all of them."""
        return self.memories > 0 and not self.missing and not self.verified


class ProviderMove:
    """A move between two providers that are open.

    Args:
        memory: The home without a provider, whose users, turns and notes are meant.
        users: The users that are wanted, "" for the person at home; None for all that the home knows.
        on_record: Called once a memory or a turn, for a progress bar.
    """

    def __init__(
        self,
        memory: Memory,
        source: ProviderMemories,
        target: ProviderMemories,
        users: Collection[str] | None = None,
        *,
        on_record: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._memory, self._source, self._target = memory, source, target
        self._on_record, self._clock, self._sleep = on_record, clock, sleep
        self._users = owners_of(memory) if users is None else sorted(users)
        self._unseen = UNSEEN.format(name=source.name) if users is None else ""
        self._disputed = disputed_sessions(memory)
        self._refused = dict[tuple[str, str], str]()
        self._sent_file = (
            memory.home.path / "migration" / f"{_label(source.name)}-to-{_label(target.name)}.sent"
        )

    def plan(self) -> MovePlan:
        """Return what a move would do. Nothing is written.

        Raises:
            BackendUnavailable: A provider does not give its memories.
        """
        source, target = self._source, self._target
        lacking = [
            f"{side.name!r} has no {hook}"
            for side, hook in ((source, "export_memories"), (target, "import_memory"))
            if not side.implements(hook)
        ]
        if lacking:
            sessions = self._memory.sessions
            turns = sum(self._is_moved(turn) for turn in sessions.turns.complete(everybody=True))
            reason = f"{' and '.join(lacking)}, so the stored turns and notes are sent instead"
            return MovePlan(
                source.name,
                target.name,
                "turns",
                reason,
                turns=turns,
                notes=len(self._notes()),
                disputed=tuple(self._disputed.values()),
            )
        plans = []
        for user in self._users:
            keys = {as_sent(record).key for record in source.records(user)}
            here = self._target_keys(user)
            plans.append(UserPlan(user, len(keys), None if here is None else len(keys & here)))
        users = tuple(plan for plan in plans if plan.memories)
        return MovePlan(source.name, target.name, "memories", users=users, unseen=self._unseen)

    def run(self, plan: MovePlan) -> MoveReceipt:
        """Copy and verify. `memory.provider` stays as it is.

        Raises:
            BackendUnavailable: A provider failed. Run it again to go on there.
        """
        receipt = MoveReceipt(plan.source, plan.target, plan.way, plan.reason, self._clock())
        receipt.unseen, receipt.disputed = plan.unseen, list(plan.disputed)
        if plan.way == "turns":
            self._send_turns(receipt)
        else:
            for user in self._users:
                self._copy(user, receipt)
            self._verify(receipt)
        receipt.ended_at = self._clock()
        return receipt

    # ------------------------------------------------------------------ memories

    def _copy(self, user: str, receipt: MoveReceipt) -> None:
        here = self._target_keys(user)
        present = self._sent(user) if here is None else here
        for record in map(as_sent, self._source.records(user)):
            if record.key not in present:
                try:
                    self._target.put(record, user)
                except BackendRefused as exc:
                    self._refused[user, record.key] = redact(str(exc))
                    continue
                present.add(record.key)
                receipt.copied += 1
                self._note_sent(user, record.key)
            self._on_record()

    def _verify(self, receipt: MoveReceipt) -> None:
        for number in range(ROUNDS):
            sources = {
                user: {r.key: r for r in map(as_sent, self._source.records(user))} for user in self._users
            }
            receipt.memories = sum(map(len, sources.values()))
            receipt.users = sum(bool(records) for records in sources.values())
            receipt.source_hash = _hash({user: set(records) for user, records in sources.items()})
            absent = self._absent(sources, receipt)
            missing = absent - self._refused.keys()
            if not missing or number == ROUNDS - 1:
                break
            # The source got more since it was listed, or the target lost some.
            for user in {user for user, _ in missing}:
                self._copy(user, receipt)
        # By key, not by number: a refusal of one memory must not hide the loss of another.
        receipt.refused = [self._refused[at] for at in self._refused if at in absent]
        receipt.missing = [sources[user][key].text[:80] for user, key in sorted(missing)]
        receipt.acknowledged = receipt.memories - len(absent)
        if not self._target.implements("export_memories"):
            receipt.unverified = ACKNOWLEDGED.format(name=self._target.name)
        receipt.verified = not missing and (not receipt.memories or len(absent) < receipt.memories)

    def _absent(
        self, sources: dict[str, dict[str, MemoryRecord]], receipt: MoveReceipt
    ) -> set[tuple[str, str]]:
        """Return user and key of each memory that the target does not have.

        A backend that stores later gets time. Of a target that can't list what it has, what it acknowledged counts.
        """
        if not self._target.implements("export_memories"):
            return {(user, key) for user in sources for key in sources[user].keys() - self._sent(user)}
        waited = 0.0
        while True:
            absent, receipt.altered = set[tuple[str, str]](), 0
            common: dict[str, set[str]] = {}
            for user, records in sources.items():
                there = {record.key: record for record in self._target.records(user)} if records else {}
                common[user] = records.keys() & there.keys()
                absent |= {(user, key) for key in records.keys() - there.keys()}
                receipt.altered += sum(not _keeps(records[key], there[key]) for key in common[user])
            receipt.target_hash = _hash(common)
            if absent <= self._refused.keys() or waited >= VISIBLE_TIMEOUT_S:
                return absent
            waited += 1.0
            self._sleep(1.0)

    def _target_keys(self, user: str) -> set[str] | None:
        if not self._target.implements("export_memories"):
            return None
        return {record.key for record in self._target.records(user)}

    def _sent(self, user: str) -> set[str]:
        """Return the keys that an earlier run sent to a target which can't list what it has."""
        try:
            lines = self._sent_file.read_text(encoding="ascii").splitlines()
        except FileNotFoundError:
            return set()
        mark = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()
        return {key for owner, _, key in (line.partition(" ") for line in lines) if owner == mark}

    def _note_sent(self, user: str, key: str) -> None:
        if self._target.implements("export_memories"):
            return
        ensure_folder(self._sent_file.parent)
        mark = hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()
        with self._sent_file.open("a", encoding="ascii") as file:
            file.write(f"{mark} {key}\n")
        self._sent_file.chmod(PRIVATE_FILE)

    # --------------------------------------------------------------------- turns

    def _send_turns(self, receipt: MoveReceipt) -> None:
        """Put every stored turn and note into the outbox of the target, and wait until it took them."""
        manager, sessions, count, ended = self._target.manager, self._memory.sessions, 0, dict[str, Session]()
        outbox, name = manager.outbox, self._target.name
        events = list[tuple[str, str, str]]()
        for stored in sessions.turns.complete(everybody=True):
            if not self._is_moved(stored):
                continue
            session = self._session_of(stored)
            count += 1
            events.append(("sync_turn", stored.turn.id, stored.turn.user))
            if not outbox.knows(name, "sync_turn", stored.turn.id):
                manager.sync_all(stored.turn, session)
                receipt.copied += outbox.knows(name, "sync_turn", stored.turn.id)
            ended[session.id] = session
            self._on_record()
            if not count % 200:  # an outbox has a limit
                self._wait(receipt)
        for write, owner in self._notes():
            count += 1
            events.append(("on_memory_write", write.id, write.content))
            if not outbox.knows(name, "on_memory_write", write.id):
                manager.on_memory_write(write, self._target.session_of(owner))
                receipt.copied += outbox.knows(name, "on_memory_write", write.id)
        for session in ended.values():
            manager.on_session_end(session, "import", sessions.last_message_id(session.id))
        self._wait(receipt)
        receipt.memories, receipt.users = count, len(self._users)
        # By event, not by number: a turn that no row was made for must not hide behind the others.
        dead = {(row.hook, row.event): row.error for row in outbox.dead_letters(name)}
        pending = {(row.hook, row.event): row.error or "it still waits" for row in outbox.pending(name)}
        absent = "the provider takes no such write, or a filter refused it"
        for hook, event, text in events:
            reason = dead.get((hook, event)) or pending.get((hook, event))
            if reason is None and not outbox.knows(name, hook, event):
                reason = absent
            if reason is not None:
                receipt.missing.append(redact(f"{hook} {event} ({text[:40]}): {reason}"))
        receipt.acknowledged = count - len(receipt.missing)
        receipt.unverified = ACKNOWLEDGED.format(name=name)
        receipt.verified = not receipt.missing

    def _wait(self, receipt: MoveReceipt) -> None:
        """Wait for the outbox, as long as it gets shorter."""
        outbox, name = self._target.manager.outbox, self._target.name
        depth, since = outbox.backlog(name).depth, self._clock()
        while not self._target.manager.flush(_FLUSH_S):
            now = outbox.backlog(name)
            if now.depth < depth:
                depth, since = now.depth, self._clock()
            elif self._clock() - since > _STALLED_S:
                raise BackendUnavailable(
                    f"{name!r} takes no more turns: {now.error or 'it gives no reason'}; {now.depth} wait",
                    "see that its backend runs (hermes-memory doctor), and run the command again",
                )
        del receipt

    def _notes(self) -> list[tuple[MemoryWrite, str]]:
        writes = []
        for user in self._users:
            store = self._memory.curated.of(self._target.session_of(user))
            for target in store.enabled_targets:
                for entry in store.entries(target):
                    name = json.dumps([self._target.name, user, target, entry])
                    write_id = uuid.uuid5(_NAMESPACE, name).hex
                    origin = store.read().origin_of(entry).origin
                    write = MemoryWrite(write_id, "add", target, entry, metadata={"origin": origin})
                    writes.append((write, user))
        return writes

    def _is_moved(self, turn: CompletedTurn) -> bool:
        if turn.session_id in self._disputed:
            return False
        session = self._session_of(turn)
        return session.primary and session.owner in self._users

    def _session_of(self, turn: CompletedTurn) -> Session:
        home = {"home": str(self._memory.home.path), "identity": self._memory.home.profile}
        if turn.identity:
            return Session.from_dict({**turn.identity, **home, "id": turn.session_id})
        # Imports store sessions with a user and without an identity.
        stored = self._memory.sessions.get_session(turn.session_id)
        fields = parse_outside_id(stored.user) if stored is not None and stored.user else {}
        return Session.from_dict({**fields, **home, "id": turn.session_id})


@contextlib.contextmanager
def opened_provider(home: HermesHome, name: str, *, delivers: bool) -> Iterator[ProviderMemories]:
    """Start a provider beside the one that config.yaml chooses.

    Args:
        delivers: False to leave what waits for it in the outbox.

    Raises:
        ProviderError: It is not installed, or does not start.
    """
    loaded = load_provider(name, home)
    name = loaded.entry.name
    held_back = "" if delivers else "it is only read"
    with open_candidate(home, loaded, held_back=held_back, shutdown_timeout=10.0) as (manager, _):
        provider = ProviderMemories(manager, home, name)
        manager.initialize_all(provider.session_of(""), wait=POLICIES["initialize"].deadline)
        health = next((one for one in manager.health() if one.name == name), None)
        if health is None or health.state not in ("active", "degraded") or "initialize" in health.reason:
            raise ProviderUnavailable(
                f"{name!r} does not start: {health.reason if health else 'it was not accepted'}",
                f"hermes-memory memory setup {name}",
            )
        yield provider


def refuse_same_account(source_home: HermesHome, source: str, home: HermesHome, target: str) -> None:
    """Raise `ConfigError` if both are one provider with one account: there would be nothing to move."""
    first, second = load_provider(source, source_home), load_provider(target, home)
    if first.entry.name != second.entry.name:
        return
    accounts = [
        account_of(one.settings, one.entry.name, where)()
        for one, where in ((first, source_home), (second, home))
    ]
    same_home = source_home.path.resolve() == home.path.resolve()
    if same_home or (accounts[0] and accounts[0] == accounts[1]):
        raise ConfigError(
            f"{first.entry.name!r} would be moved into itself: both have the same account",
            "set up the other account in another home or profile, and name it with --from-home",
        )


def switch_provider(home: HermesHome, name: str) -> None:
    """Make the provider the active one, and read that back."""
    if load_config(home).memory.provider != name:
        set_value(home, "memory.provider", name)


def save_receipt(home: HermesHome, receipt: MoveReceipt) -> Path:
    """Write the receipt below the home, and return its path."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(receipt.ended_at))
    path = home.path / "migration" / f"{stamp}-{_label(receipt.source)}-to-{_label(receipt.target)}.json"
    write_atomic(path, (json.dumps(asdict(receipt), indent=1) + "\n").encode())
    return path


def _keeps(record: MemoryRecord, copy: MemoryRecord) -> bool:
    """Return True if a copy has all that the record says; it may say more."""
    return (
        (not record.created_at or record.created_at == copy.created_at)
        and (not record.updated_at or record.updated_at == copy.updated_at)
        and (not record.kind or record.kind == copy.kind)
        and set(record.tags) <= set(copy.tags)
        and record.details.items() <= copy.details.items()
    )


def _hash(keys: dict[str, set[str]]) -> str:
    lines = sorted(json.dumps([user, key]) for user, found in keys.items() for key in found)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _label(name: str) -> str:
    return name.replace(":", "-").replace("/", "-")
