"""Migration from OpenClaw: `source` reads its folder, `plan` says what would happen, `apply` does it.

The plan is a function of what was read, so `hermes-memory claw migrate` does exactly what it showed. A migration never
changes the folder. Nothing in it is trusted: links are not followed, every text is scanned, sizes are bounded.
"""
