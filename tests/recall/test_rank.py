from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from hermes_core.recall.amounts import LIST_RESULTS
from hermes_core.recall.query import analyse
from hermes_core.recall.rank import (
    MAX_PROACTIVE_HITS,
    Overlap,
    RankCandidate,
    TermHits,
    proactive_evidence,
    proactive_odds,
    rank_candidates,
    says_unknown,
    score_places,
    select_proactive,
    surprise,
    word_trust,
)
from hermes_core.recall.tokens import count_tokens, words

DAY = 86_400.0


def ranked(
    question: str, *candidates: RankCandidate, limit: int = 10, budget: int | None = None
) -> list[int]:
    return [
        r.candidate.id for r in rank_candidates(analyse(question), candidates, limit=limit, budget=budget)
    ]


def test_the_lead_of_a_person_lets_no_message_through_that_is_far_behind_the_best() -> None:
    analysis = analyse("What is Nadia allergic to?", names=["Nadia"])
    told = RankCandidate(1, "I'm allergic to cashews.", 40.0, speaker="Nadia")
    others = [RankCandidate(n, f"I saw film {n}.", 4.0, speaker="Nadia") for n in range(2, 30)]
    ranked = rank_candidates(
        analysis, [told, RankCandidate(99, "Nice.", 1.0, speaker="Tomas"), *others], limit=40
    )
    odds = proactive_odds(analysis, ranked)
    assert max(one.weight for one in odds) > 2  # the lead raises all weights
    assert [entry.candidate.id for entry in select_proactive(analysis, odds)] == [1]


def test_words_tell_as_much_as_the_best_message_has_of_them() -> None:
    def trust(*frequencies: int, present: int) -> float:
        terms = [TermHits(n, {(1, 1): 1.0} if at < present else {}) for at, n in enumerate(frequencies)]
        return word_trust(terms, 1_000, max(score_places(terms, 1_000).values(), default=0.0))

    assert trust(3, 3, 3, present=3) == 1.0
    assert trust(3, 3, 3, present=1) == 0.0
    assert trust(500, 3, 3, present=1) == 0.0  # only a word that half of the messages have
    assert 0.0 < trust(3, 3, present=1) < 1.0
    assert word_trust([], 1_000, 0.0) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        "I don't know.",
        "I’M NOT SURE WHERE IT IS.",
        "I'm unaware of that.",
        "I found no.",
        "I have nothing on this.",
        "I could not find it.",
        "I was unable to find it.",
        "No idea!",
        "You never told me.",
        "That is unknown.",
        "Das weiß ich nicht.",
        "Keine Ahnung.",
        "Je ne sais pas.",
        "Je n'ai rien trouvé.",
        "Aucune trace.",
        "No lo sé.",
        "Non lo so.",
        "Não sei.",
        "Не знаю.",
        "Нет данных.",
        "我不知道。",
        "没找到。",
        "わかりません。",
        "모르겠어요.",
        "찾지 못했어요.",
    ],
)
def test_a_text_that_knows_no_answer_is_recognised(text: str) -> None:
    assert says_unknown(text)
    assert not says_unknown(f"{text} But it is in the drawer, aber in der Schublade.")


def test_scores_of_further_terms_are_added_to_earlier_ones() -> None:
    one, other = TermHits(1, {(1, 0): 1.0, (2, 5): 1.0}), TermHits(2, {(1, 1): 1.0, (3, 0): 1.0})
    earlier = score_places([one], total=100)
    both = score_places([other], 100, earlier=earlier)

    assert both == pytest.approx(score_places([one, other], total=100))
    assert earlier == score_places([one], total=100)


