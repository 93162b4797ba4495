"""Questions as people type them, pieces of messages as people paste them, and what no one may see."""

from __future__ import annotations

import json
import random
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hermes_core.contract.values import Session
from hermes_core.sessions.session_store import SessionStore
from hermes_core.sessions.tool import SessionSearchTool
from tests.rounds import rounds
from tests.table import table

STORED = {
    "down": "The server went down at noon because the disk was full.",
    "dont": "Please don't restart the queue before the backup is through.",
    "path": "I moved it to path/to/file and left the old copy.",
    "mail": "Write to joe@example.com when the invoice is paid.",
    "csharp": "The parser is written in C# and the rest in Go.",
    "percent": "Memory stood at 50% the whole night.",
    "verbose": "Run it with --verbose to see each request.",
    "thai": "เมื่อวานเราไปตลาดน้ำด้วยกัน",
    "emoji": "we won the cup 🎉🏆",
    "chinese": "昨天部署失败了，因为磁盘满了",
    "japanese": "サーバーの再起動は金曜日にします",
    "korean": "회의는 다음 주 월요일에 있습니다",
    "mixed": "docker部署 failed on host-7",
    "russian": "Сервер упал из-за нехватки памяти",
    "arabic": "الخادم توقف عن العمل أمس",
    "accent": "Le café près de l'hôtel était fermé.",
    "german": "Die Straße war gesperrt, also fuhren wir außen herum.",
    "dog": "Caroline adopted a puppy named Biscuit in the spring.",
    "money": "The ticket was $1,299.50 with tax.",
    "version": "We pinned numpy==1.26.4 after the upgrade broke.",
    "url": "See https://docs.example.org/install?lang=en#linux for it.",
    "error": "TypeError: 'NoneType' object is not subscriptable",
    "code": "def total(items): return sum(i.price for i in items)",
    "flag": "git push --force-with-lease origin main",
    "ip": "The gateway is 192.168.1.254 on VLAN 20.",
    "issue": "Closed as a duplicate of #4711.",
    "snake": "Set HERMES_HOME and max_retry_count before you start.",
    "quote": 'She said "never again" and hung up.',
    "hyphen": "The state-of-the-art model was too slow.",
    "time": "The standup is at 09:30 on weekdays.",
    "call": "",
}
CALLS = [
    {
        "id": "1",
        "type": "function",
        "function": {"name": "weather", "arguments": json.dumps({"city": "北京"})},
    }
]

QUESTIONS = [
    ("why is the server down?", "down"),
    ("don't", "dont"),
    ("don’t restart!!", "dont"),
    ("path/to/file", "path"),
    ("where did you move path/to/file?", "path"),
    ("joe@example.com", "mail"),
    ("C#", "csharp"),
    ("50%", "percent"),
    ("--verbose", "verbose"),
    ("what does --verbose do?", "verbose"),
    ("ตลาด", "thai"),
    ("ไปตลาดน้ำ", "thai"),
    ("🎉", "emoji"),
    ("🏆?", "emoji"),
    ("部署", "chinese"),
    ("失败", "chinese"),
    ("磁盘为什么满了？", "chinese"),
    ("盘", "chinese"),
    ("再起動", "japanese"),
    ("サーバー", "japanese"),
    ("회의", "korean"),
    ("docker 部署", "mixed"),
    ("docker部署 host-7", "mixed"),
    ("北京", "call"),
    ("сервер упал", "russian"),
    ("الخادم", "arabic"),
    ("cafe hotel", "accent"),
    ("CAFÉ", "accent"),
    ("Straße gesperrt?", "german"),
    ("what's the name of Caroline's dog?", "dog"),
    ("$1,299.50", "money"),
    ("numpy==1.26.4", "version"),
    ("https://docs.example.org/install?lang=en#linux", "url"),
    ("TypeError: 'NoneType' object is not subscriptable", "error"),
    ("sum(i.price for i in items)", "code"),
    ("git push --force-with-lease", "flag"),
    ("192.168.1.254", "ip"),
    ("#4711", "issue"),
    ("max_retry_count", "snake"),
    ('"never again"', "quote"),
    ("state-of-the-art", "hyphen"),
    ("when is the standup, 09:30?", "time"),
    ("(server OR docker) AND NOT failed", "down"),
    ("部署 NOT docker", "chinese"),
    ("stand*", "time"),
]


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> SessionStore:
    """A store in which each message stands in a session of its own, among much else."""
    db = SessionStore(tmp_path_factory.mktemp("asked") / "state.db")
    chance = random.Random(4)
    words = "plan note green river model value table window garden cable engine paper".split()  # noqa: SIM905
    for number in range(40):
        db.create_session(f"other{number}")
        db.append_turn(
            f"other{number}",
            [{"role": "user", "content": " ".join(chance.choices(words, k=15))} for _ in range(10)],
            f"t{number}",
            1,
        )
    for name, text in STORED.items():
        db.create_session(name)
        db.append_message(name, "assistant", text, tool_calls=CALLS if name == "call" else ())
    return db


