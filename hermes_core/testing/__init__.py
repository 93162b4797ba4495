"""For authors of providers and hosts: fakes, fixtures and guards, installed with the package."""
