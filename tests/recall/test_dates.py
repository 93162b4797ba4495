from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes_core.recall import calendar_words
from hermes_core.recall.dates import When, find_dates, read_moment
from hermes_core.recall.query import analyse
from tests.table import table

NOW = datetime(2024, 3, 13, 15, 0, tzinfo=UTC)  # a Wednesday


def at(year: int, month: int, day: int, hour: int = 12) -> datetime:
    return datetime(year, month, day, hour, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("on 8 May, 2023", When(2023, 5, 8)),
        ("on May 8th 2023", When(2023, 5, 8)),
        ("on 2023-05-08", When(2023, 5, 8)),
        ("in 2023-05", When(2023, 5)),
        ("am 8.5.2023", When(2023, 5, 8)),
        ("am 08. 05. 2023", When(2023, 5, 8)),
        ("the 3rd of July", When(0, 7, 3)),
        ("in May 2023", When(2023, 5)),
        ("in may", When(0, 5)),
        ("back in 2022", When(2022)),
        ("2023年5月8日", When(2023, 5, 8)),
        ("5月", When(0, 5)),
    ],
)
def test_a_date_is_read_however_it_is_written(text: str, when: When) -> None:
    assert find_dates(text)[0] == (when,)


@pytest.mark.parametrize(
    "text", ["may I march on?", "version 1.2.3", "port 8080", "99 bottles", "on 45 May", "id 2023-051", ""]
)
def test_what_is_no_date_is_left_alone(text: str) -> None:
    assert find_dates(text) == ((), text)


@table(
    ("text", "inside", "outside"),
    [
        ("yesterday", at(2024, 3, 12), at(2024, 3, 13)),
        ("today", at(2024, 3, 13), at(2024, 3, 12)),
        ("last week", at(2024, 3, 6), at(2024, 3, 11)),
        ("this week", at(2024, 3, 12), at(2024, 3, 8)),
        ("last month", at(2024, 2, 20), at(2024, 3, 2)),
        ("last year", at(2023, 8, 1), at(2024, 1, 5)),
        ("two weeks ago", at(2024, 2, 28), at(2024, 3, 12)),
        ("昨天", at(2024, 3, 12), at(2024, 3, 13)),
        ("last weekend", at(2024, 3, 10), at(2024, 3, 8)),
        ("last Friday", at(2024, 3, 8), at(2024, 3, 9)),
        ("on Wednesday", at(2024, 3, 6), at(2024, 3, 13)),
        ("a couple of days ago", at(2024, 3, 11), at(2024, 3, 12)),
        ("in the last 3 weeks", at(2024, 2, 22), at(2024, 2, 19)),
        ("on the 3rd", at(2024, 3, 3), at(2024, 2, 3)),
        ("last summer", at(2023, 7, 1), at(2023, 10, 1)),
        ("at Christmas", at(2023, 12, 25), at(2023, 12, 27)),
        ("at Easter", at(2023, 4, 9), at(2024, 3, 31)),
        ("letzte Woche", at(2024, 3, 6), at(2024, 3, 11)),
        ("上个月", at(2024, 2, 20), at(2024, 3, 2)),
        ("三天前", at(2024, 3, 10), at(2024, 3, 12)),
        ("before March", at(2024, 2, 29), at(2024, 3, 1)),
        ("before 2023", at(2022, 12, 31), at(2023, 1, 1)),
        ("until last week", at(2024, 3, 3), at(2024, 3, 4)),
        ("since Easter", at(2024, 1, 1), at(2023, 4, 8)),
        ("since last May", at(2023, 5, 1), at(2023, 4, 30)),
        ("since the 31st", at(2024, 1, 31), at(2024, 1, 30)),
        ("after the 3rd", at(2024, 3, 4), at(2024, 3, 3)),
        ("after 8 May 2023", at(2023, 5, 9), at(2023, 5, 8)),
        ("between May and July 2023", at(2023, 6, 1), at(2023, 8, 1)),
        ("from November to February 2024", at(2023, 12, 1), at(2024, 3, 1)),
        ("3月之前", at(2024, 2, 1), at(2024, 3, 2)),
        ("自从5月", at(2023, 5, 2), at(2023, 4, 2)),
        ("an hour ago", at(2024, 3, 13, 14), at(2024, 3, 13, 12)),
        ("a year ago", at(2023, 3, 20), at(2023, 9, 1)),
        ("over the weekend", at(2024, 3, 10), at(2024, 3, 8)),
        ("the weekend before last", at(2024, 3, 3), at(2024, 3, 10)),
        ("the month before last", at(2024, 1, 31), at(2024, 2, 1)),
        ("上上周", at(2024, 2, 27), at(2024, 3, 5)),
        ("on Monday morning", at(2024, 3, 11), at(2024, 3, 12)),
        ("in Q1 2023", at(2023, 3, 31), at(2023, 4, 1)),
        ("in the fourth quarter", at(2023, 12, 31), at(2024, 1, 1)),
        ("last quarter", at(2023, 12, 31), at(2024, 1, 1)),
        ("in week 10", at(2024, 3, 4), at(2024, 3, 11)),
        ("in 2023-W52", at(2023, 12, 25), at(2024, 1, 1)),
        ("on Christmas Eve", at(2023, 12, 24), at(2023, 12, 25)),
        ("on Good Friday", at(2023, 4, 7), at(2023, 4, 9)),
        ("on Thanksgiving", at(2023, 11, 23), at(2023, 11, 30)),
        ("last winter", at(2024, 2, 20), at(2024, 3, 2)),
        ("in the first half of May", at(2023, 5, 15), at(2023, 5, 16)),
        ("in the first week of May", at(2023, 5, 7), at(2023, 5, 8)),
        ("in the last week of May", at(2023, 5, 24), at(2023, 5, 23)),
        ("on the last day of February", at(2024, 2, 29), at(2024, 2, 28)),
        ("at the end of 2023", at(2023, 12, 31), at(2023, 8, 31)),
        ("in early February", at(2024, 2, 5), at(2024, 2, 15)),
        ("from 3 to 7 May", at(2023, 5, 3), at(2023, 5, 8)),
        ("May 3-7", at(2023, 5, 7), at(2023, 5, 2)),
        ("5月3日到7日", at(2023, 5, 7), at(2023, 5, 8)),
        ("on the second of March", at(2024, 3, 2), at(2024, 2, 20)),
    ],
)
def test_relative_times_count_from_now(text: str, inside: datetime, outside: datetime) -> None:
    (when,) = find_dates(text, NOW.timestamp())[0]

    assert when.closeness(inside) == 1
    assert when.closeness(outside) == 0


