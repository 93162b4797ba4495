"""Script that a coding agent runs at its events. It stores what happened in the spool, or asks the worker for recall.

Usage: `python -I -S hook.py HOME PROGRAM ACTION`, with the event as JSON on standard input. An agent waits for its hooks, so
this script imports neither this package nor the modules `json` and `socket`: each takes as long as the start of Python.
The spool has a file for each session, with its id, the paths of its transcript and of its folder, and no text of it.
"""

import os
import sys
import time
from _json import encode_basestring_ascii as quote
from _json import make_scanner

HAS_SOCKETS = sys.platform != "win32"
if sys.platform != "win32":
    from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM
    from _socket import socket as Socket  # noqa: N812  (its own name is that of a module)

FOLDER, SPOOL, SOCKET, LOG, MISSED, PID = "capture", "spool", "socket", "worker.log", "missed", "pid"

# The person waits for the recall. All of it takes at most 300 ms, from the start of the process to its end.
RECALL_S = 0.26

# Where the system does not say when the process started.
PYTHON_START_S = 0.05

# A new session waits for its worker, so that its first message gets recall.
START_S = 5.0
PAUSE_S = 0.02
CONNECT_S = 0.1

MAX_PAYLOAD = 16 * 2**20
MAX_NAME = 200


class _Decoder:
    """The settings of the scanner of JSON."""

    strict = False
    object_hook = object_pairs_hook = array_hook = None
    parse_float, parse_int, parse_constant = float, int, str


def main(home: str, program: str, action: str) -> int:
    """Handle one event. Return 1 if it could not be stored, which agents show as a warning."""
    began = _started()
    payload = sys.stdin.buffer.read(MAX_PAYLOAD + 1)
    while len(payload) > MAX_PAYLOAD and sys.stdin.buffer.read(MAX_PAYLOAD):
        pass  # the program writes all of it
    folder = f"{home}/{FOLDER}"
    try:
        if len(payload) > MAX_PAYLOAD:
            raise ValueError(f"the event has more than {MAX_PAYLOAD >> 20} MB")
        os.chdir(folder)  # the path of a socket is at most 104 bytes long
        if action != "recall":
            _store(program, action, payload)
        worker = _connect()
        if worker is None:
            _start_worker(home)
        if action == "recall":
            _recall(worker, program, payload, began + RECALL_S)
        elif worker is not None:
            worker.close()  # the connection wakes it
        elif action == "start":
            _wait_for_worker(began + START_S)
    except (OSError, ValueError) as exc:
        sys.stderr.write(f"hermes-memory capture: {exc} in {folder!r}; run: hermes-memory capture status\n")
        return 1
    return 0


def _started() -> float:
    """Return the time of `time.monotonic` at which the process started. On a busy machine that is long ago."""
    now = time.monotonic()
    if sys.platform != "linux":
        return now - PYTHON_START_S
    try:
        with open("/proc/self/stat", "rb") as stat:  # noqa: PTH123  (see above)
            ticks = int(stat.read().rpartition(b")")[2].split()[19])
    except OSError:
        return now - PYTHON_START_S
    return now - (time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))


def _store(program: str, action: str, payload: bytes) -> None:
    """Store an event of a session in the spool, in place of an earlier one."""
    event = _parsed(payload)
    session = str(event.get("session_id") or event.get("conversation_id") or "")
    roots = event.get("workspace_roots")
    folder = event.get("cwd") or (roots[0] if isinstance(roots, list) and roots else "")
    fields = (program, action, session, event.get("transcript_path") or "", folder)
    names = ("program", "action", "session", "path", "folder")
    pairs = (f'"{name}":{quote(str(value))}' for name, value in zip(names, fields, strict=True))
    text = f'{{"at":{time.time()!r},{",".join(pairs)}}}'
    name = f"{program}-{session.encode('utf-8', 'surrogatepass').hex()}"[:MAX_NAME]
    temporary = f"{SPOOL}/.{name}.{os.getpid()}"
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)
    os.replace(temporary, f"{SPOOL}/{name}")  # noqa: PTH105  (pathlib takes as long to import as Python to start)


def _parsed(payload: bytes) -> "dict[str, object]":
    text = payload.decode("utf-8", "replace").strip("\ufeff \t\r\n")
    try:
        value, _ = make_scanner(_Decoder)(text, 0)  # type: ignore[arg-type]  # anything with these attributes
    # The scanner has no words for a fault without the module `json`, and says so with a SystemError.
    except (ValueError, StopIteration, SystemError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise ValueError("the event is no JSON object")
    return value


def _connect() -> "Socket | None":
    """Return a connection to the worker; None if no worker runs."""
    if sys.platform == "win32":
        return None
    connection = Socket(AF_UNIX, SOCK_STREAM)
    connection.settimeout(CONNECT_S)
    try:
        connection.connect(SOCKET)
    except OSError:
        connection.close()
        return None
    return connection


def _start_worker(home: str) -> None:
    # Without the variables and the folder of a project, in which anything may pass for a module.
    command = [sys.executable, "-E", "-P", "-m", "hermes_memory_capture.worker", home]
    # In a session of its own: agents end the group of a hook. And apart from their pipes, which they read to the end.
    if sys.platform != "win32":
        log = (os.POSIX_SPAWN_OPEN, 2, LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_RDWR, 0) for number in (0, 1)]
        try:
            os.posix_spawn(sys.executable, command, os.environ, file_actions=[*nothing, log], setsid=True)
        except NotImplementedError:
            pass  # a system without this flag
        else:
            return
    import subprocess

    flags = sum(getattr(subprocess, name, 0) for name in ("DETACHED_PROCESS", "CREATE_NEW_PROCESS_GROUP"))
    with open(LOG, "ab") as file:  # noqa: PTH123  (see above)
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            creationflags=flags,
            start_new_session=True,
        )


def _wait_for_worker(until: float) -> None:
    while time.monotonic() < until:
        connection = _connect()
        if connection is not None:
            connection.close()
            return
        time.sleep(PAUSE_S)


def _recall(worker: "Socket | None", program: str, payload: bytes, until: float) -> None:
    """Print the recall for a message, as the worker returns it. Record why there is none."""
    reason = "no worker ran; it was started for the next message"
    if not HAS_SOCKETS:
        reason = "recall needs Unix sockets, which this system does not have"
    if worker is not None and sys.platform != "win32":
        answer = bytearray()
        try:
            worker.sendall(program.encode() + b"\n" + payload)
            worker.shutdown(SHUT_WR)
            while True:
                worker.settimeout(max(until - time.monotonic(), 0.001))
                chunk = worker.recv(65536)
                if not chunk:
                    break
                answer += chunk
        except TimeoutError:
            reason = f"it took more than {RECALL_S * 1000:.0f} ms"
        except OSError as exc:
            reason = f"the worker ended ({exc!r})"
        else:
            # The last byte shows that the answer is whole.
            if answer.endswith(b"\n"):
                sys.stdout.buffer.write(answer.strip())
                return
            reason = "the worker ended"
    handle = os.open(MISSED, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(handle, f"{time.time():.0f} {program} {reason}\n".encode())
    finally:
        os.close(handle)


if __name__ == "__main__":
    code = main(*sys.argv[1:4])
    sys.stdout.flush()
    sys.stderr.flush()
    # Without the clearing up of the interpreter, which takes a tenth of the time.
    os._exit(code)
