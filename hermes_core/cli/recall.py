"""`hermes-memory recall`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import click

from hermes_core.cli.options import limit_results_option, time_options, with_memory
from hermes_core.cli.output import finish, note_unread, print_result, print_styled
from hermes_core.errors import ImportFailed
from hermes_core.health.provider import start_providers
from hermes_core.kit.cli import print_json_lines, reserve_output
from hermes_core.kit.text import clip
from hermes_core.memory import Memory
from hermes_core.safety.json_size import ends_within_value, torn_line
from hermes_core.safety.terminal import counted, printable
from hermes_core.turn_recall import ExplainedHit, ExplainedReport, RecallHit, RecallReport

MAX_RESULTS = 1000
"""Results per source that may be requested."""

MAX_TEXT_CHARS = 2000
"""Characters of one result on the screen; --json has them all."""

HEADINGS = {"memory": "notes", "provider": "provider", "sessions": "past sessions"}


@click.command()
@click.argument("query", required=False)
@limit_results_option(
    MAX_RESULTS,
    "At most this many results per source; else 10, or 30 for a question about a list or a count.",
)
@time_options("messages of past sessions")
@click.option(
    "--batch",
    is_flag=True,
    callback=reserve_output,
    help='Read {"query": ...} lines from standard input, answer a line each.',
)
@click.option(
    "--why", is_flag=True, help="Also show what brought each result, and what the gate of a turn decided on."
)
@click.option(
    "--why-not",
    "absent",
    type=click.IntRange(1, 2**63 - 1),
    multiple=True,
    metavar="MESSAGE_ID",
    help="Also say why the message with this id is not there. May be repeated.",
)
@with_memory(provider=None, begins=False)
def recall(
    memory: Memory,
    query: str | None,
    limit: int | None,
    after: str | None,
    before: str | None,
    batch: bool,
    why: bool,
    absent: tuple[int, ...],
) -> None:
    """Show what a turn with the message QUERY would get, by source.

    Sources are the notes (always in the prompt), the active provider, and past sessions, of which a turn gets those
    that seem to answer it, unless recall.sessions is on_request.
    """
    if batch == (query is not None):
        raise click.UsageError("give a QUERY or --batch, one of the two")
    # A turn does without a provider that starts slowly. This command waits, because the provider's answer is its purpose.
    start_providers(memory.manager, memory.local_session)
    ctx = click.get_current_context()
    ask = partial(memory.recall, everybody=True, after=after, before=before, why=why, absent=absent)
    if batch:
        faults, torn = list[str](), list[str]()
        print_json_lines(_answers(ask, limit, faults, torn))
        note_unread(memory.sessions.past.unread())
        finish(ctx, [*torn, *memory.problems()], failed=bool(faults))
        return
    report = ask(query or "", limit=limit)
    print_result(report, lambda: _show(report))
    note_unread(report.unread)
    finish(ctx, report.problems)


def _answers(
    ask: Callable[..., RecallReport], limit: int | None, faults: list[str], torn: list[str]
) -> Iterator[object]:
    """Yield the answer to each line of standard input: of an invalid one an `error`, which is added to `faults`.

    The error of a last line that the end of the input cuts off is added to `torn`.
    """
    for number, line in enumerate(sys.stdin.buffer, 1):
        if not line.strip():
            continue
        try:
            query, k = _question(line, number, limit)
            yield ask(query, limit=k)
        except ImportFailed as exc:
            is_torn = not line.endswith(b"\n") and ends_within_value(exc.__cause__)
            error = str(torn_line(number) if is_torn else exc)
            (torn if is_torn else faults).append(error)
            yield {"error": error}


def _question(line: bytes, number: int, limit: int | None) -> tuple[str, int | None]:
    """Return query and limit of a line: a JSON string, or an object with `query` and optionally `k`."""
    try:
        value: Any = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as exc:
        reason = exc.msg if isinstance(exc, json.JSONDecodeError) else str(exc)
        raise ImportFailed(
            f"line {number} is not JSON: {reason}", 'write {"query": "..."} on each line'
        ) from exc
    query = value.get("query") if isinstance(value, dict) else value
    k = value.get("k", limit) if isinstance(value, dict) else limit
    if k is not limit and (not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= MAX_RESULTS):
        raise ImportFailed(
            f"line {number} asks for {k!r} results", f"give k from 1 to {MAX_RESULTS}, or leave it out"
        )
    if not isinstance(query, str):
        raise ImportFailed(
            f"line {number} has no query: {line.decode('utf-8').strip()[:80]!r}",
            'write {"query": "..."} on each line',
        )
    return query, k


def _show(report: RecallReport) -> None:
    for source, heading in HEADINGS.items():
        results = [result for result in report.results if result.source == source]
        if results:
            use = "given to the turn" if results[0].injected else "when the model asks"
            print_styled((heading, "bold"), (f"  {use}", "dim"))
            for result in results:
                print_styled(*_line(result))
                if isinstance(result, ExplainedHit) and result.why is not None:
                    number = f"message {result.message_id}: " if result.message_id is not None else ""
                    use = "given" if result.injected else "on request"
                    print_styled((f"      {use}; {number}{printable(result.why.text)}", "dim"))
    if not report.results:
        unproven = "Nothing was found for this message, but not everything could be searched."
        click.echo(unproven if report.problems else "Nothing is remembered for this message.")
    if isinstance(report, ExplainedReport):
        _show_reasons(report)
    print_styled((f"{counted(report.tokens, 'token')} given, {report.elapsed_ms:.1f} ms", "dim"))


def _show_reasons(report: ExplainedReport) -> None:
    """Print what the gate decided on, and why messages that were asked for are not there."""
    gate = report.gate
    print_styled(("gate", "bold"), f"  {printable(gate.text)}")
    if gate.message_id is not None:
        parts = ", ".join(f"{name} {value:+.2f}" for name, value in gate.parts.items())
        shared = f"words {', '.join(gate.words)}" if gate.words else "no word"
        beside = f", beside it {', '.join(gate.near_words)}" if gate.near_words else ""
        print_styled(f"  message {gate.message_id} was judged: {printable(shared + beside)}; {parts}")
    for absence in report.absent:
        print_styled((f"message {absence.message_id}", "bold"))
        print_styled(f"  in the turn: {printable(absence.turn)}")
        print_styled(f"  in the search: {printable(absence.search)}")
        if absence.reason is not None:
            print_styled((f"  {printable(absence.reason.text)}", "dim"))


def _line(result: RecallHit) -> tuple[str | tuple[str, str], ...]:
    # Scores compare results of one search only, so they are for programs (--json).
    origin = ", ".join(filter(None, (result.when, result.speaker)))
    ref = f" ({result.ref})" if result.ref else ""
    return (
        "  ",
        (printable(f"{origin}{ref}: ") if origin else "", "cyan"),
        printable(clip(result.text, MAX_TEXT_CHARS)),
    )
