"""The fit of weights reads the signals of our own ranking, so it has to follow when the ranking changes."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"
QUESTIONS = (
    ("When did Ann paint the wall at number3?", "D1:3"),
    ("How many lamps did Bob buy for number4?", "D1:4"),
    ("What is my --verbose flag of number5?", "D1:5"),
)


@pytest.fixture
def fit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    pytest.importorskip("numpy")
    monkeypatch.syspath_prepend(BENCH)
    return importlib.import_module("recall_fit")


@pytest.fixture
def chat(tmp_path: Path) -> Path:
    """A conversation in which each constant has something to weigh: people, dates, numbers and question marks."""
    lines = [
        {
            "speaker": ("Ann", "Bob")[i % 2],
            "dia_id": f"D1:{i}",
            "text": f"Yesterday I painted the wall and {i} lamps at number{i} --verbose{'?' if i % 3 else '.'}",
        }
        for i in range(30)
    ]
    questions = [{"question": text, "evidence": [ref], "category": 4} for text, ref in QUESTIONS]
    data = {
        "sample_id": "x",
        "conversation": {
            "speaker_a": "Ann",
            "speaker_b": "Bob",
            "session_1": lines,
            "session_1_date_time": "1:56 pm on 8 May, 2023",
        },
        "qa": questions,
    }
    path = tmp_path / "chat.json"
    path.write_text(json.dumps([data]))
    return path


@pytest.mark.parametrize("semantic", [False, True])
def test_a_score_is_the_sum_of_its_signals_times_their_constants(
    fit: ModuleType, chat: Path, tmp_path: Path, semantic: bool
) -> None:
    """The constants are changed in the ranking and in the sum, which must agree for every candidate."""
    import numpy

    if semantic and not fit.dense.installed():
        pytest.skip("hermes-memory-semantic is not installed")
    names = [*fit.OF_RANKING, *(fit.OF_VECTORS if semantic else ())]
    (tmp_path / "panel").mkdir()
    (data,) = fit.read_panel(tmp_path / "panel", [chat])
    with fit.stored(data.conversations[0], tmp_path, semantic=semantic) as db:
        for question in data.questions:
            pool = fit.pool_of(db, question, "chat, words", names)
            assert pool.relevant.sum() == 1
            for name, step in zip(names, numpy.linspace(-0.4, 0.7, len(names)), strict=True):
                weights = fit.current(names)
                weights[names.index(name)] += step
                with fit.changed(name, step):
                    (scores,) = fit.scores(db, question.text)
                sums = pool.fixed + pool.signals @ weights
                assert sorted(scores.values()) == pytest.approx(sorted(sums), abs=1e-6)


def test_a_fit_raises_the_likelihood_of_the_evidence_and_leaves_a_silent_constant(fit: ModuleType) -> None:
    import numpy

    chance = numpy.random.default_rng(0)
    pools = []
    for number in range(60):
        signals = chance.normal(size=(40, 3))
        signals[:, 2] = 0.0
        best = int(numpy.argmax(2 * signals[:, 0] - signals[:, 1] + chance.gumbel(size=40)))
        relevant = numpy.arange(40) == best
        pools.append(fit.Pool(f"set{number % 2}, words", False, 1, relevant, signals, numpy.zeros(40)))
    start = numpy.array([0.0, 0.0, 0.9])
    weights = fit.fit(pools, start, ridge=0.01)

    assert weights[0] == pytest.approx(2.0, abs=0.6)
    assert weights[1] == pytest.approx(-1.0, abs=0.5)
    assert weights[2] == pytest.approx(0.9)
    before, after = (fit.recalls(pools, values)["set0, words"] for values in (start, weights))
    assert after > before
