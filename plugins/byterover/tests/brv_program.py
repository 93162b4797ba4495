"""A stand-in for the `brv` program of byterover-cli 3.14: its commands, flags, JSON and exit codes, with no model.

Strict: a flag, argument or value that brv refuses is refused here. What is curated is kept word for word, as by a
model that does exactly what it is told. `faults.json` says what goes wrong, by command.
Runs in a process of its own with the standard library alone. `FOLDER` is where the tests read and write.
"""

# It is started some hundred times, and pathlib alone would double the time that takes.
# ruff: noqa: PTH103, PTH105, PTH108, PTH109, PTH110, PTH118, PTH119, PTH120, PTH123

import json
import os
import re
import sys
import time

FOLDER = ""
TEXT, FLAG = "text", "flag"
FORMAT = {"format": ("text", "json")}
COMMANDS = {  # flags with their values, fewest and most arguments
    "status": ({**FORMAT, "project-root": TEXT, "verbose": FLAG}, 0, 0),
    "search": ({**FORMAT, "limit": (1, 50), "scope": TEXT}, 1, 99),
    "query": ({**FORMAT, "timeout": (10, 3600)}, 1, 99),
    "curate": ({**FORMAT, "detach": FLAG, "files": TEXT, "folder": TEXT, "timeout": (10, 3600)}, 0, 1),
    "curate view": (
        {**FORMAT, "before": TEXT, "detail": FLAG, "limit": (1, 10**9), "since": TEXT, "status": TEXT},
        0,
        1,
    ),
    "providers list": (FORMAT, 0, 0),
    "providers connect": (
        {**FORMAT, "api-key": TEXT, "base-url": TEXT, "model": TEXT, "oauth": FLAG, "team": TEXT},
        0,
        1,
    ),
    "review pending": (FORMAT, 0, 0),
    "login": ({**FORMAT, "api-key": TEXT}, 0, 0),
}
STOP_WORDS = """a an and are as at be by did do does for from how i in is it my of on or our that the there this to was we
what when where which who why will with you your"""
STOP = frozenset(STOP_WORDS.split())
NO_MODEL = (
    'No provider connected. Run "brv providers connect byterover" to use the free built-in provider, '
    "or connect another provider."
)


class Refused(Exception):
    """What oclif refuses before a command runs: exit code 2."""


def main(words):
    command = " ".join(words[:2]) if " ".join(words[:2]) in COMMANDS else (words or [""])[0]
    note("calls.jsonl", {"command": command, "words": words, "cwd": os.getcwd(), "env": dict(os.environ)})
    if command not in COMMANDS:
        sys.stderr.write(f'\nCommand "{command}" not found\n\nRun "brv --help" to see available commands\n')
        return 1
    flags, arguments = parse(command, words[len(command.split()) :])
    fault = faults().get(command) or (faults().get("*") if command != "curate view" else None)
    if fault:
        code = go_wrong(command, fault)
        if code is not None:
            return code
    if flags.get("format") != "json":
        print("This is the text that people read.")
        return 0
    HANDLERS[command](flags, arguments)
    return 0


def parse(command, words):
    known, fewest, most = COMMANDS[command]
    flags, arguments, only_arguments = {}, [], False
    words = iter(words)
    for word in words:
        if word == "--" and not only_arguments:
            only_arguments = True
        elif word.startswith("-") and len(word) > 1 and not only_arguments:
            name, sign, value = word[2:].partition("=")
            if not word.startswith("--") or name not in known:
                raise Refused(f"Nonexistent flag: {word}")
            flags[name] = (
                True
                if known[name] == FLAG
                else checked(name, known[name], value if sign else next(words, None))
            )
        else:
            arguments.append(word)
    if len(arguments) > most:
        raise Refused(f"Unexpected argument: {arguments[most]}")
    if len(arguments) < fewest:
        raise Refused("Missing 1 required arg")
    return flags, arguments


