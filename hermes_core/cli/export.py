"""The function that exported plugin folders of Hermes Agent import by its name from this module."""

from __future__ import annotations

import argparse

from hermes_core.loader.foreign import inside_hermes_agent


# `hermes-memory plugins export` has written this import into folders of people: it must not be renamed.
def hand_on_commands(parser: argparse.ArgumentParser, name: str, called: str) -> None:
    """Let the parser of Hermes Agent forward the arguments after the provider's name to the provider's own commands."""
    inside_hermes_agent(name).add_commands(parser, name, called)
