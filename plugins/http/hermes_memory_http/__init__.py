"""The server `hermes-memory serve`: the memory of a home over HTTP."""
