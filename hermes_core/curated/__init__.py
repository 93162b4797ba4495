"""The notes: MEMORY.md and USER.md, which people and agents both edit. They are part of every system prompt."""
