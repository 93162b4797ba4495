"""Try providers published for Hermes Agent in this host: `python bench/published.py [WHAT ...]`.

WHAT is a package on the index (`hermes-okf`, `hermes-okf==0.5.9`), a public repository (`owner/name`), or a folder; without
it, the packages and repositories below, and the providers that hermes-agent itself has. Each gets packages, a HOME and a
HERMES_HOME of its own, with this project and without hermes-agent. The table says of each: does it load, does it live (two
turns delivered, recall or none declared, a tool, the end, shutdown within 15 s), or is it degraded, and by what cause. It
needs the network (pip, git) and no key.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import yaml
from published_corpus import CORPUS, OURS, Package, quiet_run

LIFE = Path(__file__).with_name("published_life.py")
STAND_INS = Path(__file__).with_name("stand_ins")
HOST = "hermes-agent==0.19.0"
"""Its own providers, copied as folders, are tried too."""

PACKAGES = (
    *("agentic-memory-hermes", "atomicmemory-hermes", "augmem-hermes", "betterdb-hermes-memory", "chronalyn"),
    *("cognee-integration-hermes-agent", "fragmented-memory", "harness-memory-hermes", "hermes-brain-memory"),
    *("hermes-cashew", "hermes-hy-memory", "hermes-itsuki", "hermes-kiokuko", "hermes-llmwiki"),
    *("hermes-local-memory", "hermes-local-rag", "hermes-maximem-vity", "hermes-memanto", "hermes-membase"),
    *("hermes-memori", "hermes-memory-libravdb", "hermes-memory-metronix", "hermes-memory-pgvector"),
    *("hermes-memoryrouter", "hermes-memra", "hermes-mnemostack", "hermes-mongodb-memory", "hermes-next"),
    *("hermes-nexusyn", "hermes-okf", "hermes-plugin-qdrant-memory", "hermes-scope-recall"),
    *("hermes-semantic-memory", "hermes-tiered-memory", "hermes-xmemo", "hexus", "hologram-cognitive"),
    *("hyatlas-memory", "hydradb-hermes", "keepsake-memory", "knos-hermes", "memex-hermes"),
    *("memorylake-hermes", "mnemosyne-hermes", "nyx-memory", "plur-hermes", "protagine-hermes"),
    *("recall-memory-hermes", "remnic-hermes", "rushdb-hermes-memory", "sibyl-memory-hermes"),
    *("sonzai-hermes", "spectron-hermes", "tabularius", "verbatim-memory", "yantrikdb-hermes-plugin"),
)
REPOSITORIES = (
    *("BrightCollage/hermes-gbrain-memory-plugin", "JimJafar/the-librarian-hermes-plugin"),
    *("Jnocode/recall-memory-hermes", "Lsamien/hermes-local-memory-provider"),
    *("MrLuciano/ai-memory-hermes-plugin", "ProjetoLabo/hermes-ltm-memory-provider"),
    *("TheophilusChinomona/hermes-memory-lancedb", "ai-akashic/hermes-memorose-plugin"),
    *("andreab67/hermes-memory-pgvector", "arxeme/hermes-memo"),
    *("deuriib/hermes-memory-providers", "iamfoz/hermes-memory-lancedb-pro"),
    *("iggut/hermes-mempalace-plugin", "kai123-clude/hermes-jiuwenmemory-plugin"),
    *("kosmo888/hermes-mem0-oss", "liuzexin086-bit/magma-hermes-provider"),
    *("rarf/optmem-hermes-plugin", "sam7894604/hermes-plugin-mem4"),
    *("strueman/holographic-memory-plugin", "turbo998/hermes-foundry-memory-plugin"),
    *("usememra/hermes-memra", "wangpy1489/hermes-memory-gbrain"),
)
# They pull in gigabytes, and no provider needs them to load.
HEAVY = (
    "torch",
    "sentence-transformers",
    "transformers",
    "onnxruntime",
    "spacy",
    "faiss-cpu",
    "hermes-agent",
)
# What they need beside the package itself.
NEEDS = (
    Package(
        "hermes-local-memory",
        ("hermes-local-memory",),
        "",
        installer=("hermes-local-memory", "install-shim", "--hermes-home", "{home}"),
    ),
    Package(
        "hermes-scope-recall",
        ("hermes-scope-recall",),
        "",
        setup=(
            *("{python}", "-P", "{site}/bin/scope-recall", "apply-install", "--host", "hermes"),
            *("--target-plugin-dir", "{home}/plugins/scope-recall", "--instance-root", "{home}"),
            *("--project-root", "{work}", "--agent-id", "default", "--python", "{python}"),
        ),
    ),
    Package(
        "turbo998/hermes-foundry-memory-plugin",
        (),
        "",
        secrets="FOUNDRY_ENDPOINT=https://foundry.invalid/api/projects/p\n",
    ),
)
# They embed texts with a model of sentence-transformers, which is downloaded; a stand-in takes its place.
EMBED = ("hermes-semantic-memory", "iamfoz/hermes-memory-lancedb-pro")
# What providers that recall nothing do not say themselves. Each was driven with a stand-in of its service, or by hand.
CAUSES = {
    "hermes-membase": "its cloud wants a login (hermes-membase login), and its recall is off unless autoRecall is set",
    "hologram-cognitive": "its free edition recalls files of the project and no conversations",
    "protagine-hermes": "its server at 127.0.0.1:7777 is not here, which it does not report",
    "verbatim-memory": "it captures nothing unless capture.enabled is set, and then each claim waits for a review",
}
REGISTERS = re.compile(r"register_memory_provider|^class \w*\([^)]*MemoryProvider", re.MULTILINE)
MISSING = re.compile(r"needs the module '([\w.]+)', which is not installed")
MENTIONS = re.compile(r"memory_provider|MemoryProvider")
SLOW = "has not ended after"
LIFE_TIMEOUT_S, PIP_TIMEOUT_S = 240, 300


@dataclass(frozen=True)
class Case:
    """A provider to try: a `folder`, or else the `package` that pip installs."""

    name: str
    folder: Path | None = None
    package: str = ""

    @property
    def distribution(self) -> str:
        """The package without its version."""
        return re.split(r"[\s=<>!\[]", self.package, maxsplit=1)[0]


def main() -> int:
    """Try what the command line names and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "what", nargs="*", help="packages, owner/name of repositories, folders; or none for all"
    )
    parser.add_argument("--keep", type=Path, help="keep environments here, to run again quickly")
    parser.add_argument("--jobs", type=int, default=2, help="providers that are tried at once")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hermes-published-") as folder:
        root = (options.keep or Path(folder)).absolute()
        python = base_environment(root)
        cases = [
            case for what in options.what or (HOST, *PACKAGES, *REPOSITORIES) for case in cases_of(what, root)
        ]
        with ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(lambda case: result_of(case, root, python), cases))
    print(json.dumps(results, indent=2) if options.json else table(results))
    return 0