@table(
    ("text", "inside", "outside"),
    [
        ("in May last year", at(2023, 5, 31), at(2023, 6, 1)),
        ("on Monday last week", at(2024, 3, 4), at(2024, 3, 11)),
        ("on Saturday the 2nd", at(2024, 3, 2), at(2024, 3, 9)),
        ("in the summer of 2022", at(2022, 7, 1), at(2022, 5, 31)),
        ("at Easter 2022", at(2022, 4, 17), at(2023, 4, 9)),
    ],
)
def test_words_beside_each_other_name_one_time(text: str, inside: datetime, outside: datetime) -> None:
    (when,) = find_dates(text, NOW.timestamp())[0]

    assert [when.closeness(inside), when.closeness(outside)] == [1, 0]


@pytest.mark.parametrize(
    "text",
    [
        "in Spring Boot",
        "the second half of the game",
        "in week 3 of the course",
        "answer Q1 and Q2",
        "chapters 3 to 7",
        "the 3rd time",
        "she went from Rome to Paris",
        "every Monday",
        "for a week",
        "by Friday",
    ],
)
def test_what_is_no_relative_time_is_left_alone(text: str) -> None:
    assert find_dates(text, NOW.timestamp()) == ((), text)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2023-05-08", (2023, 5, 8), (2023, 5, 9)),
        ("March", (2024, 3, 1), (2024, 4, 1)),
        ("may", (2023, 5, 1), (2023, 6, 1)),
        ("last week", (2024, 3, 4), (2024, 3, 11)),
        ("friday", (2024, 3, 8), (2024, 3, 9)),
        ("the 3rd", (2024, 3, 3), (2024, 3, 4)),
        ("2022", (2022, 1, 1), (2023, 1, 1)),
        ("2023-W20", (2023, 5, 15), (2023, 5, 22)),
        ("the first half of May", (2023, 5, 1), (2023, 5, 16)),
        ("昨天", (2024, 3, 12), (2024, 3, 13)),
        ("2023-05-08T12:30", (2023, 5, 8, 12, 30), (2023, 5, 8, 12, 30)),
        ("2023-05-08T12:30+02:00", (2023, 5, 8, 10, 30), (2023, 5, 8, 10, 30)),
    ],
)
def test_a_bound_is_a_date_or_words(text: str, start: tuple[int, ...], end: tuple[int, ...]) -> None:
    for at_end, wanted in ((False, start), (True, end)):
        moment = datetime(*wanted, tzinfo=UTC)  # type: ignore[arg-type, misc]
        assert read_moment(text, NOW.timestamp(), UTC, end=at_end) == moment.timestamp()


