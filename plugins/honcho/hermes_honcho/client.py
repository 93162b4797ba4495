"""One workspace of a Honcho server, through Honcho's own SDK: the only place that knows the SDK and its errors.

One try a call. Every method raises `BackendUnavailable`, `BackendAuthError`, `BackendNotFound` or `BackendRefused`.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from hermes_core.errors import ProviderError
from hermes_core.kit import (
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    poll,
    query_text,
    storable,
)
from hermes_core.kit.http import Backend, NothingYet, error_detail, httpx_client, is_absent
from hermes_honcho.settings import KEY

if TYPE_CHECKING:
    import honcho
    import httpx

Item = TypeVar("Item")
Answer = TypeVar("Answer")

SDK = "honcho-ai"
OLDEST_SDK, NEXT_SDK = (2, 7), (3,)
MAX_PAGE_SIZE = 100
"""Messages or conclusions that Honcho takes in one call, and items of one page."""

MAX_CONCLUSION_CHARS = 20_000
"""Characters. Honcho takes more; its embedding models do not."""

MAX_SAFE_BYTES = 8192
"""Bytes of a text that an embedding model takes in any language: it takes 8,192 tokens, and a token has a byte or more."""

MAX_SEARCHED_SESSIONS = 1000
"""Newest sessions of a peer that are searched. Of older ones only its own messages are."""

ERASE_WAIT_S, STILL_DELETED_S = 20.0, 5.0
"""Seconds to wait until Honcho has deleted sessions in the background, and until the next try after that."""

_TIME = re.compile(r" \[of (\d{4}-\d\d-\d\dT[\d:.]+Z)\]$")
_SPECIAL_TOKEN = re.compile(r"<\|(?=\w+\|>)")
CONTINUED = "[continued] "
REWOUND = "rewound"
MAX_ENSURED = 4096
NOT_FOUND = "not found"
"""Words by which Honcho says that a session, a peer or another thing does not exist."""
_BREAKS = ("\n\n", ". ", " ")

Peers = Mapping[str, tuple[bool, bool]]
"""Peers of a session by name: whether others observe it, and whether it observes others."""


@dataclass(frozen=True, slots=True)
class Line:
    """One message to store. `turn` and `part` are its key, by which a repeat is recognised; `at` is when it was said."""

    peer: str
    text: str
    turn: str
    part: str
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored message, or a conclusion; `id` is Honcho's, `who` its author or the peer that drew it `about` another."""

    id: str
    text: str
    who: str
    session: str
    at: datetime
    about: str = ""


@dataclass(frozen=True, slots=True)
class View:
    """An observer's knowledge of a peer: representation and card, and the summary and last messages of a session."""

    representation: str = ""
    card: tuple[str, ...] = ()
    summary: str = ""
    recent: tuple[Entry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.representation or self.card or self.summary)


def sdk_version() -> str:
    """Return the installed version of Honcho's SDK, "" if there is none. It is looked up, not imported."""
    try:
        return importlib.metadata.version(SDK)
    except importlib.metadata.PackageNotFoundError:
        return ""


def sdk_fault(version: str) -> str:
    """Return why the SDK of this version can't be used, "" if it can. Hermes Agent may install an older one.

    >>> sdk_fault("2.2.0"), sdk_fault("2.10.1")
    ('honcho-ai 2.2.0 is installed, and 2.7 is needed', '')
    """
    if not version:
        return f"{SDK} is not installed"
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    return "" if OLDEST_SDK <= numbers < NEXT_SDK else f"{SDK} {version} is installed, and 2.7 is needed"


