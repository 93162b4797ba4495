"""The `brv` program: its JSON protocol, its log of curations, and its failures in the host's words.

`brv` ends with 0 also when it failed, so the exit code says nothing: an answer counts when its last line says
`success`. A curation is handed over detached and followed in brv's own log, which also knows what was handed over
before: a write that comes again is found there and not curated a second time.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hermes_core.kit import (
    BackendAuthError,
    BackendNotFound,
    BackendRefused,
    BackendUnavailable,
    ProviderUnavailable,
    clip,
    fold_space,
    storable,
)
from hermes_core.kit.http import Backend
from hermes_core.kit.process import ProgramResult, child_environment, find_program, run

INSTALL = "npm install -g byterover-cli (3.14 or later; it needs Node 20)"
CONNECT = "connect a model: hermes-memory byterover brv providers connect"
NOT_FOUND = "**Summary**: No matching knowledge found"
FOOTER = "\n\n---\nSource: ByteRover Knowledge Base"

LOOK_BACK = 50
"""Entries of the log among which a write that comes again is looked for."""

STALE = 120.0
"""Seconds after which another curation that still runs is not waited for: its daemon may have died."""

MAX_ARGUMENT_CHARS = 100_000
"""Bytes of one argument; Linux takes 128 KB."""

FIRST_PAUSE_S, MAX_PAUSE_S = 0.5, 5.0
UNDER_WAY = frozenset({"thinking", "toolCall", "toolResult", "response"})

_ELSEWHERE = ("~/.brv-cli/bin/brv", "~/.npm-global/bin/brv", "/usr/local/bin/brv")
_HANDED_ON = ("BRV_*_URL", "BRV_*_PORT", "NODE_EXTRA_CA_CERTS", "VOLTA_HOME", "ASDF_*", "MISE_*")
_OF_THE_PERSON = ("BRV_DATA_DIR", "XDG_*_HOME")
_NO_MODEL = re.compile(r"no provider connected", re.IGNORECASE)
_CREDENTIALS = re.compile(
    r"api.?key|unauthori[sz]ed|forbidden|authenticat|oauth token|credits|\b40[13]\b",
    re.IGNORECASE,
)
_STATUSES = (
    (402, re.compile("credits", re.IGNORECASE)),
    (403, re.compile("forbidden|403", re.IGNORECASE)),
)
_MODEL_OF_BRV = Backend("the program brv", setting="model_base_url", key="BRV_MODEL_API_KEY")
_OUR_FAULT = re.compile(r" is required\.|file validation failed", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Curation:
    """One entry of brv's log. `status` is processing, completed, error or cancelled; `changes` are files of the tree
    with a summary each, `pending` how many of them wait for review."""

    id: str
    task: str
    status: str
    context: str
    error: str
    started: float
    changes: tuple[tuple[str, str], ...]
    pending: int

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Curation:
        """Return the entry that `brv curate view` prints."""
        applied = [o for o in entry.get("operations", ()) if o.get("status") == "success"]
        return cls(
            str(entry["id"]),
            str(entry.get("taskId", "")),
            str(entry.get("status", "")),
            str(entry.get("input", {}).get("context", "")),
            str(entry.get("error", "")),
            float(entry.get("startedAt", 0)) / 1000,
            tuple((_file(operation), str(operation.get("summary") or "")) for operation in applied),
            sum(o.get("reviewStatus") == "pending" for o in applied),
        )

    @property
    def kept(self) -> bool:
        """True if it changed the tree. A completed curation without a change has stored nothing."""
        return self.status == "completed" and bool(self.changes)


class Brv:
    """`brv` with the data of one profile. Each call runs it in a project's folder and ends, or is killed with all it
    started, within its timeout. Raises `BackendUnavailable`, `BackendAuthError`, `BackendRefused` or
    `BackendNotFound`.

    `data` is where its account, model and logs are; None: where those of the person are. `pause` are the seconds
    before the first look at a curation; the later ones are longer.
    """

    def __init__(
        self,
        command: str,
        data: Path | None,
        *,
        pause: float = FIRST_PAUSE_S,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.program = program(command)
        if data is not None:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.env = surroundings(data)
        self._pause = pause
        self._wall = wall

    def status(self, folder: Path, timeout: float) -> dict[str, Any]:
        """Return the data of `brv status`, which also starts its daemon."""
        return dict(self.ask(folder, "status", timeout=timeout))

    def search(self, folder: Path, words: str, limit: int, timeout: float) -> list[dict[str, Any]]:
        """Return results of BM25, best first: `path`, `score`, `excerpt`, `title`. No model is asked."""
        found = self.ask(folder, "search", "--limit", str(limit), text=words, timeout=timeout)
        return [one for one in found.get("results", ()) if isinstance(one, dict)]

    def query(self, folder: Path, question: str, timeout: float) -> tuple[str, list[str]]:
        """Return the model's answer and the paths that it uses, "" if nothing fits."""
        own_limit = str(max(10, int(timeout) - 2))
        data = self.ask(folder, "query", "--timeout", own_limit, text=question, timeout=timeout)
        answer = str(data.get("result") or "").removesuffix(FOOTER).strip()
        # An answer from brv's cache names no documents either, so their absence says nothing.
        if answer.startswith(NOT_FOUND):
            return "", []
        return answer, [str(doc.get("path", "")) for doc in data.get("matchedDocs", ())]

    def model(self, folder: Path, timeout: float) -> str:
        """Return provider and name of the connected model, "" if there is none."""
        listed = self.ask(folder, "providers", "list", timeout=timeout).get("providers", ())
        current: Mapping[str, Any] = next((one for one in listed if one.get("isCurrent")), {})
        return " ".join(str(current[key]) for key in ("id", "activeModel") if current.get(key))

    def connect(self, folder: Path, provider: str, options: Mapping[str, str], timeout: float) -> None:
        """Connect the model of a provider; options are flags of `brv providers connect` that are not empty."""
        flags = [part for flag, value in options.items() if value for part in (f"--{flag}", value)]
        self.ask(folder, "providers", "connect", provider, *flags, timeout=timeout)

    def log_in(self, folder: Path, key: str, timeout: float) -> None:
        """Log in to ByteRover's cloud with a key."""
        try:
            self.ask(folder, "login", "--api-key", key, timeout=timeout)
        except BackendUnavailable as exc:
            refused = BackendAuthError(f"brv login failed: {exc.message}")
            raise Backend("ByteRover", key="BRV_API_KEY").explain(refused, 401) from exc

    def pending(self, folder: Path, timeout: float) -> int:
        """Return the number of changes that wait for the person's review."""
        return int(self.ask(folder, "review", "pending", timeout=timeout).get("pendingCount", 0))

    def log(self, folder: Path, timeout: float, limit: int = LOOK_BACK) -> list[Curation]:
        """Return the latest curations, newest first. Asks no daemon."""
        entries = self.ask(folder, "curate", "view", "--limit", str(limit), timeout=timeout)
        return [Curation.read(entry) for entry in entries if isinstance(entry, dict) and "id" in entry]

    def curate(
        self, folder: Path, mark: str, text: str, timeout: float, *, must_keep: bool = True
    ) -> Curation:
        """Have `text` curated, once, and wait for it. `mark` is its first line and tells it from all others.

        One curation at a time: another that runs is waited for. Raises `BackendUnavailable` when it goes on after
        `timeout` seconds; the next call with this mark finds it. With `must_keep`, one that stored nothing is a failure.
        """
        until = time.monotonic() + timeout
        pause, submitted = self._pause, ""
        while True:
            entries = self.log(folder, _left(until))
            same = [e for e in entries if (e.task == submitted if submitted else e.context.startswith(mark))]
            mine = same[0] if same else None
            if mine is not None and mine.status != "processing" and (submitted or _done(mine, must_keep)):
                return _judged(mine, must_keep)
            if mine is None or mine.status != "processing":
                others = [e for e in entries if e.status == "processing" and self._wall() - e.started < STALE]
                if not submitted and not others:
                    given = argument(f"{mark}\n{text}")
                    taken = self.ask(folder, "curate", "--detach", text=given, timeout=_left(until))
                    submitted = str(taken.get("taskId", "unknown"))
            if until - time.monotonic() <= pause:
                raise BackendUnavailable(
                    f"brv has not finished a curation after {timeout:g} s", retry_after=MAX_PAUSE_S
                )
            time.sleep(pause)
            pause = min(MAX_PAUSE_S, pause * 1.5)

    def ask(self, folder: Path, *words: str, text: str | None = None, timeout: float) -> Any:
        """Return the `data` of one command; `text` is its free argument, with any content."""
        rest = () if text is None else ("--", argument(text))
        command = [*self.program, *words, "--format", "json", *rest]
        ended = run(command, timeout=timeout, env=self.env, cwd=folder)
        return _data(words[0], ended, list if "view" in words else dict)


