@dataclass(frozen=True, slots=True)
class Note:
    """One thing to remember. The same `key` again replaces it; `owner` is whose it is, `at` when it was said."""

    key: str
    owner: str
    text: str
    at: float = 0.0
    score: float | None = None
