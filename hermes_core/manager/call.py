"""One guarded call of one hook of one provider. Whatever the provider does, an `Outcome` comes back."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CoroutineType
from typing import Any, Literal, NamedTuple

from hermes_core.contract.hooks import POLICIES
from hermes_core.errors import (
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    HermesError,
    ProviderInvalid,
)
from hermes_core.manager.attempt import attempt
from hermes_core.manager.coroutines import CoroutineLate, Coroutines, CoroutineStopped
from hermes_core.manager.results import checked

Status = Literal["ok", "late", "failed", "open", "skipped"]

_LONGEST = 500
_LOOKED_AT = 20_000  # characters of a message

WRONG_THREAD = (
    "a SQLite connection was opened on one lane and used on the other; "
    "open it with hermes_core.kit.Database, which gives each thread its own"
)


class CallResult(NamedTuple):
    """How a call ended. A tuple, since one is made for each call and a frozen dataclass takes twice as long.

    ok       `value` is of the type that the contract promises
    late     the deadline passed; a call that is still running may yet end, and then comes back as another outcome
    failed   it raised, or returned a wrong type; `error` says what
    open     the breaker is open: the call was not made
    skipped  the call was not made, or not waited for as long as it may take, for the reason in `error` ("" when the
             provider has no such hook)

    `elapsed` is in seconds. `counts` says whether it is a failure of the backend, for the breaker. `trace` is the
    traceback, redacted, for the log. `retry_after` is how many seconds the backend asks to be left alone.
    """

    status: Status
    value: Any = None
    error: str = ""
    elapsed: float = 0.0
    counts: bool = False
    trace: str = ""
    retry_after: float | None = None

    @property
    def ok(self) -> bool:
        """Whether `value` can be used."""
        return self.status == "ok"


@dataclass(frozen=True, slots=True)
class Hook:
    """One hook as one provider implements it: the bound function and the arguments that it names."""

    name: str
    function: Callable[..., Any]
    argnames: tuple[str, ...]


def guarded(
    hook: Hook,
    within: float,
    coroutines: Coroutines,
    clock: Callable[[], float],
    redact: Callable[[Any], Any],
    arguments: Mapping[str, Any],
) -> CallResult:
    """Call `hook` with those of `arguments` that it names and check what it returns.

    A coroutine is run to its end on the instance's event loop, or cancelled after `within` seconds. The arguments come
    last, since all else is the same for each call of a hook.
    """

    started = clock()
    value, error = attempt(_run, hook, arguments, within, coroutines)
    elapsed = clock() - started
    if error is None:
        return CallResult("ok", value, "", elapsed)
    if isinstance(error, CoroutineLate):
        return CallResult("late", error=f"cancelled after {within:g} s", elapsed=elapsed, counts=True)
    if isinstance(error, CoroutineStopped):
        return CallResult("skipped", error="cancelled: the provider is shut down")
    return CallResult(
        "failed",
        error=describe(error, redact),
        elapsed=elapsed,
        counts=_counts(hook, error),
        trace=_trace(error, redact),
        retry_after=error.retry_after if isinstance(error, BackendUnavailable) else None,
    )


def _run(hook: Hook, arguments: Mapping[str, Any], within: float, coroutines: Coroutines) -> Any:
    value = hook.function(*[arguments[name] for name in hook.argnames]) if hook.argnames else hook.function()
    if isinstance(value, CoroutineType):
        value = coroutines.finish(value, within)
    return checked(hook.name, value)


def _counts(hook: Hook, error: BaseException) -> bool:
    """Whether it is a failure of the backend. To a write "nothing is there" may be: so answers a wrong address, or a proxy
    whose service is away, to all of them."""
    if isinstance(error, BackendNotFound):
        return hook.name in POLICIES and POLICIES[hook.name].durable
    return not isinstance(error, BackendRefused | ProviderInvalid)


def describe(error: BaseException, redact: Callable[[Any], Any]) -> str:
    """What went wrong in one line, without secrets: SDKs like to quote the key that was refused."""
    text, broken = attempt(lambda: str(error))
    if broken is not None:
        text = "its message can't be shown"
    if "SQLite objects created in a thread" in (text or ""):
        return WRONG_THREAD
    line = " ".join((text or "").split())
    if not isinstance(error, HermesError) or not line:
        line = f"{type(error).__name__}: {line}".rstrip(": ")
    return str(redact(line[:_LOOKED_AT]))[:_LONGEST]  # half a key does not look like one


def _trace(error: BaseException, redact: Callable[[Any], Any]) -> str:
    lines, broken = attempt(lambda: "".join(traceback.format_exception(error)))
    return "" if broken or not lines else str(redact(lines))
