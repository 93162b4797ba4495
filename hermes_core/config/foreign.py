"""Keys of Hermes Agent in config.yaml, which both programs may share.

Several blocks have the same name in both programs. A key of Hermes Agent in such a block is no slip of the pen, and advice
to write one of our keys instead would be wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

_AGENT = """
    agent_cache api_max_retries auto_recovery_cycles background_review bot_mode_protocol budget_warning_ratio
    build_wait_timeout clarify_timeout coding_context coding_instructions cron_drain_timeout disabled_toolsets
    empty_response_guard enabled_toolsets environment_hint environment_probe execution_guidance fallback_model
    fast_auto_seconds gateway_auto_continue_freshness gateway_notify_interval gateway_startup_restore_drain_timeout
    gateway_startup_warmup_timeout gateway_timeout gateway_timeout_warning gateway_turn_lease_timeout image_input_mode
    inherit_mcp_toolsets intent_ack_continuation local_stream_stale_timeout max_retries max_tokens max_turns
    max_verify_nudges parallel_tool_call_guidance personality prefill_messages_file provider_routing reasoning_echo
    reasoning_effort reconnect_attention_after restart_after_turn_timeout restart_drain_timeout run_budget_seconds
    sanitizer_heal_escalation_threshold save_trajectories service_tier session_stall_timeout stall_guards
    stream_drain_timeout system_prompt task_completion_guidance text_verbosity tool_use_enforcement verbose
    verify_guidance verify_on_stop
"""
_MODEL = """
    api_key api_mode auth_mode default fallback_model max_output_tokens max_retries max_tokens model ollama_num_ctx
    openai_runtime provider reasoning_effort service_tier streaming supports_vision temperature top_p
"""

HERMES_AGENT_KEYS: Mapping[str, Collection[str]] = {
    "agent": frozenset(_AGENT.split()),
    "auxiliary": frozenset({"api_key", "api_mode", "max_concurrency", "model", "provider", "timeout"}),
    "curator": frozenset(
        {
            "archive_after_days",
            "consolidate",
            "enabled",
            "interval_hours",
            "min_idle_hours",
            "prune_builtins",
            "stale_after_days",
        }
    ),
    "memory": frozenset({"notifications", "write_approval", "write_mode"}),
    "model": frozenset(_MODEL.split()),
    "sessions": frozenset(
        {
            "archive_after_days",
            "auto_archive",
            "auto_prune",
            "min_interval_hours",
            "retention_days",
            "vacuum_after_prune",
            "write_json_snapshots",
        }
    ),
    "skills": frozenset(
        {
            "creation_nudge_interval",
            "disabled",
            "guard_agent_created",
            "inline_shell",
            "inline_shell_timeout",
            "template_vars",
            "trusted_repos",
            "write_approval",
        }
    ),
}
"""Keys of Hermes Agent in each block whose name is also the name of one of our blocks."""

_TOP = """
    _config_version approvals browser checkpoints code_execution compression cron custom_providers delegation display
    fallback_model fallback_providers file_read_max_chars gateway goals group_sessions_per_user human_delay kanban
    mcp_servers platform_toolsets platforms prompt_caching provider_routing security session_reset smart_model_routing
    streaming stt telegram terminal timezone tool_loop_guardrails toolsets tts web worktree
"""
_MARKS = frozenset(_TOP.split())


def is_of_hermes_agent(names: Collection[str]) -> bool:
    """Return True if the names at the top of a config.yaml are those of a file that Hermes Agent reads too."""
    return not _MARKS.isdisjoint(names)


def foreign_sentence(keys: Collection[str]) -> str:
    """Return the sentence about keys of Hermes Agent, which names some of them."""
    shown = sorted(keys)[:3]
    rest = f" and {len(keys) - len(shown)} more" if len(keys) > len(shown) else ""
    noun, verb = ("key", "has") if len(keys) == 1 else ("keys", "have")
    return f"config.yaml: {len(keys)} {noun} of Hermes Agent {verb} no effect here ({', '.join(shown)}{rest})"
