"""Questions for the model of a home that has none yet."""

from __future__ import annotations

from contextlib import closing

import click

from hermes_core import HermesHome
from hermes_core.cli import Failure
from hermes_core.cli.output import warn
from hermes_core.config import Config, Credentials, load_config, set_value
from hermes_core.errors import ConfigError, HermesError, ModelError
from hermes_core.kit import printable
from hermes_memory_agent import ModelSettings, OpenAIModel

# Names of a server's list that are printed; routers list hundreds.
MAX_NAMES = 12

INTRODUCTION = """\
No model is set yet. Name an OpenAI-compatible server:
  http://127.0.0.1:11434/v1      Ollama on this machine
  http://127.0.0.1:1234/v1       LM Studio on this machine
  https://openrouter.ai/api/v1   OpenRouter
Ctrl-C leaves; nothing is stored before the last answer."""


def ask_for_model(home: HermesHome) -> None:
    """Ask a person for the model if none is set, and write it into config.yaml and its key into .env.

    The questions go to standard error, since standard output may be a file.
    """
    config = load_config(home)
    if config.model.name:
        return
    click.echo(INTRODUCTION, err=True)
    try:
        settings, key, names = _ask_for_server(config, Credentials(home))
        for name in names[:MAX_NAMES]:
            click.echo(f"  {printable(name)}", err=True)
        if len(names) > MAX_NAMES:
            click.echo(f"  and {len(names) - MAX_NAMES} more", err=True)
        name = click.prompt("Name of the model", default=names[0] if len(names) == 1 else None, err=True)
    except click.Abort:
        raise Failure("cancelled; nothing was changed") from None
    if key:
        Credentials(home).set(config.model.api_key_env, key)
    set_value(home, "model.base_url", settings.base_url)
    set_value(home, "model.name", name.strip())
    click.echo(printable(f"saved in {home.config_yaml}; hermes-memory config edit changes it"), err=True)


def _ask_for_server(config: Config, credentials: Credentials) -> tuple[ModelSettings, str, list[str]]:
    """Return the settings of a server, the key that the person typed, and the names of the server's models."""
    variable = config.model.api_key_env
    known = (credentials.get(variable) or "") if variable else ""
    url, typed, default = "", "", config.model.base_url
    while True:
        url = url or click.prompt("Address of the server", default=default, err=True).strip()
        settings = ModelSettings(url, "unnamed", typed or known)
        try:
            return settings, typed, _names(settings)
        except (ConfigError, ModelError) as exc:
            if variable and not settings.api_key and _wants_key(exc):
                hidden = f"Key of the server, kept as {variable} in .env (it is not shown)"
                typed = click.prompt(hidden, hide_input=True, err=True).strip()
                continue
            warn([str(exc)])
            if isinstance(exc, ModelError):
                if not click.confirm("Use another address?", default=True, err=True):
                    return settings, typed, []
                default = url
            url = typed = ""


def _names(settings: ModelSettings) -> list[str]:
    with closing(OpenAIModel(settings)) as model:
        return model.list_models()


def _wants_key(error: HermesError) -> bool:
    """Return True if the server answered that the request carries no valid key."""
    return getattr(error.__cause__, "status_code", None) in (401, 403)
