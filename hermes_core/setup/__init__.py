"""Setup of a provider: install its requirements, ask for its settings, save and read them back, try it, select it.

Nothing is written before all answers are there, and `memory.provider` is written last: after a kill in between, the old
provider is still active, and a second run completes the first.
"""
