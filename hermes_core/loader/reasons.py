"""Why a provider did not load, and what to do: the sentences for it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from hermes_core.errors import ProviderError, ProviderInvalid, ProviderNotFound, ProviderUnavailable
from hermes_core.loader.entry import BUNDLED, FOLDER_PACKAGE, Found, normalised, owner_of, required

REGISTERS = "write register(ctx), which calls ctx.register_memory_provider(...), into its __init__.py"
"""What to do with a folder that is no provider yet."""

ONE_OF_TWO = "rename or remove one of the two"
"""What to do about two providers of one name."""

_MODULE_AND_NAME = re.compile(r"[\w.]+(\s*:\s*[\w.]+)?\s*(\[.*\])?\s*")


def import_error(place: Found, error: BaseException, told: str) -> ProviderError:
    """What importing `place` raised, `told` in a line, as the error that a person sees."""
    if not place.is_folder and _MODULE_AND_NAME.fullmatch(place.value) is None:
        return ProviderInvalid(
            f"the entry point of provider {place.name!r} is {place.value!r}, which names no module",
            "write package.module:Class, without hyphens, spaces or slashes",
        )
    if isinstance(error, ModuleNotFoundError) and error.name:
        return _missing_module(place, error.name)
    if isinstance(error, SystemExit):
        return ProviderError(
            f"provider {place.name!r} ends the program when it is imported ({told})",
            f"report it to its author, or remove {place.where}",
        )
    return ProviderError(
        f"importing provider {place.name!r} from {place.where} raised {told}",
        "upgrade or reinstall it; hermes-memory --debug shows the traceback",
    )


def _missing_module(place: Found, missing: str) -> ProviderError:
    if missing.startswith(f"{FOLDER_PACKAGE}."):
        return ProviderUnavailable(
            f"provider {place.name!r} needs {'.' + missing.split('.', 2)[2]!r}, which is not in its folder",
            f"copy all of it to {str(place.path)!r} again",
        )
    if not place.is_folder and _top(missing) == _top(place.value.partition(":")[0].strip()):
        return ProviderUnavailable(
            f"provider {place.name!r} names the module {missing!r}, which is not there",
            f"reinstall it: pip install --force-reinstall {place.distribution}",
        )
    return _of_the_host(place, missing) or ProviderUnavailable(
        f"provider {place.name!r} needs the module {missing!r}, which is not installed",
        f"pip install {_requirement(place, missing)}",
    )


def _of_the_host(place: Found, missing: str) -> ProviderError | None:
    """A module of Hermes Agent, which no package index has under that name; None where it is none."""
    if place.kind == "native" or _own_requirement(place, missing):
        return None
    from hermes_core.loader.hermes_modules import hidden_host_module, is_host_module

    hiding = hidden_host_module(missing)
    if hiding:
        return ProviderUnavailable(
            f"provider {place.name!r} needs its host's module {missing!r}, which {hiding!r} hides",
            "rename that module, or run from another folder",
        )
    if not is_host_module(missing):
        return None
    return ProviderUnavailable(
        f"provider {place.name!r} needs {missing!r} of Hermes Agent itself, which is not here",
        "ask its author whether it can do without, or use it in Hermes Agent",
    )


def _top(module: str) -> str:
    return module.partition(".")[0]


def _requirement(place: Found, missing: str) -> str:
    """What to give to pip: the provider's own requirement of that name, else all it lists, else the module's name."""
    others = [need for need in place.requires if required(need) != "hermes-memory-core"]  # which asks for it
    wanted = _own_requirement(place, missing) or [_plain(need) for need in others]
    return " ".join(f"{need!r}" for need in wanted) or normalised(_top(missing))


def _own_requirement(place: Found, missing: str) -> list[str]:
    top = normalised(_top(missing))
    return [_plain(need) for need in place.requires if required(need) == top]


def _plain(need: str) -> str:
    """A requirement without the condition behind it."""
    return need.partition(";")[0].strip()


def no_provider(place: Found) -> ProviderError:
    """What was imported is no provider and registered none."""
    remedy = (
        "subclass hermes_core.MemoryProvider, or mark its hooks with hermes_core.hookimpl"
        if place.kind == "native"
        else "write register(ctx), which calls ctx.register_memory_provider(...), if it is yours; else it is a plugin of "
        "another sort, or it lacks what it needs here: hermes-memory --debug shows what it says"
    )
    return ProviderInvalid(f"{place.name!r} from {place.where} registered no provider", remedy)


def look_error(place: Found, told: str) -> ProviderError:
    """What it raised, `told` in a line, when it was made and asked for what it has."""
    return ProviderError(
        f"looking at provider {place.name!r} from {place.where} raised {told}",
        "correct what it speaks of; hermes-memory --debug shows the traceback",
    )


def not_found(name: str, found: Sequence[Found], lacking: str = "") -> ProviderError:
    """Nothing of this name is here: what to install, what was meant, or what its folder is `lacking`."""
    shadowed = [place for place in found if place.name.casefold() == name.strip().casefold()]
    if name in BUNDLED:
        note = f" ({shadowed[0].where} may not use the name)" if shadowed else ""
        return ProviderNotFound(
            f"provider {name!r} is not installed{note}", f"run: pip install {BUNDLED[name]}"
        )
    if owner_of(name):
        return ProviderNotFound(f"{name!r} is the curated memory itself", "it is always on; name another one")
    hidden = hidden_package(name, found)
    if hidden:
        return ProviderNotFound(not_used(hidden), name_the_other(hidden))
    if lacking:
        return ProviderNotFound(f"no provider is called {name!r}: {lacking}", REGISTERS)
    close = get_close_matches(name, {place.name for place in found} | set(BUNDLED), n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return ProviderNotFound(
        f"no provider called {name!r} is installed",
        f"{hint}see 'hermes-memory providers --all' for those that are",
    )


def hidden_package(name: str, found: Sequence[Found]) -> Found | None:
    """What the distribution of this name offers, where something else of the provider's name comes first."""
    wanted = normalised(name.strip())
    return next(
        (place for place in found if place.shadowed_by and normalised(place.distribution) == wanted != ""),
        None,
    )


def not_used(place: Found) -> str:
    """Why a shadowed place is not used."""
    return f"{place.where} is not used: {place.shadowed_by} comes first"


def name_the_other(place: Found) -> str:
    """What to do where the distribution of a shadowed place was named."""
    return f"name {place.name!r} for that one, or {ONE_OF_TWO}"


def still_loading(place: Found, seconds: float) -> ProviderError:
    """Its import, or its constructor, does not end."""
    return ProviderUnavailable(
        f"loading provider {place.name!r} from {place.where} has not ended after {seconds:.0f} s and is left behind",
        "see what it waits for (network, a lock), then start this program again",
    )