def base_environment(root: Path) -> Path:
    """Make the environment with this project alone, which all cases share; return its interpreter."""
    python = root / "base" / "bin" / "python"
    if not python.exists():
        venv.create(root / "base", with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    quiet_run([*pip, *OURS])
    quiet_run([*pip, "--no-deps", "--force-reinstall", *OURS])
    return python


def cases_of(what: str, root: Path) -> Iterator[Case]:
    """Yield the providers of a folder, of a repository, of hermes-agent, or of a package."""
    if Path(what).is_dir():
        yield from folder_cases(Path(what).name, Path(what).absolute())
    elif re.fullmatch(r"[\w.-]+/[\w.-]+", what):
        clone = root / "repositories" / what.replace("/", "+")
        if not clone.exists():
            try:
                quiet_run(
                    ["git", "clone", "--quiet", "--depth", "1", f"https://github.com/{what}", str(clone)]
                )
            except subprocess.SubprocessError:
                print(f"{what}: can't be cloned", file=sys.stderr)
                return
        yield from folder_cases(what, clone)
    elif what.startswith("hermes-agent"):
        target = root / "hermes-agent"
        if not target.exists():
            pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target)]
            quiet_run([*pip, what])
        for folder in sorted((target / "plugins" / "memory").iterdir()):
            if (folder / "__init__.py").is_file():
                yield Case(f"{what}: {folder.name}", folder)
    else:
        yield Case(what, package=what)