def program(command: str) -> list[str]:
    """Return the command line of `brv`: the program itself, or Node and its script if npm made a batch file."""
    names = (command, *_ELSEWHERE) if command == "brv" else (command,)
    found = next(filter(None, (find_program(str(Path(name).expanduser())) for name in names)), None)
    if found is None:
        raise ProviderUnavailable(f"the program {command!r} is not installed", INSTALL)
    if Path(found).suffix.lower() not in (".cmd", ".bat"):
        return [found]
    # Windows reads the arguments of a batch file as commands: text of a conversation must not get there.
    return ["node", str(Path(found).parent / "node_modules" / "byterover-cli" / "bin" / "run.js")]


def surroundings(data: Path | None) -> dict[str, str]:
    """Return the environment of `brv`: it updates and asks nothing, and keeps all its data below `data`."""
    quiet = {"BRV_DISABLE_AUTOUPDATE": "1", "NO_UPDATE_NOTIFIER": "1", "NO_COLOR": "1"}
    if data is None:
        return child_environment(quiet, also=(*_HANDED_ON, *_OF_THE_PERSON))
    own = {f"XDG_{kind}_HOME": str(data / kind.lower()) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
    own |= {"APPDATA": own["XDG_CONFIG_HOME"], "LOCALAPPDATA": own["XDG_DATA_HOME"]}
    if sys.platform == "darwin":  # there brv looks below the home folder and nowhere else
        own["HOME"] = str(data)
    return child_environment({**quiet, **own, "BRV_DATA_DIR": str(data / "brv")}, also=_HANDED_ON)


def argument(text: str) -> str:
    """Return the text as one argument of a program: no NUL, no lone surrogate, not longer than a system takes."""
    clean = storable(text).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return clean.encode()[:MAX_ARGUMENT_CHARS].decode("utf-8", "ignore")


def failure(command: str, message: str) -> Exception:
    """Return the error for a failure of brv. Its messages have words and no codes, so the words decide."""
    said = f"brv {command}: {clip(fold_space(message), 300)}"
    if message.startswith("Log entry not found"):
        return BackendNotFound(said)
    if _NO_MODEL.search(message):
        return BackendAuthError(said, CONNECT)
    if found := _CREDENTIALS.search(message):
        status = next((code for code, words in _STATUSES if words.search(found[0])), 401)
        return _MODEL_OF_BRV.explain(BackendAuthError(said), status, "")
    if _OUR_FAULT.search(message):
        return BackendRefused(said)
    return _MODEL_OF_BRV.explain(BackendUnavailable(said), 500, message)


def _data(command: str, ended: ProgramResult, kind: type) -> Any:
    """Return the data of the last answer in an output, which must be a `kind`."""
    answers = [v for v in ended.values() if isinstance(v, dict) and isinstance(v.get("success"), bool)]
    last: dict[str, Any] = answers[-1] if answers else {}
    data = last.get("data")
    if isinstance(data, dict) and not last["success"]:
        raise failure(command, str(data.get("error") or data.get("message") or "no reason given"))
    if isinstance(data, kind) and not (isinstance(data, dict) and data.get("event") in UNDER_WAY):
        return data
    said = clip(fold_space(ended.err or ended.out), 300)
    if ended.code == 2 or ("not found" in said and not answers):
        raise BackendRefused(f"brv {command} does not take this: {said}", f"upgrade it: {INSTALL}")
    raise BackendUnavailable(f"brv {command} ended without an answer (code {ended.code}): {said}")


def _done(entry: Curation, must_keep: bool) -> bool:
    return entry.kept or (entry.status == "completed" and not must_keep)


def _judged(entry: Curation, must_keep: bool) -> Curation:
    if entry.status != "completed":
        raise failure("curate", entry.error or f"it was {entry.status}")
    if must_keep and not entry.kept:
        raise BackendRefused("brv curate: it completed and stored nothing", "another model may do better")
    return entry


def _left(until: float) -> float:
    return max(1.0, until - time.monotonic())


def changes(entry: Curation) -> Sequence[str]:
    """Yield the changes of a curation, a line each."""
    return [f"{path}: {fold_space(summary)}" if summary else path for path, summary in entry.changes]


def _file(operation: Mapping[str, Any]) -> str:
    """Return the file that an operation changed, within the tree."""
    whole = str(operation.get("filePath") or "").replace("\\", "/")
    return whole.partition("/.brv/context-tree/")[2] or str(operation.get("path", ""))
