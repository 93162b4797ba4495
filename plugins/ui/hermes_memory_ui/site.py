"""The site: the memory of one user, its templates, and the answer of a view to each request."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import jinja2
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse

from hermes_core import Memory
from hermes_core.actions.approval import Approval
from hermes_core.actions.notes import session_of_user
from hermes_core.contract.values import ORIGIN_NAMES
from hermes_core.errors import ConfigError, HermesError, SessionError
from hermes_core.kit import redact
from hermes_core.safety.terminal import counted, escape_controls, escape_hidden
from hermes_core.sessions.records import local_time
from hermes_memory_ui.answers import Answer, FileAnswer, Page, PageRequest, Redirect, RequestError
from hermes_memory_ui.markdown import markdown

# Messages about actions that no page has shown yet: a person has a few tabs.
MAX_MESSAGES = 50

# Seconds to wait at the start for the provider. It goes on starting while the first page is shown.
PROVIDER_WAIT_S = 0.0

MESSAGE_PARAMETER = "message"

NAVIGATION = {
    "Memory": (("/", "Notes"), ("/timeline", "Timeline"), ("/facts", "Facts"), ("/people", "People")),
    "Conversations": (
        ("/sessions", "Sessions"),
        ("/search", "Search"),
        ("/turns", "Turns"),
        ("/recall", "Recall"),
    ),
    "Home": (("/providers", "Providers"), ("/settings", "Settings"), ("/costs", "Over time")),
}
"""The views that each page leads to, by group."""

View = Callable[["Site", PageRequest], Answer]


class Site:
    """The page of one user of one home.

    Args:
        memory: The memory of the home.
        user: "" for the person at this machine, else the user of a gateway as PLATFORM:ID.
        root: The path below which the page is.
        read_only: True to refuse every action.

    Attributes:
        session: The session that stands for the user.
    """

    def __init__(self, memory: Memory, *, user: str = "", root: str = "", read_only: bool = False) -> None:
        self.memory, self.user, self.read_only = memory, user, read_only
        self.session = session_of_user(memory, user)
        self.notes = memory.curated.of(self.session)
        self._root = root
        self._messages: OrderedDict[str, Redirect] = OrderedDict()
        self._lock = threading.Lock()
        self._templates = _environment()
        # Globals, because macros see no values of a page.
        self._templates.globals |= {"root": root, "address": self.link, "read_only": read_only}

    @property
    def owner(self) -> str:
        """The owner of the sessions that this page shows."""
        return self.session.owner

    def link(self, path: str, **values: Any) -> str:
        """Return the address of a view, below the path that holds the secret."""
        return self._root + address(path, **values)

    def stored_sessions(self, ids: Iterable[str]) -> frozenset[str]:
        """Return those of these ids that name a stored session of the user, which a link may lead to."""
        stored = map(self.memory.sessions.get_session, set(filter(None, ids)))
        return frozenset(
            session.id for session in stored if session is not None and session.user == self.owner
        )

    def start(self) -> None:
        """Start the provider, which then takes what waits in the outbox. A read-only page starts none."""
        if not self.read_only:
            self.memory.manager.initialize_all(self.session, wait=PROVIDER_WAIT_S)

    def approval(self) -> Approval:
        """Return the notes and items of the user that wait for an answer."""
        return Approval(self.memory, self.notes, self.session)

    def answer(self, path: str, view: View, request: PageRequest) -> Response:
        """Return the answer of a view to a request for a page."""
        try:
            result = view(self, request)
        except HermesError as exc:
            result = Page("error.html", {"error": redact(str(exc))}, _status(exc))
        return self._response(path, result, request)

    def act(self, path: str, view: View, request: PageRequest) -> Response:
        """Return the answer of a view that changes something. A read-only page refuses it."""
        try:
            if self.read_only:
                raise ConfigError("this page is read-only", "start hermes-memory ui without --read-only")
            result = view(self, request)
        except HermesError as exc:
            status = 403 if self.read_only else 400 if isinstance(exc, RequestError) else 422
            result = Page("error.html", {"error": redact(str(exc))}, status)
        return self._response(path, result, request)

    def _response(self, path: str, result: Answer, request: PageRequest) -> Response:
        if isinstance(result, FileAnswer):
            headers = {"content-disposition": f'attachment; filename="{result.name}"'}
            return StreamingResponse(result.lines, media_type="application/x-ndjson", headers=headers)
        if isinstance(result, Redirect):
            return RedirectResponse(self.link(self._with_message(result)), 303)
        values = {
            "path": path,
            "navigation": NAVIGATION,
            "waiting": self._waiting(),
            "scope": self.owner or "the person at this machine",
            "profile": self.memory.home.profile,
            "query": request.query,
            "message": self._message(request.query.get(MESSAGE_PARAMETER, "")),
            **result.values,
        }
        text = self._templates.get_template(result.template).render(values)
        return HTMLResponse(text, result.status)

    def _waiting(self) -> int:
        """Return the number of notes and items that wait for an answer; 0 if they can't be read."""
        try:
            items = (item for part in self.approval().parts.values() for item in part.waiting())
            return len(self.notes.read().waiting_notes()) + sum(1 for _ in items)
        except HermesError:  # each page has the navigation, also one that says what is wrong
            return 0

    def _with_message(self, result: Redirect) -> str:
        """Return the location of a redirect, with the name of its message if it has one."""
        if not result.message:
            return result.location
        name = secrets.token_urlsafe(8)
        with self._lock:
            self._messages[name] = result
            while len(self._messages) > MAX_MESSAGES:
                self._messages.popitem(last=False)
        join = "&" if "?" in result.location else "?"
        return f"{result.location}{join}{urlencode({MESSAGE_PARAMETER: name})}"

    def _message(self, name: str) -> Redirect | None:
        """Return the message with this name, once."""
        with self._lock:
            return self._messages.pop(name, None)