@pytest.mark.parametrize("text", ["soon", "5", "2023-13-01", "before or after", ""])
def test_a_bound_that_names_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a date"):
        read_moment(text, NOW.timestamp(), UTC)


@given(st.text())
def test_any_bound_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        read_moment(text, NOW.timestamp(), UTC)


def test_what_happened_on_a_day_may_be_told_days_later() -> None:
    when = When(2023, 5, 8)

    assert [when.closeness(at(2023, 5, day)) for day in (8, 10, 30)] == [1, 0.5, 0]


@given(st.text(), st.floats(0, 4e9))
def test_no_text_raises(text: str, now: float) -> None:
    for when in find_dates(text, now)[0]:
        when.closeness(NOW)


@given(st.integers(0, 10**9), st.sampled_from(["day", "week", "month", "year"]))
def test_no_count_is_too_long_ago(count: int, unit: str) -> None:
    find_dates(f"{count} {unit}s ago", NOW.timestamp())


@pytest.mark.parametrize("word", ["check2081a7604b99", "abc2019", "2019abc", "build_2019_x", "585df2078c0e"])
def test_a_word_that_holds_a_year_is_a_word(word: str) -> None:
    assert find_dates(word) == ((), word)


@pytest.mark.parametrize("text", ["2019", "in 2019?", "the 2019s", "2019に", "(2019)"])
def test_a_year_that_stands_alone_is_a_time(text: str) -> None:
    assert find_dates(text)[0] == (When(year=2019),)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did I do last week?", True),
        ("Summarise the last two weeks", True),
        ("What happened on 20 November?", True),
        ("Was habe ich letzte Woche gemacht?", True),
        ("我上周做了什么？", True),
        ("What went on two weeks ago?", True),
        ("How was my last week?", True),
        ("Anything important yesterday evening?", True),
        ("What's new since Monday?", True),
        ("Where did I go last summer?", False),
        ("What did Anna do last weekend?", False),
        ("What should I do this weekend?", False),
        ("What did I buy at the market last week?", False),
        ("Where was I in March?", False),
        ("see you on Monday", False),
        ("How are you today?", False),
        ("What did I do?", False),
    ],
)
def test_a_question_that_asks_for_anything_of_a_time_is_known(question: str, expected: bool) -> None:
    assert analyse(question, now=NOW.timestamp()).time_only is expected


def only_time(text: str) -> tuple[datetime, datetime]:
    """Return beginning and end of the only time in a text."""
    pytest.importorskip("dateparser")
    (when,), _ = find_dates(text, NOW.timestamp())
    start, end = when.span(NOW) or (0.0, 0.0)
    return datetime.fromtimestamp(start, UTC), datetime.fromtimestamp(end, UTC)


@pytest.mark.parametrize(
    "text",
    [
        "¿Qué hice la semana pasada?",
        "Qu'est-ce que j'ai fait la semaine dernière ?",
        "Что я делал на прошлой неделе?",
        "Cosa ho fatto la settimana scorsa?",
        "O que fiz na semana passada?",
        "Wat deed ik vorige week?",
        "Vad gjorde jag förra veckan?",
        "Co robiłem w zeszłym tygodniu?",
        "Geçen hafta ne yaptım?",
        "先週は何をした？",
        "지난주에 뭐 했어?",
    ],
)
def test_last_week_is_read_in_other_languages(text: str) -> None:
    assert only_time(text) == (at(2024, 3, 4, 0), at(2024, 3, 11, 0))


