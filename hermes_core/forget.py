"""Deletion of all that a home holds of one user: sessions, pending writes, notes, and their history."""

from __future__ import annotations

import dataclasses
import json
import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct, structs

from hermes_core.contract.values import Erasure, Session, parse_outside_id
from hermes_core.curated.hooks import NoteHooks
from hermes_core.curated.store import TARGETS, Notes
from hermes_core.errors import SessionError
from hermes_core.home import file_name_of
from hermes_core.kit.text import storable
from hermes_core.memory import Memory
from hermes_core.outbox.rows import forgotten_user
from hermes_core.sessions import maintenance
from hermes_core.sessions.records import State
from hermes_core.storage.files import delete_path

_SESSIONS = 'SELECT id, message_count, identity FROM sessions WHERE "user" = ? ORDER BY last_active DESC'

# It names no user, because a server shows this error to the user who asks for their own deletion.
_REMEDY = "hermes-memory identity list shows the users of a home, and --home chooses the home"


class ProviderErasure(Struct, frozen=True):
    """Result of the request to a provider to forget a user.

    Attributes:
        provider: Name of the provider.
        state: "forgotten"; "incomplete" if something remains; "waiting" if the request is still in the outbox; "unable"
            if the provider has no way to forget a person.
        deleted: What was deleted, as the provider says.
        remaining: What remains there, and how to delete it.
    """

    provider: str
    state: Literal["forgotten", "incomplete", "waiting", "unable"]
    deleted: tuple[str, ...] = ()
    remaining: tuple[str, ...] = ()


class Leftover(Struct, frozen=True):
    """Result of the search for texts of a forgotten user in one place.

    Attributes:
        place: A file or an entry of the home, a path outside, or "provider NAME".
        hits: Number of texts that were found.
        promised: True if a deletion promises that nothing is left there. Logs and backups belong to an operator.
        error: The reason why the place could not be searched; "" if it was.
    """

    place: str
    hits: int
    promised: bool
    error: str = ""


class ForgetReport(Struct, frozen=True):
    """Report of a deletion, or of what a dry run would delete.

    Attributes:
        user: The `Session.owner` of the user.
        sessions: Number of sessions.
        messages: Number of messages in them.
        turns: Number of turns that the provider may have.
        notes: Number of entries of the notes.
        provider: Name of the provider; "" for none.
        waiting: Number of rows in the outbox that wait for the provider.
        remaining: A sentence for each thing that this program can't delete.
        erased: True if all that the home held of the user is deleted. Data of an extension that is missing is not.
        providers: What became of it at each provider that may have something of the user.
        places: What was found afterwards, per place.
    """

    user: str
    sessions: int
    messages: int
    turns: int = 0
    notes: int = 0
    provider: str = ""
    waiting: int = 0
    remaining: tuple[str, ...] = ()
    erased: bool = False
    providers: tuple[ProviderErasure, ...] = ()
    places: tuple[Leftover, ...] = ()

    @property
    def complete(self) -> bool:
        """True if the home and all providers have forgotten the user, and nothing was found where that is promised."""
        left = any(one.promised and (one.hits or one.error) for one in self.places)
        return self.erased and not left and all(one.state == "forgotten" for one in self.providers)


def forget_user(memory: Memory, user: str, *, dry_run: bool = False) -> ForgetReport:
    """Delete everything that the stores hold of a user, and ask the providers to forget the user.

    The providers are asked by rows of the outbox, which `flush` delivers. Afterwards the file of the sessions is
    vacuumed, so that no deleted text stays in it.

    Args:
        memory: The memory.
        user: The user's `Session.owner`, as telegram:42.
        dry_run: True to count only.

    Raises:
        SessionError: `user` is the person at home, or nothing is stored of the user.
    """
    if not user or user in memory.config.identity.owners:
        raise SessionError(f"{user!r} is the person at home", "delete the home to forget that person")
    if storable(user) != user:  # as it comes from a terminal of another encoding
        raise SessionError(f"{user!r} is no text, so nothing is stored of it", _REMEDY)
    db = memory.sessions
    rows = db.database.execute(_SESSIONS, (user,)).fetchall()
    sessions = [_stored_session(memory, row["id"], row["identity"]) for row in rows]
    speaker = speaker_of(memory, user)
    own = Notes(
        memory.home,
        memory.sessions.database,
        structs.replace(memory.curated.settings, per_user=True, enabled=TARGETS),
        NoteHooks(on_write=memory.manager.on_memory_write, provider=lambda: memory.internals.selection.name),
    ).of(speaker)
    folders = [path for path in memory.home.path.glob(f"*/users/{file_name_of(user)}") if path.is_dir()]
    count = sum(len(own.entries(target)) for target in TARGETS if _is_of_user(own, target))
    stored = bool(folders) or user in own.places.owners()
    sql = "SELECT 1 FROM host_state WHERE scope = 'user' AND owner = ?"
    values = db.database.execute(sql, (user,)).fetchone()
    messages, provider = sum(row["message_count"] for row in rows), memory.internals.selection.name
    report = ForgetReport(user, len(rows), messages, notes=count, provider=provider)
    if not (rows or stored or values):
        raise SessionError(f"nothing is stored of {user!r} in this home", _REMEDY)
    # Data of an extension that is missing or broken stays: only the extension knows what is the user's.
    parts = memory.internals.parts
    stores = parts.stores.values()
    absent = {
        part.name: part
        for part in parts.absent
        for place in part.folders(memory.home.path)
        if any(place.is_relative_to(folder) for folder in folders)
    }
    unerased = [
        f"the {part.name} of {user}, who is not erased: {parts.fact(part)}; {parts.remedy(part)}, and "
        "forget the user again"
        for part in absent.values()
    ]
    if dry_run:
        return structs.replace(report, remaining=tuple(unerased))
    # A session whose identity is damaged is passed on as one of the user all the same.
    own_sessions = (one if one.owner == user else dataclasses.replace(speaker, id=one.id) for one in sessions)
    turns = sum(_forget_session(memory, user, session) for session in own_sessions)
    for target in TARGETS:
        if stored and _is_of_user(own, target):
            own.reset(target, session=speaker)
    own.files.prune()
    own.files.delete()
    # Behind the removals of the notes, which are rows of this session.
    memory.manager.forget_user(user, speaker)
    with db.transaction() as connection:
        connection.execute("DELETE FROM host_state WHERE scope = 'user' AND owner = ?", (user,))
        connection.execute('DELETE FROM daily_usage WHERE "user" = ?', (user,))
    for store in stores:
        store.forget(db.database, user)
    absent_places = {place for part in absent.values() for place in part.folders(memory.home.path)}
    for folder in folders:
        if folder.is_dir():
            _delete_folder(memory, folder, absent_places)
    if not db.database.shared:  # a server reuses the space itself
        maintenance.vacuum(db)
    return structs.replace(
        report,
        turns=turns,
        waiting=memory.manager.outbox.depth,
        remaining=(
            *unerased,
            "texts of others, and of groups, may name the user: hermes-memory sessions search NAME, hermes-memory memory"
            " show; so may backups that you keep elsewhere",
        ),
        erased=not unerased,
        providers=provider_erasures(memory, user),
    )


