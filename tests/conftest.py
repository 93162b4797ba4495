"""Guards for the whole suite. Fixtures live in `hermes_core.testing.pytest_plugin`, where authors get them too."""
