from __future__ import annotations

import hashlib

import numpy as np
import pytest
from hermes_holographic import hrr

DIM = 1024


def test_an_atom_is_one_hash_and_the_same_in_every_process() -> None:
    assert hrr.atom("word:tea", 256).tobytes() == hashlib.shake_256(b"word:tea").digest(256)


def test_unrelated_vectors_differ_by_the_noise_that_theory_gives() -> None:
    base = hrr.atom("base", DIM)
    others = np.stack([hrr.atom(f"other {i}", DIM) for i in range(500)])
    z = hrr.z_score(hrr.similarity(others, base), DIM)
    assert abs(z.mean()) < 0.2
    assert z.std() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("size", [1, 4, 16])
def test_a_bundle_is_like_each_of_its_members(size: int) -> None:
    members = np.stack([hrr.atom(f"member {i}", DIM) for i in range(size)])
    whole = hrr.bundle(members)
    assert whole is not None
    found = hrr.similarity(members, whole)
    assert hrr.z_score(found, DIM).min() > hrr.SIGMAS
    assert found.mean() == pytest.approx(1.0 if size == 1 else 0.886 / size**0.5, abs=0.05)


def test_a_bundle_of_nothing_is_nothing() -> None:
    assert hrr.bundle([]) is None
    assert hrr.content_vector([], DIM) is None


def test_a_question_is_like_what_shares_its_heavy_words() -> None:
    tea, work = (hrr.content_vector(words, DIM) for words in (["mel", "tea"], ["mel", "work"]))
    assert tea is not None
    assert work is not None
    near, far = hrr.question_similarity({"mel": 0.5, "tea": 3.0}, np.stack([tea, work]), DIM)
    assert near > 2 * far > 0


def matrix(count: int) -> hrr.PhaseMatrix:
    whole = hrr.PhaseMatrix(DIM)
    for i in range(1, count + 1):
        phases = hrr.entity_vector([f"person {i % 50}", f"project {i % 7}"], DIM)
        assert phases is not None
        whole.put(i, phases)
    return whole


def test_the_matrix_finds_all_rows_of_an_entity_and_no_other() -> None:
    found = matrix(700).matches([hrr.entity_key("person 3", DIM)])
    assert sorted(found) == [i for i in range(1, 701) if i % 50 == 3]
    assert min(found.values()) > 20


def test_two_keys_find_what_holds_both() -> None:
    keys = [hrr.entity_key("person 3", DIM), hrr.entity_key("project 3", DIM)]
    assert sorted(matrix(700).matches(keys)) == [i for i in range(1, 701) if i % 50 == 3 and i % 7 == 3]


def test_an_unknown_key_finds_nothing() -> None:
    assert matrix(700).matches([hrr.entity_key("nobody", DIM)]) == {}


def test_more_is_asked_of_a_match_among_more_facts() -> None:
    assert matrix(1).threshold == hrr.SIGMAS
    assert hrr.SIGMAS < matrix(700).threshold < matrix(1400).threshold < 6.1


def test_chance_finds_nothing_among_twenty_thousand_facts() -> None:
    whole = hrr.PhaseMatrix(256)
    for i, row in enumerate(np.random.default_rng(0).integers(0, 256, (20_000, 256), dtype=np.uint8), 1):
        whole.put(i, row)
    assert not any(whole.matches([hrr.entity_key(f"nobody {i}", 256)]) for i in range(50))


def test_the_confidence_is_that_of_the_weakest_key() -> None:
    known, unknown = hrr.entity_key("person 3", DIM), hrr.entity_key("nobody", DIM)
    whole = matrix(10)
    assert whole.confidence([3], [known])[3] > 20
    assert whole.confidence([3], [known, unknown]) == whole.confidence([3], [unknown])


def test_a_row_that_was_dropped_or_replaced_is_not_found_again() -> None:
    whole = matrix(60)
    whole.drop(3)
    whole.drop(3)
    whole.put(53, hrr.atom("something else", DIM))
    assert whole.matches([hrr.entity_key("person 3", DIM)]) == {}
    assert len(whole) == 59


def test_an_empty_matrix_answers() -> None:
    assert hrr.PhaseMatrix(DIM).matches([hrr.entity_key("x", DIM)]) == {}
    assert hrr.PhaseMatrix(DIM).confidence([1], [hrr.entity_key("x", DIM)]) == {}


def test_a_fact_takes_a_kilobyte_of_memory_and_no_more_than_half_is_spare() -> None:
    assert matrix(2000).nbytes / 2000 < 1.6 * DIM


def test_the_screen_passes_over_nothing_that_the_cosine_would_find() -> None:
    """Bundles of 25 lie near the threshold: 8 sigma on average, scattered by 1."""
    whole = hrr.PhaseMatrix(DIM)
    for i in range(1, 301):
        phases = hrr.entity_vector(["sought", *(f"filler {i} {j}" for j in range(24))], DIM)
        assert phases is not None
        whole.put(i, phases)
    key = [hrr.entity_key("sought", DIM)]
    exact = {i: z for i, z in whole.confidence(range(1, 301), key).items() if z >= whole.threshold}
    assert whole.matches(key) == exact
    assert len(exact) > 280
