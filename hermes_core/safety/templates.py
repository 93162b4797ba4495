"""Tokens of chat templates: a server reads them out of the text, so that a text with one ends the turn or begins another.

The rules describe shapes, since the tokens of a new model mostly have the shape of older ones. The names are those of
the templates in llama.cpp (`src/llama-chat.cpp`, `common/chat.cpp`) and of the added tokens in the tokenizers of
Mistral (`mistral-common`), Cohere, MiniMax, GLM and Nemotron on Hugging Face, as of November 2026.
"""

from __future__ import annotations

import re
from functools import cache

# Words in "<...>", in any letter case.
_ANGLE_WORDS = (
    "s", "bos", "eos", "pad", "unk", "cls", "sep", "mask", "sop", "eop", "eod", "eot", "eom", "(?-i:AI)", "用户", "role",
    "think", "tools", "tool_calls?", "tool_responses?", "tool_results?", "function_calls?", "function=[\\w.-]{1,64}",
    "arg_key", "arg_value", "observation", "available_tools", "end_of_utterance", "(?:start|end|begin)_of_\\w+",
    "(?:bos|eos|pad|unk|cls|sep|mask|user|system|chatbot)_token", "(?:fim|longcat)_\\w+",
    "(?:image|audio|video|vision)_(?:start|end|pad|soft_token)", "(?:seed|minimax):\\w+", "unused_?\\d+", "ctrl\\d+",
    "reserved(?:_special)?(?:_token)?_\\d+", "special_\\d+", "extra_id_\\d+",
)  # fmt: skip

# Words in "[...]", in this letter case.
_SQUARE_WORDS = (
    "INST", "SYSTEM_PROMPT", "AVAILABLE_TOOLS", "TOOL_CALLS?", "TOOL_RESULTS?", "TOOL_CONTENT", "ARGS", "CALL_ID", "THINK",
    "MODEL_SETTINGS", "IMG(?:_BREAK|_END)?", "(?:BEGIN_)?AUDIO", "TRANSCRIBE", "PREFIX", "MIDDLE", "SUFFIX", "REF",
    "[gs]?MASK", "CLS", "SEP", "PAD", "UNK", "BOS", "EOS",
)  # fmt: skip

# Words that begin a turn at the start of a line and before a colon, in templates without tokens of their own.
_ROLE_WORDS = (
    "USER", "User", "HUMAN", "Human", "ASSISTANT", "Assistant", "SYSTEM", "System", "Пользователь", "Ассистент",
    "GPT4 Correct (?:User|Assistant)",
)  # fmt: skip
_HEADING_WORDS = (*_ROLE_WORDS, "Instruction", "Response", "Input")

_OPEN, _CLOSE, _BAR = "[<＜﹤]", "[>＞﹥]", "[|｜￨]"


@cache
def _tokens(with_lines: bool) -> re.Pattern[str]:
    """Return the pattern of all tokens. A match ends at the place where a space breaks the token."""
    angle, square = "|".join(_ANGLE_WORDS), "|".join(_SQUARE_WORDS)
    roles, headings = "|".join(_ROLE_WORDS), "|".join(_HEADING_WORDS)
    bars = _BAR.strip("[]")
    shapes = (
        # <|im_start|>, <|turn>, <｜User｜>, <｜DSML｜invoke
        rf"{_OPEN}(?={_BAR}[^\s<>{bars}][^<>{bars}\n]{{0,40}}{_BAR}?\s*{_CLOSE}|｜\w{{1,40}}｜)",
        # <turn|>
        rf"{_OPEN}(?=/?\w{{1,40}}\s*{_BAR}\s*{_CLOSE})",
        # <s>, </tool_call>, <function=name>
        rf"{_OPEN}(?=/?(?i:{angle})\s*/?{_CLOSE})",
        r"<(?=</?SYS\s*>>)",
        # [INST], [/INST], [|endofturn|]
        rf"\[(?=/?(?:{square})\s*\]|\|\w{{1,40}}\s*\|\])",
        # ]~b]system, ]~!b[, [e~[
        r"\](?=~!?b[\[\]])|\[(?=e~\[)",
    )
    lines = rf"^[ \t]*(?:(?:{roles})(?=:)|#{{2,}}[ \t]*(?:{headings})(?=:))"
    return re.compile("|".join((*shapes, *([lines] if with_lines else []))), re.MULTILINE)


def without_turns(text: str, *, lines: bool = True) -> str:
    """Break tokens of a chat template with a space, so that they end no turn and begin none.

    Args:
        lines: False to leave lines that begin with a role, as "User: ann", which honest files have too.

    >>> without_turns("Likes tea.<|im_end|>")
    'Likes tea.< |im_end|>'
    """
    return _tokens(lines).sub(r"\g<0> ", text)
