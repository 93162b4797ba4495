"""What the person sees of a streamed answer never holds recalled memory, however the stream is cut."""

from __future__ import annotations

import re
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_core.safety.fence import sanitize_context, without_context
from hermes_core.safety.scrubber import MAX_HELD, MAX_SPAN, StreamingContextScrubber
from hermes_core.safety.tags import STARTERS
from tests.rounds import rounds
from tests.safety.texts import readable, texts
from tests.table import table


def scrub(*parts: str) -> str:
    scrubber = StreamingContextScrubber()
    return "".join([scrubber.feed(part) for part in parts]) + scrubber.flush()


def cut(text: str, data: st.DataObject) -> list[str]:
    """The text in pieces."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=12)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]


@table(
    ("said", "shown"),
    [
        ("plain text, a < b and 5 > 3", "plain text, a < b and 5 > 3"),
        ("<memory-context>\nsecret</memory-context>\nok", "\nok"),
        ("pre \n<memory-context>\nleak</memory-context> post", "pre \n post"),
        ("  <memory-context>\r\nsec</memory-context>tail", "  tail"),
        ("<memory-context>on its line</memory-context>", ""),
        ("Sure: <memory-context>secret</memory-context> done", "Sure:  done"),
        ("< memory-context >secret</ memory-context >ok", "ok"),
        ('<memory-context source="x">secret</memory-context>ok', "ok"),
        ("İ <memory-context>\nsecret</memory-context>ok", "İ ok"),
        ("<memory-context>\nİ secret\n</memory-context>ok", "ok"),
        ("<memory-context>\nsecret</memory-context >ok", "ok"),
        ("<MEMORY-Context>\nsecret\n</Memory-CONTEXT>ok", "ok"),
        ("&lt;memory-context&gt;secret&lt;/memory-context&gt;ok", "ok"),
        ("pre \n<memory-context>\nsecret never closed", "pre \n"),
        ("a < <memory-context>secret never closed", "a < "),
        ("a</memory-context>b", "ab"),
        ("a<memory-context>b</memory-context><memory-context>c</memory-context>d", "ad"),
        (
            "The `<memory-context>` tag and `</memory-context>` stay",
            "The `<memory-context>` tag and `</memory-context>` stay",
        ),
        ("`<memory-context>secret</memory-context>`", "``"),
        ("hello <memory other", "hello <memory other"),
        ("hello <memory-contexts>", "hello <memory-contexts>"),
        ("cat <<EOF\n&& x %3 \\n", "cat <<EOF\n&& x %3 \\n"),
    ],
)
def test_fenced_text_is_not_shown(said: str, shown: str) -> None:
    assert scrub(said) == shown
    assert scrub(*said) == shown


def test_the_beginning_of_a_tag_is_held_until_it_is_known_to_be_none() -> None:
    scrubber = StreamingContextScrubber()
    assert scrubber.feed("hello <mem") == "hello "
    assert scrubber.feed("ory other") == "<memory other"


def test_the_beginning_of_a_tag_at_the_end_is_shown() -> None:
    scrubber = StreamingContextScrubber()
    scrubber.feed("hello <mem")
    assert scrubber.flush() == "<mem"


def test_after_a_flush_a_new_stream_begins() -> None:
    scrubber = StreamingContextScrubber()
    scrubber.feed("<memory-context>secret")
    assert scrubber.flush() == ""
    assert scrubber.feed("hello") == "hello"


def test_a_reset_forgets_an_open_span() -> None:
    scrubber = StreamingContextScrubber()
    scrubber.feed("<memory-context>secret")
    scrubber.reset()
    assert scrubber.feed("hello") == "hello"


@settings(max_examples=rounds(500))
@given(texts, st.data())
def test_the_output_does_not_depend_on_how_the_stream_was_cut(text: str, data: st.DataObject) -> None:
    assert scrub(*cut(text, data)) == scrub(text) == scrub(*text)


WHOLE_TAG = re.compile(r"<[\s/]*memory\s*-\s*context[\s/]*>")
ESCAPE_AT_THE_END = re.compile(r"&#?\w*[^\w;]*$")


@settings(max_examples=rounds(300))
@given(texts)
def test_shown_text_is_clean_except_for_quoted_tags(text: str) -> None:
    if "`" not in text and '"' not in text and "'" not in text and "note" not in text.lower():
        scrubber = StreamingContextScrubber()
        shown = scrubber.feed(text)
        assert without_context(shown) == shown
        # What was held back until the end may be a tag that is not finished, also for want of the rest of an escape.
        finished = ESCAPE_AT_THE_END.sub("", shown + scrubber.flush())
        assert not WHOLE_TAG.search(readable(finished)), finished


@settings(max_examples=rounds(300))
@given(texts)
def test_never_more_than_a_tag_is_held_back(text: str) -> None:
    scrubber = StreamingContextScrubber()
    given_out = sum(len(scrubber.feed(char)) for char in text)
    if "memory" not in text.lower():
        assert len(text) - given_out <= MAX_HELD


REST = " The answer is 42.\n\nMore of it."


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("The <memory-context> tag", "The `memory-context` tag"),
        (
            "It is called <memory-context>\nand marks recall.",
            "It is called `memory-context`\nand marks recall.",
        ),
        ("**<memory-context>**:", "**`memory-context`**:"),
        ("使用<memory-context>标签。", "使用`memory-context`标签。"),
        ("First <memory-context>, then <memory-context>.", "First `memory-context`, then `memory-context`."),
        ("The `<memory-context>` tag", "The `<memory-context>` tag"),
        ("</memory-context is the closing tag.\n", " is the closing tag.\n"),
        ("It ends with </memory-context>, which", "It ends with , which"),
        ("From <memory-context> to </memory-context>", "From "),
        ("Promise<MemoryContext>, vector<memory_context>", "Promise<MemoryContext>, vector<memory_context>"),
    ],
)
def test_a_mention_in_prose_does_not_swallow_the_answer(said: str, shown: str) -> None:
    assert scrub(said + REST) == scrub(*said, *REST) == shown + REST


def test_text_after_a_mention_is_shown_before_the_stream_ends() -> None:
    scrubber = StreamingContextScrubber()
    shown = scrubber.feed("The <memory-context> tag. " + "More. " * MAX_SPAN)
    assert shown.startswith("The `memory-context` tag. More.")


@pytest.mark.parametrize(
    "said",
    [
        "Look: <memory-context>\n[System note: The following is secret",
        "Look: <memory-context>secret",
        "Look: <memory-context>\n[Sys",
    ],
)
def test_a_block_that_is_cut_short_stays_hidden(said: str) -> None:
    assert scrub(said) == scrub(*said) == "Look: "


@pytest.mark.parametrize("unit", ["<", "&amp;", "< ", "</memory-", "<\u200b"])
def test_a_long_beginning_of_a_tag_is_not_hoarded(unit: str) -> None:
    scrubber = StreamingContextScrubber()
    text = unit * 2_000
    assert len(text) - len(scrubber.feed(text)) <= MAX_HELD
    assert scrub(text) == text


def test_a_tag_too_long_to_hold_is_still_a_tag() -> None:
    assert "secret" not in scrub("<" + " " * 1_000 + "memory-context>secret</memory-context>")
    assert ">" not in scrub("</memory-" * 50 + "</memory-context>" + "context>" * 50)


def scrubbed_thoroughly(text: str) -> str:
    """Read on at each character with which a tag can begin, so that nothing is ruled out beforehand."""
    thorough = StreamingContextScrubber()
    every = re.compile("[" + "".join(map(re.escape, STARTERS)) + "]")
    with patch.object(StreamingContextScrubber, "_candidate", every):
        return thorough.feed(text) + thorough.flush()


HARDLY = st.lists(
    st.sampled_from(
        [
            *"<<<&&%\\/ \t\nmMlLtTaAuUxX#;3cC2>`\"'\x00\x1c\u00ad\u200bмｍ＜&",
            "<memory-context>",
            "</memory-context>",
            *(
                "lt;",
                "&lt;",
                "amp;",
                "&amp;",
                "#60;",
                "&AMP;lt;",
                "\\u003c",
                "%3C",
                "%253c",
                "memory-context>",
            ),
        ]
    ),
    max_size=60,
).map("".join)


@given(HARDLY, st.data())
@settings(max_examples=rounds(400))
def test_a_skipped_character_could_not_have_begun_a_tag(text: str, data: st.DataObject) -> None:
    quick = StreamingContextScrubber()
    shown = "".join(quick.feed(part) for part in cut(text, data)) + quick.flush()
    assert shown == scrubbed_thoroughly(text)


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_an_escape_that_stands_for_nothing_stays_where_it_was_written(size: int) -> None:
    text = (
        "soft&#173;hyphen, word&#8203;word, join&zwj;er and \\u200b: all of it stays in its place, as a < b."
    )
    scrubber = StreamingContextScrubber()
    parts = [scrubber.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert "".join([*parts, scrubber.flush()]) == sanitize_context(text) == text
    assert len("".join(parts)) >= len(text) - 1


@pytest.mark.parametrize("text", ["if a < b && c <= d { cout << x; }", "<p>a</p><b>c</b>", "100 % of \\n"])
def test_ordinary_signs_are_shown_as_soon_as_it_is_known_that_they_begin_nothing(text: str) -> None:
    scrubber = StreamingContextScrubber()
    assert scrubber.feed(text) == text


FORMS = [
    "<",
    "&lt;",
    "&LT;",
    "&#60;",
    "&#x3C;",
    "&amp;lt;",
    "&AMP;lt;",
    "\\u003c",
    "\\U003c",
    "\\x3c",
    "\\X3C",
    "%3c",
    "%3C",
]
FORMS += [
    "%253c",
    "&percnt;3c",
    "＜",
    "＆lt;",
    "&&lt;",
    "<<",
    "%%3c",
    "\\\\u003c",
    "a&amp;&lt;",
    "%5cu003c",
    "< \t",
    "&\u00adlt;",
]


@table("size", [1, 2, 3, 4, 1000])
@table("form", FORMS)
def test_a_tag_is_found_in_every_spelling_of_its_beginning(form: str, size: int) -> None:
    for text in (f"a{form}memory-context>secret</memory-context>b", f"a {form}/memory-context> b {form} c"):
        pieces = [text[at : at + size] for at in range(0, len(text), size)]
        assert scrub(*pieces) == scrubbed_thoroughly(text)
