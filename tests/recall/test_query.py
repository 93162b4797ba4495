from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.recall.query import Leaf, Node, analyse, named_in, parse_condition
from tests.table import table


def terms(text: str, **kwargs: object) -> list[str]:
    return [term.text for term in analyse(text, **kwargs).terms]  # type: ignore[arg-type]


def test_a_question_asks_for_its_content_words() -> None:
    assert terms("When did Melanie paint a sunrise?") == ["melanie", "paint", "sunrise"]


def test_a_question_of_stop_words_alone_asks_for_them() -> None:
    assert terms("to be or not to be") == ["to", "be", "or", "not"]


def test_a_person_who_speaks_in_the_store_is_not_a_word_to_look_for() -> None:
    assert terms("What does Melanie paint?", names=["Melanie"]) == ["paint"]
    assert terms("Melanie?", names=["Melanie"]) == ["melanie"]


def test_dense_runs_are_asked_by_their_pairs_and_single_characters_by_themselves() -> None:
    assert terms("docker 部署失败") == ["docker", "部署", "署失", "失败"]
    assert terms("茶") == ["茶"]


def test_irregular_forms_and_everyday_words_come_along() -> None:
    (run,) = [term for term in analyse("run").terms if term.text == "run"]
    (movie,) = analyse("movie").terms

    assert "ran" in run.forms
    assert movie.similar == ("film",)


TALK = (
    "The pipeline crashed again while the nightly export of invoices was running on the second cluster. "
    "Somebody had changed the retention policy, so the bucket was empty and the loader found no manifest. "
    "I restarted the scheduler, cleared the queue and moved the checkpoint to the older volume. "
)


@pytest.mark.parametrize(
    "text",
    [
        TALK + "When did Melanie run a charity race?",
        "When did Melanie run a charity race?\n" + TALK,
        "Is the cluster alive? " + TALK + "When did Melanie run a charity race?",
        TALK * 20 + "When did Melanie run a charity race?",
        TALK + "When did Melanie run a charity race? Thanks a lot.",
    ],
)
def test_a_long_text_is_searched_by_its_question(text: str) -> None:
    analysis = analyse(text)

    assert {"melanie", "run", "charity", "race"} <= {term.text for term in analysis.terms}
    assert "pipeline" not in {term.text for term in analysis.terms}
    assert analysis.shape == "when"
    assert len(analysis.text) < 100


def test_the_words_beside_the_question_of_a_long_text_count_together_as_a_few() -> None:
    analysis = analyse(TALK + "When did Melanie run a charity race?")

    assert "pipeline" in {term.text for term in analysis.others}
    assert sum(term.weight for term in analysis.others) == pytest.approx(2)
    assert {term.weight for term in analysis.terms} == {1}


def test_other_questions_of_a_long_text_come_before_its_other_words() -> None:
    analysis = analyse("Which violin does Jon play? " * 2 + TALK + "When did Melanie run a charity race?")

    assert {term.text for term in analysis.others} == {"violin", "jon", "play"}


def test_a_question_that_tells_little_is_read_with_the_sentence_before_it() -> None:
    assert {"luna", "cat", "eat"} <= set(terms(TALK + "Luna is my cat. What does she eat?"))


def test_a_long_text_without_a_question_leaves_the_choice_of_its_words_to_the_store() -> None:
    analysis = analyse(
        TALK + "Move everything into another bucket, keep backups, notify Ingrid, write the report."
    )

    assert len(analysis.terms) == 32
    assert "report" in {term.text for term in analysis.terms}
    assert analysis.others
    assert {term.weight for term in analysis.others} == {1}


def test_a_long_chinese_text_is_searched_by_its_question() -> None:
    talk = "哎呀，最近真是忙死了，要准备参加的那个活动竟然要持续很久呢。得好好规划一下时间，不然其他事情都要被耽误了。"
    analysis = analyse(talk * 2 + "对了，那个职位是首席技术官的人，兴趣爱好是什么？")

    assert "兴趣" in {term.text for term in analysis.terms}
    assert "规划" not in {term.text for term in analysis.terms}


def test_a_question_with_a_quotation_that_ends_within_a_sentence_is_one_sentence() -> None:
    talk = "哎呀，最近真是忙死了，要准备参加的那个活动竟然要持续很久呢。得好好规划一下时间，不然其他事情都要被耽误了。"
    analysis = analyse(talk * 2 + '主要内容是"逛街购物之余，体验活力。"的活动，时间是什么？')

    assert "购物" in {term.text for term in analysis.terms}


