"""The prompt of `hermes-memory chat`: editing, completion of commands, and a history for the arrow keys."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.patch_stdout import patch_stdout

# Lines reserved for completions. A window with fewer lines than are reserved would not show the input at
# all.
_MENU_LINES = 8


def read_messages(history: Path, words: Sequence[str], on_problem: Callable[[str], None]) -> Iterator[str]:
    """Yield the messages that the person types, until Ctrl-D.

    Args:
        history: File for the arrow keys.
        words: Words that are completed at the beginning of a line.
        on_problem: Function that is called once if the history can't be stored.
    """
    session: PromptSession[str] = PromptSession(
        history=InputHistory(history, on_problem),
        completer=WordCompleter(list(words), sentence=True),
        enable_suspend=True,
        key_bindings=_new_line_keys(),
    )
    with _without_echo():
        while True:
            try:
                with patch_stdout(raw=True):
                    rows = session.output.get_size().rows
                    line = session.prompt("> ", reserve_space_for_menu=min(_MENU_LINES, rows)).strip()
            except KeyboardInterrupt:
                continue
            except EOFError:
                return
            if line:
                # Else a text that is pasted during the answer would become one message a line.
                session.output.enable_bracketed_paste()
                session.output.flush()
                try:
                    yield line
                finally:
                    session.output.disable_bracketed_paste()
                    session.output.flush()


def _new_line_keys() -> KeyBindings:
    """Return the keys that begin a new line in the message; Enter alone sends it."""
    keys = KeyBindings()

    @keys.add("escape", "enter")  # Alt-Enter
    @keys.add("c-j")
    def begin_line(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return keys


@contextlib.contextmanager
def _without_echo() -> Iterator[None]:
    """Keep what is typed during an answer out of the answer: the next prompt shows it.

    The terminal would print each key where the cursor is. On Windows it prints none while no program reads.
    """
    if os.name == "nt" or not sys.stdin.isatty():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin)
    silent = [*before]
    silent[0] &= ~termios.ICRNL  # Enter would come as Ctrl-J, which begins a new line
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(sys.stdin, termios.TCSANOW, silent)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal was closed
            termios.tcsetattr(sys.stdin, termios.TCSANOW, before)


class InputHistory(FileHistory):
    """A history whose file may be unreadable, or on a full disk, without an end of the chat."""

    def __init__(self, path: Path, on_problem: Callable[[str], None]) -> None:
        super().__init__(str(path))
        self._path = path
        self._on_problem = on_problem
        self._reported = False

    def load_history_strings(self) -> Iterable[str]:
        """Return the lines of the file, the newest first."""
        lines: list[str] = []
        with self._reporting():
            self._path.touch(mode=0o600)
            lines += super().load_history_strings()
        return lines

    def store_string(self, string: str) -> None:
        """Store a message."""
        with self._reporting():
            super().store_string(string)

    @contextlib.contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            if not self._reported:
                self._on_problem(f"what you type is not kept: {self._path}: {exc.strerror or exc}")
            self._reported = True
