"""Names of the core that extensions import beside its public modules. Data only: a test and the reference read it."""

from __future__ import annotations

PUBLIC = ("contract", "errors", "kit", "recall")
"""Packages and modules of `hermes_core` that are public as a whole, as `hermes_core` itself is."""

DOCUMENTED: dict[str, str] = {
    # Commands, checks and pages.
    "cli": "DEGRADED INTERRUPTED Failure Group extensions_of home_of",
    "cli.output": "build_with_progress console finish json_option moment note_unread print_document print_done print_result print_styled print_table progress_bar "
    "wants_json warn",
    "cli.options": "all_targets_option dry_run_option home_to_read source_options target_option time_options user_option "
    "with_memory",
    "cli.shell": "complete_provider",
    "health.finding": "Finding failed run_check",
    "health.provider": "hook_records selected_health",
    "actions.notes": "NoteResult ShownNote allow_note change_note deliver notes_with_origins pin_note restore_version session_of_user "
    "source_of_change undo_change",
    "actions.approval": "Approval WaitingItem",
    "actions.conversations": "delete_sessions deletion_message exported_lines mark_conversation named_session rename_conversation",
    "actions.dead_letters": "chosen_rows delete_rows retry_rows",
    "actions.people": "forget_person report_counts report_sentences",
    "actions.turns": "explained_turn",
    "setup.answers": "Answers SavedAnswer persist require_complete select_provider",
    "setup.candidate": "missing_extras questions try_out",
    "curated.waiting": "waiting_sentence",
    "forget": "forget_user",
    "sessions.daily_usage": "daily_usage",
    "sessions.transfer": "check_document import_session session_document",
    "curated.tool": "memory_schema_without_prompt",
    "loopback": "HOST listen",
    "logs": "LogFile logging_to",
    # Settings, and files in a home.
    "config": "AgentConfig Config Credentials KEYS NO_PROVIDER RecallConfig StorageConfig backup_folder edit_config load_config "
    "override_config provider_name set_value stored_keys unset_value",
    "config.yaml_text": "read_data with_value",
    "home": "FOLDER_PREFIX expanded folder_fault",
    "storage.files": "PRIVATE_FILE PRIVATE_FOLDER delete_path ensure_folder locked open_at_once remedy_for sync_folder write_checked",
    "loader.parts": "HomeParts recorded_parts",
    "storage.output_file": "check_output_file open_partial refuse_existing",
    "packages": "install_remedy program_version",
    "shell_words": "shell_line shell_word",
    # Texts of others.
    "safety.origin": "Judge RANKS Reading as_origin current_reading in_scope lowest may_command origin_of_text report_result",
    "origins": "author_origin is_said message_origin",
    "safety.fence": "Contexts RecallScrubber build_memory_context_block clean_result without_context",
    "safety.scan": "Scan first_threat invisible_characters scan",
    "safety.neutral": "neutralize",
    "safety.redact": "looks_like_key redact_value secrets_in",
    "safety.templates": "without_turns",
    "safety.terminal": "counted escape_controls escape_hidden hanging",
    "storage.verdicts": "CONTEXT_FILES MAX_FILE_CHARS ScannedText Verdicts find_context_file read_for_prompt",
    "safety.json_size": "JsonTooLarge MAX_VALUES TORN check_json_size ends_within_value parse_json torn_line",
    "safety.parts": "FIELDS PARTS foreign_origins named_part",
    "safety.skill_messages": "words_beside_skill",
    # Values that methods of `Memory`, `Notes`, `SessionStore` and the functions of `hermes_core` take and return.
    "curated.document": "FlaggedEntry NotesUsage entry_fault entry_handle join_entries measure normalize_entry parse_note_file split_entries "
    "split_threat",
    "curated.edits": "Operation",
    "curated.history": "NoteVersion",
    "curated.answers": "Result changed_something",
    "curated.store": "TARGETS",
    "curated.stored": "DataNote NoteSettings StoredNotes",
    "loader.discover": "ProviderCandidate ProviderEntry",
    "loader.entry_points": "LoadControl",
    "loader.extensions": "Extensions extension_remedy import_target inactive_reason load_extensions",
    "loader.extras": "ChatCommand ProviderExtras",
    "loader.guard": "ForeignError call_foreign",
    "loader.load": "LoadedProvider",
    "manager.call": "CallResult",
    "manager.manager": "ProviderHealth RecallResult",
    "outbox.rows": "DELIVERED_ROW Row TRACE_CONTEXT",
    "aio": "Threads",
    "conversation": "ChatMessages",
    "sessions.chat_forms": "chat_messages",
    "sessions.session_store": "SessionStore",
    "sessions.open_turns": "OpenTurnStore",
    "sessions.turn_records": "MAX_RECORDS list_turns turn_record turns_at",
    "sessions.lineage": "children first_messages id_for stored_sources",
    "sessions.owners": "give_to_home stored_users",
    "sessions.records": "CompletedTurn Mark Order PROGRAM_SOURCES Relation SearchHit State StoredMessage StoredSession as_json calls_as_text "
    "epoch_seconds local_time meta_key read_meta sqlite_text text_of turn_of_ref turn_ref words_of",
    "sessions.summaries": "Summarise",
    "turn_recall": "BegunTurn ExplainedHit ExplainedReport RecallHit RecallReport SeenTexts "
    "SessionRecall render_notes",
    "stopping": "current_stop stopped stopped_by wait_unless_stopped",
    # Engines and indexes. An engine has a search index, and may have the vectors.
    "storage.leases": "COMPRESSION_PREFIX LEASE_S Lease SESSION_PREFIX drop_expired lease_holders",
    "storage.tables": "ColumnType Index Table integer number render_table text",
    "storage.moved": "MARK_PREFIX MOVED_REMEDY MOVED_WORDS StoreMark read_mark refuse_marked",
    "curated.project": "Repository repository_of",
    "sessions.home_store": "Moving notes_of_home open_sessions",
    "curated.origins": "Note NoteOrigin UNKNOWN ORIGINS entry_hash note_key read_origins",
    "storage.engine": "CommitInDoubt CommitUnconfirmed Connection Dialect Engine RowConflict Statement TransactionAborted "
    "ValueRejected run_callbacks",
    "sessions.search.protocol": "CHANGES_KEY Coverage DIMENSION_KEY HAS_TEXT INT8_SCALE LAST_ID_KEY MAX_NEAREST MIN_COVERAGE "
    "MessageIndex Nearness OtherModel PROGRESS_KEY Reranker SearchEngine Surroundings Vector VectorIndex VectorSamples "
    "VectorStore",
    "sessions.search.reader": "CANDIDATE_COLUMNS ClosestMessages CommonMatch IndexReader IndexRequest IndexRow Joins Postings ROW SHOWN_COLUMNS "
    "ScopeFacts windows_around",
    "sessions.search.reasons": "Absence GateReason HitReason SearchTrace",
    "sessions.search.filters": "Condition Filters message_condition session_condition",
    "sessions.search.samples": "MAX_CHARS SAMPLED_TEXTS SAMPLES terms_of_sample",
    "sessions.search.texts": "terms_of terms_of_row",
    "sessions.search.match": "Match Phrase Syntax condition_sql expression_of",
}
"""Names with a page in the reference, by module. A release note says when one changes."""

