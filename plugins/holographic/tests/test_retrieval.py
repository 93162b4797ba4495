"""The algebra on 200 facts of eight people and four projects, as an agent asks it."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest
from hermes_holographic import hrr
from hermes_holographic.entities import one_slip, slips
from hermes_holographic.language import name_key
from hermes_holographic.retrieval import MAX_ABOUT, Candidate, FactMemory, rank
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import ToolCall

PEOPLE = ["Alice Smith", "Bob", "Carol Jones", "David Lee", "Eve", "Frank Moore", "Grace", "Henry Ford"]
PROJECTS = ["Project Orion", "Project Vega", "Project Lyra", "Project Draco"]
EVENTS = [
    "{} reviewed milestone {} of {}",
    "{} wrote design note {} for {}",
    "{} fixed bug {} in {}",
    "{} met room {} of {}",
]
CONTRADICTIONS = [
    ("Bob lives in Berlin", "Bob moved to Tokyo"),
    ("Alice Smith prefers tea", "Alice Smith prefers coffee"),
    ("Project Orion is written in Rust", "Project Orion is written in Go"),
    ("Eve's birthday is May 5", "Eve's birthday is June 6"),
    ("Grace likes jazz", "Grace does not like jazz"),
    ("Project Vega has 5 engineers", "Project Vega has 7 engineers"),
    ("The deadline of Project Lyra is March 3", "The deadline of Project Lyra is April 9"),
    ("Henry Ford works at Acme", "Henry Ford works for Initech"),
    ("Carol Jones uses vim for Python", "Carol Jones uses emacs for Python"),
    ("David Lee is married to Ann", "David Lee is married to Sue"),
]


def synthetic(count: int) -> list[tuple[str, str, str]]:
    chance = random.Random(0)
    found = []
    for number in range(count):
        person, project = chance.choice(PEOPLE), chance.choice(PROJECTS)
        found.append((chance.choice(EVENTS).format(person, number, project), person, project))
    return found


FACTS = synthetic(200)


@pytest.fixture
def memory(agent: Any) -> FactMemory:
    found: FactMemory = agent.provider.open(agent.home)
    with found.store.db.transaction():
        for content, _, _ in FACTS:
            found.store.add(content, "general")
    return found


@pytest.mark.parametrize("person", PEOPLE)
def test_probe_finds_only_facts_about_the_entity(memory: FactMemory, person: str) -> None:
    found = memory.probe(person, limit=10)
    assert len(found) == 10
    assert all(person in fact["content"] for fact in found)
    assert all(fact["confidence"] > hrr.SIGMAS for fact in found)


@pytest.mark.parametrize("person", PEOPLE)
def test_the_vectors_alone_find_every_fact_about_the_entity(memory: FactMemory, person: str) -> None:
    memory.refresh()
    found = memory.matrix.matches([hrr.entity_key(name_key(person), memory.store.dim)])
    contents = {fact["content"] for fact in memory.store.facts(found).values()}
    assert contents == {content for content, who, _ in FACTS if who == person}


@pytest.mark.parametrize("person", PEOPLE)
def test_reason_finds_exactly_the_facts_about_both(memory: FactMemory, person: str) -> None:
    both = {content for content, who, what in FACTS if (who, what) == (person, "Project Orion")}
    assert {fact["content"] for fact in memory.reason([person, "Project Orion"], limit=50)} == both


@pytest.mark.parametrize("person", PEOPLE)
def test_related_gives_the_entitys_own_facts_first_then_its_neighbours(
    memory: FactMemory, person: str
) -> None:
    found = memory.related(person, limit=50)
    own = [person in fact["content"] for fact in found]
    assert own == sorted(own, reverse=True)
    assert all(own[:10])
    assert found[-1]["via"] in {name.casefold() for name in PROJECTS}


def test_an_unknown_entity_finds_nothing(memory: FactMemory) -> None:
    assert memory.probe("Zelda Unknown", limit=10) == []
    assert memory.related("Zelda Unknown", limit=10) == []
    assert memory.reason(["Alice Smith", "Zelda Unknown"], limit=10) == []


@pytest.mark.parametrize(
    "asked", ["Alcie Smith", "Alice Smit", "Allice Smith", "alice smyth", "lice smith", "Alice", "smith"]
)
def test_a_name_with_a_letter_wrong_or_one_word_of_it_finds_the_entity(
    memory: FactMemory, asked: str
) -> None:
    exact = memory.probe("Alice Smith", limit=50)
    found = memory.probe(asked, limit=50)
    assert [fact["fact_id"] for fact in found] == [fact["fact_id"] for fact in exact]
    assert all(fact["read_as"] == {asked.lower(): "alice smith"} for fact in found)
    assert not any("read_as" in fact for fact in exact)
    both = memory.reason([asked, "Project Orion"], limit=50)
    assert [f["fact_id"] for f in both] == [
        f["fact_id"] for f in memory.reason(["Alice Smith", "Project Orion"], limit=50)
    ]


@pytest.mark.parametrize("asked", ["Project", "Alice Jones", "Carol Smith", "Bo", "Eva", "Vega Project"])
def test_a_name_that_fits_many_or_differs_by_more_finds_nothing(memory: FactMemory, asked: str) -> None:
    assert memory.probe(asked, limit=50) == []


def test_a_fact_is_found_behind_any_number_of_others_about_the_entity(memory: FactMemory) -> None:
    with memory.store.db.transaction():
        first, _ = memory.store.add("Zed Zulu likes tea", "user_pref")
        for number in range(MAX_ABOUT + 1):
            memory.store.add(f"Zed Zulu wrote note {number}", "project")
    assert [f["fact_id"] for f in memory.probe("Zed Zulu", limit=10, category="user_pref")] == [first]
    assert len(memory.probe("Zed Zulu", limit=9999)) == MAX_ABOUT + 2


def test_a_digit_is_no_slip_and_a_name_that_is_known_is_no_other(agent: Any) -> None:
    for name in ("Apollo 11", "Marta", "Maria"):
        agent.add(f"{name} was seen", entities=[name])
    assert agent.texts("probe", entity="Apollo 12") == []
    assert agent.texts("probe", entity="Maria") == ["Maria was seen"]
    found = agent.fact("probe", entity="Matra")["results"]
    assert [fact["read_as"] for fact in found] == [{"matra": "marta"}]
    assert len(agent.texts("probe", entity="Mara")) == 2


@given(
    st.text("abc d", min_size=3, max_size=9), st.integers(0, 9), st.sampled_from("abcd"), st.integers(0, 3)
)
def test_any_one_slip_is_met_by_the_index_and_read(name: str, at: int, letter: str, kind: int) -> None:
    at = min(at, len(name) - 1)
    rest = name[at + 1 :]
    wrong = name[:at] + [rest, letter + name[at:], letter + rest, rest[:1] + name[at] + rest[1:]][kind]
    known, asked = name_key(name), name_key(wrong)
    if min(len(known), len(asked)) >= 4 and known != asked and abs(len(known) - len(asked)) < 2:
        assert slips(known) & slips(asked)
        assert one_slip(asked, known)


def test_facts_that_do_not_disagree_are_not_said_to(memory: FactMemory) -> None:
    for content in (
        "Bob likes tea",
        "Bob likes coffee",
        "Eve uses Postgres",
        "Eve uses Redis",
        "Eve is tall",
    ):
        memory.store.add(content, "general")
    assert memory.contradictions(limit=50) == []


def test_planted_contradictions_are_found_newer_first_and_nothing_else(memory: FactMemory) -> None:
    for older, newer in CONTRADICTIONS:
        memory.store.add(older, "general")
        memory.store.add(newer, "general")
    found = memory.contradictions(limit=50)
    pairs = {(pair["fact_b"]["content"], pair["fact_a"]["content"]) for pair in found}
    assert pairs == set(CONTRADICTIONS)
    assert all(pair["shared_entities"] and 0.5 <= pair["contradiction_score"] <= 1 for pair in found)


def test_a_value_said_more_exactly_is_no_contradiction(agent: Any) -> None:
    agent.add("Bob lives in Berlin")
    agent.add("Bob lives in Berlin, Germany")
    assert agent.fact("contradict")["count"] == 0


def test_an_alias_is_the_same_entity_also_for_facts_from_before(agent: Any) -> None:
    everything = [
        agent.add("Bobby lives in Berlin"),
        agent.add("Robert Smith paints"),
        agent.add("Robert Smith aka Bobby sings"),
        agent.add("Robert Smith lives in Tokyo"),
    ]
    for name in ("bobby", "Robert Smith"):
        found = agent.fact("probe", entity=name)["results"]
        assert sorted(fact["fact_id"] for fact in found) == everything
        assert all(fact["confidence"] > hrr.SIGMAS for fact in found)
    assert agent.fact("contradict")["count"] == 1


def test_a_known_name_is_found_in_lower_case(agent: Any) -> None:
    agent.add("Caroline plays chess")
    agent.add("met caroline at the station")
    assert len(agent.texts("probe", entity="CAROLINE")) == 2


def test_search_finds_any_word_form_and_any_writing_of_a_name(agent: Any) -> None:
    agent.add("Mel enjoys hiking in the Alps")
    agent.add("Mel works at a bank")
    agent.add("Zoë enjoys painting")
    assert agent.texts("search", query="does Mel like to hike?")[0] == "Mel enjoys hiking in the Alps"
    assert agent.texts("search", query="zoë")[0] == "Zoë enjoys painting"
    assert agent.texts("search", query="zoe paints")[0] == "Zoë enjoys painting"
    agent.add("A boat waits for O'Neill")
    assert agent.texts("search", query="is o'neill's boat there?")[0] == "A boat waits for O'Neill"


def test_search_finds_text_that_writes_no_spaces(agent: Any) -> None:
    agent.add("李雷喜欢喝龙井茶")
    agent.add("明天去北京开会")
    assert agent.texts("search", query="龙井") == ["李雷喜欢喝龙井茶"]
    assert agent.texts("search", query="他喜欢喝什么茶？")[0] == "李雷喜欢喝龙井茶"


def test_ranking_puts_relevance_first_and_lets_trust_and_age_decide_between_equals() -> None:
    strong, weak = Candidate(1, 0.5, text=1, coverage=1), Candidate(2, 0.9, text=0.3, coverage=0.2)
    trusted, aged = Candidate(3, 0.6, text=1, coverage=1), Candidate(4, 0.5, text=1, coverage=1, decay=0.5)
    assert [fact_id for fact_id, _ in rank([weak, aged, strong, trusted], 0.1)] == [3, 1, 4, 2]


# -------------------------------------------------------------------- messages of a conversation


def in_session(agent: Any, session: str, *contents: str) -> None:
    for content in contents:
        call = ToolCall("fact_store", {"action": "add", "content": content})
        agent.provider.handle_tool_call(call, replace(agent.session, id=session))


def test_an_answer_is_found_by_the_words_of_the_message_before_it(agent: Any) -> None:
    in_session(agent, "s1", "Ann: Which bread do you bake on Sundays?", "Bob: Rye, mostly.", "Ann: Nice!")
    in_session(agent, "s2", "Bob: Hello there", "Ann: Hello")
    found = agent.texts("search", query="Which bread does Bob bake?")
    assert set(found[:2]) == {"Ann: Which bread do you bake on Sundays?", "Bob: Rye, mostly."}
    assert "Bob: Hello there" not in found


def test_neighbours_are_of_the_same_conversation_only(agent: Any) -> None:
    in_session(agent, "s1", "Ann: Which bread do you bake?")
    in_session(agent, "s2", "Bob: Rye, mostly.")
    assert agent.texts("search", query="Which bread?") == ["Ann: Which bread do you bake?"]


def test_a_fact_that_is_no_message_stands_alone_beside_others(agent: Any) -> None:
    in_session(agent, "s1", "Bob bakes bread", "Mel likes tea", "Ann: I like milk")
    assert agent.texts("search", query="Who bakes bread?") == ["Bob bakes bread"]


def test_the_kind_of_the_question_decides_between_messages_with_the_same_words(agent: Any) -> None:
    in_session(agent, "s1", "Ann: We moved the boat last year")
    in_session(agent, "s2", "Ann: We moved the boat by truck")
    in_session(agent, "s3", "Bob: We moved the boat by train")
    for question, answer in (
        ("When did they move the boat?", "Ann: We moved the boat last year"),
        ("What did Bob do with the boat?", "Bob: We moved the boat by train"),
    ):
        assert agent.texts("search", query=question)[0] == answer


def test_a_date_is_found_in_the_words_of_a_fact(agent: Any) -> None:
    in_session(agent, "s1", "Eve has a party on 5 May 2023", "Ben has a party on 6 June 2023")
    assert agent.texts("search", query="Who has something on 5 May 2023?")[0].startswith("Eve")


def test_similar_words_and_irregular_forms_are_found(agent: Any) -> None:
    in_session(agent, "s1", "Mel ran a marathon", "Bob saw a film")
    assert agent.texts("search", query="Does Mel run?") == ["Mel ran a marathon"]
    assert agent.texts("search", query="Which movie?") == ["Bob saw a film"]


def test_trust_decides_between_messages_with_the_same_words(agent: Any) -> None:
    in_session(agent, "s1", "Ann: The key is in the blue box")
    in_session(agent, "s2", "Ann: The key is in the red box")
    agent.tool("fact_feedback", action="helpful", fact_id=1)
    assert agent.texts("search", query="Where is the key?")[0] == "Ann: The key is in the blue box"
