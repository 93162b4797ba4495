from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.recall.changes import Statement, changes, contradicts, find_outdated

CHANGED = [
    ("My passport is in the blue drawer.", "My passport is in the safe now."),
    ("My dentist is Dr Okafor.", "I have a new dentist, Dr Rivas."),
    ("I live in Leeds.", "We talked for long. I moved, I live in Porto now."),
    ("I work at Bosch.", "I no longer work at Bosch, I work at Siemens."),
    ("Our meeting with the bank is on Monday.", "The meeting with the bank moved to Friday."),
    ("My gym costs 40 euros.", "My gym costs 55 euros."),
    ("The deploy key is in the red folder.", "The deploy key has moved to the vault."),
    ("Meine Schwester wohnt in Graz.", "Meine Schwester ist nach Kiel gezogen."),
    ("Mein Reisepass liegt in der Schublade.", "Mein Reisepass liegt jetzt im Safe."),
    ("Das Auto steht auf Deck 4.", "Das Auto steht doch auf Deck 2."),
    ("Trabajo en Acme.", "Ya no trabajo en Acme, trabajo en Nordwind."),
    ("J'habite à Nantes.", "J'ai déménagé, j'habite maintenant à Lyon."),
    ("Мой стоматолог — доктор Левин.", "Теперь мой стоматолог — доктор Орлов."),
    ("我住在成都。", "我现在住在北京。"),
    ("My car is a Polo.", "My car is a Yaris."),
    ("I work at Brew Lab.", "I quit Brew Lab and started at Velo."),
    ("I'm going out with Sam.", "Sam and I broke up."),
    ("My car is a grey Polo.", "I sold the Polo and bought a Yaris."),
    ("Our dog walker is Claire.", "Claire stopped, our dog walker is Ben."),
    ("I'm allergic to peanuts.", "The test says I'm not allergic to peanuts after all."),
    ("The room is Birch.", "Not Birch but Cedar is the room."),
    ("Ich esse Fleisch.", "Ich esse kein Fleisch mehr."),
    ("Die Tonne wird am Dienstag geleert.", "Die Tonne wird ab sofort am Donnerstag geleert."),
    ("Ma couleur est le vert.", "En fait ma couleur est le bleu."),
    ("Salgo con Marta.", "Marta y yo lo dejamos."),
]
UNCHANGED = [
    ("My sister lives in Leeds.", "My brother lives in Porto now."),
    ("My cat is called Mimi.", "My dog is called Rex."),
    ("My passport is in the drawer.", "My passport expires on Monday."),
    ("My dentist is Dr Okafor.", "My dentist has a new dog now."),
    ("My sister lives in Toronto.", "My sister works at Siemens now."),
    ("I read a novel by Ann.", "I read a novel about Kiel."),
    ("I visited Rome with Ann.", "I visited Oslo with Bob."),
    ("That sounds great!", "That sounds amazing!"),
    ("My flight to Rome leaves on Monday.", "My flight to Oslo leaves on Friday."),
    ("Where is my passport?", "My passport is in the safe now."),
    ("Mein Bruder heißt Uwe.", "Mein Vater heißt Karl."),
    ("我妹妹住在成都。", "我哥哥住在北京。"),
    ("I gave Ben a book.", "Claire stopped, our dog walker is Ben."),
    ("I don't like jazz.", "I do not like jazz."),
    ("My boss is strict.", "My boss is on holiday."),
    ("My cousin is Ben.", "I sold my old lamp to Ben."),
    ("I like tea.", "I do not like coffee."),
]


@given(st.text("ab1 .:!?-§\n'漢,;", max_size=40), st.text("ab1 .:!?-§\n'漢,;", max_size=40))
def test_no_text_raises(standing: str, new: str) -> None:
    assert contradicts(standing, new) in (True, False)
    assert not contradicts("---", new)


@pytest.mark.parametrize(("older", "newer"), CHANGED)
def test_a_statement_changes_an_older_one(older: str, newer: str) -> None:
    assert changes(older, newer)


@pytest.mark.parametrize(("older", "newer"), UNCHANGED)
def test_unrelated_statements_change_nothing(older: str, newer: str) -> None:
    assert not changes(older, newer)


def test_of_three_values_the_newest_changes_both_others() -> None:
    texts = ("My boss is Ann.", "My boss is Bob now.", "My boss is Eve now.")
    statements = [Statement(at, text, float(at)) for at, text in enumerate(texts, 1)]

    assert find_outdated(statements, [1]) == {1: 3, 2: 3}


def test_a_change_may_be_taken_back() -> None:
    texts = ("My boss is Ann.", "My boss is Bob now.", "My boss is Ann again.")
    statements = [Statement(at, text, float(at)) for at, text in enumerate(texts, 1)]

    assert find_outdated(statements, [1]) == {1: 3, 2: 3}


def test_what_another_person_says_changes_nothing() -> None:
    statements = [
        Statement(1, "My boss is Ann.", 1.0, "Tim"), Statement(2, "My boss is Bob now.", 2.0, "Mel"),
    ]  # fmt: skip

    assert find_outdated(statements, [1, 2]) == {}


def test_it_refers_to_what_was_just_said() -> None:
    said = Statement(1, "My passport is in the blue drawer.", 1.0, place=(1, 0))
    after = Statement(2, "It is in the safe now.", 2.0, place=(1, 2))
    elsewhere = Statement(2, "It is in the safe now.", 2.0, place=(2, 2))
    aside = Statement(2, "It was blue. I have a lamp now.", 2.0, place=(1, 2))

    assert find_outdated([said, after], [1]) == {1: 2}
    assert find_outdated([said, elsewhere], [1]) == {}
    assert find_outdated([said, aside], [1]) == {}
