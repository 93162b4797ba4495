@dataclass(frozen=True, slots=True)
class Note:
    """One thing to remember. The same `key` again replaces it; `scope` says whose it is, `at` when it was said."""

    key: str
    scope: str
    text: str
    at: float = 0.0
    score: float | None = None