def folder_cases(name: str, root: Path) -> Iterator[Case]:
    """Yield the provider folders below a folder; of two that contain each other, the one with plugin.yaml."""
    folders = provider_folders(root)
    for folder in folders:
        yield Case(name if len(folders) == 1 else f"{name}: {folder.name}", folder)
    if not folders:
        print(f"{name}: no folder registers a provider", file=sys.stderr)


def provider_folders(root: Path) -> list[Path]:
    """Return the packages whose own files register a provider, those with plugin.yaml if there are any."""
    codes = [path for path in sorted(root.rglob("__init__.py")) if not {"tests", "test"} & set(path.parts)]
    folders = [path.parent for path in codes if registers(path.parent)]
    declared = [folder for folder in folders if (folder / "plugin.yaml").is_file()]
    chosen = declared or [folder for folder in folders if REGISTERS.search(read(folder / "__init__.py"))]
    return [folder for folder in chosen if not any(other in folder.parents for other in chosen)]


def registers(folder: Path) -> bool:
    """Return True if a file of this folder registers a provider; with plugin.yaml it need only speak of one."""
    pattern = MENTIONS if (folder / "plugin.yaml").is_file() else REGISTERS
    return any(pattern.search(read(path)) for path in folder.glob("*.py"))


def defines_register(text: str) -> bool:
    """Return True if a source has a function `register` of its own; some have one in a text that they write."""
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return False
    return any(isinstance(node, ast.FunctionDef) and node.name == "register" for node in body)


def read(path: Path) -> str:
    """Return the text of a source."""
    return path.read_text(encoding="utf-8-sig", errors="replace")


def register_module(site: Path, name: str) -> str:
    """Return the module of a package that has a `register(ctx)` for a provider, "" if there is none."""
    for distribution in distributions(path=[str(site)]):
        if normalised(distribution.metadata["Name"]) == normalised(name):
            for file in distribution.files or ():
                text = (
                    read(site / str(file)) if str(file).endswith(".py") and "tests" not in str(file) else ""
                )
                if "register_memory_provider(" in text and defines_register(text):
                    return ".".join(Path(str(file)).with_suffix("").parts).removesuffix(".__init__")
    return ""


def result_of(case: Case, root: Path, python: Path) -> dict[str, Any]:
    """Try one provider; what this script itself can't do is told in the table, and the others are tried."""
    try:
        return try_case(case, root, python)
    except (OSError, ValueError, LookupError, TypeError, subprocess.SubprocessError) as exc:
        return {"name": case.name, "loads": False, "reason": f"this script: {type(exc).__name__}: {exc}"}