def test_conditions_are_read_in_the_question_of_a_long_text_only() -> None:
    assert analyse(TALK + '"exit code 3" AND rerun. When did Melanie run a charity race?').condition is None


def test_a_long_quotation_in_a_question_is_no_condition() -> None:
    cited = "the walnut table that we oiled twice in the summer when grandmother came to visit us from Lisbon harbour"

    assert analyse('Who said "walnut table"?').condition == Leaf("walnut table", phrase=True)
    assert (
        analyse(f'Who said "{cited} with nine heavy green suitcases and three umbrellas"?').condition is None
    )


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("When did she leave?", "when"),
        ("Who came?", "who"),
        ("Where is it?", "where"),
        ("How many dogs?", "how many"),
        ("什么时候部署？", "when"),
        ("Why?", "other"),
    ],
)
def test_the_shape_of_a_question_is_read(text: str, shape: str) -> None:
    assert analyse(text).shape == shape


def test_full_width_letters_are_asked_in_plain_ones_too() -> None:
    assert analyse("ＡＢＣ").terms[0].text == "abc"


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Is it C#?", ("c#",)),
        ("(see path/to/file.py), please.", ("path/to/file.py",)),
        ("--verbose or -x", ("--verbose", "-x")),
        ("don't ask, it's fine!", ()),
    ],
)
def test_pieces_whose_signs_carry_meaning_are_kept_as_they_are(text: str, pieces: tuple[str, ...]) -> None:
    assert analyse(text).exact == pieces


A, B, C = Leaf("a"), Leaf("b"), Leaf("c")


@table(
    ("text", "condition"),
    [
        ("plain words, and or not", None),
        ("a AND b", Node("AND", (A, B))),
        ("a OR b AND c", Node("OR", (A, Node("AND", (B, C))))),
        ("(a OR b) AND NOT c", Node("AND", (Node("OR", (A, B)), Node("NOT", (C,))))),
        ("a AND AND b", Node("AND", (A, B))),
        ("NOT NOT a", Node("NOT", (A,))),
        ("AND", None),
        ("a OR", A),
        (") a AND b (", Node("AND", (A, B))),
        ('say "very words" please', Leaf("very words", phrase=True)),
        ("dis «les mots mêmes» s'il te plaît", Leaf("les mots mêmes", phrase=True)),
        ("sag „genau das“ bitte", Leaf("genau das", phrase=True)),
        ("powiedz „te słowa” proszę", Leaf("te słowa", phrase=True)),
        ("sig »netop det« tak", Leaf("netop det", phrase=True)),
        ("彼は「東京」と", Leaf("東京", phrase=True)),
        ("a « alone", None),
        ("deploy* now", Leaf("deploy", prefix=True)),
        ("* ** -- ?", None),
    ],
)
def test_operators_demand_and_stray_ones_are_dropped(text: str, condition: object) -> None:
    assert parse_condition(text) == condition


def test_what_is_negated_is_not_looked_for() -> None:
    assert terms("docker NOT podman") == ["docker"]


def test_deep_brackets_are_no_way_to_break_the_reader() -> None:
    assert parse_condition("(" * 900 + "a AND b") is not None


def test_a_name_is_found_by_its_first_word_in_any_script() -> None:
    assert named_in("What did caroline's mother say?", ["Caroline Smith", "Melanie"]) == {"Caroline Smith"}
    assert named_in("小明什么时候来？", ["小明", "小红"]) == {"小明"}
    assert not named_in("carolines", ["Caroline"])


@given(st.text())
def test_no_text_raises(text: str) -> None:
    analyse(text, now=1.7e9, names=["Will"])


@given(st.lists(st.sampled_from(["a", "AND", "OR", "NOT", "(", ")", '"', "*", "x*", "部署"])).map(" ".join))
def test_no_mix_of_operators_raises(text: str) -> None:
    parse_condition(text)


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("José García", "what did jose say?"),
        ("Zoe", "What did Zoë's sister say?"),
        ("Đức", "Duc nói gì"),
        ("Анна", "Что сказали Анне?"),
        ("Γιώργος", "το αυτοκίνητο του ΓΙΩΡΓΟΥ"),
        ("김철수", "김철수가 뭐라고 했어?"),
    ],
)
def test_a_person_is_named_without_accents_and_in_any_case(name: str, question: str) -> None:
    asked = analyse(question, names=[name, "Somebody"])
    assert asked.names == {name}
    assert not {"jose", "duc", "анне"} & {term.text for term in asked.terms}
