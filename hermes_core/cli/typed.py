"""What a person types at the prompt of `hermes-memory chat`: edited, completed, and kept for the arrow keys."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory
from prompt_toolkit.patch_stdout import patch_stdout

_MENU = 8
"""Lines kept free for what completes a command. In a window that has fewer nothing of what is typed would be shown."""


def typed(history: Path, words: Sequence[str], tell: Callable[[str], None]) -> Iterator[str]:
    """What is typed, a message at a time, until Ctrl-D. `words` are completed at the beginning of a line; `tell` is told
    once when `history` can't be kept.
    """
    session: PromptSession[str] = PromptSession(
        history=History(history, tell),
        completer=WordCompleter(list(words), sentence=True),
        enable_suspend=True,
    )
    while True:
        try:
            with patch_stdout(raw=True):
                rows = session.output.get_size().rows
                line = session.prompt("> ", reserve_space_for_menu=min(_MENU, rows)).strip()
        except KeyboardInterrupt:
            continue
        except EOFError:
            return
        if line:
            # What is pasted while the answer comes is then one message, not one a line.
            session.output.enable_bracketed_paste()
            session.output.flush()
            try:
                yield line
            finally:
                session.output.disable_bracketed_paste()
                session.output.flush()


class History(FileHistory):
    """What was typed before. A file that can't be read or written, as on a full disk, costs no chat."""

    def __init__(self, path: Path, tell: Callable[[str], None]) -> None:
        super().__init__(str(path))
        self._path = path
        self._tell = tell
        self._told = False

    def load_history_strings(self) -> Iterable[str]:
        """The lines of the file, the newest first."""
        found: list[str] = []
        with self._telling():
            self._path.touch(mode=0o600)
            found += super().load_history_strings()
        return found

    def store_string(self, string: str) -> None:
        """Keep one."""
        with self._telling():
            super().store_string(string)

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            if not self._told:
                self._tell(f"what you type is not kept: {self._path}: {exc.strerror or exc}")
            self._told = True
