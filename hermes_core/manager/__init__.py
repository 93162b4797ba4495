"""Providers at work: who is called when, on which thread, for how long, and what happens when it goes wrong."""
