"""Guarded calls of foreign code: a hook of a provider may raise or return anything, the caller gets a `CallResult`."""

from __future__ import annotations

import itertools
import json
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import CodeType, NoneType
from typing import Any, Literal, NamedTuple, TypeVar

from hermes_core.contract.hooks import POLICIES
from hermes_core.contract.values import (
    Availability,
    Check,
    Erasure,
    MemoryPage,
    MemoryRecord,
    MemoryWrite,
    Recall,
    RecallItem,
    Refused,
)
from hermes_core.errors import (
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    HermesError,
    ProviderInvalid,
)
from hermes_core.kit.causes import foreign_remedy
from hermes_core.loader.guard import fault_place

Value = TypeVar("Value")
Status = Literal["ok", "late", "failed", "open", "skipped"]

MAX_ERROR_CHARS = 500
FAULT_REMEDY = "report it to the provider's author, or correct that line"
MAX_REMEDY_CHARS = 300
# Characters of an error message that are redacted; the rest of a longer message is dropped unread.
MAX_REDACTED_CHARS = 20_000

WRONG_THREAD = (
    "a SQLite connection was opened on one worker and used on the other; "
    "open it with hermes_core.kit.Database, which gives each thread its own"
)


def attempt(function: Callable[..., Value], *arguments: Any) -> tuple[Value | None, BaseException | None]:
    """Run foreign code and return (value, None), or (None, exception) if the code raised, also for `SystemExit`.

    Raises:
        KeyboardInterrupt: The person pressed Ctrl-C. Only the main thread raises this.
    """
    try:
        return function(*arguments), None
    except BaseException as exc:
        # Only the main thread receives the person's Ctrl-C; elsewhere the foreign code itself raised it.
        if isinstance(exc, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
            raise
        return None, exc


def ends_program(failure: BaseException | None) -> bool:
    """Return True if `failure` is a `SystemExit` on the main thread, where a signal handler of the host raised it."""
    return isinstance(failure, SystemExit) and threading.current_thread() is threading.main_thread()


class CoroutineLate(Exception):
    """A coroutine that passed its deadline and was cancelled."""

    def __init__(self, deadline: float) -> None:
        super().__init__(deadline)
        self.deadline = deadline


class CoroutineStopped(Exception):
    """A coroutine that was cancelled because the provider is about to be shut down."""


class CallResult(NamedTuple):
    """Result of a hook call.

    A named tuple, because every call constructs one, and constructing a frozen dataclass takes twice as long.

    Attributes:
        status: "ok": `value` has the type that the contract promises. "late": the deadline passed. "failed": the
            hook raised or returned a wrong type. "open": the breaker is open and the call was not made. "skipped":
            the call was not made, or was left before its deadline, for the reason in `error` ("" if there is no such
            hook).
        value: The checked return value of the hook.
        error: One redacted line that says what went wrong.
        elapsed: Duration of the call in seconds.
        counts: True if the breaker counts this result as a failure of the backend.
        trace: The redacted traceback, for the log.
        retry_after: Seconds that the backend asks callers to wait before the next call.
        in_doubt: True if the call still runs. Its final result is passed to the `on_late` of the call.
        remedy: What the person can do about the cause of the error; "" if the cause is not known. The text `error` ends
            with it, unless foreign code raised an error of its own.
    """

    status: Status
    value: Any = None
    error: str = ""
    elapsed: float = 0.0
    counts: bool = False
    trace: str = ""
    retry_after: float | None = None
    in_doubt: bool = False
    remedy: str = ""

    @property
    def detail(self) -> str:
        """The error without its remedy."""
        return self.error.removesuffix(f"; {self.remedy}") if self.remedy else self.error

    @property
    def ok(self) -> bool:
        """True if `value` can be used."""
        return self.status == "ok"


# The result for a hook that the provider does not implement.
ABSENT = CallResult("skipped")


def guarded_call(
    hook: str,
    function: Callable[[], Any],
    clock: Callable[[], float],
    redact: Callable[[Any], Any],
    wrapper_names: Mapping[CodeType, str] | None = None,
) -> CallResult:
    """Call `function`, which calls `hook`, and return the result. Exceptions become a `CallResult` as well.

    Args:
        hook: The name of the hook.
        function: Calls the hook, runs a returned coroutine to its end, and returns the checked value. With
            `wrapper_names`, the value is checked again, because a wrapper may have replaced it.
        clock: Measures `CallResult.elapsed`.
        redact: Removes secrets from error messages.
        wrapper_names: Name of the observer by the code object of its hook wrapper ("" for the innermost wrapper,
            which is next to the provider). The traceback of an error and these names tell who raised it.
    """
    started = clock()
    value, error = attempt(function)
    if wrapper_names and error is None:
        value, error = attempt(check_result, hook, value)
    elapsed = clock() - started
    if error is None:
        return CallResult("ok", value, "", elapsed)
    if isinstance(error, CoroutineLate):
        text = f"cancelled after {error.deadline:g} s"
        return CallResult("late", error=text, elapsed=elapsed, counts=True)
    if isinstance(error, CoroutineStopped):
        return CallResult("skipped", error="cancelled: the provider is shut down")
    observer = _blamed_observer(error, wrapper_names) if wrapper_names else ""
    text = describe(error, redact)
    return CallResult(
        "failed",
        error=f"{observer}: {text}" if observer else text,
        elapsed=elapsed,
        counts=not observer and _counts(hook, error),
        trace=_trace(error, redact),
        retry_after=error.retry_after if isinstance(error, BackendUnavailable) and not observer else None,
        remedy=_remedy_of(error, redact)
        or (FAULT_REMEDY if fault_place(error) else str(redact(attempt(foreign_remedy, error)[0] or ""))),
    )


def _blamed_observer(error: BaseException, wrapper_names: Mapping[CodeType, str]) -> str:
    """Return the name of the observer whose wrapper raised `error`; "" if the provider raised it.

    pluggy throws an error of the provider into each wrapper, so the traceback holds frames of all wrappers. The frame
    nearest to the place of the error decides.
    """
    # Without such a frame it is a fault that shows outside: no yield, a second one, a result of a wrong type.
    name: str | None = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        name = wrapper_names.get(frame.f_code, name)
    if name is None:
        return "the hook wrapper of an observer"
    return f"observer {name}" if name else ""


def _counts(hook: str, error: BaseException) -> bool:
    """Return True if `error` is a failure of the backend, so that the breaker has to count it.

    For a write, "not found" is a failure too: a wrong address, or a proxy without its service, answers every write
    with "not found".
    """
    if isinstance(error, BackendNotFound):
        return hook in POLICIES and POLICIES[hook].durable
    return not (isinstance(error, BackendRefused | ProviderInvalid) or fault_place(error))


def describe(error: BaseException, redact: Callable[[Any], Any]) -> str:
    """Return `error` as one line.

    Secrets are removed, because many SDKs quote a refused key in their error message.
    """
    text, broken = attempt(str, error)
    remedy = _remedy_of(error, redact)
    if broken is not None:
        text, remedy = "its message can't be shown", ""
    elif remedy and isinstance(error, HermesError):
        text = error.message
    if "SQLite objects created in a thread" in (text or ""):
        return WRONG_THREAD
    line = " ".join((text or "").split())
    if not isinstance(error, HermesError) or not line:
        line = f"{type(error).__name__}: {line}".rstrip(": ")
    if place := fault_place(error):
        line = f"a fault in its code, {place}: {line}"
    # Redacted before it is cut short: half a key does not look like a key.
    line = str(redact(line[:MAX_REDACTED_CHARS]))
    if not remedy:
        return line[:MAX_ERROR_CHARS]
    # A long message loses its end, and not the remedy.
    return f"{line[: MAX_ERROR_CHARS - len(remedy) - 2]}; {remedy}"


def _remedy_of(error: BaseException, redact: Callable[[Any], Any]) -> str:
    """Return the remedy of an error as one redacted line, "" if it has none."""
    remedy = error.remedy if isinstance(error, HermesError) else ""
    return str(redact(" ".join(str(remedy).split())))[:MAX_REMEDY_CHARS]


def _trace(error: BaseException, redact: Callable[[Any], Any]) -> str:
    lines, broken = attempt(traceback.format_exception, error)
    return "" if broken or not lines else str(redact("".join(lines)))


# ------------------------------------------------------------------ return values

# One object for all empty answers: most turns recall nothing.
_EMPTY = Recall()
_ITEM_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("text", "id", "session_id", "ref", "speaker", "when"), (str,)),
    "score": (float, int, NoneType),
    "message_id": (int, NoneType),
}


