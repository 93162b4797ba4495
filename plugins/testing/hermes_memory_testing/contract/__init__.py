"""The contract as a test class: subclass `ProviderContract`, write `make_provider`, run pytest."""

from __future__ import annotations

from hermes_memory_testing.contract.configuration import ConfigurationChecks, PackagingChecks
from hermes_memory_testing.contract.failure import FailureChecks, OutageChecks
from hermes_memory_testing.contract.forgetting import ForgettingChecks
from hermes_memory_testing.contract.isolation import IsolationChecks
from hermes_memory_testing.contract.lifecycle import BoundariesChecks, LifecycleChecks
from hermes_memory_testing.contract.moving import MovingChecks
from hermes_memory_testing.contract.recall import RecallChecks, ToolsChecks
from hermes_memory_testing.contract.writes import WritesChecks


class ProviderContract(
    PackagingChecks,
    ConfigurationChecks,
    MovingChecks,
    ForgettingChecks,
    OutageChecks,
    FailureChecks,
    IsolationChecks,
    BoundariesChecks,
    ToolsChecks,
    WritesChecks,
    RecallChecks,
    LifecycleChecks,
):
    """Every check, in groups by capability. What a provider does not claim is reported as that, not as passed.

    class TestNotes(ProviderContract):
        def make_provider(self):
            return Notes()
    """

    # pytest runs the checks of the last base first: lifecycle before all, packaging in the end.


__all__ = ["ProviderContract"]
