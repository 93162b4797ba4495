{% if cookiecutter.kind == "extension" -%}
"""{{ cookiecutter.name }}: an extension of hermes_core."""
{% else -%}
"""{{ cookiecutter.name }}: a memory provider for hermes_core."""

from __future__ import annotations

from {{ cookiecutter.__package }}.provider import {{ cookiecutter.__class }}

__all__ = ["{{ cookiecutter.__class }}"]
{% endif -%}
