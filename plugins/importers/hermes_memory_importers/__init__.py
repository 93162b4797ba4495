"""Readers of conversations of other tools: claude.ai, ChatGPT, Claude Code, Codex, Hermes Agent, OpenAI, LoCoMo."""