def checked(name, wanted, value):
    if value is None:
        raise Refused(f"Flag --{name} expects a value")
    if wanted == TEXT:
        return value
    if isinstance(wanted[0], str):
        if value not in wanted:
            raise Refused("Expected --{}={} to be one of: {}".format(name, value, ", ".join(wanted)))
        return value
    if not re.fullmatch(r"-?\d+", value) or int(value) < wanted[0]:
        raise Refused(
            f"Parsing --{name} \n\tExpected an integer greater than or equal to {wanted[0]} but received: {value}"
        )
    if int(value) > wanted[1]:
        raise Refused(
            f"Parsing --{name} \n\tExpected an integer less than or equal to {wanted[1]} but received: {value}"
        )
    return int(value)


# ------------------------------------------------------------------- commands


def status(_flags, _arguments):
    ready = os.path.exists(".brv/config.json")
    answer(
        "status",
        {
            "authStatus": state().get("account") or "not_logged_in",
            "contextTreeStatus": "no_vc" if ready else "not_initialized",
            "currentDirectory": os.getcwd(),
            "projectRoot": os.getcwd(),
            "cliVersion": "3.14.0",
        },
    )


def search(flags, arguments):
    found = matches(arguments[0])[: flags.get("limit", 10)]
    message = f"Found {len(found)} result(s). Use read_file to view full content."
    if not found:
        message = (
            "No matching knowledge found. Try different search terms or check available topics with /query."
        )
    answer("search", {"message": message, "results": found, "totalFound": len(found), "status": "completed"})


def query(_flags, arguments):
    if not need_model("query"):
        return
    found = matches(arguments[0])
    task = {"taskId": "task-query", "durationMs": 5}
    answer("query", {"event": "thinking", "taskId": "task-query"})
    text = "\n".join(one["excerpt"] for one in found)
    if not found:
        text = (
            f'**Summary**: No matching knowledge found for "{arguments[0]}".\n\n**Details**: The topic does not appear to be '
            "covered in the context tree.\n\n**Sources**: None"
        )
    docs = [{key: one[key] for key in ("path", "score", "title")} for one in found]
    cached = "query cache" in faults()
    result = text + "\n\n---\nSource: ByteRover Knowledge Base"
    done = {
        "event": "completed",
        "matchedDocs": [] if cached else docs,
        "result": result,
        "status": "completed",
    }
    answer("query", {**task, **done, "tier": 0 if cached else 2})


def curate(flags, arguments):
    context = arguments[0] if arguments else ""
    if not context.strip():
        message = "Either a context argument, file reference, or folder reference is required."
        return answer("curate", {"message": message, "status": "error"}, False)
    if not need_model("curate"):
        return None
    if not flags.get("detach"):
        return answer("curate", {"error": "this stand-in follows nothing", "status": "error"}, False)
    now = time.time()
    entries = log()
    number = max([int(now * 1000), *(int(e["id"][4:]) + 1 for e in entries)])
    name, task = f"cur-{number}", f"task-{number}"
    script = faults().get("curation", {})
    entry = {
        "id": name,
        "input": {"context": context},
        "operations": [],
        "startedAt": int(now * 1000),
        "summary": {"added": 0, "deleted": 0, "failed": 0, "merged": 0, "updated": 0},
        "taskId": task,
        "status": "processing",
        "script": {**script, "until": now + script.get("seconds", 0)},
    }
    save([*entries, entry])
    note("accepted.jsonl", context)
    message = "Context queued for processing"
    return answer("curate", {"logId": name, "message": message, "status": "queued", "taskId": task})


def view(flags, arguments):
    known = log()
    entries = [finished(entry) for entry in known]
    if entries != known:
        save(entries)
    shown = [{key: value for key, value in entry.items() if key != "script"} for entry in reversed(entries)]
    if not arguments:
        return pretty({"data": shown[: flags.get("limit", 10)], "success": True})
    mine = [entry for entry in shown if entry["id"] == arguments[0]]
    if not mine:
        return pretty({"data": {"error": f"Log entry not found: {arguments[0]}"}, "success": False})
    return pretty({"data": mine[0], "success": True})


