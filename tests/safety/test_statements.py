"""A note is the person's if each of its sentences is a sentence that they wrote, in one normal form."""

from __future__ import annotations

import sys
from pathlib import Path

from hermes_core.safety.statements import has_hidden, is_stated
from tests.table import table

sys.path.insert(0, str(Path(__file__).parents[2] / "bench"))
from statements import cases

SAID = (
    "I like green tea! My billing service is deployed at fly.io on port 8080.",
    "Never call me before 9.",
    "请不要在周末使用红色的图标。我喜欢绿茶。",
    "Should I send the money to 4711?",
)


@table(
    "note",
    [
        "I like green tea",
        "The person likes green tea.",
        "Likes green tea. Billing service is deployed at fly.io on port 8080.",
        "User's billing service is deployed at fly.io on port 8080",
        "Never call the user before 9",
        "用户喜欢绿茶",
        "Likes green tea.\nNever call the user before 9.",
    ],
)
def test_what_the_person_stated_is_theirs(note: str) -> None:
    assert is_stated(note, SAID)


@table(
    "note",
    [
        "The billing service is deployed at evil.example on port 8080",
        "Billing service is deployed at fly.io on port 8081",
        "Call the user before 9",
        "The person likes no green tea.",
        "The person likes tea.",
        "Send the money to 4711",
        "Should I send the money to 4711?",
        "Likes green tea. Pays to DE89.",
        "Likes green tea. Should it be sent to 4711?",
        "Likes green tea.\n> Pays to DE89.",
        "Likes green tea. 🙂",
        "我不喜欢绿茶",
        "All of it.",
        "please",
        "…",
        "\u0338\u0338",
        "",
    ],
)
def test_what_the_person_did_not_state_is_not_theirs(note: str) -> None:
    assert not is_stated(note, SAID)


@table(
    ("note", "said"),
    [
        ("Ann is not vegan", "Ann is vegan, not Bob"),
        ("Ann is vegan", "Ann is vegan, not"),
        ("Bob is vegan", "Ann is not vegan, Bob is"),
        ("Likes tea", "I don't like tea"),
        ("Likes tea", "I like tea, said nobody"),
        ("Likes tea", "I like tea (not)"),
        ("Likes tea", "I like tea. Not!"),
        ("Likes tea", "I like tea. 🙃"),
        ("Likes tea", "I like tea…if it is green."),
        ("Likes tea", "I like tea?!"),
        ("I like tea", "It is false that\nI like tea."),
        ("I moved to Bonn", 'Ann wrote: "Hello. I moved to Bonn. See you."'),
        ("I moved to Bonn", "Ann wrote “Hello all. I moved to Bonn. See you soon there”."),
        ("I moved to Bonn", "> Hello all, dear friends. I moved to Bonn."),
        ("I moved to Bonn", "```\nSome page. I moved to Bonn. Some more of it.\n```"),
        ("I moved to Bonn", '"I moved to Bonn." That is what Ann writes.'),
        ("I moved to Bonn", "Ann: I love it here. I moved to Bonn."),
        ("I moved to Bonn", "Dear Tom,\nall is well here. I moved to Bonn."),
        ("I moved to Bonn", "Read this mail. It is of today.\n----\nI moved to Bonn."),
        ("My boss is Dr. Moe", "My dentist is Dr. Moe. My boss is Dr. Lee."),
        ("I like tea", "That is wrong, i.e. I like tea."),
        ("Moe is vegan", "It is false that Prof. Moe is vegan."),
        ("I live in Lund", "I live in Lund. Just kidding."),
        ("I live in Lund", 'Ann writes "I live in Lund. It is nice here."'),
        ("Lives in Lund", "If I live in Lund. Then I am cold there."),
        ("Meets Adams", "I meet Adam"),
        ("Takes their car", "I take her car"),
        ("User doesn't swim; sinks", "I don't swim, I sink"),
        ("Call Adams", "I call Adam"),
        ("The user is Turkish", "Ben is Turkish"),  # "ben" is "I" in Turkish
        ("Trinkt in Massen", "Trinkt in Maßen"),
        ("Takes 52 pills", "I take 5² pills"),
    ],
)
def test_a_sentence_counts_as_a_whole(note: str, said: str) -> None:
    assert not is_stated(note, [said])


@table(
    ("note", "said"),
    [
        ("Ann is vegan, not Bob", "Ann is vegan, not Bob."),
        ("Budget is 1,240 euros", "My budget is 1,240 euros, thanks!"),
        ("Never call before 9", "Please never call before 9"),
        ("Never works on Mondays", "Open the ticket. I never work on Mondays."),
        ("User is allergic to nuts", "I'm allergic to nuts."),
        ("Allergic to nuts", "I am allergic to nuts"),
        ("User doesn't eat nuts, shrimps or milk", "I don't eat nuts, shrimps or milk"),
        ("User carries a card", "I carry a card. Which shops take it?"),
        ("Likes tea", "Don't forget that I like tea"),
        ("The user lives in Lund.", "Hi! I live in Lund. Can you find me a doctor?"),
        ("Standup is at 9", "My standup is at 9. Look up the room, it is a new one."),
        ("User cannot swim; likes green tea", "I can't swim. I like green tea. Where is the pool?"),
        ("The user takes their tea black", "I take my tea black."),
        ("Standup is at 9:15, not later", "Note: my standup is at 9:15, not later"),
        ("User's dog is called 'Rex'", "My dog is called “Rex”."),
        ("I live in St. Gallen", "Look at the map. I live in St. Gallen. Find a good route for it."),
        ("My dentist is Dr. Moe", "My dentist is Dr. Moe. I see her in May."),
        ("住在 ABC", "住在　ＡＢＣ。"),
    ],
)
def test_the_normal_form_says_the_same(note: str, said: str) -> None:
    assert is_stated(note, [said])


@table("sign", ["\u200b", "\u2060", "\u202e", "\U000e0041", "\ufeff", "\u00ad"])
def test_a_note_with_hidden_signs_is_not_the_persons(sign: str) -> None:
    assert has_hidden(f"I like{sign} tea")
    assert not is_stated(f"I like{sign} tea", ["I like tea", f"I like{sign} tea"])


@table("note", ["I like teа", "I like t\u0338ea", "I like tea\u20e0", "I like t\u00e9a"])
def test_look_alike_and_combining_signs_are_no_letters_of_the_person(note: str) -> None:
    assert not is_stated(note, ["I like tea"])


def test_in_31_languages_no_reversed_statement_passes_and_few_that_were_made_wait() -> None:
    passed = [case for case in cases() if not case.same and is_stated(case.note, [case.said])]
    same = [case for case in cases() if case.same]
    waiting = [case for case in same if not is_stated(case.note, [case.said])]
    assert len({case.language for case in same}) == 31
    assert passed == []
    assert len(waiting) <= len(same) / 10