def _status(error: HermesError) -> int:
    """Return the status of a page that could not be shown."""
    if isinstance(error, RequestError):
        return 400
    return 404 if isinstance(error, SessionError) else 503


def _environment() -> jinja2.Environment:
    """Return the templates. Every text in them is escaped, and control characters are shown as escapes."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("hermes_memory_ui"),
        autoescape=True,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "when": moment_text,
        "origin": lambda origin: ORIGIN_NAMES.get(origin, origin),
        "hidden": escape_hidden,
        "field": field_value,
        "counted": lambda count, *nouns: counted(count, *nouns),
        "markdown": markdown,
        "matches": with_matches,
        "twice": lambda value: (value, value),
    }
    return environment


def _shown(value: Any) -> Any:
    """Return a value for the page. Texts of stored memory may hold characters that control a terminal or hide text."""
    return escape_controls(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def field_value(value: object) -> Markup:
    """Return a value for a form field as it is: the form sends it back, and escapes for the eye would be stored.

    A lone surrogate can't be sent to a browser, so U+FFFD stands for it.
    """
    text = str(value).encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return Markup("{}").format(text)  # the format method escapes its arguments


def moment_text(seconds: float | None) -> Markup:
    """Return a time as an HTML element, in the zone of this machine; an empty one if it is unknown."""
    at = local_time(seconds) if seconds else None
    if at is None:
        return Markup("")
    return Markup('<time datetime="{}">{}</time>').format(
        at.isoformat(timespec="seconds"), f"{at:%Y-%m-%d %H:%M}"
    )


def with_matches(snippet: str) -> Markup:
    """Return a snippet of a search with its matches, which stand between >>> and <<<, as HTML elements.

    >>> print(with_matches("<b> >>>tea<<<"))
    &lt;b&gt; <mark>tea</mark>
    """
    return Markup("").join(_marked(snippet))


def _marked(snippet: str) -> Iterator[Markup]:
    for part in snippet.split(">>>"):
        match, end, rest = part.partition("<<<")
        if end:
            yield Markup("<mark>{}</mark>{}").format(escape_controls(match), escape_controls(rest))
        else:
            yield Markup("{}").format(escape_controls(part))


def address(path: str, **values: Any) -> str:
    """Return a path with a query of the values that are not None or empty."""
    query: Mapping[str, Any] = {name: value for name, value in values.items() if value not in (None, "")}
    return f"{path}?{urlencode(query, errors='replace')}" if query else path
