"""Short form of the fuzzer of the fence."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from hermes_core.safety import fence

FUZZER = Path(__file__).parents[2] / "bench" / "fuzz_fence.py"


@pytest.fixture(scope="module")
def fuzzer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_fuzz_fence", FUZZER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def escapes(fuzzer: ModuleType, seed: int, steps: int) -> dict[str, list[str]]:
    generator = fuzzer.Generator(seed)
    texts = (generator.text() for _ in range(steps))
    return {text: broken for text in texts if (broken := fuzzer.escapes_of(text, generator))}


@pytest.mark.parametrize("seed", [20, 21])
def test_no_text_escapes(fuzzer: ModuleType, seed: int) -> None:
    assert escapes(fuzzer, seed, 150) == {}


def test_the_fuzzer_notices_a_fence_that_cleans_nothing(
    fuzzer: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fence, "sanitize_context", lambda text: text)
    assert escapes(fuzzer, 1, 20)
