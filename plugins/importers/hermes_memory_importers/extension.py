"""Entry module of the extension `importers`."""

from __future__ import annotations

from typing import Any

from hermes_core import hookimpl
from hermes_core.contract.extensions import CommandEntry, ImporterEntry

FORMATS = (
    # Of several formats that recognise a value with the same score, the first one reads the file.
    ImporterEntry(
        "openai",
        "OpenAI (messages) and conversations.json of ChatGPT",
        "hermes_memory_importers.openai:read_openai",
        "hermes_memory_importers.openai:score_openai",
    ),
    ImporterEntry(
        "codex",
        "session files of Codex",
        "hermes_memory_importers.codex:read_codex",
        "hermes_memory_importers.codex:score_codex",
        lines_only=True,
    ),
    ImporterEntry(
        "claude-code",
        "session files of Claude Code and Qwen Code",
        "hermes_memory_importers.claude_code:read_claude_code",
        "hermes_memory_importers.claude_code:score_claude_code",
        lines_only=True,
    ),
    ImporterEntry(
        "prompt-history",
        "prompt histories of Codex, Claude Code and Gemini CLI",
        "hermes_memory_importers.prompts:read_prompts",
        "hermes_memory_importers.prompts:score_prompts",
    ),
    ImporterEntry(
        "gemini-cli",
        "session files and saved chats of Gemini CLI",
        "hermes_memory_importers.gemini_cli:read_gemini_cli",
        "hermes_memory_importers.gemini_cli:score_gemini_cli",
    ),
    ImporterEntry(
        "openclaw",
        "session files of OpenClaw and pi",
        "hermes_memory_importers.openclaw:read_openclaw",
        "hermes_memory_importers.openclaw:score_openclaw",
        patterns=("*.jsonl.reset.*",),
        lines_only=True,
    ),
    ImporterEntry(
        "opencode",
        "database, exports and storage of opencode",
        "hermes_memory_importers.opencode:read_opencode",
        "hermes_memory_importers.opencode:score_opencode",
        patterns=("opencode*.db",),
    ),
    ImporterEntry(
        "crush",
        "crush.db of Crush",
        "hermes_memory_importers.crush:read_crush",
        "hermes_memory_importers.crush:score_crush",
        patterns=("crush.db",),
    ),
    ImporterEntry(
        "aider",
        ".aider.chat.history.md of Aider",
        "hermes_memory_importers.aider:read_aider",
        "hermes_memory_importers.aider:score_aider",
        patterns=("*.aider.chat.history.md",),
    ),
    ImporterEntry(
        "hermes-agent",
        "state.db, exports and session files of Hermes Agent",
        "hermes_memory_importers.hermes_agent:read_hermes_agent",
        "hermes_memory_importers.hermes_agent:score_hermes_agent",
        patterns=("state.db",),
    ),
    ImporterEntry(
        "claude-ai",
        "conversations.json of claude.ai",
        "hermes_memory_importers.claude_ai:read_claude_ai",
        "hermes_memory_importers.claude_ai:score_claude_ai",
    ),
    ImporterEntry(
        "saved-memories",
        "saved memories and projects of claude.ai and ChatGPT",
        "hermes_memory_importers.saved_memories:read_saved_memories",
        "hermes_memory_importers.saved_memories:score_saved_memories",
    ),
    ImporterEntry(
        "mem0",
        "memories of Mem0, and the stores of its open-source version (history.db, a folder of Qdrant)",
        "hermes_memory_importers.mem0:read_mem0",
        "hermes_memory_importers.mem0:score_mem0",
        patterns=("history.db", "storage.sqlite"),
    ),
    ImporterEntry(
        "mcp-memory",
        "the file of the memory server of MCP",
        "hermes_memory_importers.mcp_memory:read_mcp_memory",
        "hermes_memory_importers.mcp_memory:score_mcp_memory",
    ),
    ImporterEntry(
        "zep",
        "threads and graphs of Zep and Graphiti",
        "hermes_memory_importers.zep:read_zep",
        "hermes_memory_importers.zep:score_zep",
    ),
    ImporterEntry(
        "supermemory",
        "memories and documents of Supermemory",
        "hermes_memory_importers.supermemory:read_supermemory",
        "hermes_memory_importers.supermemory:score_supermemory",
    ),
    ImporterEntry(
        "letta",
        "agent files of Letta, and the database of its server (SQLite, or a dump of PostgreSQL)",
        "hermes_memory_importers.letta:read_letta",
        "hermes_memory_importers.letta:score_letta",
        patterns=("*.af", "sqlite.db"),
    ),
    ImporterEntry(
        "chat-databases",
        "sessions of the OpenAI Agents SDK (SQLite), and logs.db of llm",
        "hermes_memory_importers.chat_databases:read_chat_databases",
        "hermes_memory_importers.chat_databases:score_chat_databases",
        patterns=("logs.db",),
    ),
    ImporterEntry(
        "langgraph",
        "checkpoints and stores of LangGraph (SQLite, or a dump of PostgreSQL)",
        "hermes_memory_importers.langgraph:read_langgraph",
        "hermes_memory_importers.langgraph:score_langgraph",
        patterns=("checkpoints*.sqlite", "checkpoints*.db"),
    ),
    ImporterEntry(
        "cursor",
        "state.vscdb of Cursor",
        "hermes_memory_importers.cursor:read_cursor",
        "hermes_memory_importers.cursor:score_cursor",
        patterns=("state.vscdb",),
    ),
    ImporterEntry(
        "basic-memory",
        "notes of basic-memory",
        "hermes_memory_importers.basic_memory:read_basic_memory",
        "hermes_memory_importers.basic_memory:score_basic_memory",
    ),
    ImporterEntry(
        "locomo",
        "LoCoMo (sessions with dia_id)",
        "hermes_memory_importers.locomo:read_locomo_file",
        "hermes_memory_importers.locomo:score_locomo",
    ),
)


@hookimpl
def register_commands(commands: Any) -> None:
    """Register `hermes-memory import`."""
    commands.add(
        CommandEntry(
            "import",
            "Bring conversations or an export from a file into memory.",
            "hermes_memory_importers.command:import_command",
        )
    )


@hookimpl
def register_importers(importers: Any) -> None:
    """Register the formats of other tools."""
    for entry in FORMATS:
        importers.add(entry)
