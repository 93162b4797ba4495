"""The page of what the commands print with `--json`: each key, what stands behind it, and when it is there."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct
from tables import TOPICS, Topic, topic_of

Row = tuple[str, str, str]
"""A key, its JSON type, and when it is there: "" for always."""

JSON_TYPES: dict[Any, str] = {
    str: "string",
    Path: "string",
    int: "number",
    float: "number",
    bool: "true or false",
    list: "list",
    tuple: "list",
    type(None): "null",
}
ANYTHING = "object"
"""The type of what this page does not list the keys of."""


@dataclass(frozen=True)
class Sometimes:
    """A key that is not always there."""

    hint: Any
    when: str


def json_page() -> Iterator[str]:
    """Yield how JSON of the command line is read, and the pages by topic."""
    yield "# JSON of the command line\n"
    yield (
        "With `--json` a command prints one JSON document on standard output (`hermes-memory logs` and `hermes-memory recall --batch` one a "
        "line); warnings, and what a provider prints, go to standard error, and the exit code says the same as without. A command that is refused prints nothing there: its one line "
        'is on standard error, and the exit code is 1, or 2 for wrong use. A command that has no document of its own, also one of another author, prints `{"output": [...]}` with its lines. `[]` is any item of a list, `.` a key of an object. Keys may be added; none '
        "is renamed or given another meaning. Times are seconds since the epoch. A key that is not always there says when.\n"
    )
    yield "| to | documents of |\n|---|---|"
    for topic in TOPICS:
        paths = [path for path in sorted(documents()) if topic_of(path) is topic]
        links = (
            f"[`{path.removeprefix('hermes-memory ')}`](json/{topic.file}.md#{path.replace(' ', '-')})"
            for path in paths
        )
        yield f"| {topic.reader} | {', '.join(links)} |"


def topic_page(topic: Topic) -> Iterator[str]:
    """Yield what the commands of a topic print."""
    yield f"# JSON: {topic.title}\n"
    yield (
        f"What the commands print with which you {topic.reader}. [JSON of the command line](../json.md) says how these tables "
        f"are read, and [the commands](../cli/{topic.file}.md) what they do.\n"
    )
    for path, hint in sorted(documents().items()):
        if topic_of(path) is not topic:
            continue
        rows = list(shape(hint))
        some = any(when for _, _, when in rows)
        yield f"## {path}\n\n| key | type |{' there |' if some else ''}\n|---|---|{'---|' if some else ''}"
        for key, kind, when in rows:
            yield f"| `{key or '.'}` | {kind} |" + (f" {when} |" if some else "")
        yield ""


def documents() -> dict[str, Any]:
    """What each command prints: a type of ours, an object as a dict of its keys, a list with what its
    items are, a tuple of what it may be."""
    from hermes_core.actions.notes import ShownNote
    from hermes_core.cli.identity import KnownPerson
    from hermes_core.cli.keys import StoredKey
    from hermes_core.cli.review import ReviewReport
    from hermes_core.cli.settings import Setting
    from hermes_core.cli.verify import VerifiedRecord
    from hermes_core.contract.extensions import PartItem
    from hermes_core.curated.history import NoteVersion
    from hermes_core.forget import ForgetReport
    from hermes_core.health.storage import StorageStatus
    from hermes_core.loader.discover import ProviderEntry
    from hermes_core.outbox.store import Row as OutboxRow
    from hermes_core.sessions.daily_usage import DailyUsage
    from hermes_core.sessions.maintenance import Repair
    from hermes_core.sessions.records import ListedSession, SearchHit, StoredMessage
    from hermes_core.sessions.search.reasons import Absence, GateReason, HitReason
    from hermes_core.sessions.turn_records import ListedTurn, StoredTurnRecord
    from hermes_core.turn_recall import RecallHit, RecallReport
    from hermes_memory_agent.cli.curate import CurationReport
    from hermes_memory_agent.skills.store import SkillChange
    from hermes_memory_archive.backup import BackupReport
    from hermes_memory_archive.provider_move import MovePlan, MoveReceipt
    from hermes_memory_archive.restore import RestoreReport
    from hermes_memory_eval.measure import EvalReport
    from hermes_memory_importers.run import ImportResult
    from hermes_memory_postgresql.storage_move import StorageMovePlan, StorageMoveReceipt

    deleted = {"sessions": list[str], "deleted": int, "dry_run": bool}
    kinds = dict.fromkeys(("sessions", "notes", "skills", "memories"), int)
    skill = dict.fromkeys(("name", "category", "description", "version", "path"), str)
    message = {"message": str}
    output = {"output": list[str]}
    key = {**message, "name": str, "path": str}
    providers = {**message, "providers": list[str]}
    session = {**message, "session": str}
    setting = {**message, "key": str, "value": (None, str, int, float, bool, list, dict)}
    removed = Sometimes(str, "when an entry went")
    replaced = Sometimes(str, "when an entry gave way to another")
    return {
        "hermes-memory backup": BackupReport,
        "hermes-memory chat": _chat(),
        "hermes-memory claw migrate": _migration(),
        "hermes-memory capture install": {**message, "program": str, "file": str},
        "hermes-memory capture status": [_examination()["findings"][0]],
        "hermes-memory capture uninstall": {**message, "program": str, "file": str},
        "hermes-memory claw cleanup": {**message, "renamed": dict},
        "hermes-memory config edit": message,
        "hermes-memory config set": setting,
        "hermes-memory config unset": setting,
        "hermes-memory costs": list[DailyUsage],
        "hermes-memory demo": output,
        "hermes-memory extensions install": output,
        "hermes-memory extensions new": output,
        "hermes-memory identity add": {**message, "id": str},
        "hermes-memory identity remove": {**message, "id": str},
        "hermes-memory install-alias": {
            **message,
            "path": Sometimes(str, "without --remove"),
            "removed": Sometimes(list[str], "with --remove"),
        },
        "hermes-memory keys remove": key,
        "hermes-memory keys set": key,
        "hermes-memory memory edit": message,
        "hermes-memory memory export": {"FILE": int},
        "hermes-memory memory import": [{"file": str, "result": CHANGE}],
        "hermes-memory memory off": providers,
        "hermes-memory memory prune": {**message, "removed": int},
        "hermes-memory memory reset": {
            **message,
            "removed": dict.fromkeys(("memory", "user", "project"), Sometimes(int, "when it is switched on")),
        },
        "hermes-memory memory setup": output,
        "hermes-memory memory use": providers,
        "hermes-memory outbox delete": {**message, "rows": list[int]},
        "hermes-memory outbox retry": {**message, "rows": list[int], "dead_letters": list[str]},
        "hermes-memory plugins enable": {**message, "name": str},
        "hermes-memory plugins export": {**message, "path": str},
        "hermes-memory plugins remove": {**message, "path": str},
        "hermes-memory providers new": output,
        "hermes-memory providers uninstall": output,
        "hermes-memory sessions archive": {**session, "archived": bool},
        "hermes-memory sessions pin": {**session, "pinned": bool},
        "hermes-memory sessions rename": {**session, "title": str},
        "hermes-memory skills restore": {**message, "change": int, "path": str},
        "hermes-memory skills show": {"name": str, "text": str},
        "hermes-memory skills undo": {**message, "change": int, "path": str},
        "hermes-memory serve openapi": dict,
        "hermes-memory serve token create": {"token": str, **_token()},
        "hermes-memory serve token list": {"tokens": [{**_token(), "created_at": float}]},
        "hermes-memory serve token revoke": {**message, "id": str},
        "hermes-memory storage unmark": message,
        "hermes-memory config get": (str, int, float, bool, list, dict),
        "hermes-memory config list": list[Setting],
        "hermes-memory doctor": _examination(),
        "hermes-memory export": {
            "file": (Sometimes(str, "without --dry-run"), Sometimes(None, "with it")),
            "records": kinds,
            "hash": str,
            "left_out": list[str],
        },
        "hermes-memory eval": EvalReport,
        "hermes-memory import": {
            **{key: Sometimes(hint, "for conversations") for key, hint in _fields(ImportResult).items()},
            **{key: Sometimes(int, "if the file has memories") for key in ("memories", "notes")},
            "records": Sometimes(kinds, "for an export"),
            "imported": Sometimes(kinds, "for an export, without --dry-run"),
            "present": Sometimes(kinds, "for an export, without --dry-run"),
            "left_out": Sometimes(list[str], "for an export, without --dry-run"),
            "problems": Sometimes(list[str], "for an export, without --dry-run"),
            "hash": Sometimes(str, "for an export"),
            "equal": Sometimes(bool, "for an export, without --dry-run"),
        },
        "hermes-memory keys list": list[StoredKey],
        "hermes-memory logs": _log_line(),
        "hermes-memory memory add": CHANGE,
        "hermes-memory memory curate": (
            Sometimes(CurationReport, "for one --target"),
            Sometimes([CurationReport], "for both"),
        ),
        "hermes-memory memory allow": [
            {
                "id": str,
                "kind": Literal["text", "file", "skill", "folder"],
                "subject": str,
                "allowed": bool,
                "at": float,
            }
        ],
        "hermes-memory memory history": list[NoteVersion],
        "hermes-memory memory pin": {**CHANGE, "entry": Sometimes(str, "when it was pinned or unpinned")},
        "hermes-memory memory remove": {**CHANGE, "removed_entry": removed},
        "hermes-memory memory replace": {**CHANGE, "replaced_entry": replaced},
        "hermes-memory memory set": {**CHANGE, "removed_entry": removed, "replaced_entry": replaced},
        "hermes-memory memory restore": {**CHANGE, "removed_entry": removed, "replaced_entry": replaced},
        "hermes-memory memory show": dict.fromkeys(
            ("memory", "user"),
            (
                Sometimes(list[str], "when it is switched on and can be read"),
                Sometimes([ShownNote], "instead, with --origin"),
            ),
        ),
        "hermes-memory identity list": list[KnownPerson],
        "hermes-memory memory status": _status(),
        "hermes-memory memory undo": {**CHANGE, "removed_entry": removed, "replaced_entry": replaced},
        "hermes-memory migrate": (Sometimes(MovePlan, "with --dry-run"), Sometimes(MoveReceipt, "without")),
        "hermes-memory outbox list": list[OutboxRow],
        "hermes-memory storage move": (
            Sometimes(StorageMovePlan, "with --dry-run"),
            Sometimes(StorageMoveReceipt, "without"),
        ),
        "hermes-memory storage status": StorageStatus,
        "hermes-memory plugins install": list[ProviderEntry],
        "hermes-memory plugins list": list[ProviderEntry],
        "hermes-memory plugins update": list[ProviderEntry],
        "hermes-memory providers": list[ProviderEntry],
        "hermes-memory providers install": list[ProviderEntry],
        "hermes-memory recall": {
            **_fields(RecallReport),
            "results": [{**_fields(RecallHit), "why": Sometimes(HitReason | None, "with --why")}],
            "gate": Sometimes(GateReason, "with --why"),
            "absent": Sometimes(list[Absence], "with --why"),
            "error": Sometimes(str, "instead of all others, with --batch for a line that is no question"),
        },
        "hermes-memory sessions check": {"ok": bool, "faults": list[str]},
        "hermes-memory extensions": [
            {
                **dict.fromkeys(("name", "distribution", "version", "state", "reason", "remedy"), str),
                "adds": list[str],
            }
        ],
        "hermes-memory forget": ForgetReport,
        "hermes-memory restore": RestoreReport,
        "hermes-memory review": _review(ReviewReport, PartItem),
        "hermes-memory sessions import": {
            "imported": int,
            "present": int,
            "different": int,
            "faults": list[str],
        },
        "hermes-memory sessions delete": deleted,
        "hermes-memory sessions list": list[ListedSession],
        "hermes-memory sessions prune": deleted,
        "hermes-memory sessions rebuild": {"messages": int, "vectors": int},
        "hermes-memory sessions repair": Repair,
        "hermes-memory sessions search": list[SearchHit],
        "hermes-memory sessions show": list[StoredMessage],
        "hermes-memory sessions vacuum": {"before": int, "after": int, "dry_run": bool},
        "hermes-memory skills history": list[SkillChange],
        "hermes-memory skills list": [skill],
        "hermes-memory turns list": list[ListedTurn],
        "hermes-memory turns show": StoredTurnRecord,
        "hermes-memory verify": list[VerifiedRecord],
    }


_TAKEN = "when it was taken"
_REFUSED = "when it was refused"
CHANGE: dict[str, Any] = {
    "success": bool,
    "done": Sometimes(bool, f"{_TAKEN}, and when trying again is useless"),
    "target": Sometimes(Literal["memory", "user"], _TAKEN),
    "message": Sometimes(str, _TAKEN),
    "note": Sometimes(str, _TAKEN),
    "usage": Sometimes(str, "when the file took it, and with `current_entries`"),
    "entry_count": Sometimes(int, "when the file took it"),
    "performed": Sometimes(bool, "false when the provider alone took it"),
    "changed_entries": Sometimes(list[str], "when the new entry says otherwise than these"),
    "question": Sometimes(str, "with `changed_entries`: what a model is asked"),
    "caution": Sometimes(str, "when a removed entry held a secret, which is in the history"),
    "warning": Sometimes(str, "when the change is made and something around it failed"),
    "notice": Sometimes(str, "when the file had been changed by hand, and what was made of it"),
    "error": Sometimes(str, _REFUSED),
    "remediation": Sometimes(str, f"{_REFUSED} and there is a way out"),
    "for_person": Sometimes(str, f"{_REFUSED} and `error` is for a model: the same for a person"),
    "matches": Sometimes(list[str], f"{_REFUSED} because several entries fit"),
    "current_entries": Sometimes(list[str], f"{_REFUSED} and an entry must be chosen"),
    "drift_backup": Sometimes(str, f"{_REFUSED} because of the file, of which this is a copy"),
}
"""What a change of curated memory comes to."""


def _review(report: type, item: type) -> Any:
    fields = {name: kind for name, kind in _fields(report).items() if name != "parts"}
    return {**fields, "skills": Sometimes(list[item], "with the extension `agent`")}  # type: ignore[valid-type]


def _chat() -> Any:
    from hermes_memory_agent import TurnResult

    told = {"recall": [{"source": str, "text": str}], "problems": list[str]}
    fields = {name: kind for name, kind in _fields(TurnResult).items() if name != "contexts"}
    return {**fields, **told}


def _token() -> dict[str, Any]:
    """A token of the server."""
    return {"id": str, "name": str, "user": (str, None), "scopes": list[str]}


def _examination() -> Any:
    from hermes_core.health.finding import FindingState

    finding = {"what": str, "state": FindingState, "detail": str, "remedy": str, "safe_to_fix": bool}
    return {"home": str, "works": bool, "findings": [finding]}


def _log_line() -> Any:
    from hermes_memory_agent.monitor import ProcessMonitor

    refused = "*.refused"
    kinds = {
        "logger": "log",
        "message": "log, unreadable",
        "provider": "provider.*, outbox.*",
        "hook": "provider.call, outbox.*",
        "status": "provider.call",
        "error": "provider.call, provider.ready, provider.failed, outbox.*",
        "reason": f"provider.refused, {refused} of an observer",
        "state": "provider.refused, provider.breaker",
        "was": "provider.breaker",
        "observer": f"{refused} of an observer",
        "session": f"{refused} of an observer",
        **dict.fromkeys(ProcessMonitor(0).figures(), "process"),
    }
    return {
        "at": str,
        "level": Literal["info", "warning", "error"],
        "kind": str,
        "pid": int,
        **{name: Sometimes(str, f"for the kinds {where}") for name, where in kinds.items()},
        "row": Sometimes(int, "for the kind outbox.dead_letter"),
        "hooks": Sometimes(dict, "for the kind provider.hooks"),
    }


def _migration() -> Any:
    from hermes_memory_openclaw.migration import STATUSES, Preset, SkillConflict, Status

    names = ("found", "added", "known", "overflow", "refused", "left_out")
    counts = dict.fromkeys(names, Sometimes(int, "when notes were read"))
    text = dict.fromkeys(("kind", "source", "destination"), str)
    item = {**text, "status": Status, "reason": str, "details": counts, "sensitive": bool}
    return {
        "timestamp": str,
        "mode": Literal["execute", "preview"],
        "source_root": str,
        "target_root": str,
        "workspace_target": str | None,
        "output_dir": str | None,
        "preset": Preset,
        "overwrite": bool,
        "migrate_secrets": bool,
        "skill_conflict_mode": SkillConflict,
        "summary": dict.fromkeys(STATUSES, int),
        "entries": counts,
        "items": [item],
        "warnings": list[str],
        "next_steps": list[str],
    }


def _status() -> Any:
    from hermes_core.health.status import Status, StoreStatus

    told = Sometimes(int, "when state.db can be read")
    sessions = {
        "search_enabled": bool,
        "sessions": told,
        "messages": told,
        "by_meaning": Sometimes(str, told.when),
    }
    return {
        **_fields(Status),
        "builtin": dict.fromkeys(("memory", "user"), StoreStatus),
        "sessions": sessions,
    }


def _fields(of: type) -> dict[str, Any]:
    hints = typing.get_type_hints(of)
    if issubclass(of, Struct):
        return {name: hints[name] for name in of.__struct_fields__}
    return {field.name: hints[field.name] for field in dataclasses.fields(of)}


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and (dataclasses.is_dataclass(hint) or issubclass(hint, Struct))


def shape(hint: Any, key: str = "", when: str = "") -> Iterator[Row]:
    """The rows of what a hint stands for."""
    arguments = typing.get_args(hint)
    if isinstance(hint, Sometimes):
        yield from shape(hint.hint, key, hint.when)
    elif _is_record(hint):
        yield from shape(_fields(hint), key, when)
    elif isinstance(hint, Mapping):
        for name, inner in hint.items():
            yield from shape(inner, f"{key}.{name}", when)
    elif isinstance(hint, tuple):
        for one in hint:
            yield from shape(one, key, when)
    elif isinstance(hint, list):
        yield from shape(hint[0], f"{key}[]", when)
    elif typing.get_origin(hint) in (list, tuple, Sequence):
        yield from shape(arguments[0], f"{key}[]", when)
    elif typing.get_origin(hint) is Literal:
        yield key, "one of " + ", ".join(f"`{choice}`" if choice else "empty" for choice in arguments), when
    elif type(None) in arguments:
        yield from _or_null([one for one in arguments if one is not type(None)], key, when)
    else:
        yield key, JSON_TYPES.get(hint, ANYTHING), when


def _or_null(rest: list[Any], key: str, when: str) -> Iterator[Row]:
    if len(rest) == 1 and _is_record(rest[0]):
        yield key, "null, or what follows", when
        yield from shape(rest[0], key, when)
        return
    kinds = [JSON_TYPES.get(typing.get_origin(one) or one, ANYTHING) for one in rest]
    yield key, " or ".join(dict.fromkeys([*kinds, "null"])), when
    for one in rest:
        if typing.get_origin(one) in (list, tuple):
            yield from shape(typing.get_args(one)[0], f"{key}[]", when)


@cache
def rows(path: str) -> tuple[Row, ...]:
    """The rows of a command."""
    return tuple(shape(documents()[path]))


def path_of(words: Sequence[str]) -> str:
    """The command of the page that these words of a command line call; "" for another."""
    rest = list(words)
    while len(rest) > 1 and rest[0] in ("--home", "--profile"):
        del rest[:2]
    called = " ".join(["hermes-memory", *rest, ""])
    return next((path for path in documents() if called.startswith(f"{path} ")), "")


def keys_of(value: Any, key: str = "") -> Iterator[str]:
    """Every key of what was printed; that of an object or a list without anything in it as well."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from keys_of(item, f"{key}.{name}")
    elif isinstance(value, list) and value:
        for item in value:
            yield from keys_of(item, f"{key}[]")
    else:
        yield key


def not_told(value: Any, rows: Sequence[Row]) -> list[str]:
    """The keys of what was printed that the rows of its command do not have."""
    told, open_at = (
        {key for key, _, _ in rows},
        tuple(key for key, kind, _ in rows if ANYTHING in kind.split(" or ")),
    )
    empty = {
        key[: end + 1] for key in told for end in range(len(key)) if key[end + 1 : end + 2] in (".", "[")
    }
    return sorted(
        {
            key
            for key in keys_of(value)
            if key and key not in told and key not in empty and not key.startswith(open_at)
        }
    )


PAGES: dict[str, Callable[[], Iterable[str]]] = {
    "reference/json.md": json_page,
    **{f"reference/json/{topic.file}.md": partial(topic_page, topic) for topic in TOPICS},
}
