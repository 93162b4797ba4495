"""The tools; a docstring is what the model reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from hermes_core import Session, ToolCall
from hermes_core.kit import (
    BackendProvider,
    Range,
    ToolInputInvalid,
    bullet_list,
    clip,
    fold_space,
    key_of,
    storable,
    tool,
)
from hermes_supermemory.client import MAX_MESSAGE_CHARS, Client
from hermes_supermemory.settings import container_of, custom_tags, guidance, primary_tag
from hermes_supermemory.values import Hit

TOOL_FLOOR = 0.3
"""Fit of a search that the model asks for; the vendor's own default."""

MAX_SHOWN_CHARS = 2_000
"""Characters that a result shows of one memory or passage."""

LARGEST_METADATA = 2_000

ALIASES = {
    "supermemory-store": "supermemory_store",
    "supermemory-save": "supermemory_store",
    "supermemory_save": "supermemory_store",
    "supermemory-search": "supermemory_search",
    "supermemory-forget": "supermemory_forget",
    "supermemory-profile": "supermemory_profile",
}
"""Names that these tools had."""

KINDS = (
    ("preference", r"\b(prefer\w*|likes?|loves?|hates?|dislikes?|enjoys?|favou?rite|rather|wants?)\b"),
    ("decision", r"\b(decided|decision|chose|chosen|agreed|going with|settled on|will use)\b"),
    ("fact", r"\b(is|are|was|were|has|have|lives?|works?|named|called|born)\b"),
)
"""What a note may be, and the words that say so."""

Container = Annotated[str | None, "container to use; the main one unless told otherwise"]


