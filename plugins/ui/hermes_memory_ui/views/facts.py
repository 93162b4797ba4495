"""The facts of a provider that has the tool `fact_store`, as holographic: trust, entities, contradictions, and a graph."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

from hermes_core.contract.values import ToolCall
from hermes_core.curated.document import entry_handle
from hermes_core.errors import SessionError
from hermes_core.kit import fold_space
from hermes_memory_ui.answers import Page, PageRequest, Redirect, question
from hermes_memory_ui.drawings import graph
from hermes_memory_ui.site import Site, address
from hermes_memory_ui.views.notes import shown_texts

TOOL = "fact_store"

# As many as the tool gives in one answer.
MAX_FACTS = 50
MAX_NODES = 24
MAX_HITS = 3
MAX_QUERY_CHARS = 200


def show(site: Site, request: PageRequest) -> Page:
    """Show the facts with the highest trust, or those about one entity."""
    if site.read_only:
        reason = "A read-only page starts no provider, and only the provider can read its facts."
        return Page("facts.html", {"reason": reason})
    if not _has_facts(site):
        reason = "No provider with facts is active. hermes-memory memory setup holographic makes one ready."
        return Page("facts.html", {"reason": reason})
    entity = request.query.get("entity", "").strip()
    listed = _call(site, {"action": "list", "limit": MAX_FACTS})
    about = _call(site, {"action": "related", "entity": entity, "limit": MAX_FACTS}) if entity else {}
    clashes = _call(site, {"action": "contradict", "limit": MAX_FACTS})
    facts = listed.get("facts", [])
    counts = Counter(name for fact in facts for name in fact.get("entities", ()))
    names = [name for name, _ in counts.most_common(MAX_NODES)]
    ties = Counter(
        tuple(sorted(pair))
        for fact in facts
        for pair in combinations({name for name in fact.get("entities", ()) if name in names}, 2)
    )
    return Page(
        "facts.html",
        {
            "reason": "",
            "entity": entity,
            "facts": about.get("results", []) if entity else facts,
            "clashes": clashes.get("results", []),
            "entities": counts.most_common(),
            "graph": graph(
                {name: counts[name] for name in names}, ties, lambda name: site.link("/facts", entity=name)
            )
            if names
            else "",
            "errors": list(
                dict.fromkeys(answer["error"] for answer in (listed, about, clashes) if answer.get("error"))
            ),
        },
    )


def show_fact(site: Site, request: PageRequest) -> Page:
    """Show one fact: its times, its trust, what it replaced, the messages that say it, and the form that changes it."""
    fact, listed = _fact(site, request)
    number, handle = fact["fact_id"], _handle(fact["content"])
    hits = site.memory.sessions.past.search(fact["content"], user=site.owner, limit=MAX_HITS, distinct=True)
    return Page(
        "fact.html",
        {
            "fact": fact,
            "values": _form_values(number, fact["content"]),
            "note": next((one for one in shown_texts(site) if _handle(one.entry) == handle), None),
            "actions": _actions(site),
            "earlier": [one for one in listed if one.get("superseded_by") == number],
            "later": [one for one in listed if one["fact_id"] == fact.get("superseded_by")],
            "hits": hits,
        },
    )


def edit(site: Site, request: PageRequest) -> Redirect:
    """Give a fact another text; a button beside the message gives it back the text before."""
    number, before = _fact_of_form(site, request)
    text = request.form.get("content", "")
    answer = _call(site, {"action": "update", "fact_id": number, "content": text})
    if error := answer.get("error"):
        return Redirect(_place(number, before), str(error), failed=True, draft=text)
    if request.form.get("undo"):
        return Redirect(_place(number, text), "Undone.")
    values = _form_values(number, text) | {"content": before, "undo": "1"}
    return Redirect(_place(number, text), "The fact is changed.", undo={"/fact/edit": values})


def ask_deletion(site: Site, request: PageRequest) -> Page:
    """Show the fact that would be deleted."""
    fact, _ = _fact(site, request)
    number, text = fact["fact_id"], fact["content"]
    yes = ("/fact/delete/confirmed", "Delete for good", _form_values(number, text))
    return question("Delete this fact for good?", text, yes, _place(number, text))


def delete(site: Site, request: PageRequest) -> Redirect:
    """Delete a fact for good: the tool could not bring back its trust and its times."""
    number, text = _fact_of_form(site, request)
    error = _call(site, {"action": "remove", "fact_id": number}).get("error")
    if error:
        return Redirect(_place(number, text), str(error), failed=True)
    return Redirect("/facts", f"Deleted: {text}")


def _fact_of_form(site: Site, request: PageRequest) -> tuple[int, str]:
    """Return number and text of the fact of a form. Raise `SessionError` if it was changed since it was shown."""
    fact, _ = _fact(site, request)
    number, text = fact["fact_id"], fact["content"]
    if _handle(text) != request.form.get("handle", ""):
        raise SessionError(f"fact {number} was changed since it was shown", "go back and load the page again")
    return number, text


def _handle(text: str) -> str:
    """Return the name of a text, of which a provider may store the white space otherwise."""
    return entry_handle(fold_space(text))


def _form_values(number: int, text: str) -> dict[str, Any]:
    """Return the values of a form that is about a fact with this text."""
    return {"id": number, "q": text[:MAX_QUERY_CHARS], "handle": _handle(text)}


def _place(number: int, text: str) -> str:
    """Return the location of a fact. Its text leads to a fact that is not among those that are listed."""
    return address("/fact", id=number, q=text[:MAX_QUERY_CHARS])


def _fact(site: Site, request: PageRequest) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the fact that a request names, and the facts that are listed. Raise `SessionError` if it is not there."""
    number = request.required_number("id")
    text = request.form.get("q", request.query.get("q", ""))[:MAX_QUERY_CHARS]
    listed: list[dict[str, Any]] = []
    hits: list[dict[str, Any]] = []
    if _has_facts(site):
        listed = _rows(site, "facts", {"action": "list", "limit": MAX_FACTS})
        if text and all(one["fact_id"] != number for one in listed):
            arguments = {"action": "search", "query": text, "limit": MAX_FACTS, "min_trust": 0}
            hits = _rows(site, "results", arguments)
    fact = next((one for one in (*listed, *hits) if one["fact_id"] == number), None)
    if fact is None:
        raise SessionError(f"there is no fact {number} among those that the provider lists", "it may be gone")
    return fact, listed


