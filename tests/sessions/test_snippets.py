from __future__ import annotations

import pytest

from hermes_core.sessions.session_store import SessionStore

LONG = "lorem ipsum dolor sit amet " * 30


@pytest.mark.parametrize(
    ("text", "query", "shown"),
    [
        ("We planned the studies.", "plan study", "We >>>planned<<< the >>>studies<<<."),
        ("Deployment of Docker", "deploy docker", ">>>Deployment<<< of >>>Docker<<<"),
        ("The plan, not the plane", "plan", "The >>>plan<<<, not the plane"),
        ("please don’t", "don't", "please >>>don’t<<<"),
        ("Caroline's dog", "caroline", ">>>Caroline's<<< dog"),
        ("Le café était fermé", "cafe", "Le >>>café<<< était fermé"),
        ("an organization of pilots", "organize", "an >>>organization<<< of pilots"),
        ("Ждём новые документы", "документов", "Ждём новые >>>документы<<<"),
        ("Η Αθήνα είναι", "ΑΘΗΝΑ", "Η >>>Αθήνα<<< είναι"),
        ("كَتَبَ الوَلَدُ الدَّرسَ", "درس", "كَتَبَ الوَلَدُ >>>الدَّرسَ<<<"),
        ("נפגשנו בירושלים אתמול", "ירושלים", "נפגשנו >>>בירושלים<<< אתמול"),
        ("Les élèves étudient", "eleve", "Les >>>élèves<<< étudient"),
        ("El niño va al colegio", "nino colegio", "El >>>niño<<< va al >>>colegio<<<"),
        ("Tôi sống ở Đà Nẵng", "da nang", "Tôi sống ở >>>Đà<<< >>>Nẵng<<<"),
        ("Pendant l’été à Łódź", "ete lodz", "Pendant l’>>>été<<< à >>>Łódź<<<"),
        ("İstanbul'da yaşıyorum", "istanbul", ">>>İstanbul<<<'da yaşıyorum"),
        ("Les e\u0301le\u0300ves", "élèves", "Les >>>élèves<<<"),
        ("\u1112\u1161\u11ab\u1100\u116e\u11a8", "한국", ">>>한국<<<"),
        ("no word of it stands here", "kumquat", ""),
    ],
)
def test_words_are_marked_in_the_form_in_which_they_stand(
    db: SessionStore, text: str, query: str, shown: str
) -> None:
    db.append_message("s1", "user", text)
    assert "".join(hit.snippet for hit in db.past.search(query)) == shown


def test_of_a_long_message_the_part_with_most_of_the_question_is_shown(db: SessionStore) -> None:
    message = db.append_message("s1", "user", f"walnut {LONG} the walnut table wants oil {LONG} table")
    snippet = db.past.snippet(message, "walnut table oil")
    assert "dolor sit amet  the >>>walnut<<< >>>table<<< wants >>>oil<<<" in snippet
    assert snippet.startswith("...")
    assert snippet.endswith("...")
    assert len(snippet) < 300


def test_what_neighbours_answer_shows_its_beginning(db: SessionStore) -> None:
    db.append_message("s1", "user", "what did you paint?")
    beside = db.append_message("s1", "assistant", "a sunset")
    assert db.past.snippet(beside, "paint") == "a sunset"


LOG = "\n".join(f"step {number} of the nightly export wrote {number * 37} rows" for number in range(400))


@pytest.mark.parametrize(
    ("text", "query", "part"),
    [
        (f"{LOG}\nthe walnut ledger was refused: bad checksum\n{LOG}", "walnut checksum", "walnut ledger"),
        (f"{LOG} walnut {LOG}\nthe walnut ledger: bad checksum\n", "walnut checksum", "bad checksum"),
        (f"{'天气很好。' * 300}部署失败的原因是磁盘已满。{'天气很好。' * 300}", "部署失败的原因", "磁盘已满"),
        (f"{'погода. ' * 300}Ошибка: документы не найдены. {'погода. ' * 300}", "документов", "не найдены"),
    ],
)
def test_of_a_long_message_the_part_that_answers_is_shown(
    db: SessionStore, text: str, query: str, part: str
) -> None:
    db.create_session("s1")
    db.append_turn("s1", [{"role": "tool", "content": text, "tool_name": "run"}], "t1", 1)

    (hit,) = db.past.search(query)

    assert hit.text == text
    assert hit.span is not None
    assert hit.excerpt == text[slice(*hit.span)]
    assert part in hit.excerpt
    assert len(hit.excerpt) <= 800


def test_a_short_message_is_shown_whole(db: SessionStore) -> None:
    db.create_session("s1")
    db.append_turn("s1", [{"role": "user", "content": "the walnut table " * 40}], "t1", 1)

    (hit,) = db.past.search("walnut")

    assert hit.span is None
    assert hit.excerpt == hit.text


def test_a_message_that_answers_only_beside_another_shows_its_beginning(db: SessionStore) -> None:
    db.create_session("s1")
    messages = [{"role": "user", "content": "what did you paint?"}, {"role": "assistant", "content": LOG}]
    db.append_turn("s1", messages, "t1", 1)

    beside = next(hit for hit in db.past.search("paint") if hit.role == "assistant")

    assert beside.excerpt.startswith("step 0 ")
