"""A turn that the provider keeps, and one of another session that it is recalled in: python examples/turn.py"""

from __future__ import annotations
{% if cookiecutter.kind == "http" %}
import json
{%- endif %}
{%- if cookiecutter.kind != "local" %}
import os
{%- endif %}
import tempfile
{%- if cookiecutter.kind == "http" %}
from pathlib import Path
{%- endif %}

from hermes_core import Memory, open_memory
{%- if cookiecutter.kind == "http" %}

from stand_in import KEY, StandIn
{%- endif %}

PROVIDER = "{{ cookiecutter.name }}"
SAID = "The spare key is under the blue pot."
ASKED = "Where did we leave the spare key?"


def main(memory: Memory) -> None:
    """Two sessions of one person."""
    first = memory.start_session()
    memory.begin_turn(first, SAID)
    memory.end_turn(first, SAID, "Noted.")
    memory.end_session(first)
    memory.flush()

    second = memory.start_session()
    recalled = memory.begin_turn(second, ASKED)
    if recalled.problems or SAID not in recalled.context:
        raise SystemExit(f"not recalled: {'; '.join(recalled.problems) or 'nothing was found'}")
    print(recalled.inject(ASKED))


if __name__ == "__main__":
{%- if cookiecutter.kind == "local" %}
    with tempfile.TemporaryDirectory() as home, open_memory(home, provider=PROVIDER) as memory:
        main(memory)
{%- elif cookiecutter.kind == "http" %}
    os.environ["{{ cookiecutter.__key }}"] = KEY
    with StandIn() as service, tempfile.TemporaryDirectory() as home:
        settings = Path(home, f"{PROVIDER}.json")
        settings.write_text(json.dumps({"url": service.url}), encoding="utf-8")
        with open_memory(home, provider=PROVIDER) as memory:
            main(memory)
{%- else %}
    os.environ["{{ cookiecutter.__key }}"] = "example-key"
    with tempfile.TemporaryDirectory() as home, open_memory(home, provider=PROVIDER) as memory:
        main(memory)
{%- endif %}
