"""Importer for LoCoMo conversations: two people who talk over months, with questions about their talk.

Maharana et al., "Evaluating Very Long-Term Conversational Memory of LLM Agents", ACL 2024. A file is a list of
samples (or one sample); each holds `conversation` with `speaker_a`, `speaker_b`, `session_N` and
`session_N_date_time`. The file gives no time zone; times are read as UTC.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hermes_core.errors import ImportFailed
from hermes_memory_importers import (
    ImportedMessage,
    ImportedSession,
    SkipLog,
    StreamedSession,
    json_digest,
    read_records,
    split_turns,
)

SOURCE = "locomo"
# The file dates a session, not a line. A distance of one second keeps the lines in order.
SECONDS_BETWEEN_LINES = 1.0

_SESSION_KEY = re.compile(r"session_(\d{1,9})")
_TIMES = ("%I:%M %p on %d %B, %Y", "%I:%M %p on %d %B %Y", "%d %B, %Y", "%d %B %Y")


def score_locomo(path: Path, head: bytes, value: Any) -> int:  # noqa: ARG001  (the arguments of every importer)
    """Return 5 if a value looks like a LoCoMo conversation, else 0."""
    return 5 if is_sample(value) else 0


def read_locomo_file(path: Path, skips: SkipLog) -> Iterator[StreamedSession]:
    """Yield the sessions of a file. People write such files themselves, so a fault is raised before any is yielded."""
    samples = list(read_records(path, skips, strict=True))
    sessions = read_locomo(samples)
    for number, sample in enumerate(samples, 1):
        _count_others(sample, f"sample {number}", skips)
    skips.open(
        sum(len(turn.messages) for session in sessions for turn in session.turns), records=len(samples)
    )
    return ((replace(session, turns=()), session.turns) for session in sessions)


def _count_others(sample: Mapping[str, Any], where: str, skips: SkipLog) -> None:
    """Count the questions about a sample, its summaries, and the pictures that no caption describes."""
    for field in ("qa", "observation", "session_summary", "event_summary"):
        if held := sample.get(field):
            count = len(held) if isinstance(held, list | dict) else 1
            skips.note_part("questions and summaries of the benchmark", f"{where}, {field}", count)
    lines = [line for held in sample["conversation"].values() if isinstance(held, list) for line in held]
    pictures = [
        line
        for line in lines
        if isinstance(line, Mapping) and line.get("img_url") and not line.get("blip_caption")
    ]
    skips.note_part("pictures without a caption", where, len(pictures))


def read_locomo(data: Any) -> list[ImportedSession]:
    """Return the sessions of every sample in `data` (the file's JSON), in order.

    `speaker_a` is the user and `speaker_b` the assistant. A shared picture becomes "[shares ...]".
    Raises `ImportFailed` if `data` has another format.
    """
    samples = [data] if isinstance(data, Mapping) else data
    if not isinstance(samples, list) or not samples or not all(map(is_sample, samples)):
        raise ImportFailed(
            "this is not a LoCoMo file", "give the JSON that has 'conversation' with 'speaker_a'"
        )
    return [session for sample in samples for session in _sessions(sample)]


def is_sample(value: Any) -> bool:
    """Return True if `value` looks like a LoCoMo conversation."""
    conversation = value.get("conversation") if isinstance(value, Mapping) else None
    return isinstance(conversation, Mapping) and {"speaker_a", "speaker_b"} <= conversation.keys()


def parse_time(text: str) -> float | None:
    """Return the epoch seconds of a time as the file writes it, None if it can't be read.

    >>> parse_time("1:56 pm on 8 May, 2023")
    1683554160.0
    """
    for form in _TIMES:
        try:
            return datetime.strptime(text.strip(), form).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return None


def _sessions(sample: Mapping[str, Any]) -> Iterator[ImportedSession]:
    conversation = sample["conversation"]
    sessions = sorted(
        (int(match[1]), match[1], lines)
        for key, lines in conversation.items()
        if (match := _SESSION_KEY.fullmatch(key)) and isinstance(lines, list)
    )
    # Without an id the first line tells samples apart, and stays when the sample grows.
    begins = [conversation["speaker_a"], conversation["speaker_b"], [lines[:1] for *_, lines in sessions[:1]]]
    sample_id = str(sample.get("sample_id") or json_digest(begins))
    for _, number, lines in sessions:
        started = parse_time(str(conversation.get(f"session_{number}_date_time", "")))
        messages = _messages(conversation, lines, started)
        yield ImportedSession(
            id=f"locomo-{sample_id}-session-{number}",
            source=SOURCE,
            title=f"{conversation['speaker_a']} and {conversation['speaker_b']}, {sample_id}, session {number}",
            started_at=started,
            turns=tuple(split_turns(messages)),
        )


def _messages(
    conversation: Mapping[str, Any], lines: Sequence[Any], started: float | None
) -> list[ImportedMessage]:
    messages = []
    for index, line in enumerate(lines):
        if not isinstance(line, Mapping) or not isinstance(line.get("text", ""), str):
            raise ImportFailed(f"a line of a session is not one: {line!r}", "repair or remove it")
        speaker = str(line.get("speaker", ""))
        messages.append(
            ImportedMessage(
                role="user" if speaker == conversation["speaker_a"] else "assistant",
                content=_content(line),
                speaker=speaker,
                ref=str(line.get("dia_id", "")),
                timestamp=None if started is None else started + index * SECONDS_BETWEEN_LINES,
            )
        )
    return messages


def _content(line: Mapping[str, Any]) -> str:
    caption = line.get("blip_caption")
    shared = f"[shares {caption}]" if caption else ""
    return f"{line.get('text', '')} {shared}".strip()
