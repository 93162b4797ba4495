"""Supermemory in either of its APIs: v5 by the vendor's SDK, v4 (and v3) over HTTP. Both are behind one set of calls."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import date, timedelta
from functools import partial
from typing import Any, Protocol, TypeVar

from hermes_core.kit import BackendNotFound, BackendRefused, BackendUnavailable, clip, query_text, storable
from hermes_core.kit.http import base_url
from hermes_supermemory.settings import HOSTED
from hermes_supermemory.values import Document, Hit

MAX_DAYS_BACK = 400
"""Days of a session among which a turn that is taken back is looked for."""

MAX_QUERY_CHARS = 2_000
MAX_CONTEXT_CHARS = 1_500
MAX_MESSAGE_CHARS = 30_000

STILL_READING = 5.0
"""Seconds after which a document is asked for again that is not read yet."""

Answer = TypeVar("Answer")


class Dialect(Protocol):
    """The calls that both APIs have. `ns` is a namespace, which v4 calls a container tag."""

    def add(
        self, ns: str, doc: str, text: str, metadata: Mapping[str, Any], context: str, date: str
    ) -> None: ...
    def search(
        self, ns: str, query: str, limit: int, mode: str, floor: float, timeout: float | None
    ) -> list[Hit]: ...
    def profile(self, ns: str, timeout: float | None) -> tuple[list[str], list[str]]: ...
    def forget(self, ns: str, memory: str) -> bool: ...
    def matching(self, ns: str, query: str) -> list[Hit]: ...
    def document(self, ns: str, doc: str) -> Document | None: ...
    def documents(self, ns: str, page: int) -> tuple[list[Document], bool]: ...
    def rewrite(self, ns: str, doc: str, content: str) -> None: ...
    def delete(self, ns: str, doc: str) -> bool: ...
    def erase(self, ns: str) -> int: ...
    def close(self) -> None: ...


class Client:
    """Supermemory at `url`. Raises `BackendUnavailable`, `BackendAuthError`, `BackendNotFound` or `BackendRefused`.

    With `api` "auto" it speaks v5 until a server says that it has no such route, and v4 from then on.
    """

    def __init__(self, url: str, key: str, api: str, timeout: float) -> None:
        self.place = base_url(url or HOSTED, "'base_url'")
        self._open: Callable[[str], Dialect] = partial(_dialect, url=self.place, key=key, timeout=timeout)
        self._probing = api == "auto"
        self._speaks: Dialect = self._open("v4" if api == "v4" else "v5")
        self._opened = [self._speaks]
        self.remembers = 1_000
        """Sessions whose last answer is known; beyond them a look-up is made again."""
        self._answered: dict[str, str] = {}
        # Day of the first part, by document of a session.
        self._days: dict[str, str] = {}

    def close(self) -> None:
        """Close the connections."""
        for api in self._opened:
            api.close()

    # --------------------------------------------------------------------- read

    def search(
        self, ns: str, query: str, limit: int, mode: str, floor: float = 0.0, timeout: float | None = None
    ) -> list[Hit]:
        """Return what fits the query, best first and each text once."""
        text = query_text(query, MAX_QUERY_CHARS)
        found = self._ask(lambda api: api.search(ns, text, limit, mode, floor, timeout))
        read = (replace(one, text=_MARK.sub("", one.text).strip()) for one in reversed(found))
        once = {one.text: one for one in read if one.text and one.score >= floor}
        return sorted(once.values(), key=lambda one: -one.score)[:limit]

    def profile(self, ns: str, timeout: float | None = None) -> tuple[list[str], list[str]]:
        """Return the lasting facts about the person, and the current ones."""
        return self._ask(lambda api: api.profile(ns, timeout))

    def matching(self, ns: str, query: str) -> list[Hit]:
        """Return memories that a description may mean."""
        return self._ask(lambda api: api.matching(ns, query_text(query, MAX_QUERY_CHARS)))

    def document(self, ns: str, doc: str) -> Document | None:
        """Return what was sent under an id, None for nothing."""
        found = self._speaks.document(ns, doc)
        if found is None and self._probing:
            # There is no such document, or no such API: a route without an id tells which.
            self.profile(ns)
            found = self._speaks.document(ns, doc)
        return found

    def documents(self, ns: str, page: int) -> tuple[list[Document], bool]:
        """Return a page of what was sent, oldest first, and True if more follow. The first page is 1."""
        return self._ask(lambda api: api.documents(ns, page))

    # -------------------------------------------------------------------- write

    def store(
        self, ns: str, doc: str, text: str, metadata: Mapping[str, Any], context: str = "", date: str = ""
    ) -> bool:
        """Send a text under an id; False when something is there under it already: it would be added to that."""
        if self.document(ns, doc) is not None:
            return False
        self._add(ns, doc, storable(text), metadata, context, date)
        return True

    def append(
        self, ns: str, doc: str, part: str, text: str, metadata: Mapping[str, Any], context: str, date: str
    ) -> None:
        """Add a part to the document of a session, once: what may be there already is looked up before.

        All that is learned from a document has its date, which the last part decides. So what is said on another day than
        the first part goes into a document of that day.
        """
        if self._answered.get(doc) == part:
            return
        known, looked = None, doc not in self._days
        if looked:
            known = self.document(ns, doc)
            self._days[doc] = str(known.metadata.get("date") or "") if known is not None else date
        if date and self._days[doc] not in ("", date):
            doc, looked = _day_document(doc, date), False
        if self._answered.get(doc) == part:
            return
        if doc not in self._answered and _holds(known if looked else self.document(ns, doc), part):
            self._answered[doc] = part
            return
        # From here until the answer is there, nobody knows whether the server took it.
        self._answered.pop(doc, None)
        if len(self._answered) >= self.remembers:
            self._answered.clear()
            self._days.clear()
        self._add(ns, doc, _framed(part, text), {**metadata, "part": part}, context, date)
        self._answered[doc] = part

    def take_back(self, ns: str, doc: str, parts: set[str], today: str = "") -> None:
        """Take parts out of the documents of a session; what was learned from them goes with them.

        The newest day is looked at first, since what is taken back was said a moment ago as a rule.
        """
        known, left = self.document(ns, doc), set(parts)
        first = str(known.metadata.get("date") or "") if known is not None else ""
        for day in _days_back(today, first):
            later = _day_document(doc, day)
            if left and (found := self.document(ns, later)) is not None:
                left -= self._take_out(ns, later, found, left, must=False)
        if known is not None and left:
            self._take_out(ns, doc, known, left, must=True)

    def _take_out(self, ns: str, doc: str, known: Document, parts: set[str], *, must: bool) -> set[str]:
        """Take parts out of one document and return those that it held. If it `must` hold them, wait for its text."""
        rest, found = known.content, set()
        for part in parts:
            rest, held = re.subn(_FRAME.format(part=re.escape(part)), "", rest, flags=re.DOTALL)
            found |= {part} if held else set()
            if not held and not known.is_read:
                raise BackendUnavailable(
                    f"the document {doc!r} is still being read", retry_after=STILL_READING
                )
        if not known.content and must:
            raise BackendRefused(
                f"Supermemory shows no text of {doc!r}, so no turn can be taken out of it",
                f"hermes-memory supermemory forget {doc} deletes all of that session",
            )
        if known.content and not rest.strip():
            self._speaks.delete(ns, doc)
        elif rest != known.content:
            self._speaks.rewrite(ns, known.id, rest)
        return found

    def forget(self, ns: str, memory: str) -> bool:
        """Forget one memory; False when there is none of this id."""
        return self._ask(lambda api: api.forget(ns, memory))

    def delete(self, ns: str, doc: str) -> bool:
        """Delete a document with what was learned from it; False when there is none."""
        return self._ask(lambda api: api.delete(ns, doc))

    def erase(self, ns: str) -> int:
        """Delete a container with all that was learned in it, and return the number of its documents."""
        self._answered.clear()
        return self._ask(lambda api: api.erase(ns))

    # ------------------------------------------------------------------ private

    def _add(
        self, ns: str, doc: str, text: str, metadata: Mapping[str, Any], context: str, date: str
    ) -> None:
        about = clip(storable(context), MAX_CONTEXT_CHARS)
        self._ask(lambda api: api.add(ns, doc, text, metadata, about, date))

    def _ask(self, call: Callable[[Dialect], Answer]) -> Answer:
        """Call a route without an id. If the server does not know the route, it speaks another API."""
        api = self._speaks
        try:
            answer = call(api)
        except BackendNotFound:
            if not self._probing:
                raise
        else:
            self._probing = False
            return answer
        if self._speaks is api:
            self._speaks = self._open("v4")
            self._opened.append(self._speaks)
        answer = call(self._speaks)
        self._probing = False
        return answer


_MARK = re.compile(r"\[/?turn [0-9a-f]{16}\]\n?")
_PART = re.compile(r"\[turn ([0-9a-f]{16})[^\]\n]*\]\n(.*?)\n\[/turn \1\]", re.DOTALL)
_FRAME = r"\n?\[turn {part}[^\]\n]*\]\n.*?\n\[/turn {part}\]\n?"


def parts_of(text: str) -> list[str]:
    """Return what a document holds: each part of a session's document without its marks, or the whole of another one."""
    parts = [match[2] for match in _PART.finditer(text)]
    return [part.strip() for part in parts or [text] if part.strip()]


def _day_document(doc: str, day: str) -> str:
    """Return the document of a later day of a session."""
    return f"{doc}-{day}"


def _days_back(today: str, first: str) -> Iterator[str]:
    """Yield the days from today back to the day after the first, at most `MAX_DAYS_BACK`."""
    if today and first:
        day, end = date.fromisoformat(today), date.fromisoformat(first)
        for _ in range(MAX_DAYS_BACK):
            if day <= end:
                return
            yield day.isoformat()
            day -= timedelta(days=1)


def _framed(part: str, text: str) -> str:
    """Return a part of a document between marks with its name, which find it again."""
    return f"\n[turn {part}]\n{text}\n[/turn {part}]\n"


def _holds(document: Document | None, part: str) -> bool:
    if document is None:
        return False
    return f"[/turn {part}]" in document.content or document.metadata.get("part") == part


def _dialect(version: str, url: str, key: str, timeout: float) -> Dialect:
    """Return the client of this API. The SDK is imported only if it is used."""
    if version == "v4":
        from hermes_supermemory.api_v4 import V4

        return V4(url, key, timeout)
    from hermes_supermemory.api_v5 import V5

    return V5(url, key, timeout)
