"""Memory that leaves a home and comes into one: the archive of an export, its import, and the move between providers."""