class Tools(BackendProvider[Client]):
    """The provider's four tools; the containers that they let the model choose among come from the settings."""

    def get_tool_schemas(self) -> Sequence[dict[str, Any]]:
        """Return the four tools, with a choice of containers if the settings allow it."""
        schemas = super().get_tool_schemas()
        # The main container is named after the profile, which is not known here: it is the one that is left out.
        choice = custom_tags(self.options)
        when = self.options.custom_container_instructions.strip()
        for schema in schemas:
            properties = schema["parameters"]["properties"]
            if choice:
                properties["container_tag"]["enum"] = choice
                properties["container_tag"]["description"] += f". {when}" if when else ""
            else:
                del properties["container_tag"]
            if "metadata" in properties:
                properties["metadata"]["type"] = "object"
        return schemas

    def handle_tool_call(self, call: ToolCall, session: Session) -> Any:
        """Run one of the tools, also by an older name; labels may come as an object."""
        arguments = dict(call.arguments) if isinstance(call.arguments, Mapping) else call.arguments
        if isinstance(arguments, dict) and isinstance(arguments.get("metadata"), Mapping):
            arguments["metadata"] = json.dumps(arguments["metadata"])
        return super().handle_tool_call(
            ToolCall(ALIASES.get(call.name, call.name), arguments, call.id), session
        )

    @tool("supermemory_store")
    def store(
        self,
        content: Annotated[str, "what to keep, a sentence that stands alone"],
        session: Session,
        metadata: Annotated[str | None, "labels, as name and value"] = None,
        container_tag: Container = None,
    ) -> dict[str, Any]:
        """Keep something for later conversations."""
        text = fold_space(storable(content))
        if len(text) > MAX_MESSAGE_CHARS:
            raise ToolInputInvalid(
                f"content has {len(text)} characters, over {MAX_MESSAGE_CHARS}", "shorten it"
            )
        ns = self._chosen(container_tag, session)
        doc = f"hermes-note-{key_of(ns, text, length=24)}"
        about = {"sm_source": "hermes", "session_id": clip(storable(session.id), 255)}
        labels = {"type": _kind(text), **_labels(metadata), **about}
        if not self.client.store(ns, doc, text, labels, guidance(self.options)):
            # What was learned of it may have been forgotten since; the document alone does not tell.
            self.client.delete(ns, doc)
            self.client.store(ns, doc, text, labels, guidance(self.options))
        return {"saved": True, "id": doc, "preview": clip(text, 80), **_told(container_tag)}

    @tool("supermemory_search")
    def search(
        self,
        query: Annotated[str, "what to look for, in plain words"],
        session: Session,
        limit: Annotated[int, Range(1, 20)] = 5,
        container_tag: Container = None,
    ) -> dict[str, Any]:
        """Search what was learned and kept in earlier conversations."""
        ns, mode = self._chosen(container_tag, session), self.options.search_mode
        found = self.client.search(ns, query, limit, mode, TOOL_FLOOR)
        results = [{**_shown(one), "similarity": round(100 * one.score)} for one in found]
        return {"results": results, "count": len(results), **_told(container_tag)}

    @tool("supermemory_forget")
    def forget(
        self,
        session: Session,
        id: Annotated[str | None, "id of a memory, from a result"] = None,  # noqa: A002  the tool's argument
        query: Annotated[str | None, "or what the memory says"] = None,
        container_tag: Container = None,
    ) -> dict[str, Any]:
        """Forget a memory, by its id or by what it says. When several may be meant, they are listed instead."""
        ns = self._chosen(container_tag, session)
        if id and id.strip():
            memory = clip(storable(id), 255)
            ours = memory.startswith("hermes-")
            if not (self.client.forget(ns, memory) or (ours and self.client.delete(ns, memory))):
                raise ToolInputInvalid(f"there is no memory {memory!r}", "send an id from a result")
            return {"forgotten": True, "id": memory, **_told(container_tag)}
        wanted = fold_space(storable(query or ""))
        if not wanted:
            raise ToolInputInvalid("id or query is empty", "send one of them")
        candidates = self.client.matching(ns, wanted)
        same = [one for one in candidates if fold_space(one.text) == wanted] or candidates
        if len(same) != 1:
            message = f"{len(candidates)} memories may be meant"
            return {"forgotten": False, "message": message, "candidates": [*map(_shown, candidates)]}
        forgotten = self.client.forget(ns, same[0].id)
        return {"forgotten": forgotten, **_shown(same[0]), **_told(container_tag)}

    @tool("supermemory_profile")
    def profile(
        self,
        session: Session,
        query: Annotated[str | None, "also look for this"] = None,
        container_tag: Container = None,
    ) -> dict[str, Any]:
        """Get the profile of the person: what lasts, and what is going on."""
        ns = self._chosen(container_tag, session)
        static, dynamic = self.client.profile(ns)
        told: dict[str, Any] = {"profile": _facts(static, dynamic)}
        told |= {"static_count": len(static), "dynamic_count": len(dynamic)}
        if query and query.strip():
            found = self.client.search(ns, query, 5, self.options.search_mode, TOOL_FLOOR)
            told["results"] = [*map(_shown, found)]
        return {**told, **_told(container_tag)}

    # ------------------------------------------------------------------ private

    def _chosen(self, tag: str | None, session: Session) -> str:
        """Return the container that the model asked for, if the settings allow it."""
        allowed = [primary_tag(self.options, session.identity), *custom_tags(self.options)]
        if tag and tag not in allowed:
            raise ToolInputInvalid(f"container_tag can't be {tag!r:.80}", f"send one of {', '.join(allowed)}")
        return container_of(self.options, session, tag or "")


def _shown(one: Hit) -> dict[str, Any]:
    return {"id": one.id, "content": clip(one.text, MAX_SHOWN_CHARS)}


def _facts(static: Sequence[str], dynamic: Sequence[str]) -> str:
    parts = (("## Lasting", static), ("## Recent", dynamic))
    return "\n\n".join(f"{heading}\n{bullet_list(facts, 20_000)}" for heading, facts in parts if facts)


def _kind(text: str) -> str:
    return next((kind for kind, words in KINDS if re.search(words, text, re.IGNORECASE)), "other")


def _labels(metadata: str | None) -> dict[str, Any]:
    """Return the model's labels of a note as the API takes them: texts, numbers, truth values."""
    if not metadata or len(metadata) > LARGEST_METADATA:
        return {}
    try:
        told = json.loads(metadata)
    except ValueError:
        return {}
    known = told.items() if isinstance(told, dict) else ()
    return {
        storable(n): storable(v) if isinstance(v, str) else v
        for n, v in known
        if isinstance(v, str | int | float)
    }


def _told(container_tag: str | None) -> dict[str, str]:
    return {"container_tag": container_tag} if container_tag else {}
