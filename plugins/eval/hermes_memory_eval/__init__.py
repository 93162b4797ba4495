"""Measurement of recall on a person's own past sessions."""
