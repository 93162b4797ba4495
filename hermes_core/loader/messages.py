"""Error messages of the loader: why a provider did not load, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from hermes_core.errors import ProviderError, ProviderInvalid, ProviderNotFound, ProviderUnavailable
from hermes_core.loader.discover import (
    BUNDLED,
    FOLDER_PACKAGE,
    ProviderCandidate,
    name_owner,
    normalise,
    required_distribution,
)

REGISTER_REMEDY = "write register(ctx), which calls ctx.register_memory_provider(...), into its __init__.py"
"""The remedy for a folder that is no provider yet."""

SAME_NAME_REMEDY = "rename or remove one of the two"
"""The remedy for two providers of one name."""

_MODULE_AND_NAME = re.compile(r"[\w.]+(\s*:\s*[\w.]+)?\s*(\[.*\])?\s*")


def import_error(place: ProviderCandidate, error: BaseException, text: str) -> ProviderError:
    """Return the error for an exception that importing `place` raised; `text` is the exception in one line."""
    if not place.is_folder and _MODULE_AND_NAME.fullmatch(place.value) is None:
        return ProviderInvalid(
            f"the entry point of provider {place.name!r} is {place.value!r}, which names no module",
            "write package.module:Class, without hyphens, spaces or slashes",
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing_module_error(place, error.name)
    if isinstance(error, SystemExit):
        return ProviderError(
            f"provider {place.name!r} ends the program when it is imported ({text})",
            f"report it to its author, or remove {place.where}",
        )
    return ProviderError(
        f"importing provider {place.name!r} from {place.where} raised {text}",
        "upgrade or reinstall it; hermes-memory --debug shows the traceback",
    )


def _missing_module_error(place: ProviderCandidate, missing: str) -> ProviderError:
    top = missing.partition(".")[0]
    if missing.startswith(f"{FOLDER_PACKAGE}."):
        return ProviderUnavailable(
            f"provider {place.name!r} needs {'.' + missing.split('.', 2)[2]!r}, which is not in its folder",
            f"copy all of it to {str(place.path)!r} again",
        )
    if not place.is_folder and top == place.value.partition(":")[0].strip().partition(".")[0]:
        return ProviderUnavailable(
            f"provider {place.name!r} names the module {missing!r}, which is not there",
            f"reinstall it: pip install --force-reinstall {place.distribution}",
        )
    requires = {need.partition(";")[0].strip(): required_distribution(need) for need in place.requires}
    declared = [need for need, name in requires.items() if name == normalise(top)]
    if place.kind == "hermes_agent" and not declared:
        # No package index has the modules of Hermes Agent under their names, so pip can't be the remedy.
        from hermes_core.loader.hermes_agent.host_modules import hidden_host_module, is_host_module

        if hiding := hidden_host_module(missing):
            return ProviderUnavailable(
                f"provider {place.name!r} needs its host's module {missing!r}, which {hiding!r} hides",
                "rename that module, or run from another folder",
            )
        if is_host_module(missing):
            return ProviderUnavailable(
                f"provider {place.name!r} needs {missing!r} of Hermes Agent itself, which is not here",
                "ask its author whether it can do without, or use it in Hermes Agent",
            )
    # This package is installed: it prints the message.
    others = [need for need, name in requires.items() if name != "hermes-memory-core"]
    packages = " ".join(f"{need!r}" for need in declared or others) or normalise(top)
    return ProviderUnavailable(
        f"provider {place.name!r} needs the module {missing!r}, which is not installed",
        f"pip install {packages}",
    )


def no_provider(place: ProviderCandidate) -> ProviderError:
    """Return the error for an import that is no provider and registered none."""
    remedy = (
        "subclass hermes_core.MemoryProvider, or mark its hooks with hermes_core.hookimpl"
        if place.kind == "native"
        else "write register(ctx), which calls ctx.register_memory_provider(...), if it is yours; else it is a plugin of "
        "another sort, or it lacks what it needs here: hermes-memory --debug shows what it says"
    )
    return ProviderInvalid(f"{place.name!r} from {place.where} registered no provider", remedy)


def not_found(name: str, candidates: Sequence[ProviderCandidate], fault: str = "") -> ProviderError:
    """Return the error for a name that nothing offers. `fault` is what a folder of that name lacks."""
    if name in BUNDLED:
        taken = [place for place in candidates if place.name.casefold() == name.strip().casefold()]
        note = f" ({taken[0].where} may not use the name)" if taken else ""
        return ProviderNotFound(
            f"provider {name!r} is not installed{note}", f"run: pip install {BUNDLED[name]}"
        )
    if name_owner(name):
        return ProviderNotFound(f"{name!r} is the curated memory itself", "it is always on; name another one")
    if shadowed := shadowed_distribution(name, candidates):
        return ProviderNotFound(shadowed_reason(shadowed), shadowed_remedy(shadowed))
    if fault:
        return ProviderNotFound(f"no provider is called {name!r}: {fault}", REGISTER_REMEDY)
    close = get_close_matches(name, {place.name for place in candidates} | set(BUNDLED), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ProviderNotFound(
        f"no provider called {name!r} is installed",
        f"{hint}see 'hermes-memory providers --all' for those that are",
    )


def shadowed_distribution(name: str, candidates: Sequence[ProviderCandidate]) -> ProviderCandidate | None:
    """Return the shadowed candidate of the distribution `name`, None if there is none."""
    wanted = normalise(name.strip())
    return next(
        (
            place
            for place in candidates
            if place.shadowed_by and normalise(place.distribution) == wanted != ""
        ),
        None,
    )


def shadowed_reason(place: ProviderCandidate) -> str:
    """Return why a shadowed candidate is not used."""
    return f"{place.where} is not used: {place.shadowed_by} comes first"


def shadowed_remedy(place: ProviderCandidate) -> str:
    """Return what to do if the distribution of a shadowed candidate was named."""
    return f"name {place.name!r} for that one, or {SAME_NAME_REMEDY}"


def still_loading(place: ProviderCandidate, seconds: float) -> ProviderError:
    """Return the error for an import or constructor that does not return."""
    return ProviderUnavailable(
        f"loading provider {place.name!r} from {place.where} has not ended after {seconds:.0f} s and is left behind",
        "see what it waits for (network, a lock), then start this program again",
    )
