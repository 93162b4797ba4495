"""state.db: every message of every session, and the search over them."""
