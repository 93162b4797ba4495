"""Readers of conversations of other tools, as claude.ai, ChatGPT, Claude Code, Codex, Gemini CLI, Aider and Hermes Agent."""
