"""The contract of memory providers, on this one. At the end of a run stands a table of what was found."""

from __future__ import annotations
{% if cookiecutter.kind == "http" %}
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import pytest
{%- elif cookiecutter.kind == "sdk" %}
from collections.abc import Mapping
from typing import ClassVar
{% endif %}
from hermes_memory_testing import ProviderContract

from {{ cookiecutter.__package }} import {{ cookiecutter.__class }}
{%- if cookiecutter.kind == "http" %}
from {{ cookiecutter.__package }}.settings import KEY
from stand_in import KEY as KNOWN
from stand_in import StandIn
{%- elif cookiecutter.kind == "sdk" %}
from {{ cookiecutter.__package }}.settings import KEY
{%- endif %}


class Test{{ cookiecutter.__class }}(ProviderContract):
    """What it claims: turns and curated memory are recalled, and each user has a memory of their own."""

    name = "{{ cookiecutter.name }}"
    recalled_from = frozenset({"sync_turn", "on_memory_write"})
    isolates_users = True
{%- if cookiecutter.kind == "http" %}
    secrets: ClassVar[Mapping[str, str]] = {KEY: KNOWN}
{%- elif cookiecutter.kind == "sdk" %}
    secrets: ClassVar[Mapping[str, str]] = {KEY: "example-key"}
{%- endif %}

    def make_provider(self) -> {{ cookiecutter.__class }}:
        return {{ cookiecutter.__class }}()
{%- if cookiecutter.kind == "http" %}

    @pytest.fixture
    def backend(self) -> Iterator[StandIn]:
        with StandIn() as service:
            self.service = service
            yield service

    @pytest.fixture
    def settings(self, backend: StandIn) -> Mapping[str, str]:
        return {"url": backend.url}

    def test_homes_do_not_see_each_other(self) -> None:
        self.not_claimed("two homes on one account share it; profiles of one home do not")

    @contextmanager
    def outage(self) -> Iterator[None]:
        self.service.fault = 503
        try:
            yield
        finally:
            self.service.fault = 0
{%- endif %}