def test_a_word_counts_for_the_neighbours_of_the_message_that_holds_it() -> None:
    scores = score_places([TermHits(1, {(1, 10): 1.0})], total=100)

    assert scores[1, 10] > scores[1, 11] > scores[1, 12] > scores[1, 13] > 0
    assert scores[1, 11] > scores[1, 9] > 0
    assert (2, 10) not in scores


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    scores = score_places([TermHits(1, {(1, 0): 1.0}), TermHits(60, {(2, 0): 1.0})], total=100)

    assert scores[1, 0] > 3 * scores[2, 0]


def test_a_word_in_a_very_long_message_counts_less() -> None:
    hits = TermHits(2, {(1, 0): 1.0, (2, 0): 1.0})
    scores = score_places([hits], total=10, sizes={(1, 0): 100, (2, 0): 50_000})

    assert scores[1, 0] > 2 * scores[2, 0]


def test_the_length_of_a_message_is_compared_with_messages_in_its_script() -> None:
    sizes = {(1, 0): 40, (2, 0): 120}
    ratios = []
    for kind in ("word", "gram"):
        scores = score_places([TermHits(2, dict.fromkeys(sizes, 1.0), kind=kind)], total=10, sizes=sizes)
        ratios.append(scores[1, 0] / scores[2, 0])

    assert ratios[1] > ratios[0] > 1


def test_a_message_with_a_word_stands_out_more_than_by_its_neighbours_words() -> None:
    scores = score_places([TermHits(3, {(1, 0): 1.0, (2, 2): 1.0, (2, 4): 1.0})], total=100)

    assert scores[1, 0] > scores[2, 3]


def test_a_long_message_is_not_put_back_for_a_question_at_its_end() -> None:
    long = "The budget tracker needs a login, a page of expenses and a chart for each month. " * 40
    question, fact = RankCandidate(1, long + "How do I begin?", 5.1), RankCandidate(2, long, 5.0)

    assert ranked("budget tracker", question, fact) == [1, 2]


def test_without_named_speakers_a_person_comes_before_the_assistant() -> None:
    assistant, person = RankCandidate(1, "A budget", 5.1, assistant=True), RankCandidate(2, "A budget", 5.0)

    assert ranked("budget", assistant, person) == [2, 1]


def test_with_named_speakers_the_assistant_counts_like_anyone() -> None:
    assistant = RankCandidate(1, "A budget", 5.1, "Caroline", assistant=True)

    assert ranked("budget", assistant, RankCandidate(2, "A budget", 5.0, "Mel")) == [1, 2]


def test_a_term_with_a_lower_weight_adds_less() -> None:
    scores = score_places([TermHits(1, {(1, 0): 1.0}), TermHits(1, {(2, 0): 1.0}, weight=0.1)], total=100)

    assert scores[1, 0] > 9 * scores[2, 0] > 0


def test_the_person_named_is_preferred_but_not_blindly() -> None:
    said_by = [
        RankCandidate(1, "I painted a sunrise", 10.0, "Caroline"),
        RankCandidate(2, "I painted a sunrise", 9.9, "Melanie"),
        RankCandidate(3, "Nice weather", 1.0, "Melanie"),
        RankCandidate(4, "Nice weather", 1.0, "Caroline"),
    ]

    assert ranked("What did Melanie paint?", *said_by)[:2] == [2, 1]
    assert ranked("What did they paint?", *said_by)[:2] == [1, 2]
    assert ranked("What did Melanie and Caroline paint?", *said_by)[:2] == [1, 2]


def test_a_date_in_the_question_prefers_what_was_said_then() -> None:
    may, june = 1_683_600_000.0, 1_686_500_000.0
    same = [
        RankCandidate(1, "We went to the fair", 5.0, "", june),
        RankCandidate(2, "We went to the fair", 5.0, "", may),
    ]

    assert ranked("What did we do in May 2023?", *same) == [2, 1]


def test_an_answer_comes_before_the_message_that_only_asks() -> None:
    asks, answers = RankCandidate(1, "Where is the key?", 5.0), RankCandidate(2, "The key is in the box", 5.0)

    assert ranked("where is the key", asks, answers) == [2, 1]


