"""The facts of a provider that has the tool `fact_store`, as holographic: trust, entities, contradictions, and a graph."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from hermes_core.contract.values import ToolCall
from hermes_memory_ui.answers import Page, PageRequest
from hermes_memory_ui.drawings import graph
from hermes_memory_ui.site import Site

TOOL = "fact_store"

# As many as the tool gives in one answer.
MAX_FACTS = 50
MAX_NODES = 24


def show(site: Site, request: PageRequest) -> Page:
    """Show the facts with the highest trust, or those about one entity."""
    memory = site.memory
    if site.read_only:
        reason = "A read-only page starts no provider, and only the provider can read its facts."
        return Page("facts.html", {"reason": reason})
    memory.manager.initialize_all(site.session)
    if TOOL not in memory.manager.get_all_tool_names():
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
            "graph": graph({name: counts[name] for name in names}, ties) if names else "",
            "errors": [answer["error"] for answer in (listed, about, clashes) if answer.get("error")],
        },
    )


def _call(site: Site, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of the tool."""
    # A person looks over the memory: the provider must not take this for a use of the facts by the agent.
    session = replace(site.session, agent_context="review")
    answer = json.loads(site.memory.manager.handle_tool_call(ToolCall(TOOL, dict(arguments), ""), session))
    return answer if isinstance(answer, dict) else {"error": "the provider's answer can't be read"}
