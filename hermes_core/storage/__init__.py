"""What every file and database of ours stands on; providers reach it through `hermes_core.kit`."""
