"""Skills: procedures that the agent writes down as SKILL.md files, which people can read, edit and share."""
