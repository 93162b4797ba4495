"""The contract as a test class: subclass `ProviderContract`, write `make_provider`, run pytest."""

from __future__ import annotations

from hermes_core.testing.contract.configuration import Configuration, Packaging
from hermes_core.testing.contract.failure import Failure, Outage
from hermes_core.testing.contract.isolation import Isolation
from hermes_core.testing.contract.lifecycle import Boundaries, Lifecycle
from hermes_core.testing.contract.recall import Recall, Tools
from hermes_core.testing.contract.writes import Writes


class ProviderContract(
    Packaging, Configuration, Outage, Failure, Isolation, Boundaries, Tools, Writes, Recall, Lifecycle
):
    """Every check, in groups by capability. What a provider does not claim is reported as that, not as passed.

    class TestNotes(ProviderContract):
        def make_provider(self):
            return Notes()
    """

    # pytest runs the checks of the last base first: lifecycle before all, packaging in the end.


__all__ = ["ProviderContract"]