def test_what_follows_a_question_is_preferred_as_its_answer() -> None:
    plain, reply = RankCandidate(1, "In the box", 5.0), RankCandidate(2, "In the box", 5.0, reply=True)

    assert ranked("where is the key", plain, reply) == [2, 1]


def test_what_is_close_in_meaning_is_preferred() -> None:
    plain, like = RankCandidate(1, "In the box", 5.0), RankCandidate(2, "Up the hill", 5.0, likeness=1.0)

    assert ranked("where is the key", plain, like) == [2, 1]


def test_a_question_for_a_time_prefers_a_message_that_tells_one() -> None:
    plain, timed = (
        RankCandidate(1, "I ran the race, hurrah", 5.0),
        RankCandidate(2, "I ran the race yesterday", 5.0),
    )

    assert ranked("When did you run the race?", plain, timed) == [2, 1]


def test_of_equals_the_newest_comes_first() -> None:
    assert ranked("x", RankCandidate(1, "same", 1.0, "", 0.0), RankCandidate(2, "same", 1.0, "", DAY)) == [
        2,
        1,
    ]


def test_what_does_not_fit_the_budget_is_passed_over_for_what_does() -> None:
    long, short = RankCandidate(1, "word " * 100, 9.0), RankCandidate(2, "word", 1.0)

    assert ranked("word", long, short, budget=20) == [2]


def told(question: str, *candidates: RankCandidate) -> list[int]:
    analysis = analyse(question)
    return [
        r.candidate.id
        for r in select_proactive(
            analysis,
            proactive_odds(analysis, rank_candidates(analysis, candidates, limit=len(candidates))),
        )
    ]


def chatter(count: int, speaker: str = "") -> list[RankCandidate]:
    return [RankCandidate(100 + n, "Nice weather today, is it not", 0.0, speaker) for n in range(count)]


def test_of_one_that_stands_out_nothing_else_is_told() -> None:
    assert told("the key", RankCandidate(1, "The key is in the box", 9.0), *chatter(200)) == [1]


def test_nothing_is_told_when_nothing_stands_out() -> None:
    assert told("hello there", *chatter(200)) == []


def test_a_long_message_must_be_likelier_than_a_short_one_to_be_told() -> None:
    best = [RankCandidate(n, "In the box", 9.0) for n in (1, 2)]
    others = RankCandidate(3, "In the bag", 6.0), RankCandidate(4, "In the bag " * 400, 6.0)

    assert sorted(told("the key", *best, *others, *chatter(150))) == [1, 2, 3]


def test_no_more_is_told_than_a_turn_bears() -> None:
    assert len(told("key", *(RankCandidate(n, "box", 5.0) for n in range(40)))) == MAX_PROACTIVE_HITS


def test_more_is_told_for_a_list_than_for_one_fact() -> None:
    boxes = [RankCandidate(n, "box", 5.0) for n in range(40)]

    assert len(told("which boxes have we packed?", *boxes)) == LIST_RESULTS


PASSPORT = RankCandidate(1, "My passport is in the blue drawer.", 5.0, person=True)


def evidence(
    question: str, shared: str = "", candidate: RankCandidate = PASSPORT, total: int = 1000, near: str = ""
) -> float:
    """Return the evidence of a candidate that has the words `shared`; each word is in one message."""

    def worth(text: str) -> float:
        return sum(surprise(word, "word", 1, total) for word in words(text))

    overlap = Overlap(worth(question), worth(shared), worth(near), total, tuple(words(shared)))
    return sum(proactive_evidence(analyse(question), candidate, candidate.text, overlap).values())


@pytest.mark.parametrize("total", [5, 40, 1_000, 10_000, 500_000])
def test_one_rare_word_of_an_own_fact_opens_recall_in_a_store_of_any_size(total: int) -> None:
    assert evidence("Where is my passport?", "is my passport", total=total) > 0
    assert evidence("Where is the oldest lighthouse?", "is", total=total) < 0


