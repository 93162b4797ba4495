from __future__ import annotations

import sys

from hermes_core.contract.values import Session
from hermes_core.loader.load import load_provider
from tests.loader.conftest import DUCK, REGISTER, Site


def test_the_context_of_the_caller_goes_with_it(site: Site) -> None:
    source = "from hermes_constants import get_hermes_home\nHOME = str(get_hermes_home())\n" + DUCK + REGISTER
    site.plugin("duck", source)
    provider = load_provider("duck", site.home).factory()
    told = sys.modules[type(provider.wrapped).__module__].HOME  # type: ignore[attr-defined]
    assert told == str(site.home.path)
    provider.initialize(Session("s1"))  # type: ignore[attr-defined]
    provider.shutdown()  # type: ignore[attr-defined]
