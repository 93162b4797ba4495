"""Observers that packages bring: audit logs, redaction, metrics. Any number of them, each loaded by itself."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable, Iterable
from functools import partial

from hermes_core.loader.discover import installed_entry_points
from hermes_core.loader.entry import LoadControl, normalised
from hermes_core.loader.foreign import Failure
from hermes_core.loader.load import LOAD_DEADLINE, bounded
from hermes_core.loader.patience import Unfinished

log = logging.getLogger(__name__)

GROUP = "hermes_core.observers"


def load_observers(
    control: LoadControl | None = None,
    entry_points: Iterable[importlib.metadata.EntryPoint] | None = None,
    vet: Callable[[object], None] = lambda _: None,
) -> tuple[list[object], list[str]]:
    """The observers that are installed, and a sentence for each that does not load.

    An entry point names an object with hooks marked `@hookimpl`, or a class without arguments. `vet` raises for one
    that is no observer. The block and allow lists of providers hold for observers too.
    """
    rules = control or LoadControl()
    points = installed_entry_points({GROUP}) if entry_points is None else entry_points
    loaded: list[object] = []
    problems: list[str] = []
    for point in points:
        distribution = normalised(point.dist.name) if point.dist else ""
        if rules.refuses(point.name, distribution):
            continue
        made = bounded(f"observer {point.name}: {point.value}", partial(_made, point, vet), LOAD_DEADLINE)
        if isinstance(made, Failure | Unfinished):
            why = (
                f"loading it has not ended after {made.seconds:.0f} s"
                if isinstance(made, Unfinished)
                else made
            )
            problems.append(f"observer {point.name!r} is not active: {why}")
            log.warning("%s", problems[-1])
        elif not any(made is other for other in loaded):
            loaded.append(made)
    return loaded, problems


def _made(point: importlib.metadata.EntryPoint, vet: Callable[[object], None]) -> object:
    value = point.load()
    made = value() if isinstance(value, type) else value
    vet(made)
    return made
