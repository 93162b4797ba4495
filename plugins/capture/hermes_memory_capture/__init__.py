"""Capture of the sessions of coding agents as they happen, and recall for these agents."""