def check_result(hook: str, value: Any) -> Any:
    """Return the return value of a hook, converted to the type that the contract promises to callers.

    If the contract promises no value for `hook`, return None.

    Raises:
        ProviderInvalid: `value` has a type that can't be converted.
    """
    check = _CHECKS.get(hook)
    return None if check is None else check(value)


def as_recall(value: Any) -> Recall:
    """Return `value` as a `Recall`. A text becomes a recall with this text, and None an empty recall.

    >>> as_recall("likes tea")
    Recall(items=(), text='likes tea', status='')
    """
    if value is None:
        return _EMPTY
    if isinstance(value, str):
        return Recall(text=value)
    if not isinstance(value, Recall) or not isinstance(value.text, str) or not isinstance(value.status, str):
        raise _wrong(value, "a Recall, a str or None")
    items: Any = value.items
    if type(items) is not tuple:
        items = tuple(items) if isinstance(items, Sequence) else (items,)
    for item in items:
        if not isinstance(item, RecallItem):
            raise _wrong(item, "RecallItem inside Recall.items")
        for name, kinds in _ITEM_TYPES.items():
            field = getattr(item, name)
            if not isinstance(field, kinds):
                kind = type(field).__name__
                raise ProviderInvalid(f"{name} of a RecallItem is a {kind}", f"make it a {kinds[0].__name__}")
    return (
        value if items is value.items and type(value) is Recall else Recall(items, value.text, value.status)
    )