class Client:
    """The workspace. `timeout` is for writes, tools and commands; `hurry` for what a turn waits for. In seconds."""

    def __init__(self, url: str, key: str | None, workspace: str, timeout: float, hurry: float) -> None:
        import honcho

        self.backend = Backend("Honcho", url, "baseUrl", KEY, bool(key))
        self.place = self.backend.place
        self.workspace = workspace
        # The SDK follows no redirect.
        hooks = {"response": [_close_after_fault]}
        self._http = httpx_client(url, timeout=timeout, backend=self.backend, event_hooks=hooks)
        self._ensured: set[str] = set()

        def connect(seconds: float) -> honcho.Honcho:
            return honcho.Honcho(
                api_key=key or None,
                base_url=url,
                workspace_id=workspace,
                timeout=seconds,
                max_retries=0,
                default_headers={"X-Honcho-Host": "hermes-memory-honcho"},
                http_client=self._http,
            )

        self._calm = connect(timeout)
        self._hot = connect(hurry)

    def close(self) -> None:
        """Close the connections. Closing twice is once."""
        self._http.close()

    # -------------------------------------------------------------- sessions

    def ensure(self, session: str, peers: Peers, *, again: bool = False) -> None:
        """Make the session and its peers if they are not there; asked of the server once.

        With `again` the server is asked also if the session was there. Somebody may have deleted it since: Honcho would
        make it anew with the next message, without what the agent observes.
        """
        key = json.dumps([session, sorted(peers.items())])
        if key in self._ensured and not again:
            return
        if len(self._ensured) >= MAX_ENSURED:
            self._ensured.clear()
        from honcho.api_types import SessionPeerConfig

        members = [
            (peer, SessionPeerConfig(observe_me=me, observe_others=others))
            for peer, (me, others) in peers.items()
        ]
        with self._sdk_errors():
            self._calm.session(session, peers=members)
        self._ensured.add(key)

    def configure(self, session: str, peers: Peers) -> None:
        """Give the peers of a session this configuration; asked of the server once.

        Honcho keeps the configuration of members of a session that is there already, so that `ensure` changes nothing.
        """
        key = json.dumps([session, sorted(peers.items()), "configured"])
        if key in self._ensured:
            return
        from honcho.api_types import SessionPeerConfig

        with self._sdk_errors():
            opened = self._session(session)
            for peer, (me, others) in peers.items():
                opened.set_peer_configuration(peer, SessionPeerConfig(observe_me=me, observe_others=others))
        self._ensured.add(key)

    def sessions(self, limit: int) -> list[tuple[str, datetime | None]]:
        """Name and time of the newest sessions."""
        with self._sdk_errors():
            pages = self._calm.sessions(size=min(limit, MAX_PAGE_SIZE), reverse=True)
            return [(one.id, one.created_at) for one in islice(pages, limit)]

    def peers(self, limit: int) -> list[str]:
        """Return the names of the peers."""
        with self._sdk_errors():
            return [one.id for one in islice(self._calm.peers(size=min(limit, MAX_PAGE_SIZE)), limit)]

    def delete_session(self, session: str) -> None:
        """Delete a session with all that it holds."""
        self._ensured.clear()
        with self._sdk_errors():
            self._session(session).delete()

    def erase(self, peer: str, partners: Collection[str], only: str = "") -> tuple[int, list[str]]:
        """Delete the sessions of a peer with all that was said and concluded in them.

        Return their number, and the names of sessions that other people share: Honcho deletes no single message, so that
        the peer's messages there are hidden from searches as after a rewind.

        Raises `BackendUnavailable` while Honcho still deletes one, which it does in the background.

        Args:
            partners: Peers of the agent, who may be in the sessions.
            only: Name of the only session to delete.
        """
        self._ensured.clear()
        shared, deleted = [], 0
        for one in self._sessions_of(peer):
            if not one.is_active or only not in ("", one.id):
                continue
            with self._sdk_errors():
                session = self._session(one.id)
                if {member.id for member in session.peers()} <= {peer, *partners}:
                    session.delete()
                    deleted += 1
                    continue
                for message in session.messages(filters={"peer_id": peer}, size=MAX_PAGE_SIZE):
                    if not message.metadata.get(REWOUND):
                        session.update_message(message.id, {**message.metadata, REWOUND: True})
                shared.append(one.id)

        def are_gone() -> bool:
            return all(one.is_active for one in self._sessions_of(peer))

        if not poll(are_gone, ERASE_WAIT_S):
            raise BackendUnavailable(
                f"{self.place} still deletes sessions of {peer!r}", retry_after=STILL_DELETED_S
            )
        return deleted, shared

    def erase_image(self, peer: str, observers: Collection[str]) -> int:
        """Delete all conclusions about a peer and by it, and empty the cards that observers have of it.

        Return the number of conclusions.
        """
        found: dict[str, Entry] = {}
        for role in ("observed_id", "observer_id"):
            with self._sdk_errors():
                pages = self._calm.conclusions.list(size=MAX_PAGE_SIZE, filters={role: peer})
                found |= {one.id: _concluded(one) for one in pages}
        for one in found.values():
            with suppress(BackendNotFound), self._sdk_errors():
                self._view(one.who, one.about).delete(one.id)
        for observer in observers:
            with suppress(BackendNotFound):
                if self.card(observer, peer):
                    self.set_card(observer, peer, [])
        return len(found)

    def _sessions_of(self, peer: str) -> list[Any]:
        """Return all sessions of a peer, also those that Honcho still deletes."""
        with self._sdk_errors():
            return list(self._peer(peer).sessions(size=MAX_PAGE_SIZE))

    def pending(self, session: str = "") -> int:
        """Return the number of messages that Honcho still has to process, in its own units of work.

        `session` counts those of one session.
        """
        with self._sdk_errors():
            status = self._session(session).queue_status() if session else self._calm.queue_status()
            return int(status.pending_work_units + status.in_progress_work_units)

    # -------------------------------------------------------------- messages

    def store(self, session: str, lines: Sequence[Line], longest: int) -> None:
        """Store messages in order. Those that are there already, from a try that was cut off, are left out."""
        parts = [part for line in lines for part in _parts(line, longest)]
        if parts:
            safe = [replace(part, text=_without_special_tokens(part.text)) for part in parts]
            _else_safe(lambda chosen: self._store(session, chosen), parts, safe)

    def _store(self, session: str, parts: Sequence[Line]) -> None:
        with self._sdk_errors():
            opened = self._session(session)
            turns = list(dict.fromkeys(part.turn for part in parts))
            known = {
                (m.metadata.get("turn_id"), m.metadata.get("part")) for m in self._of_turns(opened, turns)
            }
            missing = [part for part in parts if (part.turn, part.part) not in known]
            for batch in _by(missing, MAX_PAGE_SIZE):
                opened.add_messages([self._message(part) for part in batch])

    def rewind(self, session: str, turns: Sequence[str]) -> list[Entry]:
        """Mark the messages of these turns as taken back, which `search` leaves out; what they were."""
        marked = []
        with self._sdk_errors():
            opened = self._session(session)
            for message in self._of_turns(opened, turns):
                opened.update_message(message.id, {**message.metadata, REWOUND: True})
                marked.append(_entry_of(message))
        return marked

    def search(self, query: str, limit: int, *, seen_by: str) -> list[Entry]:
        """Return messages of the peer's sessions, those that fit best first.

        The sessions are named: Honcho's own filter by perspective leaves out all that was said before the peer joined
        last, and a peer joins anew with every message.
        """
        words = _query(query)
        if not words:
            return []
        found: Sequence[Any] = ()
        with NothingYet(NOT_FOUND), self._sdk_errors():
            peer, most = self._peer(seen_by), min(limit, MAX_PAGE_SIZE)
            pages = peer.sessions(size=MAX_PAGE_SIZE, reverse=True)
            names = [one.id for one in islice(pages, MAX_SEARCHED_SESSIONS)]
            found = self._calm.search(words, {"session_id": names}, most) if names else []
            if len(names) == MAX_SEARCHED_SESSIONS:
                found = [*found, *peer.search(words, limit=most)]
        kept = {message.id: _entry_of(message) for message in found if not message.metadata.get(REWOUND)}
        return list(kept.values())[:limit]

    def upload(self, session: str, peer: str, name: str, text: str) -> int:
        """Store a file as messages of a peer; how many it became."""

        def send(chosen: str) -> int:
            with self._sdk_errors():
                return len(self._session(session).upload_file((name, chosen.encode(), "text/plain"), peer))

        return _else_safe(send, text, _without_special_tokens(text))

    # ------------------------------------------------------------- knowledge

    def context(
        self, session: str, observer: str, observed: str, query: str = "", *, near: float = 1.0, most: int = 25,
        tokens: int | None = None, hurry: bool = False,
    ) -> View:  # fmt: skip
        """Return what `observer` knows of `observed`, first of all what fits `query`, with the session's
        summary if there is one. A session or a peer that does not exist yet has an empty view.
        """
        if not session:
            return self.view(observer, observed, query, near=near, most=most, hurry=hurry)
        with NothingYet(NOT_FOUND):
            return self._context(session, observer, observed, query, near, most, tokens, hurry)
        return View()

    def _context(
        self,
        session: str,
        observer: str,
        observed: str,
        query: str,
        near: float,
        most: int,
        tokens: int | None,
        hurry: bool,
    ) -> View:
        words = _query(query)
        fitting = {"search_query": words, "search_top_k": most, "search_max_distance": near} if words else {}
        with self._sdk_errors():
            told = self._session(session, hurry=hurry).context(
                tokens=tokens,
                peer_target=observed,
                peer_perspective=observer if observer != observed else None,
                max_conclusions=most,
                **fitting,
            )
            return View(
                told.peer_representation or "",
                tuple(told.peer_card or ()),
                told.summary.content if told.summary else "",
                tuple(_entry_of(m) for m in told.messages if not m.metadata.get(REWOUND)),
            )

    def view(
        self,
        observer: str,
        observed: str,
        query: str = "",
        *,
        near: float = 1.0,
        most: int = 25,
        hurry: bool = False,
    ) -> View:
        """Return what `observer` knows of `observed` over all sessions. A peer that does not exist yet has
        an empty view.
        """
        words = _query(query)
        fitting = {"search_query": words, "search_top_k": most, "search_max_distance": near} if words else {}
        try:
            with self._sdk_errors():
                told = self._peer(observer, hurry=hurry).context(
                    target=observed if observed != observer else None, max_conclusions=most, **fitting
                )
                return View(told.representation or "", tuple(told.peer_card or ()))
        except BackendNotFound as exc:
            if is_absent(exc):
                return View()
            raise

    def ask(
        self,
        observer: str,
        observed: str,
        question: str,
        level: str,
        *,
        session: str = "",
        timeout: float | None = None,
    ) -> str:
        """Return the answer of Honcho's reasoning about a peer, "" if it has none."""
        with NothingYet(NOT_FOUND), self._sdk_errors():
            answer = self._peer(observer).chat(
                _without_special_tokens(_text(question)),
                target=observed if observed != observer else None,
                session=session or None,
                reasoning_level=level,
                timeout=timeout,
            )
            return str(answer or "").strip()
        return ""

    def card(self, observer: str, observed: str) -> list[str]:
        """Return the card that `observer` has of `observed`."""
        with NothingYet(NOT_FOUND), self._sdk_errors():
            return list(self._peer(observer).get_card(observed if observed != observer else None) or ())
        return []

    def set_card(self, observer: str, observed: str, card: Sequence[str]) -> list[str]:
        """Write the card anew; none of it is left when `card` is empty."""
        with self._sdk_errors():
            facts = [text for text in map(_text, card) if text]
            return list(
                self._peer(observer).set_card(facts, observed if observed != observer else None) or ()
            )

    # ----------------------------------------------------------- conclusions

    def conclude(self, observer: str, observed: str, texts: Iterable[str]) -> list[Entry]:
        """Store conclusions; those that are there already are left out."""
        wanted = [text for text in dict.fromkeys(map(_clean, texts)) if text]
        newest = self.conclusions(observer, observed, limit=MAX_PAGE_SIZE)
        new = [text for text in wanted if not self._same(observer, observed, text, newest)]
        made: list[Entry] = []

        def create(batch: Sequence[str]) -> list[Any]:
            with self._sdk_errors():
                return list(self._view(observer, observed).create([{"content": text} for text in batch]))

        for batch in _by(new, MAX_PAGE_SIZE):
            made += map(_concluded, _else_safe(create, batch, [_safe(text) for text in batch]))
        return made

    def conclusions(
        self, observer: str, observed: str, query: str = "", limit: int = 50, *, session: str = ""
    ) -> list[Entry]:
        """Return conclusions that fit the query, without one the newest."""
        with NothingYet(NOT_FOUND), self._sdk_errors():
            view, words = self._view(observer, observed), _query(query)
            if words:
                return [_concluded(one) for one in view.query(words, min(limit, MAX_PAGE_SIZE))]
            pages = view.list(size=min(limit, MAX_PAGE_SIZE), session=session or None)
            return [_concluded(one) for one in islice(pages, limit)]
        return []

    def retract(self, observer: str, observed: str, text: str, *, whole: bool = True) -> None:
        """Delete the conclusions that say just this; with a part of the text, the one that holds it if there is but one."""
        newest = self.conclusions(observer, observed, limit=MAX_PAGE_SIZE)
        wanted = _clean(text)
        found = self._same(observer, observed, wanted, newest)
        if not found and not whole:
            near = [*newest, *self.conclusions(observer, observed, wanted, 10)] if wanted else []
            holding = {one.id: one for one in near if wanted in one.text}
            found = [*holding.values()] if len(holding) == 1 else []
        for one in found:
            self.drop(observer, observed, one.id)

    def concluded_since(self, session: str, since: datetime) -> list[Entry]:
        """Return the conclusions of a session since then, by any peer about any other."""
        with self._sdk_errors():
            pages = self._calm.conclusions.list(size=MAX_PAGE_SIZE, filters={"session_id": session})
            return [_concluded(one) for one in takewhile(lambda one: one.created_at >= since, pages)]

    def drop(self, observer: str, observed: str, conclusion: str) -> bool:
        """Delete one of the conclusions about this peer; False when there is none of that id."""
        with self._sdk_errors():
            if not self._view(observer, observed).get_many([conclusion]):
                return False
        try:
            with self._sdk_errors():
                self._view(observer, observed).delete(conclusion)
        except BackendNotFound:
            return False
        return True

    # --------------------------------------------------------------- private

    def _session(self, name: str, *, hurry: bool = False) -> honcho.Session:
        from honcho.session import Session

        return Session(name, self._hot if hurry else self._calm)

    def _peer(self, name: str, *, hurry: bool = False) -> honcho.Peer:
        from honcho.peer import Peer

        return Peer(name, self._hot if hurry else self._calm)

    def _view(self, observer: str, observed: str) -> Any:
        return self._peer(observer).conclusions_of(observed)

    def _message(self, line: Line) -> Any:
        at = datetime.fromtimestamp(line.at, UTC) if line.at else None
        return self._peer(line.peer).message(
            line.text, metadata={"turn_id": line.turn, "part": line.part}, created_at=at
        )

    def _same(self, observer: str, observed: str, text: str, newest: Sequence[Entry]) -> list[Entry]:
        """Return the conclusions with this text: among the newest, where an interrupted write left it, else
        by a search.
        """
        forms = {text, _safe(text)}
        same = [one for one in newest if _clean(one.text) in forms]
        if same or len(newest) < MAX_PAGE_SIZE:
            return same
        near = self.conclusions(observer, observed, text, 10)
        return [one for one in near if _clean(one.text) in forms]

    def _of_turns(self, opened: honcho.Session, turns: Sequence[str]) -> Iterator[Any]:
        """Yield the stored messages of these turns."""
        for some in _by(turns, 25):
            wanted: list[dict[str, object]] = [{"metadata": {"turn_id": turn}} for turn in some]
            yield from opened.messages(filters={"OR": wanted}, size=MAX_PAGE_SIZE)

    @contextmanager
    def _sdk_errors(self) -> Iterator[None]:
        """Turn the SDK's errors into ours; no other place does."""
        import honcho.http.exceptions as sdk
        import httpx

        try:
            yield
        except sdk.APIError as exc:
            if exc.status == 404:
                # Somebody deleted it: it is made again by the next call that needs it.
                self._ensured.clear()
            said = "" if exc.message == f"HTTP {exc.status}" else exc.message
            wait = getattr(exc, "retry_after", None)
            error = self.backend.error(exc.status, error_detail(json.dumps(said)), wait)
            raise error from exc
        except (sdk.HonchoError, httpx.HTTPError) as exc:
            if isinstance(exc.__cause__, ProviderError):  # of our HTTP client
                raise exc.__cause__ from None
            if isinstance(exc.__cause__, ValueError):  # no JSON
                raise self.backend.unexpected(exc) from exc
            raise self.backend.error(None, error_detail(str(exc))) from exc
        except (ValueError, LookupError, TypeError, AttributeError) as exc:
            # The SDK trusts the form of an answer: what is none shows as one of these.
            raise self.backend.unexpected(f"what its SDK can't read ({type(exc).__name__})") from exc


