"""The conformance kit by its earlier name: install hermes-memory-testing, and import `hermes_memory_testing`."""

try:
    from hermes_memory_testing import *  # noqa: F403
except ImportError as exc:
    raise ImportError(
        "the conformance kit is in the package hermes-memory-testing; install plugins/testing"
    ) from exc
