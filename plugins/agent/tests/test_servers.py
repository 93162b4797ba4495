"""What servers send that isn't what OpenAI sends, or sends when all goes well: each was seen of one in use."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import SimpleNamespace
from typing import Any

import pytest

from hermes_core.errors import ContextOverflow, ModelError, ModelRefused, ModelUnavailable
from hermes_memory_agent import Answer, ModelSettings, OpenAIModel
from hermes_memory_agent.answer import AnswerBuilder
from hermes_memory_agent.cancel import Cancel
from hermes_memory_testing.model_server import ModelServer, Reply, Script

HELLO = [{"role": "user", "content": "Hello"}]
DONE = "data: [DONE]\n\n"


def asked(*script: Script, on_text: Callable[[str], None] = lambda _: None, **settings: Any) -> Answer:
    """The answer of a server that says this."""
    with ModelServer(script) as server:
        given = {"retries": 0, "pause": 0.001, **settings}
        model = OpenAIModel(ModelSettings(server.base_url, "scripted", **given))
        try:
            return model.complete(HELLO, (), on_text=on_text, cancel=Cancel())
        finally:
            model.close()


def events(*chunks: Any, end: str = DONE) -> Reply:
    """A stream of these chunks; a string stands for itself."""
    lines = [chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return Reply(raw="".join(lines) + end)


def chunk(delta: Any, finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "1",
        "object": "chat.completion.chunk",
        "created": 0,
        "model": "m",
        "choices": [choice],
    } | more


def calling(*calls: Any) -> Reply:
    """A stream in which each of these is a piece of a tool call in a chunk of its own."""
    return events(*(chunk({"tool_calls": [call]}) for call in calls), chunk({}, "tool_calls"))


def on_tool_call(*pieces: Any) -> list[tuple[str, str]]:
    """Name and arguments of the calls that these pieces make."""
    return [(call.name, call.arguments) for call in asked(calling(*pieces)).calls]


SEA = '{"at": "sea"}'


@pytest.mark.parametrize(
    "pieces",
    [
        pytest.param(
            (
                {"id": "a", "function": {"name": "look", "arguments": ""}},
                {"function": {"arguments": SEA[:6]}},
                {"function": {"arguments": SEA[6:]}},
            ),
            id="no-index",
        ),
        pytest.param(
            (
                {"index": 0, "id": "a", "function": {"name": "look"}},
                {"index": 0, "id": "b", "function": {"arguments": SEA[:6]}},
                {"index": 0, "id": "c", "function": {"arguments": SEA[6:]}},
            ),
            id="another-id-in-each-piece",
        ),
        pytest.param(
            (
                {"index": 0, "id": "a", "function": {"name": "look", "arguments": SEA[:6]}},
                {"index": 0, "id": "a", "function": {"name": "look", "arguments": SEA[6:]}},
            ),
            id="the-name-in-each-piece",
        ),
        pytest.param(
            (
                {"id": "a", "function": {"name": "look", "arguments": SEA[:6]}},
                {"id": "a", "function": {"name": "look", "arguments": SEA[6:]}},
            ),
            id="no-index-and-the-name-in-each-piece",
        ),
        pytest.param(
            ({"index": 0, "id": "a", "function": {"name": "look", "arguments": {"at": "sea"}}},), id="object"
        ),
        pytest.param(
            (
                {"index": 0, "id": "a", "function": {"name": "look", "arguments": "{}"}},
                {"index": 0, "function": {"arguments": SEA}},
            ),
            id="an-empty-object-before-the-arguments",
        ),
        pytest.param((None, {"index": 0, "function": {"name": "look", "arguments": SEA}}), id="null"),
    ],
)
def test_one_call_is_one_call_however_its_pieces_are_marked(pieces: Any) -> None:
    assert on_tool_call(*pieces) == [("look", SEA)]


def test_whole_calls_without_an_index_are_told_apart() -> None:
    look, see = ({"function": {"name": name, "arguments": SEA}} for name in ("look", "see"))
    assert on_tool_call(look, see, look) == [("look", SEA), ("see", SEA), ("look", SEA)]


def signed(signature: str) -> dict[str, Any]:
    return {"google": {"thought_signature": signature}}


def test_what_a_server_signs_its_calls_with_goes_back_to_it_and_nowhere_else() -> None:
    half = '{"at": "\ud83d"}'  # of a surrogate pair
    look, see = ({"id": name, "function": {"name": name, "arguments": half}} for name in ("look", "see"))
    message = asked(calling(look | {"extra_content": signed("s1")}, see)).message()
    assert "s1" not in json.dumps(message["tool_calls"])
    assert [call.get("extra_content") for call in sent(message)["tool_calls"]] == [signed("s1"), None]


def test_the_details_of_thoughts_go_back_with_their_calls_as_one_list() -> None:
    pieces = [
        {"type": "reasoning.text", "index": 0, "text": "Tea ", "signature": None},
        {"type": "reasoning.text", "index": 0, "text": "it is.", "signature": "s"},
        {"type": "reasoning.encrypted", "index": 1, "data": "x1"},
        {"type": "reasoning.encrypted", "index": 1, "data": "x2"},
    ]
    said = [chunk({"reasoning_details": [piece]}) for piece in pieces]
    call = chunk({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "look", "arguments": SEA}}]})
    assert sent(asked(events(*said, call, chunk({}, "tool_calls"))).message())["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Tea it is.", "signature": "s"},
        *pieces[2:],
    ]
    assert "reasoning_details" not in sent(asked(events(*said, chunk({"content": "Tea."}, "stop"))).message())


@pytest.mark.parametrize(
    "refusal",
    [
        "Missing `reasoning_content` field in the assistant message at message index 1.",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 1",
    ],
)
def test_thoughts_go_back_to_a_server_that_asks_for_them(refusal: str) -> None:
    def asking(request: dict[str, Any]) -> Reply:
        said = [m for m in request["messages"] if m["role"] == "assistant"]
        given = all(m.get("reasoning_content") for m in said)  # Moonshot takes no empty one
        return Reply("Here.") if given else failing({"error": {"message": refusal}}, 400)

    said = [
        {"role": "assistant", "content": "Hm?", "reasoning": "Tea?"},
        {"role": "assistant", "content": "Hm."},
    ]
    with ModelServer([asking], strict=False) as server:
        model = OpenAIModel(ModelSettings(server.base_url, "scripted", retries=0))
        for _ in range(2):
            at = model.at(0.1)
            assert at.complete([*HELLO, *said], (), on_text=lambda _: None, cancel=Cancel()).text == "Here."
        model.close()
    assert [m.get("reasoning_content") for m in server.requests[1]["messages"]] == [None, "Tea?", " "]
    assert ["reasoning" in str(request) for request in server.requests] == [False, True, True]
    assert all(request["temperature"] == 0.1 for request in server.requests)


def sent(message: dict[str, Any]) -> dict[str, Any]:
    """The message as the next request carries it."""
    with ModelServer([Reply("Here.")], strict=False) as server:
        model = OpenAIModel(ModelSettings(server.base_url, "scripted", retries=0))
        model.complete([*HELLO, message], (), on_text=lambda _: None, cancel=Cancel())
        model.close()
    carried: dict[str, Any] = server.requests[0]["messages"][1]
    return carried


def test_each_call_has_an_id_of_its_own_that_is_text() -> None:
    function = {"name": "look", "arguments": "{}"}
    pieces = [
        {"index": n, "id": given, "function": function} for n, given in enumerate(["a", "a", 7, None, ""])
    ]
    ids = [call.id for call in asked(calling(*pieces)).calls]
    assert (ids[0], ids[2]) == ("a", "7")
    assert len(set(ids)) == 5
    assert all(isinstance(call, str) and call for call in ids)


@pytest.mark.parametrize(
    "odd",
    [
        *("data: null\n\n", "data: []\n\n", 'data: "x"\n\n', {}, {"choices": None}, ": alive\n\n"),
        *("retry: 3000\n\n", "id: 1\r\n\r\n", "event: ping\n\n", "data:\n\n", "data\n\n"),
    ],
)
def test_an_event_that_is_no_chunk_is_passed_over(odd: Any) -> None:
    answer = asked(events(odd, chunk({"content": "Here."}), odd, chunk({}, "stop"), odd))
    assert (answer.text, answer.finish) == ("Here.", "stop")


@pytest.mark.parametrize(
    "odd",
    [
        {"choices": [None]},
        {"choices": {"delta": {}}},
        chunk("Here."),
        chunk({"tool_calls": "look"}),
        chunk({"tool_calls": [{"index": [0], "function": {"name": "look"}}]}),
        chunk({"tool_calls": [{"index": 0, "function": {"name": {"look": 1}}}]}),
        'data: {"choices": ' + "[" * 5000 + "\n\n",
    ],
)
def test_a_chunk_of_another_shape_is_an_error_of_the_server(odd: Any) -> None:
    with pytest.raises(ModelUnavailable, match="sent what is no answer"):
        asked(events(odd))


def test_an_answer_in_parts_is_their_text() -> None:
    heard: list[str] = []
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]},
        {"type": "text", "text": "Here."},
    ]
    assert asked(events(chunk({"content": parts}, "stop")), on_text=heard.append).text == "Here."
    assert heard == ["Here."]


def test_a_refusal_is_what_the_model_says() -> None:
    assert asked(events(chunk({"content": None, "refusal": "No."}, "stop"))).text == "No."


def test_usage_that_lacks_a_figure_counts_as_none() -> None:
    odd = {"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": {"cached_tokens": "all"}}
    usage = asked(events(chunk({"content": "Here."}, "stop", usage=odd), chunk({}, usage={}))).usage
    assert (usage.prompt, usage.completion, usage.cached) == (5, 0, 0)


@pytest.mark.parametrize("figure", [-1, 10**19, 10**400, float("inf"), float("nan"), "many"])
def test_a_figure_that_no_request_can_have_counts_as_none(figure: Any) -> None:
    usage = {"prompt_tokens": figure, "completion_tokens": 5}
    answer = asked(events(chunk({"content": "Here."}, "stop", usage=usage)))
    assert (answer.text, answer.usage.prompt, answer.usage.completion) == ("Here.", 0, 5)


@pytest.mark.parametrize(
    "usage",
    [
        {"prompt_tokens_details": {"cached_tokens": 3}},
        {"cached_tokens": 3},
        {"prompt_cache_hit_tokens": 3, "prompt_cache_miss_tokens": 2},
    ],
    ids=["OpenAI", "Moonshot", "DeepSeek"],
)
def test_tokens_that_the_server_had_are_counted_in_each_servers_words(usage: dict[str, Any]) -> None:
    counted = {"prompt_tokens": 5.0, "completion_tokens": 2, **usage}
    answer = asked(events(chunk({"content": "Here."}, "stop"), chunk({}, usage=counted)))
    assert (answer.usage.prompt, answer.usage.completion, answer.usage.cached) == (5, 2, 3)


def test_usage_may_stand_in_the_choice_where_moonshot_has_it() -> None:
    counted = {"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 3}}
    last = chunk({}, "stop")
    last["choices"][0]["usage"] = counted
    usage = asked(events(chunk({"content": "Here."}), last)).usage
    assert (usage.prompt, usage.completion, usage.cached) == (5, 2, 3)


def test_a_letter_that_a_server_sends_in_two_halves_is_one() -> None:
    heard: list[str] = []
    halves = [chunk({"content": piece}) for piece in ("Hi \ud83d", "\ude00 and \ud83d", ".", "\ud83d")]
    call = {"index": 0, "id": "a", "function": {"name": "look", "arguments": '{"at": "\ud83d'}}
    rest = {"index": 0, "function": {"arguments": '\ude00"}'}}
    calls = [chunk({"tool_calls": [piece]}) for piece in (call, rest)]
    answer = asked(events(*halves, *calls, chunk({}, "tool_calls")), on_text=heard.append)
    assert "".join(heard) == answer.text == "Hi 😀 and \ufffd.\ufffd"
    assert answer.calls[0].arguments == '{"at": "😀"}'


def failing(body: Any, status: int = 200, kind: str = "application/json") -> Reply:
    raw = body if isinstance(body, str) else json.dumps(body)
    return Reply(raw=raw, status=status, headers={"content-type": kind})


def error_of(*script: Script, **settings: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        asked(*script, **settings)
    return caught.value


FULL = "This model's maximum context length is 4096 tokens."


@pytest.mark.parametrize(
    "reply",
    [
        events({"error": {"message": FULL, "code": 400}}),
        failing({"object": "error", "message": FULL, "code": 400}, 400),
        failing({"error": FULL}, 400),
        failing("<html><title>Payload Too Large</title></html>", 413, "text/html"),
        failing({"error": {"message": "Context size has been exceeded.", "code": 500}}, 500),
        failing({"error": {"message": FULL, "code": 400}}),
        failing({"error": {"message": "Request too large for gpt-4o: Limit 30000, Requested 43210."}}, 429),
        *(
            failing({"error": {"message": said}}, 400)
            for said in (
                "prompt is too long: 210000 tokens > 200000 maximum",
                "The input token count (9) exceeds the maximum number of tokens allowed (8).",
                "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
                "Please reduce the length of the messages or completion.",
                "Input is too long for requested model.",
                "The decoder prompt (length 10127) is longer than the maximum model length of 8192.",
                "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000",
                "Invalid request: Your request exceeded model token limit: 8192",
                "Range of input length should be [1, 129024]",
                "prompt token count of 130000 exceeds the limit of 128000",
            )
        ),
    ],
)
def test_a_request_that_is_too_long_is_known_in_every_servers_words(reply: Reply) -> None:
    assert isinstance(error_of(reply, Reply("never asked again"), retries=1), ContextOverflow)


def test_a_limit_of_tokens_a_minute_is_no_limit_of_the_context() -> None:
    error = error_of(failing({"error": {"message": "Too many tokens, please wait."}}, 429))
    assert isinstance(error, ModelUnavailable)


def test_an_error_within_a_stream_is_tried_again_when_its_code_says_so_and_nothing_was_heard() -> None:
    busy = events({"error": {"message": "upstream is full", "code": 429}})
    assert asked(busy, Reply("Here."), retries=1).text == "Here."
    gone = events({"error": {"message": "no such model", "code": 404}})
    assert isinstance(error_of(gone, Reply("Here."), retries=1), ModelRefused)
    late = events(chunk({"content": "Once"}), {"error": {"message": "worker died", "code": 502}})
    assert "worker died" in str(error_of(late, Reply("Here."), retries=1))


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            failing("<html><head><title>502 Bad Gateway</title></head></html>", 502, "text/html"),
            "502: 502 Bad Gateway",
        ),
        (failing("404 page not found", 404, "text/plain"), "404: 404 page not found"),
        (failing({"detail": [{"msg": "field required"}]}, 422), "field required"),
        (failing({"error": "model crashed"}, 500), "model crashed"),
        (
            failing({"error": {"message": "Provider error", "metadata": {"raw": "bad schema"}}}, 400),
            "error: bad schema",
        ),
        (failing("", 400), "no reason given"),
        (failing({"error": {"message": "no tool \ud83d"}}, 400), "no tool \ufffd"),
        (failing({"error": {"message": "Insufficient credits"}}, 402), "no credit"),
        (failing({"error": {"message": "gemma:2b does not support tools"}}, 400), "enabled_toolsets"),
        (
            failing({"error": {"message": "No endpoints found that support tool use"}}, 404),
            "enabled_toolsets",
        ),
        (failing({"error": {"message": "no such model"}}), "no such model"),
        (failing([{"error": {"code": 404, "message": "no such model"}}], 404), "404: no such model; check"),
        (failing([{"error": {"code": 400, "message": "API key not valid."}}], 400), "check the key that"),
        (failing({"code": "no", "error": "Incorrect API key provided: xa***xx."}, 400), "check the key that"),
        (failing({"error": {"message": "Over quota.", "code": "insufficient_quota"}}, 429), "no credit left"),
        (failing({"error": "Unexpected endpoint or method. (POST /chat/completions)"}), "model.base_url"),
        (failing("<!DOCTYPE html><title>Web UI</title>", 200, "text/html; charset=utf-8"), "'text/html'"),
        (failing({"choices": []}), "not with a streamed answer"),
        (failing({"choices": [{"message": "Hi"}]}), "not with a streamed answer"),
    ],
)
def test_an_error_says_what_the_server_said_and_what_to_do(reply: Reply, said: str) -> None:
    told = str(error_of(reply, api_key="xai-of-ours"))
    assert said in told
    assert "<" not in told


@pytest.mark.parametrize(
    "reply",
    [
        failing({"error": {"message": "Over quota.", "code": "insufficient_quota"}}, 429),
        failing({"error": "Unexpected endpoint or method. (POST /chat/completions)"}),
        failing([{"error": {"message": "Quota exceeded.", "details": [{"quotaId": "RequestsPerDay"}]}}], 429),
    ],
)
def test_what_another_try_can_not_mend_is_not_tried_again(reply: Reply) -> None:
    assert isinstance(error_of(reply, Reply("never asked again"), retries=1), ModelRefused)


@pytest.mark.parametrize(
    ("said", "wish"),
    [
        ("Quota exceeded. Please retry in 34.5s.", 34.5),
        ("Rate limit reached. Please try again in 250ms.", 0.25),
        ("Rate limit reached. Please try again in 7m12s.", 432.0),
        ("Quota exceeded. Please retry in 5h49m5.5s.", 20945.5),
        ("Rate limit reached.", None),
        (f"Please retry in {'9' * 5000}h1s.", None),
        (f"Please retry in {'9' * 400}h1s.", None),
    ],
)
def test_the_pause_that_a_busy_server_names_in_words_is_kept(said: str, wish: float | None) -> None:
    error = error_of(failing([{"error": {"code": 429, "message": said}}], 429))
    assert isinstance(error, ModelUnavailable)
    assert error.retry_after == wish


def test_an_address_of_lm_studio_without_its_version_has_no_list_of_models() -> None:
    class Wrong(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"error": "Unexpected endpoint or method. (GET /models)"}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with HTTPServer(("127.0.0.1", 0), Wrong) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        model = OpenAIModel(ModelSettings(f"http://127.0.0.1:{server.server_port}", "m", retries=0))
        with pytest.raises(ModelRefused, match="/v1"):
            model.list_models()
        model.close()
        thread.join()


def test_a_call_that_the_model_wrote_badly_is_asked_for_again() -> None:
    error = {"message": "Failed to call a function.", "code": "tool_use_failed"}
    assert asked(failing({"error": error}, 400), Reply("Here."), retries=1).text == "Here."
    assert "another model" in str(error_of(failing({"error": error}, 400)))


def test_a_key_that_the_server_repeats_is_not_printed() -> None:
    error = error_of(
        failing({"error": {"message": "Incorrect API key: hunter2-4711"}}, 401), api_key="hunter2-4711"
    )
    assert "hunter2" not in str(error)


def test_an_answer_whose_server_gives_no_reason_for_its_end_is_whole_where_a_cut_would_be_seen() -> None:
    assert asked(events(chunk({"content": "Here."}))).text == "Here."
    assert isinstance(error_of(events(end="")), ModelUnavailable)


THINKING = "\n<think>\nTea <b>or</b> coffee?\n</think>\n\nTea. <think> is a tag."


def test_a_server_that_streams_nothing_answers_in_one_piece() -> None:
    signed = {"google": {"thought_signature": "s"}}
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": SEA}}
    message = {
        "role": "assistant",
        "content": "Let me look.",
        "tool_calls": [{**call, "extra_content": signed}],
    }
    usage = {"prompt_tokens": 5, "completion_tokens": 2}
    body = {
        "id": "1",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
        "usage": usage,
    }
    heard: list[str] = []
    answer = asked(failing(body), on_text=heard.append)
    assert (answer.text, "".join(heard), answer.finish) == ("Let me look.", "Let me look.", "tool_calls")
    assert [(one.id, one.name, one.arguments, one.extra) for one in answer.calls] == [
        ("a", "look", SEA, signed)
    ]
    assert answer.usage.prompt == 5
    text = {"choices": [{"message": {"content": "Here."}}]}
    assert asked(failing(text)).text == "Here."


@pytest.mark.parametrize("size", range(1, 12))
def test_thoughts_that_a_server_leaves_in_the_text_are_not_part_of_the_answer(size: int) -> None:
    builder = AnswerBuilder()
    heard = [builder.feed(SimpleNamespace(choices=[piece])) for piece in pieces_of(THINKING, size)] + [
        builder.end()
    ]
    answer = builder.answer()
    assert answer.text == "".join(heard) == "Tea. <think> is a tag."
    assert answer.reasoning == "\nTea <b>or</b> coffee?\n"


@pytest.mark.parametrize(
    ("text", "said"), [("<thi", "<thi"), (" <b>", " <b>"), ("<think>Hm", ""), ("\n", "\n")]
)
def test_a_text_that_ends_where_thoughts_might_begin_is_whole(text: str, said: str) -> None:
    heard: list[str] = []
    answer = asked(
        events(*(chunk({"content": letter}) for letter in text), chunk({}, "stop")), on_text=heard.append
    )
    assert answer.text == "".join(heard) == said


def pieces_of(text: str, size: int) -> list[Any]:
    return [
        SimpleNamespace(
            finish_reason=None, delta=SimpleNamespace(content=text[at : at + size], tool_calls=None)
        )
        for at in range(0, len(text), size)
    ]


def test_half_a_surrogate_pair_does_not_end_the_conversation() -> None:
    with ModelServer([Reply("Hi")]) as server:
        model = OpenAIModel(ModelSettings(server.base_url, "scripted", retries=0))
        said = [{"role": "user", "content": "file \udcff, \ud83d\ude00"}]
        model.complete(said, (), on_text=lambda _: None, cancel=Cancel())
        model.close()
    assert server.requests[0]["messages"][0]["content"] == "file \ufffd, 😀"
