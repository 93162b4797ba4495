"""Files and SQLite databases of this package. Providers use this code through `hermes_core.kit`."""
