"""OpenClaw's memory, brought over: `source` finds and reads its folder, `plan` says what would happen, `apply` does it.

The plan is a function of what was read, so what `hermes-memory claw migrate` shows is what it then does. The folder is never
changed by a migration, and nothing in it is trusted: links are not followed, every text is scanned, sizes are bounded.
"""

from __future__ import annotations