def try_case(case: Case, root: Path, python: Path) -> dict[str, Any]:
    """Prepare one provider and run its life in a process of its own."""
    print(f"{case.name} ...", file=sys.stderr, flush=True)
    site = root / "sites" / re.sub(r"\W+", "-", case.name)
    notes = ["with a stand-in of sentence-transformers"] if case.name in EMBED else []
    try:
        if case.package:
            install(python, site, [case.package], "--no-deps")
            install_requirements(python, site, package_requirements(site, case.distribution), notes)
        elif case.folder is not None:
            install_requirements(python, site, folder_requirements(case.folder), notes)
    except subprocess.SubprocessError as exc:
        return {"name": case.name, "loads": False, "reason": f"pip: {last_line(exc)}", "installed": False}
    with tempfile.TemporaryDirectory(prefix="hermes-home-") as folder:
        surroundings = Surroundings(case, Path(folder), site, python)
        result = surroundings.live()
        if SLOW in str(result.get("reason")):
            result = surroundings.live()  # a first import of hundreds of megabytes, on a machine that is busy
        while missing := MISSING.search(str(result.get("reason"))):
            module = missing.group(1).partition(".")[0]
            if f"it does not declare {module}" in notes:
                break
            # The remedy that the host names; Hermes Agent has many of these packages itself.
            notes.append(f"it does not declare {module}")
            install_requirements(python, site, [module], notes)
            result = surroundings.live()
    result = {"name": case.name, "notes": notes, **result}
    print(table([result]).splitlines()[1], file=sys.stderr, flush=True)
    return result


class Surroundings:
    """The home, the HOME and the process of one provider."""

    def __init__(self, case: Case, user: Path, site: Path, python: Path) -> None:
        self.case, self.user, self.site, self.python = case, user, site, python
        self.home, self.work = user / ".hermes", user / "work"
        self.home.mkdir()
        quiet_run(["git", "init", "--quiet", str(self.work)])
        (self.work / "README.md").write_text("# A project\n")
        path = os.pathsep.join((str(site / "bin"), str(python.parent), os.environ["PATH"]))
        modules = os.pathsep.join((str(site), *([str(STAND_INS)] if case.name in EMBED else [])))
        self.env = {"PATH": path, "HOME": str(user), "LANG": "C.UTF-8", "PYTHONPATH": modules}

    def live(self) -> dict[str, Any]:
        """Put the provider where the host finds it, name it in config.yaml, and run its life."""
        case, known = self.case, needs_of(self.case)
        folder, names = case.folder, []
        if case.package:
            names = self._run("names", case.distribution).get("names") or []
            if not names:
                places = own_folders(self.site, case.distribution)
                folder = places[0] if places else self._shim()
            if not names and folder is None and known and known.installer:
                names = self._installed(known)
            if not names and folder is None:
                return {"loads": False, "reason": "the package has neither an entry point nor a folder"}
        name = names[0] if names else self._copied(folder)
        self._configure(name, known)
        return {"provider": name, **self._run("life")}

    def _shim(self) -> Path | None:
        """Write the plugin folder with one line that installers of some packages write."""
        module = register_module(self.site, self.case.distribution)
        if not module:
            return None
        folder = self.user / self.case.distribution
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text(f"from {module} import register  # a MemoryProvider\n")
        return folder

    def _installed(self, known: Package) -> list[str]:
        """Let the package install its plugin folder; return what selects it."""
        program, *words = known.installer
        command = [str(self.python), str(self.site / "bin" / program)]
        quiet_run([*command, *(word.format(home=self.home) for word in words)], self.env, self.work)
        return [f"folder:{path.parent.name}" for path in self.home.glob("plugins/*/__init__.py")]

    def _copied(self, folder: Path | None) -> str:
        """Copy a provider folder into the home; return what selects it."""
        assert folder is not None
        name = str(manifest_of(folder).get("name") or folder.name)
        name = re.sub(r"[^\w.-]", "-", folder.name if "/" in name else name).lstrip("_.")
        skipped = shutil.ignore_patterns(".git", "__pycache__", "node_modules", ".venv")
        copy = self.home / "plugins" / name
        shutil.copytree(folder, copy, ignore=skipped, symlinks=True, dirs_exist_ok=True)
        code = copy / "__init__.py"
        others = [path for path in copy.glob("*.py") if path != code and defines_register(read(path))]
        if len(others) == 1 and all(isinstance(node, ast.Expr) for node in ast.parse(read(code)).body):
            others[0].replace(code)  # an installer renames the file, which can't be imported without its host
        return f"folder:{name}"

    def _configure(self, name: str, known: Package | None) -> None:
        config = known.config.format(home=self.home) if known else ""
        if config:
            (self.home / "vault").mkdir(exist_ok=True)
        blocks = yaml.safe_load(config) or {}
        blocks.setdefault("memory", {})["provider"] = name
        (self.home / "config.yaml").write_text(yaml.safe_dump(blocks))
        if known and known.secrets:
            (self.home / ".env").write_text(known.secrets)
            (self.home / ".env").chmod(0o600)
        if known and known.setup:
            places = {"home": self.home, "work": self.work, "python": self.python, "site": self.site}
            command = [word.format(**places) for word in known.setup]
            env = {**self.env, "HERMES_HOME": str(self.home)}
            subprocess.run(command, env=env, cwd=self.work, check=False, capture_output=True, timeout=60)

    def _run(self, *words: str) -> dict[str, Any]:
        command = [str(self.python), "-P", str(LIFE), *words]
        try:
            done = subprocess.run(
                command, env=self.env, cwd=self.work, capture_output=True, text=True, timeout=LIFE_TIMEOUT_S
            )
        except subprocess.TimeoutExpired:
            return {"loads": False, "reason": f"its process took more than {LIFE_TIMEOUT_S} s"}
        lines = done.stdout.strip().splitlines()
        if done.returncode or not lines or not lines[-1].startswith("{"):
            return {"loads": False, "reason": f"exit {done.returncode}: {done.stderr.strip()[-200:]}"}
        answer: dict[str, Any] = json.loads(lines[-1])
        return answer