def _availability(value: Any) -> Availability:
    if isinstance(value, Availability):
        return value
    if isinstance(value, bool):
        return Availability(value, "" if value else "is_available() returned False without a reason")
    raise _wrong(value, "an Availability or a bool")


def _tool_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        try:
            return json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError) as exc:
            raise ProviderInvalid(f"the tool's result can't be written as JSON ({exc})") from exc
    raise _wrong(value, "text, or a dict or list that JSON can carry")


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise _wrong(value, "a str")


class ToolSchemas(tuple[dict[str, Any], ...]):
    """The sound schemas of a provider, and a sentence for each one that is not.

    One malformed schema costs one tool, not all of them.
    """

    faults: tuple[str, ...] = ()


def _schemas(value: Any) -> ToolSchemas:
    if isinstance(value, ToolSchemas):  # checked before an observer's wrapper saw it
        return value
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise _wrong(value, "a list of tool schemas")
    sound, faults = [], []
    entries = iter(value)
    for position in itertools.count(1):
        entry, error = attempt(next, entries)
        if isinstance(error, StopIteration):
            break
        schema = None
        if error is None:
            schema, error = attempt(_schema, entry)
        if schema is not None:
            sound.append(schema)
            continue
        name, _ = attempt(_schema_name, entry)
        what = f"tool {name!r}" if name else f"tool {position} of get_tool_schemas()"
        faults.append(f"{what} is left out: {describe(error or ValueError(what), str)}")
        if entry is None and error is not None and not isinstance(error, ProviderInvalid):
            break  # the list itself can't be read on
    schemas = ToolSchemas(sound)
    schemas.faults = tuple(faults)
    return schemas


def _schema_name(entry: Any) -> str:
    function = entry.get("function")
    name = (function if isinstance(function, Mapping) else entry).get("name")
    return name if isinstance(name, str) else ""


def _schema(entry: Any) -> dict[str, Any]:
    """Return the schema of a tool as `{"name", "description", "parameters"}`.

    The form of the OpenAI API, `{"type": "function", "function": {...}}`, is accepted too.
    """
    if isinstance(entry, Mapping) and isinstance(entry.get("function"), Mapping):
        entry = entry["function"]
    if not isinstance(entry, Mapping) or not isinstance(entry.get("name"), str) or not entry["name"].strip():
        raise _wrong(entry, "a tool schema with a name")
    present = {key: value for key, value in entry.items() if value is not None}
    if not isinstance(present.get("parameters", {}), Mapping):
        raise _wrong(present["parameters"], f"a JSON schema as parameters of {present['name']!r}")
    return {"description": "", "parameters": {"type": "object", "properties": {}}, **present}


def _list_of(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    def check(value: Any) -> tuple[Any, ...]:
        if isinstance(value, str | bytes) or not isinstance(value, Sequence):
            raise _wrong(value, f"a list of {kind.__name__}")
        for entry in value:
            if not isinstance(entry, kind):
                raise _wrong(entry, f"a list of {kind.__name__}")
        return tuple(value)

    return check


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(value, "a number of writes, 0 or more")
    return value


def _page(value: Any) -> MemoryPage:
    if not isinstance(value, MemoryPage) or not isinstance(value.cursor, str):
        raise _wrong(value, "a MemoryPage with a cursor of text")
    records = _list_of(MemoryRecord)(value.records)
    try:  # a field of a wrong type would show as late as in the archive
        return MemoryPage(tuple(MemoryRecord.from_dict(one.to_dict()) for one in records), value.cursor)
    except (TypeError, ValueError, AttributeError) as exc:
        raise ProviderInvalid(
            f"returned a MemoryRecord of a wrong form ({exc})", "correct that field"
        ) from exc


def _erasure(value: Any) -> Erasure:
    if not isinstance(value, Erasure):
        raise _wrong(value, "an Erasure")
    return Erasure(_list_of(str)(value.deleted), _list_of(str)(value.remaining))


def _any_of(*kinds: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise _wrong(value, " or ".join(kind.__name__ for kind in kinds))
        return value

    return check


def _wrong(value: Any, wanted: str) -> ProviderInvalid:
    return ProviderInvalid(f"returned a {type(value).__name__}", f"return {wanted}")


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "is_available": _availability,
    "check": _list_of(Check),
    "backup_paths": _list_of(str),
    "pending_writes": _count,
    "export_memories": _page,
    "get_tool_schemas": _schemas,
    "system_prompt_block": _text,
    "prefetch": as_recall,
    "queue_prefetch": as_recall,
    "handle_tool_call": _tool_text,
    "on_pre_compress": _text,
    "forget_user": _erasure,
    "filter_write": _any_of(MemoryWrite, Refused),
    "filter_recall": _any_of(Recall, Refused),
}
