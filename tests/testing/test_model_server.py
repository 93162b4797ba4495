from __future__ import annotations

import httpx

from hermes_core.testing.model_server import ModelServer


def test_a_client_that_asks_for_the_models_first_is_told_of_one() -> None:
    with ModelServer() as server:
        listed = httpx.get(f"{server.base_url}/models").json()
        missing = httpx.get(f"{server.base_url}/elsewhere")
    assert [model["id"] for model in listed["data"]] == ["scripted"]
    assert (missing.status_code, "no such path" in missing.text) == (404, True)