def _has_facts(site: Site) -> bool:
    """Return True if a provider with facts is active, and wait for its start. A read-only page starts none."""
    if site.read_only:
        return False
    site.memory.manager.initialize_all(site.session)
    return TOOL in site.memory.manager.get_all_tool_names()


def _actions(site: Site) -> Sequence[str]:
    """Return the actions of the tool."""
    schemas = {one["name"]: one["parameters"] for one in site.memory.manager.get_all_tool_schemas()}
    fields = schemas.get(TOOL, {}).get("properties", {})
    actions: Sequence[str] = fields.get("action", {}).get("enum", ())
    return actions


def search(site: Site, text: str, limit: int) -> list[dict[str, Any]]:
    """Return the facts that answer a question; none without a provider of facts that runs.

    Raises:
        SessionError: The provider can't search them.
    """
    return (
        _rows(site, "results", {"action": "search", "query": text, "limit": limit})
        if _has_facts(site)
        else []
    )


def _rows(site: Site, key: str, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the facts of an answer of the tool. Raise `SessionError` if it is an error, which is no empty list."""
    answer = _call(site, arguments)
    if error := answer.get("error"):
        raise SessionError(f"the facts can't be read: {error}", "hermes-memory doctor says more")
    rows: list[dict[str, Any]] = answer.get(key, [])
    return rows


def _call(site: Site, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the tool."""
    # A person looks over the memory: the provider must not take this for a use of the facts by the agent.
    session = replace(site.session, agent_context="review")
    answer = json.loads(site.memory.manager.handle_tool_call(ToolCall(TOOL, dict(arguments), ""), session))
    return answer if isinstance(answer, dict) else {"error": "the provider's answer can't be read"}
