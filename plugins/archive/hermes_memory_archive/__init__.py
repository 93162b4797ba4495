"""Backups, exports and imports of a home, and the move of memories between providers."""
