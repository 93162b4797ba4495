"""What a person can set; declared once, it drives validation, status and setup."""

from __future__ import annotations

from hermes_core import Field

NAME = "{{ cookiecutter.name }}"
{%- if cookiecutter.kind != "local" %}
KEY = "{{ cookiecutter.__key }}"
{%- endif %}

{% if cookiecutter.kind == "local" -%}
SETTINGS = (Field("path", str, f"{NAME}.db", "File of the notes, below the home."),)
{%- else -%}
SETTINGS = (
{%- if cookiecutter.kind == "http" %}
    Field("url", str, "http://127.0.0.1:8765", "Address of the service.", identity=True),
    Field("api_key", env=KEY, secret=True, required=True, help="Key of the service."),
    Field("timeout", float, 10.0, "Seconds to wait for an answer.", minimum=0.1, maximum=60.0),
{%- else %}
    Field("api_key", env=KEY, secret=True, required=True, help="Key of the service."),
    Field("project", str, "default", "Project of the service that holds the notes.", identity=True),
{%- endif %}
)
{%- endif %}
