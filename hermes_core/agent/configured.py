"""The agent that config.yaml describes: its model, the model for summaries and reviews, and the agent itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from typing import Any

from hermes_core.agent.chat_model import Hear, unheard
from hermes_core.agent.given import require
from hermes_core.agent.loop import Agent
from hermes_core.agent.model import ModelSettings, OpenAIModel
from hermes_core.agent.summaries import TEMPERATURE, summariser
from hermes_core.config import Config, Credentials
from hermes_core.errors import ConfigError
from hermes_core.memory import Memory


def model_settings(config: Config, credentials: Credentials) -> ModelSettings:
    """The `model:` block, with the key that it names."""
    model = config.model
    return ModelSettings(
        model.base_url,
        model.name,
        _key(credentials, model.api_key_env),
        model.context_length,
        model.timeout,
        model.retries,
    )


def auxiliary_settings(config: Config, credentials: Credentials) -> ModelSettings | None:
    """The `auxiliary:` block, filled up from `model:`; None when it names no model."""
    model, other = config.model, config.auxiliary
    if not other.name:
        return None
    return ModelSettings(
        other.base_url or model.base_url,
        other.name,
        _key(credentials, model.api_key_env if other.api_key_env is None else other.api_key_env),
        other.context_length or model.context_length,
        model.timeout,
        model.retries,
    )


def _key(credentials: Credentials, variable: str) -> str:
    return (credentials.get(variable) or "") if variable else ""


def look_at_models(
    config: Config, credentials: Credentials
) -> Iterator[tuple[str, ModelSettings, list[str]]]:
    """Each model that is named, what it is for, and the models that its server has; nothing is generated.

    Raises `ConfigError` or `ModelError` when one can't be asked.
    """
    model = model_settings(config, credentials) if config.model.name else None
    for what, settings in (("model", model), ("auxiliary model", auxiliary_settings(config, credentials))):
        if settings is not None:
            with closing(OpenAIModel(settings)) as asked:
                yield what, settings, asked.listed()


class ConfiguredModels(AbstractContextManager["ConfiguredModels"]):
    """The two models of a home; `pausing` as for `OpenAIModel`. Raises `ConfigError` when none is named."""

    def __init__(self, memory: Memory, pausing: Hear = unheard) -> None:
        require("memory", memory, Memory, "what open_memory returned")
        if not memory.config.model.name:
            where = str(memory.home.config_yaml)
            raise ConfigError("no model is set", f"write `model:` with base_url and name into {where!r}")
        credentials = Credentials(memory.home)
        self.model = OpenAIModel(model_settings(memory.config, credentials), pausing)
        settings = auxiliary_settings(memory.config, credentials)
        self.auxiliary = OpenAIModel(settings, pausing) if settings is not None else None

    def agent(self, memory: Memory, **given: Any) -> Agent:
        """An agent on these models; `given` as for `Agent`. With an auxiliary one, past sessions are summarised on request."""
        if self.auxiliary is not None:
            memory.summarise_with(summariser(self.auxiliary.at(TEMPERATURE)))
        return Agent(memory, self.model, auxiliary=self.auxiliary, **given)

    def __exit__(self, *exc: object) -> None:
        with closing(self.model):
            if self.auxiliary is not None:
                self.auxiliary.close()