def provider_erasures(memory: Memory, user: str) -> tuple[ProviderErasure, ...]:
    """Return what became of a user at each provider in use, and at each earlier one whose request still waits."""
    outbox = memory.manager.outbox
    in_use = memory.manager.erasures(user)
    rows = outbox.requests_to_forget() if outbox.exists else ()
    waiting = {row.provider for row in rows if forgotten_user(row) == user}
    found = []
    for name in dict.fromkeys([*in_use, *sorted(waiting)]):
        erasure = in_use.get(name)
        if name in in_use and not memory.manager.implements(name, "forget_user"):
            files = memory.manager.ask(name, "backup_paths").value
            where = f"at its backend and in {', '.join(files)}" if files else "at its backend"
            told = (
                f"it has no way to forget a person, and what it was sent of {user} is still {where}: delete it there by the"
                " provider's own program or account page, as its documentation says"
            )
            found.append(ProviderErasure(name, "unable", remaining=(told,)))
            continue
        if erasure is None:
            told = "another process of this home has passed the request on: its log says what was deleted and what was not"
            erasure = Erasure(remaining=() if name in waiting else (told,))
        state: Any = "waiting" if name in waiting else "incomplete" if erasure.remaining else "forgotten"
        found.append(ProviderErasure(name, state, erasure.deleted, erasure.remaining))
    return tuple(found)


def _delete_folder(memory: Memory, folder: Path, exceptions: Collection[Path]) -> None:
    """Delete a folder of a user, but for the folders in `exceptions`."""
    if any(place.is_relative_to(folder) for place in exceptions):
        for path in folder.iterdir() if folder not in exceptions else ():
            if path.is_dir() and not path.is_symlink():
                _delete_folder(memory, path, exceptions)
            else:
                memory.internals.inventory.remove({path.relative_to(memory.home.path).as_posix()})
                delete_path(path)
        return
    # First: if this process dies in between, nothing that was deleted on purpose counts as lost.
    memory.internals.inventory.remove_below(folder)
    delete_path(folder)


def speaker_of(memory: Memory, user: str) -> Session:
    """Return a session of the user that is not stored. Raises `SessionError` if `user` is no `Session.owner`."""
    new = f"forget-{uuid.uuid4().hex}"
    for row in memory.sessions.database.execute(_SESSIONS, (user,)):
        session = _stored_session(memory, row["id"], row["identity"])
        if session.owner == user:
            return dataclasses.replace(session, id=new, parent_id="", agent_context="primary")
    try:
        fields = parse_outside_id(user)
    except SessionError as exc:
        raise SessionError(
            f"{user!r} names no user", f"write PLATFORM:ID, as telegram:42; {_REMEDY}"
        ) from exc
    return _stored_session(memory, new, json.dumps(fields))


def _stored_session(memory: Memory, session_id: str, identity: str) -> Session:
    """Return a session in this home with the fields that its row holds as JSON."""
    fields = {**_object(identity), "home": str(memory.home.path), "identity": memory.home.profile}
    return Session.from_dict({**fields, "id": session_id})


def _object(text: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError:  # damaged
        return {}
    return {key: item for key, item in value.items() if key != "id"} if isinstance(value, dict) else {}


def _forget_session(memory: Memory, user: str, session: Session) -> int:
    """Ask the providers to forget a session of the user, and delete it. Return the number of its turns."""
    if memory.sessions.get_session(session.id) is None:  # deleted with the session that delegated it
        return 0
    rows = memory.sessions.database.execute(
        "SELECT t.id FROM turns t JOIN sessions s ON s.key = t.session_key WHERE s.id = ? AND t.state <> ?",
        (session.id, State.REWOUND),
    )
    turns = [row[0] for row in rows]
    # Before it is deleted: if this process dies in between, the next run asks again.
    memory.manager.forget_user(user, session, turns)
    memory.delete_session(session.id)
    return len(turns)


def _is_of_user(store: Notes, target: str) -> bool:
    """Return True if this target is a file of the user's own, and not one that all users share."""
    return store.files.key("user" if target == "user" else "memory").startswith("users/")
