"""Progress of a long command whose standard error is no terminal: a line now and then, for a log."""

from __future__ import annotations

from collections import Counter
from typing import Any

import click
from rich.progress import Progress, TaskID

LINE_STEPS = {"files": 20}
"""Steps from one line to the next, by the unit of the steps."""

DEFAULT_LINE_STEPS = 500


class ProgressLines(Progress):
    """A progress bar that writes lines instead. Few steps write none, so that short commands stay silent.

    The description of a task is its unit; "" is that of the bar.
    """

    def __init__(self, what: str, unit: str) -> None:
        super().__init__(disable=True)
        self._what, self._unit = what, unit
        self._lines = Counter[TaskID]()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Count steps."""
        super().advance(task_id, advance)
        self._write(task_id)

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Change facts about the task, as the number of its steps."""
        super().update(task_id, **changes)
        self._write(task_id)

    def _write(self, task_id: TaskID) -> None:
        task = self._tasks[task_id]
        unit = task.description or self._unit
        every = LINE_STEPS.get(unit, DEFAULT_LINE_STEPS)
        if task.completed >= (self._lines[task_id] + 1) * every:
            self._lines[task_id] = int(task.completed // every)
            total = "" if task.total is None else f" of {int(task.total):,}"
            click.echo(f"{self._what}: {int(task.completed):,}{total} {unit}", err=True)
