"""Skills: procedures that the agent wrote down, as SKILL.md files that people can read, edit and share."""
