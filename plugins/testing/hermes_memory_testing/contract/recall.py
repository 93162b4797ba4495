"""Checks of recall, of the system prompt, and of tools."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

from hermes_core import Query, Session, ToolCall
from hermes_memory_testing.contract.inputs import BAD, HOSTILE, sample, schema_faults
from hermes_memory_testing.contract.suite import (
    BOATHOUSE,
    NO_ANSWER,
    REHEARSAL,
    TORTOISE,
    WAYS,
    Fact,
    Suite,
    completed_turn,
)

BUDGET = 60
CHARS_PER_TOKEN = 4
LONG_AGO = 1e9
OF_MANY_SCRIPTS = Fact("Мою черепаху зовут Çağrı-雪.", "Как зовут мою черепаху?", "Çağrı-雪")


class RecallChecks(Suite):
    """`prefetch`, `queue_prefetch` and `system_prompt_block`."""

    def test_recall_answers_with_a_recall(self) -> None:
        session = self.started("prefetch")
        outcome = self.run.ask("prefetch", query=_query(TORTOISE.question), session=session)
        if outcome.status == "failed":
            self.fault(f"prefetch: {outcome.error}", "return a Recall, a str, or None for nothing")

    def test_an_empty_memory_recalls_nothing(self) -> None:
        session = self.started("prefetch")
        self.run.recall(TORTOISE.question, session)
        recall = self.run.recall(TORTOISE.question, session)  # the first question is no memory either
        if TORTOISE.marker in recall.render():
            self.not_run("it recalls what another test stored in another home")
        if recall:
            self.fault(
                f"with nothing stored, prefetch gives {recall.render()[:120]!r}",
                "return an empty Recall; every word of recall is paid for in every turn",
            )

    def test_something_that_was_stored_is_recalled(self) -> None:
        session = self.started("prefetch")
        ways = [way for way in WAYS if self.run.claims(way)]
        if not ways:
            self.not_claimed("no hook that stores anything")
        if not any(self.learned(TORTOISE, session, way) for way in ways):
            self.fault(
                f"after {', '.join(ways)} with {TORTOISE.said!r}, {TORTOISE.question!r} recalls nothing of it",
                "let prefetch find it by the words of the question; if the backend needs time, override eventually()",
            )

    def test_a_turn_is_recalled(self) -> None:
        self._is_recalled("sync_turn")

    def test_a_memory_write_is_recalled(self) -> None:
        self._is_recalled("on_memory_write")

    def test_a_session_that_ended_is_recalled(self) -> None:
        self._is_recalled("on_session_end")

    def test_what_one_session_says_is_recalled_in_another(self) -> None:
        session = self.started("prefetch")
        facts = dict(zip(WAYS, (TORTOISE, BOATHOUSE, REHEARSAL), strict=True))
        ways = [
            way for way, fact in facts.items() if self.run.claims(way) and self.learned(fact, session, way)
        ]
        if not ways:
            self.not_claimed("what is stored is not recalled word for word")
        later = self.run.ready(dataclasses.replace(session, id="another"))
        for way in ways:
            question, marker = facts[way].question, facts[way].marker
            if not self.eventually(lambda: marker in self.run.recall(question, later).render()):  # noqa: B023
                self.fault(
                    f"what {way}() stored in session {session.id!r} is recalled there and in no other session",
                    "search in all sessions of session.owner; a search that names session.id may leave the others out",
                )

    def test_what_is_said_in_another_script_is_recalled(self) -> None:
        session = self.started("prefetch")
        way = self.observable(TORTOISE, session)
        if not self.learned(OF_MANY_SCRIPTS, session, way):
            found = self.run.recall(OF_MANY_SCRIPTS.question, session).render()
            self.fault(
                f"after {way} with {OF_MANY_SCRIPTS.said!r}, {OF_MANY_SCRIPTS.question!r} recalls {found[:120]!r}",
                "store and send text as UTF-8, and search for words of any script: [a-z] has none of most languages",
            )

    def test_a_turn_is_dated_when_it_was_said(self) -> None:
        session = self.started("prefetch", "sync_turn")
        turn = dataclasses.replace(completed_turn(TORTOISE.said), at=LONG_AGO)
        self.run.need("sync_turn", turn=turn, session=session)
        if not self.eventually(lambda: self.run.recalled(TORTOISE, session) > 0):
            self.not_claimed("nothing that sync_turn() was given is recalled word for word")
        items = self.run.recall(TORTOISE.question, session).items
        dates = [item.when for item in items if TORTOISE.marker in item.text and item.when]
        if not dates:
            self.not_claimed("recall says no dates")
        if time.strftime("%Y") in dates[0]:
            self.fault(
                f"what was said in September 2001 is recalled as of {dates[0]!r}",
                "store turn.at: a turn waits in the outbox while the backend is down, and may be imported years later",
            )

    def test_recall_keeps_to_its_budget(self) -> None:
        if self.foreign:
            self.not_claimed("budgets are no part of the contract of Hermes Agent")
        session = self.started("prefetch")
        way = self.observable(TORTOISE, session)
        for number in range(20):
            said = f"My tortoise number {number} is called Quillfeather the {number}th of the garden."
            self.run.store(Fact(said, "", ""), session, way)
        recall = self.run.need("prefetch", query=_query(TORTOISE.question, BUDGET), session=session)
        size = len(recall.render()) // CHARS_PER_TOKEN
        if size > BUDGET * 1.5:
            self.fault(
                f"asked for {BUDGET} tokens at most, prefetch gives about {size}",
                "stop before query.budget is used up; the manager cuts the rest in the middle of a sentence",
            )

    def test_recall_prepares_the_next_turn(self) -> None:
        session = self.started("queue_prefetch")
        outcome = self.run.ask("queue_prefetch", query=_query(BOATHOUSE.question), session=session)
        if outcome.status == "failed":
            self.fault(
                f"queue_prefetch: {outcome.error}", "return a Recall, a str, or None, and raise nothing"
            )

    def test_recall_takes_note_of_a_turn(self) -> None:
        session = self.started("on_turn_start")
        start = {"turn_number": 1, "message": REHEARSAL.said, "session": session, "author": ""}
        outcome = self.run.ask("on_turn_start", **start)
        if outcome.status == "failed":
            self.fault(f"on_turn_start: {outcome.error}", "raise nothing for an ordinary message")

    def test_hostile_questions_are_answered(self) -> None:
        session = self.started("prefetch")
        self.run.need("prefetch", query=_query(TORTOISE.question), session=session)
        for what, text in HOSTILE.items():
            outcome = self.run.ask("prefetch", query=_query(text), session=session)
            if outcome.status in BAD:
                self.fault(
                    f"prefetch fails for a question with {what}: {outcome.error}",
                    "quote it for your search, cut it to what the backend takes, or return an empty Recall",
                )
        self.run.need("prefetch", query=_query(TORTOISE.question), session=session)

    def test_the_prompt_block_is_text(self) -> None:
        session = self.started("system_prompt_block")
        outcome = self.run.ask("system_prompt_block", session=session)
        if outcome.status == "failed":
            self.fault(f"system_prompt_block: {outcome.error}", 'return a str, "" for nothing')

    def test_the_prompt_block_stays_the_same(self) -> None:
        session = self.started("system_prompt_block")
        first = self.run.need("system_prompt_block", session=session)
        second = self.run.need("system_prompt_block", session=session)
        if first != second:
            self.fault(
                "two calls of system_prompt_block for one session give two texts",
                "leave out times and counters: each change of the prompt empties the model's cache",
            )

    # ------------------------------------------------------------------ private

    def _is_recalled(self, way: str) -> None:
        session = self.started("prefetch", way)
        if self.recalled_from is not None and way not in self.recalled_from:
            self.not_claimed(f"{way}() makes nothing that is recalled word for word")
        if self.learned(TORTOISE, session, way):
            return
        if self.recalled_from is None:
            self.not_claimed(f"nothing that {way}() was given is recalled word for word")
        if way == "sync_turn" and not self.kept(TORTOISE):
            self.not_run("the backend does not have the turn")
        self.fault(
            f"after {way} with {TORTOISE.said!r}, {TORTOISE.question!r} recalls nothing of it",
            f"store it, or leave {way!r} out of recalled_from",
        )


def _query(text: str, budget: int = 1500) -> Any:
    return Query(text, budget=budget, now=time.time())


_VALUES: tuple[Any, ...] = (None, 12, [], {}, "not this")


class ToolsChecks(Suite):
    """`get_tool_schemas` and `handle_tool_call`."""

    def test_schemas_are_a_list(self) -> None:
        run = self.run
        if not run.accepted:
            self.not_run("it is not accepted")
        if not run.claims("get_tool_schemas"):
            self.not_claimed("get_tool_schemas()")
        trouble = next((w for w in run.health.warnings if "offers no tools" in w), "")
        if trouble and NO_ANSWER not in trouble:
            self.fault(trouble, 'return a list of {"name", "description", "parameters"}, [] for none')

    def test_schemas_are_what_models_accept(self) -> None:
        faults = [fault for schema in self._raw_schemas() for fault in schema_faults(schema)]
        if faults:
            self.fault("; ".join(faults[:5]), "write it so, or let kit.ToolBox make the schemas")

    def test_tool_names_are_its_own(self) -> None:
        self._raw_schemas()
        refused = [warning for warning in self.run.health.warnings if "is refused" in warning]
        if refused:
            self.fault("; ".join(refused), "put the provider's name before it, as in 'notes_search'")

    def test_schemas_stay_as_they_are(self) -> None:
        before = self._raw_schemas()
        self.started()
        after = list(self.run.need("get_tool_schemas"))
        if before != after:
            self.fault(
                "get_tool_schemas gives another answer after initialize",
                "let it depend on settings only: it is called before initialize, and the answer is frozen",
            )

    def test_tools_can_be_called(self) -> None:
        self._raw_schemas()
        if not self.run.claims("handle_tool_call"):
            self.fault(
                "it offers tools and has no handle_tool_call", "write handle_tool_call, or offer no tools"
            )

    def test_every_tool_answers(self) -> None:
        session = self.started("get_tool_schemas", "handle_tool_call")
        for schema in self._schemas():
            outcome = self._call(schema["name"], sample(schema["parameters"]), session)
            if outcome.status == "failed":
                self.fault(
                    f"{schema['name']} fails for arguments of its own schema: {outcome.error}",
                    'return text for the model, JSON with "error" when something can not be done',
                )

    def test_wrong_arguments_are_answered(self) -> None:
        session = self.started("get_tool_schemas", "handle_tool_call")
        for schema in self._schemas():
            self._needs(schema, session)
            for what, arguments in _wrong(schema["parameters"]):
                outcome = self._call(schema["name"], arguments, session)
                if outcome.status == "failed":
                    self.fault(
                        f"{schema['name']} raises for {what}: {outcome.error}",
                        'answer {"error": what to send instead}; kit.ToolBox does that',
                    )

    def test_hostile_arguments_are_answered(self) -> None:
        session = self.started("get_tool_schemas", "handle_tool_call")
        for schema in self._schemas():
            self._needs(schema, session)
            for what, text in HOSTILE.items():
                outcome = self._call(schema["name"], sample(schema["parameters"], text), session)
                if outcome.status in BAD:
                    self.fault(
                        f"{schema['name']} raises for an argument with {what}: {outcome.error}",
                        'clean it, or answer {"error": why not}',
                    )

    # ------------------------------------------------------------------ private

    def _raw_schemas(self) -> list[dict[str, Any]]:
        run = self.run
        if not run.accepted:
            self.not_run("it is not accepted")
        if not run.claims("get_tool_schemas"):
            self.not_claimed("get_tool_schemas()")
        schemas = list(run.need("get_tool_schemas"))
        if not schemas:
            self.not_claimed("it offers no tools")
        return schemas

    def _schemas(self) -> list[dict[str, Any]]:
        schemas = self.run.manager.get_all_tool_schemas()
        if not schemas:
            self.not_claimed("it offers no tools")
        broken = [fault for schema in schemas for fault in schema_faults(schema)]
        if broken:
            self.not_run(f"its schemas are at fault: {broken[0]}")
        return schemas

    def _call(self, name: str, arguments: dict[str, Any], session: Session) -> Any:
        call = ToolCall(name, arguments, "call-1")
        return self.run.ask("handle_tool_call", call=call, session=session)

    def _needs(self, schema: dict[str, Any], session: Session) -> None:
        outcome = self._call(schema["name"], sample(schema["parameters"]), session)
        if not outcome.ok:
            self.not_run(f"{schema['name']}: {outcome.error}")


def _wrong(parameters: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield wrong arguments as models send them, each after a description of the fault."""
    good = sample(parameters)
    yield "no arguments", {}
    yield "an unknown argument", {**good, "surprise": json.dumps([1])}
    for name in good:
        yield f"no {name!r}", {key: value for key, value in good.items() if key != name}
        for wrong in _VALUES:
            yield f"{name!r} as {type(wrong).__name__}", {**good, name: wrong}