# ----------------------------------------------------------------------------------------------------------- packages


def install(python: Path, site: Path, packages: list[str], *options: str) -> None:
    """Install packages into a folder of their own, once."""
    mark = site / f".{re.sub(r'[^a-z0-9]+', '-', ' '.join((*packages, *options)).lower())[:80]}"
    if mark.exists():
        return
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options]
    # pip replaces a folder of the target that two packages share, so each call gets a target of its own.
    with tempfile.TemporaryDirectory(prefix="hermes-pip-") as target:
        command = [*pip, "--target", target, *packages]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=PIP_TIMEOUT_S)
        shutil.copytree(target, site, symlinks=True, dirs_exist_ok=True)
    mark.touch()


def install_requirements(python: Path, site: Path, requirements: list[str], notes: list[str]) -> None:
    """Install what a provider requires, without what is heavy. If that fails, note it: it may load without."""
    light = [need for need in requirements if normalised(need) not in HEAVY]
    notes += [
        f"without {need}" for need in requirements if need not in light and normalised(need) != "hermes-agent"
    ]
    if not light:
        return
    try:
        install(python, site, light)
    except subprocess.SubprocessError as exc:
        notes.append(f"its requirements can't be installed: {last_line(exc)}")


def needs_of(case: Case) -> Package | None:
    """Return what is known about a case, None if nothing is."""
    for known in (*NEEDS, *CORPUS):
        package = case.distribution and known.pip and known.pip[0].startswith(case.distribution)
        if package or known.name == case.name:
            return known
    return None


def package_requirements(site: Path, name: str) -> list[str]:
    """Return what a package in `site` requires, with the pins of the corpus."""
    known = next((one for one in CORPUS if one.pip and one.pip[0].startswith(name)), None)
    needs = list(known.pip[1:]) if known else []
    if known and known.no_deps:
        return needs
    for distribution in distributions(path=[str(site)]):
        if normalised(distribution.metadata["Name"]) == normalised(name):
            needs += [need for need in distribution.requires or () if "extra ==" not in need]
    return needs


def folder_requirements(folder: Path) -> list[str]:
    """Return the packages that plugin.yaml names."""
    manifest = manifest_of(folder)
    needs = manifest.get("pip_dependencies") or manifest.get("python_dependencies")
    return [str(need) for need in needs] if isinstance(needs, list) else []


