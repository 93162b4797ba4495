"""A home with the provider's settings in it, and the memory of a host that uses it."""

from __future__ import annotations
{% if cookiecutter.kind == "http" %}
import json
{%- endif %}
from collections.abc import Iterator

import pytest
from hermes_core import HermesHome, Memory, open_memory
{%- if cookiecutter.kind == "http" %}

from stand_in import KEY, StandIn
{%- endif %}

{% if cookiecutter.kind == "sdk" -%}
KEY = "example-key"


{% elif cookiecutter.kind == "local" %}
{% endif -%}
{% if cookiecutter.kind == "http" %}
@pytest.fixture
def service() -> Iterator[StandIn]:
    """The service, running."""
    with StandIn() as running:
        yield running


{% endif -%}
@pytest.fixture
def home({% if cookiecutter.kind == "http" %}service: StandIn, {% endif %}hermes_home: HermesHome) -> HermesHome:
    """A home of the test's own, with all that the provider needs."""
    hermes_home.path.mkdir()
{%- if cookiecutter.kind == "http" %}
    settings = hermes_home.provider_json("{{ cookiecutter.name }}")
    settings.write_text(json.dumps({"url": service.url}), encoding="utf-8")
{%- endif %}
{%- if cookiecutter.kind != "local" %}
    hermes_home.env_file.touch(mode=0o600)
    hermes_home.env_file.write_text(f"{{ cookiecutter.__key }}={KEY}\n", encoding="utf-8")
{%- endif %}
    return hermes_home


@pytest.fixture
def memory(home: HermesHome) -> Iterator[Memory]:
    """The memory of an agent that uses the provider."""
    with open_memory(home, provider="{{ cookiecutter.name }}") as opened:
        yield opened
