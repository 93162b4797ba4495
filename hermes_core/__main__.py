"""The command line as `python -m hermes_core`, for environments whose scripts are not on PATH."""

from hermes_core.cli import main

main(prog_name="hermes-memory")