@pytest.mark.parametrize(
    "question",
    [
        "Vad pratade vi om förra veckan?",
        "Hvad skete der i februar?",
        "O czym rozmawialiśmy w zeszłym tygodniu?",
        "O čem jsme mluvili minulý týden?",
        "Τι έκανα χθες;",
        "先週は何について話しましたか？",
        "지난주에 무슨 이야기를 했지?",
        "Apa yang saya lakukan kemarin?",
    ],
)
def test_a_question_for_anything_of_a_time_is_known_in_other_languages(question: str) -> None:
    pytest.importorskip("dateparser")

    assert analyse(question, now=NOW.timestamp()).time_only


@pytest.mark.parametrize(
    ("text", "month", "day"),
    [
        ("¿Qué pasó en febrero?", 2, 0),
        ("Что было в феврале?", 2, 0),
        ("Helmikuussa satoi", 2, 0),
        ("Şubatta ne oldu?", 2, 0),
        ("Le 14 février", 2, 14),
        ("Il 3 marzo", 3, 3),
        ("2月14日に", 2, 14),
        ("二月十四日", 2, 14),
        ("im Februar 2024", 2, 0),
        ("le 14 février 2024", 2, 14),
        ("en febrero de 2024", 2, 0),
        ("2024년 2월", 2, 0),
    ],
)
def test_months_and_days_are_read_in_other_languages(text: str, month: int, day: int) -> None:
    start, end = only_time(text)

    assert (start.year, start.month, start.day) == (2024, month, day or 1)
    assert (end - start).days == (1 if day else 29)


@pytest.mark.parametrize(
    ("text", "day"),
    [("hace 5 días", 8), ("5 дней назад", 8), ("5日前", 8), ("l'altro ieri", 11), ("mardi dernier", 12)],
)
def test_days_ago_are_read_in_other_languages(text: str, day: int) -> None:
    assert only_time(text) == (at(2024, 3, day, 0), at(2024, 3, day + 1, 0))


@pytest.mark.parametrize(
    "text", ["im Mai", "en mai", "i maj", "in mei", "в мае", "w maju", "Mai 2023", "在五月"]
)
def test_the_name_of_may_is_read_although_it_is_short(text: str) -> None:
    start, _ = only_time(text)

    assert (start.year, start.month) == (2023, 5)


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("vor zwei Wochen", 14),
        ("il y a trois jours", 3),
        ("hace dos semanas", 14),
        ("dwa tygodnie temu", 14),
        ("rok temu", 365),
    ],
)
def test_a_number_in_words_is_read_in_other_languages(text: str, days: int) -> None:
    pytest.importorskip("unicode_rbnf")
    start, end = only_time(text)

    assert start <= NOW - timedelta(days=days) < end


@pytest.mark.parametrize(
    "text",
    [
        "im Mai letzten Jahres",
        "en mayo del año pasado",
        "nel maggio dell'anno scorso",
        "em maio do ano passado",
        "i maj förra året",
    ],
)
def test_a_month_of_last_year_is_read_in_other_languages(text: str) -> None:
    assert only_time(text) == (at(2023, 5, 1, 0), at(2023, 6, 1, 0))


def test_a_bound_of_a_month_is_read_in_other_languages() -> None:
    assert only_time("depuis février")[0] == at(2024, 2, 1, 0)


@pytest.mark.parametrize(
    "text",
    [
        "nu a mai venit, nu-i mai pasă", "tengo dos semanas de vacaciones", "drei Monate Garantie",
        "Wir sind hier und warten", "9 out of 10 people", "a segunda opção", "Peter has three pets", "non ho mai visto",
        "mañana por la mañana", "el mar y la sierra", "Mars is a planet", "Martin martelt Marta", "5 ago",
    ],
)  # fmt: skip
def test_ordinary_words_are_no_times_in_other_languages(text: str) -> None:
    assert find_dates(text, NOW.timestamp())[0] == ()


def test_without_the_package_no_other_language_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    calendar_words._patterns.cache_clear()
    try:
        assert find_dates("la semana pasada", NOW.timestamp())[0] == ()
        assert find_dates("9 out of 10 people in Spring Boot", NOW.timestamp())[0] == ()
    finally:
        calendar_words._patterns.cache_clear()


def test_words_of_other_languages_bound_a_search() -> None:
    pytest.importorskip("dateparser")

    assert read_moment("la semana pasada", NOW.timestamp(), UTC) == at(2024, 3, 4, 0).timestamp()
