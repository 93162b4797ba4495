"""The settings and secrets of a home: config.yaml, its keys, and `.env`."""

from __future__ import annotations

from hermes_core.config.credentials import Credentials
from hermes_core.config.file import (
    backup_folder,
    config_text,
    is_provider_key,
    known_key,
    load_config,
    override_config,
    parse_config,
    save_text,
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
    STORAGE,
    STORAGE_PASSWORD,
    AgentConfig,
    Config,
    ExtensionsConfig,
    ProvidersConfig,
    RecallConfig,
    StorageConfig,
    Value,
)

__all__ = [
    "BLOCKS",
    "KEYS",
    "LOAD_PROVIDERS",
    "SEMANTIC",
    "STORAGE",
    "STORAGE_PASSWORD",
    "AgentConfig",
    "Config",
    "Credentials",
    "ExtensionsConfig",
    "ProvidersConfig",
    "RecallConfig",
    "StorageConfig",
    "Value",
    "backup_folder",
    "config_text",
    "is_provider_key",
    "known_key",
    "load_config",
    "override_config",
    "parse_config",
    "save_text",
    "set_value",
    "stored_keys",
    "stored_value",
    "unset_value",
]