def manifest_of(folder: Path) -> dict[str, Any]:
    """Return the content of plugin.yaml, {} if there is none or it is damaged."""
    manifest = folder / "plugin.yaml"
    try:
        data = yaml.safe_load(read(manifest)) if manifest.is_file() else None
    except yaml.YAMLError:
        data = None
    return data if isinstance(data, dict) else {}


def own_folders(site: Path, name: str) -> list[Path]:
    """Return the provider folders that a package itself put into `site`."""
    for distribution in distributions(path=[str(site)]):
        if normalised(distribution.metadata["Name"]) == normalised(name):
            files = {site / str(file) for file in distribution.files or ()}
            return [folder for folder in provider_folders(site) if folder / "__init__.py" in files]
    return []


def normalised(requirement: str) -> str:
    """Return the name in a requirement as the index compares it."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement.strip(), maxsplit=1)[0]).lower()


def last_line(error: subprocess.SubprocessError) -> str:
    """Return the last line that a command printed."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"they take more than {PIP_TIMEOUT_S} s, as torch does"
    output = getattr(error, "stderr", None) or getattr(error, "stdout", None) or str(error)
    text = output.decode(errors="replace") if isinstance(output, bytes) else output
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("WARNING")]
    return lines[-1][:160] if lines else ""


# -------------------------------------------------------------------------------------------------------------- table


def lives(result: dict[str, Any]) -> bool:
    """Return True if the whole life went well."""
    recalls = bool(result.get("recall")) or "prefetch" not in result.get("hooks", ())
    tools = not result.get("tools") or result.get("tool") == "ok"
    ends = result.get("shutdown", 99.0) <= 15.0
    return bool(
        result.get("loads")
        and result.get("state") == "active"
        and result.get("delivered")
        and recalls
        and tools
        and ends
    )


def cause_of(result: dict[str, Any]) -> str:
    """Return why a provider does not live, in one line."""
    parts = [str(result.get("reason") or "")]
    if result.get("loads") and result.get("state") == "active":
        if not result.get("delivered"):
            parts.append("turns were not delivered")
        if not result.get("recall") and "prefetch" in result.get("hooks", ()):
            parts.append("nothing was recalled")
        if result.get("tools") and result.get("tool") != "ok":
            parts.append(f"tool: {result.get('tool')}")
        if result.get("shutdown", 0.0) > 15.0:
            parts.append(f"shutdown took {result['shutdown']} s")
    if not result.get("recall") and result.get("state") == "active":
        parts += [CAUSES[result["name"]]] if result["name"] in CAUSES else result.get("logged", ())
    parts += result.get("notes", ())
    parts += [] if any(parts) else ["unknown"]
    return " ".join("; ".join(filter(None, parts)).split())


def table(results: list[dict[str, Any]]) -> str:
    """Return the results for people, with the sums below."""
    lines = [f"{'provider':44} {'loads':5} {'lives':5} {'degraded':8} {'recall':6} {'tools':>5}  cause"]
    for result in results:
        loads, alive = bool(result.get("loads")), lives(result)
        marks = ["yes" if loads else "no", "yes" if alive else "no", "yes" if loads and not alive else ""]
        shown = [note for note in result.get("notes", ()) if note.startswith("with ")]
        cause = "; ".join(shown) if alive else cause_of(result)[:260]
        lines.append(
            f"{result['name'][:44]:44} {marks[0]:5} {marks[1]:5} {marks[2]:8} {result.get('recall') or '-':6} "
            f"{result.get('tools', 0):5}  {cause}"
        )
    installed = [result for result in results if result.get("installed", True)]
    loaded = [result for result in installed if result.get("loads")]
    alive = [result for result in loaded if lives(result)]
    share = 100 * len(loaded) / max(len(installed), 1)
    lines.append(
        f"\n{len(results)} tried, {len(results) - len(installed)} can't be installed; of the others {len(loaded)} load "
        f"({share:.0f} %), {len(alive)} live, {len(loaded) - len(alive)} are degraded"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
