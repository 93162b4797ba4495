"""Run providers published for Hermes Agent, as they are, through a whole life: `python bench/published.py [NAME ...]`.

Each package gets an environment, a HOME and a HERMES_HOME of its own, with this project and without hermes-agent.
The life: load, is_available, initialize, schemas, sync_turn, prefetch, tools, on_memory_write, on_session_end,
shutdown, then a fresh object. The table says where the planted word came back:
S after sync_turn, T after tools, E after on_session_end, R in a fresh object under another session id, r under the
same one, V through a tool. It needs the network (pip) and no key.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
WORD = "Biscuit"
USER = f"Please remember that my dog is called {WORD} and that our database is PostgreSQL 16."
ANSWER = f"I will remember that your dog is called {WORD} and that you use PostgreSQL 16."
WAIT = 6.0


@dataclass(frozen=True)
class Package:
    """How to get one package: what pip installs, what makes its folder, and what is to be seen."""

    name: str
    pip: tuple[str, ...]
    expect: str
    no_deps: bool = False
    installer: tuple[str, ...] = ()
    setup: tuple[str, ...] = ()
    copy: str = ""
    config: str = ""
    secrets: str = ""


CORPUS = (
    Package("hermes-okf", ("hermes-okf==0.5.9",), "ERr"),
    Package(
        "llmwiki",
        ("hermes-llmwiki==0.1.1", "PyYAML"),
        "V",
        config="memory:\n  llmwiki:\n    vault_path: {home}/vault\n",
    ),
    Package("nyx", ("nyx-memory==7.16.0",), "STERrV"),
    Package(
        "mnemosyne",
        ("mnemosyne-hermes==0.7.6", "mnemosyne-memory==4.0.0b6", "PyYAML"),
        "STERrV",
        no_deps=True,
    ),
    Package("memex", ("memex-hermes==0.2.2",), "STERrV"),
    Package(
        "yantrikdb",
        ("yantrikdb-hermes-plugin==0.27.1", "yantrikdb==0.23.2"),
        "STRrV",
        installer=("yantrikdb-hermes", "install"),
    ),
    Package(
        "knos",
        # Its storage client wants an account since 0.9.
        ("knos-hermes==0.1.0", "knos==0.1.1", "sibyl-memory-client<0.9"),
        "TERrV",
        installer=("knos-hermes",),
        setup=("knos", "point", "."),
    ),
    Package(
        "tabularius",
        ("tabularius==1.0.0",),
        "V",
        copy="tabularius",
        # Its relay is asked by a hook that may fail; its tools work without.
        secrets="TABULARIUS_API_KEY=none\nTABULARIUS_BASE_URL=http://127.0.0.1:9/v1\n",
    ),
    Package("betterdb", ("betterdb-hermes-memory==0.1.0",), "loads, unavailable"),
    Package("libravdb", ("hermes-memory-libravdb==0.7.0",), "loads"),
    Package("remnic", ("remnic-hermes==1.0.10",), "loads", copy="remnic_hermes"),
    Package("membase", ("hermes-membase==0.2.0",), "loads", installer=("hermes-membase-install",)),
    Package("loci", ("mowave-loci==0.1.0",), "no provider", copy="loci/adapters/hermes_plugin"),
)


def main() -> int:
    """Run the packages named on the command line, or all, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="names of the corpus, or none for all")
    parser.add_argument("--life", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument(
        "--pip", nargs="*", default=[], help="run one package outside the corpus: what to install"
    )
    parser.add_argument("--keep", type=Path, help="keep environments here, to run again quickly")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if options.life:
        print("\n" + json.dumps(run_life(options.life)))
        return 0
    packages = [p for p in CORPUS if not options.names or p.name in options.names]
    if options.pip:
        packages = [Package(options.names[0], tuple(options.pip), "?")]
    results = [run_package(package, options.keep) for package in packages]
    print(json.dumps(results, indent=2) if options.json else table(results))
    return 0


def run_package(package: Package, keep: Path | None) -> dict[str, Any]:
    """Install one package into an environment of its own and run its life in a process of its own."""
    print(f"{package.name} ...", file=sys.stderr, flush=True)
    with at_home(package, keep) as (environment, home, env):
        try:
            return {
                "expect": package.expect,
                **life_of(package, prepare(package, environment, home, env), env),
            }
        except subprocess.CalledProcessError as exc:
            output = (exc.stderr or exc.stdout or "").strip().splitlines()
            return {
                "name": package.name,
                "expect": package.expect,
                "error": f"install: {(output or [''])[-1]}",
            }


@contextmanager
def at_home(package: Package, keep: Path | None) -> Iterator[tuple[Path, Path, dict[str, str]]]:
    """The folder of the package's environment, a home of its own, and the variables that its processes have."""
    with tempfile.TemporaryDirectory(prefix="hermes-published-") as folder:
        environment = (keep or Path(folder)) / package.name
        user = Path(folder, "user")
        home = user / ".hermes"
        home.mkdir(parents=True)
        programs = f"{environment / 'bin'}{os.pathsep}{os.environ['PATH']}"
        yield environment, home, {"PATH": programs, "HOME": str(user), "LANG": "C.UTF-8"}


def prepare(package: Package, environment: Path, home: Path, env: dict[str, str]) -> Path:
    """Make the environment and what the package puts below the home; return its interpreter."""
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    if python.exists():
        quiet_run([*pip, "--no-deps", "--force-reinstall", str(ROOT)])
    else:
        venv.create(environment, with_pip=True)
        quiet_run([*pip, f"{ROOT}[agent]"])
        quiet_run([*pip, *(["--no-deps"] if package.no_deps else []), *package.pip])
    if package.config:
        (home / "vault").mkdir()
        (home / "config.yaml").write_text(package.config.format(home=home))
    if package.secrets:
        (home / ".env").write_text(package.secrets)
        (home / ".env").chmod(0o600)
    if package.installer:
        program, *arguments = package.installer
        quiet_run([str(environment / "bin" / program), *arguments], {**env, "HERMES_HOME": str(home)})
    if package.copy:
        (found,) = environment.glob(f"lib/python*/site-packages/{package.copy}")
        (home / "plugins").mkdir(exist_ok=True)
        (home / "plugins" / package.name).symlink_to(found)
    return python


def quiet_run(command: list[str], env: dict[str, str] | None = None, folder: Path | None = None) -> None:
    """Run a command that must succeed."""
    subprocess.run(command, check=True, capture_output=True, text=True, env=env, cwd=folder, timeout=900)


def life_of(package: Package, python: Path, env: dict[str, str]) -> dict[str, Any]:
    """What the child process found; its last line is JSON."""
    work = Path(env["HOME"], "work")
    quiet_run(["git", "init", "--quiet", str(work)])
    (work / "README.md").write_text("# A project\n")
    if package.setup:
        program, *arguments = package.setup
        quiet_run([str(python.parent / program), *arguments], env, work)
    command = [str(python), "-P", str(Path(__file__).resolve()), "--life", package.name]
    try:
        done = subprocess.run(
            command, env=env, cwd=work, capture_output=True, text=True, timeout=300, check=False
        )
    except subprocess.TimeoutExpired:
        return {"name": package.name, "error": "the life took more than 300 s"}
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        return {"name": package.name, "error": f"exit {done.returncode}: {done.stderr.strip()[-300:]}"}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


# ------------------------------------------------------------------------------------------------- inside the child


class SessionLifecycle:
    """One provider's life, with a note of what raised and where the word came back."""

    def __init__(self, name: str) -> None:
        from hermes_core.contract.values import Session
        from hermes_core.home import HermesHome

        self.home = HermesHome.resolve()
        self.session = Session("session-one", home=str(self.home.path))
        self.seen = ""
        self.result: dict[str, Any] = {"name": name, "raised": {}}
        self.provider: Any = None

    def hook(self, name: str, **given: Any) -> Any:
        """Call one hook with the arguments that it names; a hook that is not there is nothing."""
        method = getattr(self.provider, name, None)
        if method is None:
            return None
        names = inspect.signature(method).parameters
        with self.noting(name):
            return method(**{key: value for key, value in given.items() if key in names})
        return None

    @contextmanager
    def noting(self, step: str) -> Iterator[None]:
        """Note what this step raises."""
        try:
            yield
        except Exception as exc:  # noqa: BLE001 - a report on strangers' code
            self.result["raised"].setdefault(step, f"{type(exc).__name__}: {exc}"[:120])

    def recalls(self, mark: str, session: Any, wait: float = WAIT) -> None:
        """Ask until the word comes back or the wait is over."""
        from hermes_core.contract.values import Query

        end = time.monotonic() + wait
        while mark not in self.seen:
            for text in ("What is the name of my dog?", f"dog {WORD}"):
                found = self.hook("prefetch", query=Query(text), session=session)
                if found and WORD in found.text and mark not in self.seen:
                    self.seen += mark
            if time.monotonic() > end:
                break
            time.sleep(0.5)

    def use_tools(self) -> None:
        """Call every tool, those that write before those that read, with arguments made from its schema."""
        from hermes_core.contract.values import ToolCall

        schemas = self.hook("get_tool_schemas") or []
        self.result["tools"] = len(schemas)
        for schema in sorted(schemas, key=lambda s: not writes(s["name"])):
            if any(word in schema["name"] for word in ("forget", "delete", "reset", "clear", "purge")):
                continue
            call = ToolCall(schema["name"], arguments(schema, USER if writes(schema["name"]) else WORD))
            answer = self.hook("handle_tool_call", call=call, session=self.session) or ""
            if not writes(schema["name"]) and WORD in answer and "V" not in self.seen:
                self.seen += "V"


def run_life(name: str) -> dict[str, Any]:
    """Load the provider called `name` and take it through its life."""
    from hermes_core.contract.values import MemoryWrite, Session, Turn
    from hermes_core.errors import ProviderError
    from hermes_core.loader.load import load_provider

    life = SessionLifecycle(name)
    try:
        loaded = load_provider(name, life.home)
    except ProviderError as exc:
        return {**life.result, "error": str(exc)}
    life.result.update(source=loaded.entry.source, notes=len(loaded.notes))
    life.provider = loaded.factory()
    available = life.hook("is_available")
    life.result["available"] = bool(available) or f"no: {getattr(available, 'reason', '')}"[:60]
    life.hook("get_tool_schemas")
    started = time.monotonic()
    life.hook("initialize", session=life.session)
    life.result["initialize"] = round(time.monotonic() - started, 1)
    if "initialize" in life.result["raised"]:
        return life.result
    life.hook("system_prompt_block", session=life.session)
    messages = ({"role": "user", "content": USER}, {"role": "assistant", "content": ANSWER})
    life.hook("on_turn_start", turn_number=1, message=USER, session=life.session)
    life.hook("sync_turn", turn=Turn("turn-1", 1, USER, ANSWER, messages), session=life.session)
    life.recalls("S", life.session)
    life.use_tools()
    life.recalls("T", life.session)
    write = MemoryWrite("w1", "add", "user", f"The user's dog is called {WORD}.")
    life.hook("on_memory_write", write=write, session=life.session)
    life.hook("on_session_end", reader=Transcript(messages), reason="close", session=life.session)
    life.recalls("E", life.session)
    life.hook("shutdown")
    for mark, session in (("R", Session("session-two", home=life.session.home)), ("r", life.session)):
        with life.noting("factory"):
            life.provider = loaded.factory()
            life.hook("initialize", session=session)
            life.recalls(mark, session)
            life.hook("shutdown")
    return {**life.result, "seen": life.seen}


class Transcript:
    """Reads the one session of this life."""

    def __init__(self, messages: Any) -> None:
        self._messages = messages

    def messages(self) -> Any:
        """Its messages."""
        return self._messages


def writes(tool: str) -> bool:
    """Whether a tool's name says that it stores something."""
    words = (
        "remember",
        "write",
        "add",
        "store",
        "append",
        "create",
        "save",
        "retain",
        "note",
        "record",
        "log",
        "keep",
    )
    return any(word in tool.lower() for word in words)


def arguments(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Arguments for a tool: its required parameters, or its texts when it requires none."""
    properties = schema["parameters"].get("properties") or {}
    required = schema["parameters"].get("required") or [
        key for key, value in properties.items() if value.get("type") == "string"
    ]
    return {key: example(properties.get(key) or {}, text, key) for key in required}


NAMED = {"path": "notes/dog.md", "file": "notes/dog.md", "title": "dog", "name": "dog", "entity": "dog"}
"""What parameters of these names are given: the same when something is written and when it is read."""


def example(schema: dict[str, Any], text: str, name: str = "") -> Any:
    """A value for one parameter."""
    if schema.get("enum"):
        return schema["enum"][0]
    if schema.get("type") == "string" and name in NAMED:
        return NAMED[name]
    kinds: dict[str, Any] = {"integer": 3, "number": 0.5, "boolean": False, "array": [text], "object": {}}
    kind = schema.get("type")
    return kinds.get(kind, text) if isinstance(kind, str) else text


def table(results: list[dict[str, Any]]) -> str:
    """The results for people."""
    lines = [f"{'package':12} {'expected':20} {'recall':8} {'init s':7} {'tools':6} what happened"]
    for result in results:
        raised = "; ".join(f"{step}: {what}" for step, what in result.get("raised", {}).items())
        available = result.get("available")
        said = result.get("error") or raised or (available if isinstance(available, str) else "ok")
        lines.append(
            f"{result['name']:12} {result['expect']:20} {result.get('seen', '-'):8} "
            f"{result.get('initialize', '-')!s:7} {result.get('tools', '-')!s:6} {said}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
