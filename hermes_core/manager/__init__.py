"""Calls of providers: the order of the calls, their threads, their deadlines, and the handling of their errors."""
