"""The settings, declared once for validation, status, setup and the page."""

from __future__ import annotations

from hermes_core import Field
from hermes_core.kit import RECALL_MODE, START_TIMEOUT

NAME = "byterover"
KEYS = "https://app.byterover.dev/settings/keys"

SETTINGS = (
    Field(
        "auto_extract", bool, True, "Let brv curate each turn; off: only what the agent curates by itself."
    ),
    RECALL_MODE,
    Field(
        "min_score",
        float,
        0.45,
        "Found below this score is not recalled.",
        minimum=0.0,
        maximum=1.0,
        advanced=True,
    ),
    Field(
        "folder",
        str,
        "",
        "One tree for everybody here; empty: one for each user.",
        identity=True,
        advanced=True,
    ),
    Field("isolated", bool, True, "Keep brv's account, model and logs in this profile.", advanced=True),
    Field("command", str, "brv", "The program, by name or path.", advanced=True),
    START_TIMEOUT,
    Field("search_timeout", float, 4.5, "Seconds for a recall.", minimum=0.5, maximum=30.0, advanced=True),
    Field("query_timeout", float, 50.0, "Seconds for brv_query.", minimum=10.0, maximum=55.0, advanced=True),
    Field(
        "curate_timeout",
        float,
        50.0,
        "Seconds that one try follows a curation.",
        minimum=5.0,
        maximum=55.0,
        advanced=True,
    ),
    Field("api_key", env="BRV_API_KEY", secret=True, url=KEYS, help="Key of a ByteRover account; optional."),
    Field(
        "model_provider", str, "", "Who runs brv's model, as in `brv providers list`; empty: as connected."
    ),
    Field(
        "model_base_url",
        str,
        "",
        "Address of the model's server.",
        when={"model_provider": "openai-compatible"},
    ),
    Field("model", str, "", "Name of the model; empty: the provider's default."),
    Field("model_key", env="BRV_MODEL_API_KEY", secret=True, help="Key of the model's provider."),
)
