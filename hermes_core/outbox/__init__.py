"""The outbox: stored calls of durable hooks that a provider has not taken yet, and their delivery."""
