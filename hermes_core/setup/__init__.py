"""Makes a provider ready: what it needs installed, its settings answered, kept and read back, tried, then chosen.

Nothing is written before all answers are there, and `memory.provider` is written last: whoever is killed in between
still has the old provider, and a second run completes the first.
"""
