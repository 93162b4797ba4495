"""The tools that a provider offers to the model: their schemas, and what they answer to whatever a model sends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hermes_core import Session, ToolCall
from hermes_core.testing.contract.hostile import BAD, HOSTILE
from hermes_core.testing.contract.run import NO_ANSWER
from hermes_core.testing.contract.schema import sample, schema_faults
from hermes_core.testing.contract.suite import Suite

_VALUES: tuple[Any, ...] = (None, 12, [], {}, "not this")


class Tools(Suite):
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
    """Arguments as models send them when they are wrong, and what is wrong with them."""
    good = sample(parameters)
    yield "no arguments", {}
    yield "an unknown argument", {**good, "surprise": json.dumps([1])}
    for name in good:
        yield f"no {name!r}", {key: value for key, value in good.items() if key != name}
        for wrong in _VALUES:
            yield f"{name!r} as {type(wrong).__name__}", {**good, name: wrong}
