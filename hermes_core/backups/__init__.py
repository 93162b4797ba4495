"""Backups of a home: one archive, made while programs write, checked after it is written, and put back whole."""