def _text(text: str) -> str:
    """Return the text without what JSON or Postgres can't hold."""
    return storable(text).strip()


def _clean(text: str) -> str:
    """Return the text cut to the length of one conclusion."""
    return _text(text)[:MAX_CONCLUSION_CHARS].rstrip()


def with_time(text: str, said: str) -> str:
    """Return the text of a conclusion with an ISO time at its end, since Honcho dates it with the moment of its arrival."""
    return f"{text} [of {said}]" if said else text


def split_time(text: str) -> tuple[str, str]:
    """Return the text of a conclusion without the time that `with_time` added, and that time.

    >>> split_time("Likes tea. [of 2026-03-01T09:00:00.000Z]")
    ('Likes tea.', '2026-03-01T09:00:00.000Z')
    """
    found = _TIME.search(text)
    return (text[: found.start()], found[1]) if found else (text, "")


def _close_after_fault(response: httpx.Response) -> None:
    """Close the connection of a failed answer: Honcho closes it too, a moment later, and would reset the next call."""
    if response.status_code >= 500:
        response.extensions["network_stream"].close()


def _query(text: str) -> str:
    """Return the words of a question in a form that an embedding model takes."""
    return _safe(query_text(text))


def _safe(text: str) -> str:
    """Return the text as every tokenizer and embedding model takes it."""
    short = _without_special_tokens(text).encode()[:MAX_SAFE_BYTES]
    return short.decode("utf-8", "ignore").strip()


