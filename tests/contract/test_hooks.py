from __future__ import annotations

import inspect

from hermes_core.contract.hooks import (
    HOOK_NAMES,
    OBSERVER_HOOK_NAMES,
    OBSERVER_POLICIES,
    POLICIES,
    ObserverHooks,
    ProviderHooks,
)
from tests.table import table

# moment, worker, seconds: what authors were promised. A change here is a change of the contract.
PROMISED = {
    "is_available": ("setup", "read", 1),
    "check": ("setup", "read", 60),
    "backup_paths": ("setup", "read", 1),
    "pending_writes": ("setup", "read", 1),
    "export_memories": ("setup", "read", 60),
    "import_memory": ("setup", "read", 60),
    "register_cli": ("setup", "read", 1),
    "get_tool_schemas": ("start", "read", 1),
    "initialize": ("start", "read", 30),
    "system_prompt_block": ("start", "read", 1),
    "on_turn_start": ("turn", "read", 1),
    "prefetch": ("turn", "read", 5),
    "queue_prefetch": ("turn", "read", 30),
    "handle_tool_call": ("turn", "read", 60),
    "sync_turn": ("turn", "write", 60),
    "on_memory_write": ("turn", "write", 60),
    "on_delegation": ("turn", "write", 60),
    "on_pre_compress": ("boundary", "read", 120),
    "on_session_end": ("boundary", "write", 120),
    "on_session_switch": ("boundary", "write", 30),
    "forget_user": ("boundary", "write", 120),
    "shutdown": ("end", "caller", 15),
}
PROMISED_TO_OBSERVERS = {
    "filter_write": ("observe", "caller", 1),
    "filter_recall": ("observe", "caller", 1),
    "on_event": ("observe", "background", 30),
}
SPECS = [
    (owner, name)
    for owner in (ProviderHooks, ObserverHooks)
    for name in vars(owner)
    if not name.startswith("_")
]


def test_every_hook_has_the_moment_worker_and_deadline_that_were_promised() -> None:
    assert {n: (p.moment, p.worker, p.deadline) for n, p in POLICIES.items()} == PROMISED
    assert {
        n: (p.moment, p.worker, p.deadline) for n, p in OBSERVER_POLICIES.items()
    } == PROMISED_TO_OBSERVERS


def test_the_names_are_those_of_the_table_and_each_is_declared_once() -> None:
    assert PROMISED.keys() == HOOK_NAMES
    assert PROMISED_TO_OBSERVERS.keys() == OBSERVER_HOOK_NAMES
    assert [name for _, name in SPECS] == [*PROMISED, *PROMISED_TO_OBSERVERS]


def test_what_is_on_the_write_worker_is_durable_and_nothing_else() -> None:
    durable = {name for name, policy in POLICIES.items() if policy.durable}
    assert durable == {
        "sync_turn",
        "on_memory_write",
        "on_delegation",
        "on_session_end",
        "on_session_switch",
        "forget_user",
    }
    assert all("outbox" in POLICIES[name].on_failure for name in durable)


@table(("owner", "name"), SPECS)
def test_a_spec_teaches_what_it_is_and_takes_plain_required_parameters(owner: type, name: str) -> None:
    function = getattr(owner, name)
    parameters = list(inspect.signature(function).parameters.values())[1:]
    assert all(p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty for p in parameters)
    assert all(p.annotation for p in parameters)
    assert len(inspect.getdoc(function) or "") > 40
    policy = (POLICIES | OBSERVER_POLICIES)[name]
    assert policy.combining
    assert policy.on_failure