@table(("question", "answer"), QUESTIONS)
def test_a_question_as_people_type_it_is_answered(asked: SessionStore, question: str, answer: str) -> None:
    hits = asked.past.search(question, limit=3)
    assert answer in [hit.session_id for hit in hits]


PIECES = (
    "Why did it fail?", "the host's clock was wrong,", "see notes/plan.md;", "50% of it", "(again)", "e.g. --dry-run",
    "user@host:", "\"quoted\"", "a/b", "C++", "it's", "v1.2.3", "foo_bar", "x = y + 1;", "[done]", "$5", "#7", "ok!",
)  # fmt: skip


def pasted(chance: random.Random, text: str) -> str:
    """Three to six words as they stand in the text, with their punctuation."""
    words = text.split(" ")
    length = chance.randint(3, 6)
    at = chance.randrange(len(words) - length)
    return " ".join(words[at : at + length])


@pytest.mark.shortened
def test_words_pasted_from_a_message_find_it_among_the_first_ten(tmp_path: Path) -> None:
    chance, db = random.Random(9), SessionStore(tmp_path / "state.db")
    vocabulary = ["".join(chance.choices("aeioubcdfglmnprst", k=chance.randint(3, 8))) for _ in range(2_000)]
    weights = [1 / rank for rank in range(1, 2_001)]
    texts = {}
    for number in range(150):
        db.create_session(f"s{number}")
        turn = []
        for _ in range(20):
            words = chance.choices(vocabulary, weights, k=24)
            for _ in range(3):
                words.insert(chance.randrange(len(words)), chance.choice(PIECES))
            turn.append({"role": "user", "content": " ".join(words)})
        ids = db.append_turn(f"s{number}", turn, f"t{number}", 1).message_ids
        texts.update(zip(ids, (str(m["content"]) for m in turn), strict=True))

    found, count = 0, rounds(300)
    for message_id in chance.sample(sorted(texts), count):
        query = pasted(chance, texts[message_id])
        hits = db.past.search(query, limit=10)
        found += any(hit.message_id == message_id or query in hit.text for hit in hits)
    db.close()

    assert found >= 0.98 * count


# ---------------------------------------------------------------------- what no one may see

WORDS = ["kumquat", "server", "部署", "部", "🎉", "ตลาด", "don't", "C#", "NOT", '"kumquat server"', "ku*"]
STEPS = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from(WORDS), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)


@settings(max_examples=rounds(30))
@given(
    steps=STEPS, query=st.lists(st.sampled_from([*WORDS, "AND", "OR", "last year"]), max_size=4).map(" ".join)
)
def test_a_search_shows_nothing_of_another_user_and_nothing_that_was_taken_back(
    steps: list[tuple[str, str, bool, bool]], query: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        db = SessionStore(Path(folder) / "state.db")
        people = {name: Session(f"now-{name}", platform="chat", user_id=name) for name in "ab"}
        for number, (name, word, own_session, taken_back) in enumerate(steps):
            session = f"{name}{number if own_session else ''}"
            db.create_session(session, user=people[name].owner, title=f"{word} TITLE{name}")
            message = db.append_message(session, "user", f"{word} MARK{name}", speaker=f"speaker-{name}")
            if taken_back:
                db.rewind(session, message)
                db.append_message(session, "user", f"{word} MARK{name} again")
                gone = db.append_message(session, "user", f"{word} MARKgone")
                db.rewind(session, gone)
        tool = SessionSearchTool(db)
        for name, other in ("ab", "ba"):
            answers = [tool.call({"query": query, "limit": 5}, people[name]), tool.call({}, people[name])]
            answers += [tool.call({"session_id": f"{who}"}, people[name]) for who in "ab"]
            answers += [
                tool.call({"session_id": "a", "around_message_id": number}, people[name])
                for number in range(1, 8)
            ]
            shown = "".join(answers)
            assert f"MARK{other}" not in shown
            assert f"TITLE{other}" not in shown
            assert "MARKgone" not in shown
            hits = db.past.search(query, user=people[name].owner, limit=50)
            assert all(re.search(f"MARK{name}", hit.text) for hit in hits)
        db.close()


@settings(
    max_examples=rounds(60), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    query=st.one_of(
        st.text(),
        st.lists(st.sampled_from([*WORDS, "(", ")", '"', "*", ":", "^", "{", "-", "NEAR"])).map(" ".join),
    )
)
def test_no_text_is_an_error(asked: SessionStore, query: str) -> None:
    asked.past.search(query)
    assert json.loads(SessionSearchTool(asked).call({"query": query}, Session("now")))["success"]