def test_the_evidence_changes_smoothly_with_the_number_of_messages() -> None:
    sizes = [round(5 * 1.5**step) for step in range(29)]
    values = [evidence("Where is my passport?", "is my passport", total=size) for size in sizes]

    assert max(abs(one - other) for one, other in pairwise(values)) < 0.4


def test_words_that_nobody_said_count_against_recall() -> None:
    question = "Where is my passport?"

    assert evidence(question, "my passport") > evidence(f"{question} zebra pilot trumpet", "my passport")


def test_a_long_text_has_words_by_chance() -> None:
    long = RankCandidate(1, f"My passport is there. {'filler ' * 100}", 5.0, person=True)

    assert evidence("Where is my passport?", "my passport", long) < evidence(
        "Where is my passport?", "my passport"
    )


def test_the_assistant_states_no_fact_about_the_person() -> None:
    answer = structs.replace(PASSPORT, person=False)

    assert evidence("Where is my passport?", "my passport", answer) < evidence(
        "Where is my passport?", "my passport"
    )


def test_a_statement_that_begins_with_a_word_of_the_question_is_an_own_fact_without_a_word_for_i() -> None:
    fact, later, question = (
        RankCandidate(1, text, 5.0, person=True)
        for text in ("Moro em Lisboa.", "Em Lisboa moro.", "Moro em Lisboa?")
    )

    asked = evidence("Onde moro?", "moro", fact)
    assert asked > evidence("Onde moro?", "moro", later)
    assert asked > evidence("Onde moro?", "moro", question)
    assert asked > evidence("Onde moro?", "moro", structs.replace(fact, person=False))
    assert evidence("Moro no Porto.", "moro", fact) == evidence("Moro no Porto.", "moro", later)


def test_a_word_of_a_neighbour_counts_less_than_an_own_word() -> None:
    question = "Where is my passport?"

    assert evidence(question) < evidence(question, near="my passport") < evidence(question, "my passport")


def test_beside_vectors_a_near_message_opens_recall_and_a_far_one_closes_it() -> None:
    question = analyse("Where do I work?")
    job = RankCandidate(1, "I am a nurse at St Mary's.", 5.0, person=True)
    overlap = Overlap(question=12.0, own=1.0, near=0.0, total=1000)

    def judged(cosine: float | None = None) -> float:
        return sum(proactive_evidence(question, job, job.text, overlap, cosine).values())

    assert judged() < 0
    assert judged(0.9) > 0
    assert judged(-1.0) == pytest.approx(judged(0.1))


def test_a_frequent_word_surprises_less_and_in_a_small_store_a_short_word_too() -> None:
    assert surprise("passport", "word", 1, 1000) > surprise("passport", "word", 300, 1000)
    assert surprise("is", "word", 0, 5) < surprise("passport", "word", 0, 5)


def test_less_is_told_when_the_question_may_name_the_wrong_person() -> None:
    hers = [RankCandidate(n, "I painted a sunrise", 6.0, "Ann") for n in range(1, 6)]
    others = chatter(100, "Bob")

    assert len(told("What did Ann paint?", *hers, *others)) == 5
    assert told("What did Bob paint?", *hers, *others) == []


def test_tokens_are_counted_by_script() -> None:
    assert count_tokens("abcdefgh") == 2
    assert count_tokens("部署失败") == 4


@given(st.text(), st.lists(st.tuples(st.text(), st.floats(-1e6, 1e6))), st.integers(0, 5))
def test_ranking_gives_each_candidate_at_most_once(
    question: str, texts: list[tuple[str, float]], limit: int
) -> None:
    candidates = [RankCandidate(i, text, score) for i, (text, score) in enumerate(texts)]

    found = ranked(question, *candidates, limit=limit)

    assert len(found) == len(set(found)) == min(limit, len(candidates))