NAMES: dict[str, str] = {
    "agent": "cli.review.ReviewDialog cli.sessions.print_hits curated.edits.Edit curated.edits.apply "
    "curated.history.MAX_ID curated.history.NoteHistory curated.history.PENDING "
    "curated.history.insert_change curated.origins.PERSON curated.rows.place_of "
    "health.files.notice_findings manager.at_exit manager.call.attempt manager.call.ends_program "
    "manager.providers.schema_fault problems.distinct safety.origin.rank "
    "sessions.lineage.clean_title "
    "storage.inventory.Inventory storage.inventory.STATE_DB",
    "archive": "curated.history.PORTABLE_COLUMNS curated.origins.origin_from_plain curated.origins.plain_origin curated.places.owner_of_folder curated.view.NoteView "
    "selection.account_of sessions.maintenance.exclusive setup.candidate.open_candidate "
    "storage.inventory.FILE_NAME storage.sqlite.integrity_faults",
    "hermes-agent": "cli.providers.provider_commands loader.discover.BUNDLED loader.discover.EXPORTED "
    "loader.discover.FOLDERS loader.discover.discover loader.discover.folder_candidate "
    "loader.discover.name_owner loader.discover.read_manifest loader.discover.select "
    "loader.entry_points.installed_entry_points loader.entry_points.normalise "
    "loader.folder_import.FOLDER_PACKAGE loader.load.load_folder loader.requirements.missing_packages "
    "loader.sources.module_path loader.sources.python_files loader.sources.read_source "
    "packages.OWN_PACKAGES packages.install_words",
    "postgresql": "curated.history.PENDING curated.rows.place_of outbox.recovery.outbox_of_home sessions.maintenance.exclusive "
    "sessions.records.MEMORY_TOOLS sessions.schema.STORED_TABLES sessions.schema.TABLES sessions.search.index "
    "storage.inventory.Inventory storage.inventory.STATE_DB storage.sqlite.SCHEMA_1 "
    "storage.sqlite.database_files",
    "semantic": "sessions.search.index.note_change",
    "telemetry": "manager.call.attempt",
    "testing": "loader.discover.discover loader.discover.select loader.load.not_found "
    "manager.plugins.implemented_hooks manager.plugins.register_provider packages.install_words",
}
"""Inner names by the extension of this project that uses them. They may change in any release."""
