"""An import takes the whole lines of a file whose last line is torn, names the line, and ends with exit code 3."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hermes_core import open_memory
from hermes_core.cli import main
from hermes_core.errors import ImportFailed
from hermes_memory_importers import read_file

TORN = "it is no JSON, it is torn: the file ends within it"
TEXTS = [f"The kumquat number {number} grows in zone{number}, 部署." for number in range(6)]
MESSAGES = [
    {"session": "s", "role": "user" if at % 2 == 0 else "assistant", "content": text}
    for at, text in enumerate(TEXTS)
]
LINES = [json.dumps(message, ensure_ascii=False).encode() + b"\n" for message in MESSAGES]
WHOLE = b"".join(LINES)
# Within a name, a string, a letter of several bytes, between values, and before the last mark.
CUTS = [len(WHOLE) - len(LINES[-1]) + at for at in (1, 4, 12, 14, 30, 45)] + [
    WHOLE.rindex("署".encode()) + 1,
    len(WHOLE) - 2,
]


def run(home: Path, *words: str, typed: bytes = b"") -> Result:
    return CliRunner().invoke(main, ["--home", str(home), *words], input=typed)


def stored(home: Path, session_count: int = 1) -> list[str]:
    with open_memory(home, provider="") as memory:
        entries = memory.sessions.list_sessions()
        assert len(entries) == session_count
        return [message.content for message in memory.sessions.get_messages(entries[0].session.id)]


@pytest.mark.parametrize("cut", CUTS)
def test_whole_lines_are_taken(tmp_path: Path, cut: int) -> None:
    file, home = tmp_path / "chat.jsonl", tmp_path / "home"
    file.write_bytes(WHOLE[:cut])
    result = run(home, "import", str(file))
    assert result.exit_code == 3, result.output
    assert f"{TORN} (at line 6)" in " ".join(result.stderr.split())
    assert stored(home) == TEXTS[:5]
    file.write_bytes(WHOLE)
    assert run(home, "import", str(file)).exit_code == 0
    assert stored(home) == TEXTS


def test_a_last_line_without_an_end_is_whole(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_bytes(WHOLE[:-1])
    assert run(tmp_path / "home", "import", str(tmp_path / "chat.jsonl")).exit_code == 0


@pytest.mark.parametrize(
    "wrong", [b'{"session": oops}', b"not JSON", b'{"session": "s"} and more', b"\xff\xfe"]
)
def test_a_wrong_last_line_is_no_torn_one(tmp_path: Path, wrong: bytes) -> None:
    (tmp_path / "chat.jsonl").write_bytes(WHOLE + wrong)
    result = run(tmp_path / "home", "import", str(tmp_path / "chat.jsonl"))
    assert result.exit_code == 1
    assert TORN not in result.stderr


def test_a_torn_line_within_the_file_is_a_fault(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_bytes(LINES[0] + LINES[1][:20] + b"\n" + LINES[2])
    assert run(tmp_path / "home", "import", str(tmp_path / "chat.jsonl")).exit_code == 1


def test_reading_a_whole_file_refuses_a_torn_line(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl").write_bytes(WHOLE[:-5])
    with pytest.raises(ImportFailed, match=f"line 6: {TORN}"):
        read_file(tmp_path / "chat.jsonl")


def test_one_of_several_files_is_torn(tmp_path: Path) -> None:
    folder = tmp_path / "chats"
    folder.mkdir()
    (folder / "a.jsonl").write_bytes(WHOLE[:-5])
    (folder / "b.jsonl").write_bytes(WHOLE.replace(b'"s"', b'"t"'))
    result = run(tmp_path / "home", "import", str(folder))
    assert result.exit_code == 3
    assert "a.jsonl: line 6" in "".join(result.stderr.split("\n  ")).replace("\n", " ")


def test_standard_input_may_be_torn(tmp_path: Path) -> None:
    result = run(tmp_path / "home", "import", "-", typed=WHOLE[:-5])
    assert result.exit_code == 3
    assert stored(tmp_path / "home") == TEXTS[:5]


def test_the_content_of_a_packed_file_may_be_torn(tmp_path: Path) -> None:
    (tmp_path / "chat.jsonl.gz").write_bytes(gzip.compress(WHOLE[:-5]))
    assert run(tmp_path / "home", "import", str(tmp_path / "chat.jsonl.gz")).exit_code == 3
    assert stored(tmp_path / "home") == TEXTS[:5]


def packed(form: str, data: bytes) -> bytes:
    if form == "gz":
        return gzip.compress(data)
    zstandard = pytest.importorskip("zstandard")
    # Small blocks, of which each can be read when it is whole.
    packer = zstandard.ZstdCompressor().compressobj()
    lines = data.splitlines(keepends=True)
    pieces = [packer.compress(line) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK) for line in lines]
    return b"".join([*pieces, packer.flush()])


@pytest.mark.parametrize("form", ["gz", "zst"])
def test_whole_lines_of_a_packed_file_that_is_cut_off_are_taken(tmp_path: Path, form: str) -> None:
    """Whatever the cut leaves of the content, all its whole lines are stored, and the last is named."""
    file, whole = tmp_path / f"chat.jsonl.{form}", packed(form, WHOLE)
    for cut in range(len(whole) - 12, len(whole)):
        file.write_bytes(whole[:cut])
        result = run(home := tmp_path / f"home {cut}", "import", str(file))
        assert result.exit_code == 3, result.output
        texts = stored(home)
        assert texts == TEXTS[: len(texts)]
        assert f"line {len(texts)}" in result.stderr or f"line {len(texts) + 1}" in result.stderr
        assert len(result.stderr.split(" x ")) == 2, result.stderr
    with pytest.raises(ImportFailed, match="line 6: the packed file is cut off"):
        read_file(file)


def test_a_packed_list_that_is_cut_off_says_so(tmp_path: Path) -> None:
    file = tmp_path / "conversations.json.gz"
    file.write_bytes(
        gzip.compress(json.dumps([{"mapping": {}, "title": text} for text in TEXTS]).encode())[:-30]
    )
    result = run(tmp_path / "home", "import", str(file))
    assert result.exit_code == 1
    assert "the packed file is cut off" in " ".join(result.stderr.split())


@pytest.mark.parametrize("size", [3, 12])
def test_a_packed_file_of_which_nothing_can_be_read_is_refused(tmp_path: Path, size: int) -> None:
    file = tmp_path / "chat.jsonl.gz"
    file.write_bytes(gzip.compress(WHOLE)[:size])
    result = run(tmp_path / "home", "import", str(file))
    assert result.exit_code == 1
    assert not (tmp_path / "home").exists()


def test_a_torn_line_of_a_batch_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    lines = b'{"query": "kumquat"}\n{"query": "zo'
    result = run(tmp_path / "home", "recall", "--batch", typed=lines)
    assert result.exit_code == 3, result.output
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert "query" in answers[0]
    assert f"line 2: {TORN}" in answers[1]["error"]
    assert "line 2" in result.stderr
    wrong = run(tmp_path / "home", "recall", "--batch", typed=b'{"query": "kumquat"}\n{"query": 5}')
    assert wrong.exit_code == 1


@pytest.mark.parametrize("options", [(), ("--json",)])
def test_an_export_of_sessions_may_be_torn(tmp_path: Path, options: tuple[str, ...]) -> None:
    home, file = tmp_path / "home", tmp_path / "sessions.jsonl"
    with open_memory(home, provider="") as memory:
        for name in ("one", "two"):
            memory.sessions.create_session(name)
            memory.sessions.append_message(name, "user", TEXTS[0])
    assert run(home, "sessions", "export", "--all", "--output", str(file)).exit_code == 0
    documents = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    exported = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in documents).encode()
    for cut in (exported[:-20], exported[: exported.rindex("署".encode()) + 1]):
        file.write_bytes(cut)
        other = tmp_path / f"other {len(cut)}"
        result = run(other, "sessions", "import", str(file), *options)
        assert result.exit_code == 3, result.output
        assert f"line 2: {TORN}" in " ".join(result.stderr.split())
        assert len(stored(other)) == 1