def _without_special_tokens(text: str) -> str:
    """Return the text with a space in each special token, which is then one no more.

    >>> _without_special_tokens("it ends with <|endoftext|>")
    'it ends with <| endoftext|>'
    """
    return _SPECIAL_TOKEN.sub("<| ", text)


def _else_safe(send: Callable[[Item], Answer], given: Item, safe: Item) -> Answer:
    """Send it as it is; if Honcho refuses that, once more in the form that is safe.

    Honcho answers a text that holds a special token of its tokenizers with 422, or with 500 as if it were down.
    """
    try:
        return send(given)
    except (BackendRefused, BackendUnavailable) as exc:
        if safe == given or isinstance(exc, BackendNotFound) or status_of(exc) not in (400, 422, 500):
            raise
        return send(safe)


def status_of(error: Exception) -> int | None:
    """Return the HTTP status that an error of this module comes from, None if there was no answer."""
    return getattr(error.__cause__, "status", None)


def _by(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    return (items[at : at + size] for at in range(0, len(items), size))


def _parts(line: Line, longest: int) -> Iterator[Line]:
    """Yield a message in parts that Honcho takes, cut at a paragraph, a sentence or a word."""
    rest, number = _text(line.text), 0
    while rest:
        head = CONTINUED if number else ""
        room = longest - len(head)
        cut = len(rest) if len(rest) <= room else _cut(rest, room)
        yield replace(line, text=head + rest[:cut].rstrip(), part=f"{line.part}.{number}")
        rest, number = rest[cut:].lstrip(), number + 1


def _cut(text: str, room: int) -> int:
    for mark in _BREAKS:
        at = text.rfind(mark, room // 2, room)
        if at > 0:
            return at + len(mark)
    return room


def _entry_of(message: Any) -> Entry:
    return Entry(message.id, message.content, message.peer_id, message.session_id, message.created_at)


def _concluded(one: Any) -> Entry:
    return Entry(one.id, one.content, one.observer_id, one.session_id or "", one.created_at, one.observed_id)
