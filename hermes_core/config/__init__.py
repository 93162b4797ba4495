"""The settings and secrets of a home: config.yaml, its keys, and `.env`."""

from __future__ import annotations

from hermes_core.config.credentials import LENT, Credentials
from hermes_core.config.file import (
    is_provider_key,
    known_key,
    load_config,
    override_config,
    parse_config,
    set_value,
    stored_keys,
    stored_value,
    unset_value,
)
from hermes_core.config.keys import (
    BLOCKS,
    KEYS,
    LOAD_PROVIDERS,
    SEMANTIC,
    AgentConfig,
    Config,
    Key,
    ProvidersConfig,
    ToolsetsConfig,
    Value,
)

__all__ = [
    "BLOCKS",
    "KEYS",
    "LENT",
    "LOAD_PROVIDERS",
    "SEMANTIC",
    "AgentConfig",
    "Config",
    "Credentials",
    "Key",
    "ProvidersConfig",
    "ToolsetsConfig",
    "Value",
    "is_provider_key",
    "known_key",
    "load_config",
    "override_config",
    "parse_config",
    "set_value",
    "stored_keys",
    "stored_value",
    "unset_value",
]
