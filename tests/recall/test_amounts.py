from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.recall.amounts import FACT_RESULTS, LIST_RESULTS, asks_for_list, result_count
from tests.table import table


@table(
    "question",
    [
        "What books has Tim read?",
        "which kinds of pasta dishes did we cook?",
        "Which hosts have we moved?",
        "Where has Melanie camped?",
        "What has she painted?",
        "What are Ann's hobbies?",
        "How many times did the build fail?",
        "How often do I run?",
        "List all the ports we use.",
        "Give me a summary of the project.",
        "In what order did we move the services?",
        "Welche Städte hat er besucht?",
        "Wie viele Hunde hat sie?",
        "Combien de chats a-t-elle ?",
        "¿Cuáles son sus libros?",
        "Какие города она посетила?",
        "我去过哪些城市？",
        "他有多少只猫？",
        "本を何冊読みましたか？",
    ],
)
def test_lists_and_counts_get_more_results(question: str) -> None:
    assert asks_for_list(question)
    assert result_count(question) == LIST_RESULTS


@pytest.mark.parametrize(
    "question",
    [
        "Where is my passport?",
        "What is Ann's job?",
        "What was the name of the port?",
        "What does James do?",
        "When did she move to Rome?",
        "Who gave us the lamp?",
        "which class was it?",
        "what's this?",
        "我的护照在哪里？",
        "Wo ist mein Pass?",
        "",
    ],
)
def test_a_single_fact_gets_few_results(question: str) -> None:
    assert not asks_for_list(question)
    assert result_count(question) == FACT_RESULTS


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    assert result_count(text) in (FACT_RESULTS, LIST_RESULTS)
