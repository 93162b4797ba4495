"""`python -m hermes_core` is the command line too, where another program is called `hermes`."""

from hermes_core.cli import main

main(prog_name="hermes")
