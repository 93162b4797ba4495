"""Python programs in processes of their own that need not import this package and its SDKs anew.

`import openai` and `import mcp` take a second each, and hundreds of tests start a program. `python()` stands for
`[sys.executable]` in their commands. It names a small program that passes its arguments, environment, folder and open
files to a server, which has imported all of it. The server forks, and the fork runs the code as Python would, with its
own end. Signals are forwarded, and the exit code is the fork's.

Not for tests that kill a program from outside: SIGKILL ends the small program, and the fork a moment later. Not for
what happens at the start of Python either, such as `-W` or `sitecustomize`.
"""

from __future__ import annotations

import os
import sys

if __name__ != "__main__":
    import atexit
    import contextlib
    import socket
    import subprocess
    import tempfile
    from functools import cache
    from pathlib import Path

IMPORTS = (
    "hermes_core.memory",
    "hermes_memory_agent.model",
    "openai",
    "hermes_memory_agent.cli.chat",
    "hermes_memory_mcp.server",
)
MAX_REQUEST_BYTES = 150_000
"""Bytes of arguments and environment. A packet of a local socket holds some more."""


if __name__ != "__main__":

    @cache
    def python() -> list[str]:
        """Return the command that starts a program, in place of `[sys.executable]`. Its options are -c and -m only."""
        if not (sys.platform.startswith("linux") and hasattr(os, "pidfd_open")):
            return [sys.executable]
        if os.environ.get("HERMES_TEST_ENGINE"):  # `sitecustomize` puts the homes of a program on the server
            return [sys.executable]
        folder = tempfile.TemporaryDirectory(prefix="hermes-forks-")
        path = str(Path(folder.name, "socket"))
        with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) as listener:
            listener.bind(path)
            listener.listen(64)
            # Its standard input is closed when this process ends in any way.
            server = subprocess.Popen(
                [sys.executable, __file__, "serve", str(listener.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=[listener.fileno()],
            )
        # Its imports are not to count among the seconds of a program that must end in time.
        assert server.stdout is not None
        assert server.stdout.read(1), "the server of forks did not start"

        def stop() -> None:
            server.communicate()
            folder.cleanup()

        atexit.register(stop)
        return [sys.executable, "-SE", __file__, path]


# ------------------------------------------------------------------------------------------------ the small program


def launch(path: str, words: list[str]) -> None:
    """Have the server run these words, and end as the fork ends."""
    # The modules of these names without the underscore take 10 ms to import, for each program.
    import _signal as signal
    import _socket as socket
    import marshal

    forwarded = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(path)
    waiting: list[int] = []

    def forward(number: int, _frame: object) -> None:
        if started:
            connection.send(str(number).encode())
        else:
            waiting.append(number)

    started = False
    for number in forwarded:
        signal.signal(number, forward)
    folder = os.getcwd()  # noqa: PTH109  the import of pathlib takes time
    request = marshal.dumps([words, folder, dict(os.environ)])
    assert len(request) < MAX_REQUEST_BYTES, "too much for one request"
    files = b"".join(file.to_bytes(4, sys.byteorder) for file in (0, 1, 2))
    connection.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    started = True
    for number in waiting:
        connection.send(str(number).encode())
    answer = connection.recv(64)
    code = os.waitstatus_to_exitcode(int(answer)) if answer else 1
    if code < 0:
        if -code in forwarded:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


# ------------------------------------------------------------------------------------------------------- the server


def serve(listener: socket.socket) -> list[str]:
    """Fork for each request until standard input ends. Return in the forks only, with their words."""
    import atexit
    import gc
    import importlib
    import marshal
    import selectors
    import signal

    atexit.register(end)  # before all others, so that it is called after them
    for name in IMPORTS:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # else the collector of each fork would copy what all of them share
    os.write(1, b"\n")
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ, ("parent", 0, None))
    selector.register(listener, selectors.EVENT_READ, ("request", 0, None))
    while True:
        for key, _ in selector.select():
            kind, pid, connection = key.data
            if kind == "parent":
                os._exit(0)
            elif kind == "request":
                connection, _ = listener.accept()
                message, files, _, _ = socket.recv_fds(connection, MAX_REQUEST_BYTES, 3)
                pid = os.fork() if len(files) == 3 else 0
                if not pid and files:
                    for other in list(selector.get_map().values()):
                        if other.fd:
                            os.close(other.fd)
                    connection.close()
                    return become(*marshal.loads(message), files=files)
                for file in files:
                    os.close(file)
                if pid:
                    selector.register(connection, selectors.EVENT_READ, ("message", pid, connection))
                    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, ("end", pid, connection))
            elif kind == "message":
                text = connection.recv(64)
                os.kill(pid, int(text or signal.SIGKILL))
                if not text:
                    selector.unregister(connection)
            else:
                selector.unregister(key.fileobj)
                os.close(key.fd)
                status = os.waitpid(pid, 0)[1]
                if connection.fileno() in selector.get_map():
                    selector.unregister(connection)
                try:
                    connection.send(str(status).encode())
                except OSError:
                    pass  # nobody waits for it
                connection.close()


def become(words: list[str], folder: str, environment: dict[str, str], *, files: list[int]) -> list[str]:
    """Give this process the files, folder and environment of a request. Return its words."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    # Made anew: those of the server know that its files can be sought in, and these may be pipes.
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        old = getattr(sys, name)
        buffering = 1 if number == 2 or os.isatty(number) else -1
        new = open(number, mode, buffering, old.encoding, old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)
    sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
    sys.path[0] = "" if words[0] == "-c" else folder
    sys.path[1:1] = [entry for entry in environment.get("PYTHONPATH", "").split(os.pathsep) if entry]
    sys.argv = [words[0], *words[2:]]
    return words


exit_code: int | None = None
"""Exit code of a fork that ends as it wants to, and not by an error."""


def end() -> None:
    """End this fork once its threads and its `atexit` are done: to tear the SDKs down takes longer than most programs."""
    if exit_code is None:
        return
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except Exception:  # noqa: BLE001  Python says what is wrong, in its own way
        return
    os._exit(exit_code)


def run(words: list[str]) -> None:
    """Run the words, and note how they end."""
    global exit_code
    try:
        run_main(words)
    except SystemExit as exc:
        exit_code = exc.code or 0 if isinstance(exc.code, int | None) else None
        raise
    exit_code = 0


def run_main(words: list[str]) -> None:
    """Run the code of `-c`, or the module of `-m`, as the main program."""
    import runpy
    import types

    if words[0] == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    exec(compile(words[1], "<string>", "exec"), main.__dict__)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        import socket

        run(serve(socket.socket(fileno=int(sys.argv[2]))))
    else:
        launch(sys.argv[1], sys.argv[2:])
