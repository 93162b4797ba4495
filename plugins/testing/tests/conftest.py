"""The providers of these tests are imported by name, here and in the test runs that a test starts."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
