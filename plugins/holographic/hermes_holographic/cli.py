"""Commands of the provider, under `hermes-memory holographic`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from hermes_core.kit import ToolInputInvalid, printable
from hermes_core.kit.cli import command_home, json_option, limit_option, print_facts, print_json, print_rows
from hermes_holographic.provider import database_path

if TYPE_CHECKING:
    from hermes_holographic.retrieval import FactMemory

_USER = click.option("--user", default="", metavar="PLATFORM:ID", help="For this user of a gateway.")


@click.command()
@click.argument("words", nargs=-1)
@limit_option()
@_USER
@json_option
@click.pass_context
def facts(context: click.Context, words: tuple[str, ...], limit: int, user: str, as_json: bool) -> None:
    """List facts by trust, or search for WORDS."""
    memory = _open(context, user)
    found = memory.search(" ".join(words), limit=limit) if words else memory.store.listing(None, 0.0, limit)
    print_rows(found, as_json, _fact)


@click.command()
@click.argument("entity")
@limit_option()
@_USER
@json_option
@click.pass_context
def probe(context: click.Context, entity: str, limit: int, user: str, as_json: bool) -> None:
    """Show all facts about one person, project or thing."""
    print_rows(_open(context, user).probe(entity, limit=limit), as_json, _fact)


@click.command()
@click.argument("entity")
@limit_option()
@_USER
@json_option
@click.pass_context
def related(context: click.Context, entity: str, limit: int, user: str, as_json: bool) -> None:
    """Show the facts that connect to ENTITY."""
    print_rows(_open(context, user).related(entity, limit=limit), as_json, _fact)


@click.command()
@click.argument("entities", nargs=-1, required=True)
@limit_option()
@_USER
@json_option
@click.pass_context
def reason(context: click.Context, entities: tuple[str, ...], limit: int, user: str, as_json: bool) -> None:
    """Show facts about all ENTITIES at once."""
    print_rows(_open(context, user).reason(entities, limit=limit), as_json, _fact)


@click.command()
@limit_option()
@_USER
@json_option
@click.pass_context
def contradictions(context: click.Context, limit: int, user: str, as_json: bool) -> None:
    """Show facts that disagree, the newer one first."""
    print_rows(_open(context, user).contradictions(limit=limit), as_json, _pair)


@click.command()
@_USER
@json_option
@click.pass_context
def stats(context: click.Context, user: str, as_json: bool) -> None:
    """Show the numbers of facts, entities and vectors, and the file."""
    memory = _open(context, user)
    told = {"path": str(memory.store.db.path), **memory.store.stats()}
    print_facts(told, as_json)


@click.command()
@_USER
@click.pass_context
def export(context: click.Context, user: str) -> None:
    """Print every fact as a line of JSON: text, names, what it says of whom, trust, dates, what superseded it."""
    for fact in _open(context, user).history():
        print_json(fact, compact=True)


@click.command()
@click.argument("numbers", nargs=-1, required=True, type=click.IntRange(1, 2**63 - 1))
@_USER
@click.pass_context
def forget(context: click.Context, numbers: tuple[int, ...], user: str) -> None:
    """Delete facts by their NUMBERS, which `facts` shows."""
    store = _open(context, user).store
    known = {number: fact for number in numbers if (fact := store.get(number))}
    for number in numbers:
        if number in known and store.remove(number):
            click.echo(printable(f"forgotten: {known[number]['content']}"))
        else:
            click.echo(f"there is no fact {number}", err=True)
    context.exit(0 if known.keys() >= set(numbers) else 1)


def _open(context: click.Context, user: str) -> FactMemory:
    """Open the facts of the home that the command line names, or of one of its users, until the command ends."""
    provider, home = context.obj, command_home(context).path
    options = provider.read_settings(home)
    if user and not options.shared and not database_path(options, home, user).exists():
        raise ToolInputInvalid(
            f"there are no facts of {user!r}", "write a user as PLATFORM:ID, a chat as PLATFORM/CHAT"
        )
    memory: FactMemory = provider.open(home, user)
    context.call_on_close(memory.store.db.close)
    return memory


def _fact(fact: dict[str, Any]) -> str:
    sure = f"  ({fact['confidence']} sigma)" if "confidence" in fact else ""
    return f"{fact['fact_id']:>5}  [{fact['trust_score']:.2f}] {fact['content']}{sure}"


def _pair(pair: dict[str, Any]) -> str:
    about = f"{pair['subject']}: {pair['attribute']} ({pair['contradiction_score']:.2f})"
    return f"{about}\n{_fact(pair['fact_a'])}\n{_fact(pair['fact_b'])}"


COMMANDS = (facts, probe, related, reason, contradictions, stats, export, forget)
