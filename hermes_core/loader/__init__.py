"""Finds providers, says what state each is in, and loads the one that is asked for."""
