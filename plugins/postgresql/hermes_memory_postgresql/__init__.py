"""Sessions, outbox and notes on a PostgreSQL server. `engine.PostgresEngine` is what a home with `storage.url` opens."""
