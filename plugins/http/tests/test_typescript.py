"""The client in TypeScript is made out of the document, and the service in Node of the documentation works with it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from hermes_core import open_memory
from hermes_memory_http.document import openapi_document
from plugins.http.tests.conftest import Serve, new_token

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "serve-over-http.md"
PACKAGES = ("openapi-fetch@0.17", "openapi-typescript@7", "typescript@5", "@types/node@20")

# The second piece comes only after the person has seen the first: the answer is shown while the model still speaks.
MAIN = """
import { answer, MemoryError } from "./chat.js";

let seen = (): void => undefined;
const first = new Promise<void>((resolve) => { seen = resolve; });

const shown: string[] = [];
const text = await answer("my-app:42", "chat/7", "We deploy billing to Frankfurt.", async function* (turn) {
  if (turn.tools.length === 0) throw new Error("no tools");
  yield "Noted: ";
  await first;
  yield "Frankfurt.";
}, (piece) => { shown.push(piece); seen(); });

let refused = "";
try {
  await answer("nobody", "chat", "Hello", async function* () { yield ""; }, () => undefined);
} catch (error) {
  if (error instanceof MemoryError) refused = error.message;
}

let recalled = "";
try {
  await answer("my-app:42", "chat/8", "Where do we deploy billing?", async function* (turn) {
    recalled = turn.context;
    yield "I ";
    throw new Error("the model failed");
  }, () => undefined);
} catch (error) {
  if (error instanceof MemoryError) throw error;
}
console.log(JSON.stringify({ text, shown, refused, recalled }));
"""

pytestmark = pytest.mark.real


def run(folder: Path, *words: str) -> str:
    program = shutil.which(words[0])
    if program is None:
        pytest.skip(f"{words[0]} is not installed")
    done = subprocess.run([program, *words[1:]], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of npm with the generated client and the service of the documentation."""
    folder = tmp_path_factory.mktemp("node")
    (folder / "package.json").write_text('{"type": "module"}')
    try:
        run(folder, "npm", "install", "--no-audit", "--no-fund", *PACKAGES)
    except AssertionError as exc:
        pytest.skip(f"npm can't install {PACKAGES[0]}: {str(exc)[-200:]}")
    (folder / "memory.json").write_text(json.dumps(openapi_document()))
    commands = re.findall(r"^npx (openapi-typescript .*|tsc .*)$", PAGE.read_text(encoding="utf-8"), re.M)
    service = re.search(r"```ts[^\n]*\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    assert service
    (folder / "chat.ts").write_text(service[1])
    (folder / "main.ts").write_text(MAIN)
    generate, check = (command.split() for command in commands)
    run(folder, "npx", *generate)
    run(folder, "npx", *check, "main.ts")
    return folder


def test_the_service_of_the_documentation_answers(
    project: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = serve()
    monkeypatch.setenv("MEMORY_URL", served.root)
    monkeypatch.setenv("MEMORY_TOKEN", new_token(served.home))
    result = json.loads(run(project, "node", "main.js"))
    assert (result["text"], "".join(result["shown"])) == ("Noted: Frankfurt.", "Noted: Frankfurt.")
    assert "is no id of a user or chat; write PLATFORM:USER_ID" in result["refused"]
    assert "Frankfurt" in result["recalled"]
    with open_memory(served.home) as memory:
        chat = memory.conversation("chat/7", platform="my-app", user_id="42")
        assert [message.content for message in chat.history()] == [
            "We deploy billing to Frankfurt.",
            "Noted: Frankfurt.",
        ]
        assert memory.sessions.get_messages("chat/8") == []
        assert memory.sessions.database.execute("SELECT count(*) FROM open_turns").fetchone()[0] == 0
    assert os.environ["MEMORY_TOKEN"] not in result["refused"]
