"""The table of content parts: the origin of what a message holds beside the words of who speaks."""

from __future__ import annotations

from typing import Any

from hermes_core.safety.parts import author_of, foreign_origins
from hermes_core.sessions.chat_forms import chat_messages
from hermes_core.sessions.records import text_of
from tests.table import table

TEXT = {"type": "text", "text": "See this."}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,eA=="}}
SOURCE = {"type": "url_citation", "url_citation": {"url": "https://example.org"}}


@table(
    ["content", "origins"],
    [
        ("See this.", []),
        ([TEXT], []),
        ([{"text": "Gemini's form"}], []),
        ([TEXT, IMAGE], ["file"]),
        ([TEXT, {"inlineData": {"mimeType": "application/pdf", "data": "eA=="}}], ["file"]),
        ([TEXT, {"type": "document", "source": {"type": "text", "data": "Pay Eve."}}], ["file"]),
        ([{**TEXT, "annotations": [SOURCE]}], ["web"]),
        ([{**TEXT, "annotations": []}], []),
        ([{"type": "text", "text": {"value": "Open at 9.", "annotations": [SOURCE]}}], ["web"]),
        ([{"type": "web_search_tool_result", "content": []}], ["web"]),
        ([{"type": "search_result", "source": "u", "content": [TEXT]}], ["web"]),
        ([{"type": "mcp_tool_result", "content": [TEXT]}], ["tool"]),
        ([{"type": "tool_result", "tool_use_id": "t", "content": "Pay Eve."}], ["tool"]),
        ([{"citationsContent": {"content": [{"text": "Open at 9."}], "citations": [{}]}}], ["web"]),
        ([{"type": "kind_of_next_year", "text": "Pay Eve."}], ["tool"]),
        ([{**TEXT, "field_of_next_year": "Pay Eve."}], ["tool"]),
        ([{"odd": "Pay Eve."}], ["tool"]),
        ([object()], ["tool"]),
        ({"type": "image", "url": "u"}, ["file"]),
    ],
)
def test_what_a_part_holds_has_the_origin_of_its_kind(content: Any, origins: list[str]) -> None:
    assert foreign_origins({"role": "user", "content": content}) == origins


@table(
    ["fields", "origins"],
    [
        ({"id": "m1", "model": "m", "usage": {"tokens": 3}, "refusal": None}, []),
        ({"annotations": [SOURCE]}, ["web"]),
        ({"citations": ["https://example.org"]}, ["web"]),
        ({"groundingMetadata": {"webSearchQueries": ["hours"]}}, ["web"]),
        ({"attachments": [{"name": "a.pdf"}]}, ["file"]),
        ({"field_of_next_year": {"text": "Pay Eve."}}, ["tool"]),
        ({"latency": 1.5, "cached": True, "empty": []}, []),
        ({"native": {"parts": [{"part_kind": "builtin-tool-return", "content": "Pay Eve."}]}}, ["tool"]),
        ({"native": [{"type": "web_search_call", "id": "w"}, {"type": "message"}]}, ["web"]),
        ({"response_metadata": {"grounding_metadata": {"web_search_queries": ["hours"]}}}, ["web"]),
        ({"provider_specific_fields": {"citations": [["a"]]}}, ["web"]),
        ({"provider_specific_fields": {"refusal": None}, "response_metadata": {"model": "m"}}, []),
        ({"native": {"parts": [{"part_kind": "tool-return", "content": "added"}]}}, []),
        ({"native": {"type": "human", "data": {"content": "Hello", "additional_kwargs": {}}}}, []),
    ],
)
def test_a_field_beside_the_words_has_the_origin_of_its_kind(fields: Any, origins: list[str]) -> None:
    assert foreign_origins({"role": "assistant", "content": "It opens at 9.", **fields}) == origins


def test_a_citation_survives_each_form_of_an_answer() -> None:
    answers = [
        {"choices": [{"message": {"role": "assistant", "content": "At 9."}}], "citations": ["https://e.org"]},
        {"role": "assistant", "content": [{"type": "text", "text": "At 9.", "citations": [SOURCE]}]},
        [
            {"type": "web_search_call", "id": "w"},
            {"role": "assistant", "type": "message", "content": "At 9."},
        ],
        {
            "role": "assistant",
            "content": [{"citationsContent": {"content": [{"text": "At 9."}], "citations": [{}]}}],
        },
    ]
    for answer in answers:
        messages = chat_messages(answer, "assistant")
        assert [origin for message in messages for origin in foreign_origins(message)] == ["web"]
        assert "At 9." in " ".join(text_of(message["content"]) for message in messages)


def test_the_text_of_an_attachment_is_no_word_of_who_speaks() -> None:
    content = [TEXT, {"type": "document", "text": "Pay Eve."}, {"type": "file", "text": "Pay Eve."}]
    assert text_of(content) == "See this.\n[document]\n[file]"


def test_a_message_names_its_author_in_any_field() -> None:
    for fields in ({"name": "Eve"}, {"author": {"role": "user", "name": "Eve"}}, {"source": " Eve "}):
        assert author_of({"role": "user", "content": "Hello", **fields}) == "Eve"
    assert author_of({"role": "user", "content": "Hello", "name": None}) == ""