def providers_list(_flags, _arguments):
    current = state().get("model")
    known = [{"id": "byterover", "isConnected": False, "isCurrent": False, "name": "ByteRover"}]
    if current:
        known.append({**current, "isConnected": True, "isCurrent": True})
    answer("providers list", {"providers": known})


def providers_connect(flags, arguments):
    if not arguments or arguments[0] == "nobody":
        return answer(
            "providers connect", {"error": 'Unknown provider "{}"'.format((arguments or [""])[0])}, False
        )
    remember(
        "model", {"id": arguments[0], "name": arguments[0], "activeModel": flags.get("model", "default")}
    )
    return answer("providers connect", {"model": flags.get("model"), "providerId": arguments[0]})


def review_pending(_flags, _arguments):
    waiting = [
        e for e in map(finished, log()) if any(o.get("reviewStatus") == "pending" for o in e["operations"])
    ]
    tasks = [{"taskId": e["taskId"], "operations": e["operations"]} for e in waiting]
    count = sum(len(task["operations"]) for task in tasks)
    answer("review", {"pendingCount": count, "status": "success", "tasks": tasks})


def login(flags, _arguments):
    if flags.get("api-key") != "good-key":
        return answer("login", {"error": "Invalid API key"}, False)
    remember("account", "logged_in")
    return answer("login", {"userEmail": "mel@example.org"})


HANDLERS = {
    "status": status,
    "search": search,
    "query": query,
    "curate": curate,
    "curate view": view,
    "providers list": providers_list,
    "providers connect": providers_connect,
    "review pending": review_pending,
    "login": login,
}

# ---------------------------------------------------------------------- model


def finished(entry):
    """The entry as it is now: its curation ends when its time has come, as its script says."""
    script = entry.get("script", {})
    held = script.get("held") and os.path.exists(os.path.join(FOLDER, "held"))
    if entry["status"] != "processing" or held or time.time() < script.get("until", 0):
        return entry
    ended = {**entry, "completedAt": int(time.time() * 1000)}
    if script.get("error"):
        return {**ended, "status": "error", "error": script["error"]}
    operations = [] if script.get("nothing") else carried_out(entry["input"]["context"], script)
    return {**ended, "status": "completed", "response": "Done.", "operations": operations}


def carried_out(context, script):
    """What a model that does as it is told changes in the tree."""
    mark, _, body = context.partition("\n")
    if mark.startswith("[hermes rewind "):
        told = body.partition("\n")[2].partition("\n")[2]
        gone = [path for path, text in notes() if told in text]
        for path in gone:
            os.unlink(os.path.join(tree(), path))
        return [operation("DELETE", path) for path in gone]
    title = f"note_{len(list(notes()))}_{time.time_ns()}"
    path = f"conversation/notes/{title}.md"
    os.makedirs(os.path.join(tree(), "conversation/notes"), exist_ok=True)
    with open(os.path.join(tree(), path), "w", encoding="utf-8") as file:
        file.write(f"---\ntitle: {title}\ntags: []\n---\n## Reason\nsaid\n\n### Highlights\n{body}\n")
    pending = {"needsReview": True, "reviewStatus": "pending"} if script.get("pending") else {}
    return [{**operation("UPSERT", path), "summary": "what was said", **pending}]


def operation(kind, path):
    """An operation that went well: `path` is the topic, `filePath` the file."""
    whole = os.path.join(tree(), path)
    return {"type": kind, "path": path.rpartition("/")[0], "filePath": whole, "status": "success"}


