"""MEMORY.md and USER.md: small notes that people and agents both edit, in every system prompt, never lost."""