def matches(question):
    wanted = words_of(question)
    found = []
    for path, text in indexed():
        hits = sum(word in words_of(text) for word in wanted)
        if hits:
            title = os.path.basename(path)[:-3]
            score = round(0.9 * hits / len(wanted), 2)
            found.append({"excerpt": text, "path": path, "score": score, "title": title, "origin": "local"})
    return sorted(found, key=lambda one: -one["score"])


def words_of(text):
    return set(re.findall(r"\w+", text.lower())) - STOP


def indexed():
    """What the index knows; it can be told to be an old one."""
    if "old index" not in faults():
        return list(notes())
    known = state().get("index")
    if known is None:
        known = list(notes())
        remember("index", known)
    return known


def notes():
    for folder, _, names in os.walk(tree()):
        for name in sorted(names):
            if name.endswith(".md"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    yield os.path.relpath(path, tree()), file.read()


# ---------------------------------------------------------------------- state


def tree():
    """The tree of the nearest project: brv looks for it in this folder and then further up."""
    folder = os.getcwd()
    while folder != os.path.dirname(folder):
        if os.path.exists(os.path.join(folder, ".brv", "config.json")):
            return os.path.join(folder, ".brv", "context-tree")
        folder = os.path.dirname(folder)
    return os.path.join(os.getcwd(), ".brv", "context-tree")


def data_folder():
    folder = os.environ.get("BRV_DATA_DIR") or os.path.join(os.environ["HOME"], ".local/share/brv")
    os.makedirs(folder, exist_ok=True)
    return folder


def read(path, default):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return default


def write(path, value):
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(file.name, path)


def state():
    return read(
        os.path.join(data_folder(), "state.json"), {"model": {"id": "stand-in", "activeModel": "literal"}}
    )


def remember(key, value):
    write(os.path.join(data_folder(), "state.json"), {**state(), key: value})


def log_path():
    """As the real one: below a folder that is named after the path of the project."""
    folder = os.path.join(data_folder(), "projects", os.getcwd().strip("/").replace("/", "--"), "curate-log")
    os.makedirs(folder, exist_ok=True)
    return os.path.join(folder, "log.json")


def log():
    return read(log_path(), [])


def save(entries):
    write(log_path(), entries[-1000:])


def faults():
    return read(os.path.join(FOLDER, "faults.json"), {})


def note(name, value):
    with open(os.path.join(FOLDER, name), "a", encoding="utf-8") as file:
        file.write(json.dumps(value) + "\n")


# --------------------------------------------------------------------- output


def need_model(command):
    if state().get("model"):
        return True
    answer(command, {"error": NO_MODEL, "status": "error"}, False)
    return False


def answer(command, data, success=True):
    print(
        json.dumps(
            {"command": command, "data": data, "success": success, "timestamp": "2026-01-01T00:00:00Z"}
        )
    )


def pretty(payload):
    print(json.dumps({"command": "curate view", **payload, "retrievedAt": "2026-01-01T00:00:00Z"}, indent=2))


def go_wrong(command, fault):
    """Do what `faults.json` says; None to go on as usual."""
    kind = fault["kind"]
    if kind == "error":
        answer(command, {"error": fault["error"], "status": "error"}, False)
        return 0
    if kind == "hang":
        import subprocess

        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        note("children.jsonl", child.pid)
        time.sleep(60)
    if kind == "text":
        print(fault["text"])
        return fault.get("code", 0)
    if kind == "crash":
        sys.stderr.write("node:internal/process: SyntaxError: Invalid regular expression flags\n")
        return 1
    if kind == "lost":  # what was asked for happens, and nobody hears of it
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return None
    if kind == "died":
        answer(command, {"event": "toolCall", "toolName": "code_exec", "taskId": "t"})
        return 0
    return None


def run(folder):
    """Be `brv`, until the process ends."""
    global FOLDER
    FOLDER = folder
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as exc:
        sys.stderr.write(f" \u203a   Error: {exc}\n \u203a   See more help with --help\n")
        sys.exit(2)
