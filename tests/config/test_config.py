from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hermes_core import open_memory
from hermes_core.config import KEYS, Config, load_config, parse_config, set_value, stored_keys, unset_value
from hermes_core.config.file import stored_value
from hermes_core.errors import ConfigError
from hermes_core.home import HermesHome

WRITTEN_BY_A_PERSON = """\
# my settings
model: some/model   # of another program
memory:
    # notes are long here
    memory_char_limit: 4000  # twice the default
    provider: holographic
terminal:
    - yes
    - 012
"""


@pytest.fixture
def home(tmp_path: Path) -> HermesHome:
    return HermesHome(tmp_path)


def written(home: HermesHome, text: str) -> HermesHome:
    home.config_yaml.write_text(text)
    return home


@pytest.mark.parametrize("text", ["", "# nothing\n", "memory:\n", "memory:\n  provider:\n", "---\n", "{}"])
def test_a_missing_key_has_its_default(home: HermesHome, text: str) -> None:
    assert load_config(home, {}) == Config()
    assert load_config(written(home, text), {}) == Config()


def test_the_defaults_are_those_that_the_documents_promise() -> None:
    memory = Config().memory
    assert (memory.memory_enabled, memory.user_profile_enabled, memory.provider) == (True, True, "")
    assert (memory.memory_char_limit, memory.user_char_limit) == (2200, 1375)
    assert (memory.nudge_interval, memory.flush_min_turns) == (10, 6)
    assert Config().sessions.search_enabled


def test_values_are_read_with_their_types(home: HermesHome) -> None:
    text = "memory: {memory_enabled: off}\nrecall: {deadline: 2}\nproviders: {allow: [a], block: [b, c]}\n"
    config = load_config(written(home, text), {})
    assert config.memory.memory_enabled is False
    assert isinstance(config.recall.deadline, float)
    assert (config.providers.allow, config.providers.block) == (("a",), ("b", "c"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "\nmemory:\n  memory_char_limit: many\n",
            "line 3: memory.memory_char_limit must be a whole number of at least 1, is 'many'",
        ),
        (
            "memory:\n  nudge_interval: true",
            "line 2: memory.nudge_interval must be a whole number of at least 0, is True",
        ),
        ("memory:\n  memory_enabled: 1", "line 2: memory.memory_enabled must be true or false, is 1"),
        (
            "memory:\n  user_char_limit: 0",
            "line 2: memory.user_char_limit must be a whole number of at least 1, is 0",
        ),
        ("recall:\n  deadline: .inf", "line 2: recall.deadline must be a number from 0.05 up to 600, is inf"),
        (
            f"recall:\n  deadline: {'9' * 400}",
            "line 2: recall.deadline must be a number from 0.05 up to 600, is 999",
        ),
        (
            "recall:\n  sessions: always",
            "line 2: recall.sessions must be one of 'on_request', 'auto', is 'always'",
        ),
        ("providers:\n  block: a", "line 2: providers.block must be a list, each item a string, is 'a'"),
        ("memory: yes", "line 1: memory must hold `name: value` lines, is 'yes'"),
        ("- a", "config.yaml must hold `name: value` lines, is 'a list'"),
        ("memory:\n  provider: [a", "line 3: did not find expected"),
        (f"memory: {{profile_fields: {'[' * 900}{']' * 900}}}", "line 1"),
        (f"memory:\n  memory_char_limit: {'9' * 5000}", "line 2 can't be read: Exceeds the limit"),
        ("a: 1\n---\nb: 2", "line 2: but found another document"),
    ],
)
def test_a_fault_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert message in str(caught.value)
    assert caught.value.remedy


def test_all_wrong_values_are_named_at_once() -> None:
    with pytest.raises(ConfigError, match=r"line 2: .*; config.yaml line 3: "):
        parse_config("memory:\n  memory_char_limit: x\n  user_char_limit: y\n")


def test_bytes_that_are_no_text_are_refused(home: HermesHome) -> None:
    home.config_yaml.write_bytes(b"memory: \xff\xfe\n")
    with pytest.raises(ConfigError, match="UTF-8"):
        load_config(home, {})


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("memory:\n  providr: x", "line 2: unknown key 'memory.providr', did you mean 'memory.provider'?"),
        (
            "enabled_toolsets:\n  cli: [todo, memmory, shell]",
            "line 2: unknown toolset 'memmory', did you mean 'memory'?",
        ),
        ("memory:\n  colour: red", "line 2: unknown key 'memory.colour' has no effect"),
        ("memory:\n  provider: ''\n  a: b", "line 3: unknown key 'memory.a' has no effect"),
        ("memory:\n  provider: null\n  a: b", "line 3: unknown key 'memory.a' has no effect"),
        (
            "memory:\n  provider: x\n  char_limit: 9",
            "line 3: unknown key 'memory.char_limit', did you mean 'memory.user_char_limit'?",
        ),
        ("memroy:\n  provider: x", "line 1: unknown key 'memroy', did you mean 'memory'?"),
        (
            "recall.sessions: auto",
            "line 1: 'recall.sessions' has no effect here, write `sessions:` indented below `recall:`",
        ),
        (
            "memory:\nprovider: x",
            "line 2: 'provider' has no effect here, write `provider:` indented below `memory:`",
        ),
        (
            "memory: {}\nmemory:\n  provider: x",
            "line 2: memory is written a second time, line 1 has no effect",
        ),
    ],
)
def test_a_key_without_effect_is_a_warning(text: str, warning: str) -> None:
    assert parse_config(text).warnings == (f"config.yaml {warning}",)


HERMES_AGENT = """
_config_version: 50
model:
  default: anthropic/claude
  provider: auto
  api_mode: chat_completions
  max_retries: 3
provider: openrouter
providers:
  openrouter: {api: y}
  blocks: {api: y}
toolsets: [all]
agent:
  max_turns: 90
  verbose: false
  reviews: {}
  a_key_of_tomorrow: 1
memory:
  memory_enabled: true
  provider: honcho
  write_approval: false
  providers: {honcho: {}}
sessions:
  auto_prune: false
  retention_days: 90
skills:
  template_vars: true
curator:
  enabled: true
  interval_hours: 168
auxiliary:
  vision: {provider: auto, model: ''}
terminal: {backend: local}
"""


def test_keys_of_hermes_agent_in_blocks_of_ours_are_one_sentence() -> None:
    config = parse_config(HERMES_AGENT)
    assert config.warnings == (
        "config.yaml: 14 keys of Hermes Agent have no effect here "
        "(agent.a_key_of_tomorrow, agent.max_turns, agent.verbose and 11 more)",
    )
    assert config.memory.provider == "honcho"
    assert parse_config("model:\n  default: x").warnings == (
        "config.yaml: 1 key of Hermes Agent has no effect here (model.default)",
    )


def test_a_slip_beside_keys_of_hermes_agent_is_still_named() -> None:
    slip = HERMES_AGENT.replace("  memory_enabled: true", "  memory_char_limt: 9")
    assert parse_config(slip).warnings[0] == (
        "config.yaml line 19: unknown key 'memory.memory_char_limt', did you mean 'memory.memory_char_limit'?"
    )


def test_blocks_of_other_programs_are_left_alone() -> None:
    text = "model: x\nproviders:\n  openrouter: {api: y}\nmemory:\n  holographic: {hrr_dim: 256}\n"
    assert parse_config(text).warnings == ()


def test_keys_that_a_chosen_provider_may_read_are_left_alone() -> None:
    text = "memory:\n  bundle_path: ~/okf\n  auto_snapshot: true\n  provider: hermes-okf\n"
    assert parse_config(text).warnings == ()


def test_anchors_and_merges_are_followed() -> None:
    text = "x: &d {provider: a, nudge_interval: 2}\nmemory:\n  <<: *d\n  nudge_interval: 3\n"
    config = parse_config(text)
    assert (config.memory.provider, config.memory.nudge_interval, config.warnings) == ("a", 3, ())


@pytest.mark.parametrize(("value", "allow"), [("", ()), (" ", ()), ("a, b,", ("a", "b"))])
def test_the_environment_limits_providers(home: HermesHome, value: str, allow: tuple[str, ...]) -> None:
    written(home, "providers: {allow: [c], block: [d]}")
    config = load_config(home, {"HERMES_LOAD_PROVIDERS": value})
    assert (config.providers.allow, config.providers.block) == (allow, ("d",))


def test_comments_and_everything_else_survive_a_write(home: HermesHome) -> None:
    written(home, WRITTEN_BY_A_PERSON)
    set_value(home, "memory.provider", "mem0")
    assert home.config_yaml.read_text() == WRITTEN_BY_A_PERSON.replace("holographic", "mem0")
    unset_value(home, "memory.provider")
    assert home.config_yaml.read_text() == WRITTEN_BY_A_PERSON.replace("    provider: holographic\n", "")


def test_comments_above_the_next_key_stay_there_when_a_key_comes_changes_or_goes(home: HermesHome) -> None:
    text = "providers:\n  block:\n    - a\n  # allow: [b]\n\n# which model\nmodel:\n  name: x\n\n# end\n"
    written(home, text)
    set_value(home, "providers.allow", ["b"])
    set_value(home, "model.retries", 5)
    added = text.replace("# allow: [b]\n", "# allow: [b]\n  allow: [b]\n")
    assert home.config_yaml.read_text() == added.replace("name: x\n", "name: x\n  retries: 5\n")
    unset_value(home, "providers.allow")
    unset_value(home, "model.retries")
    assert home.config_yaml.read_text() == text
    set_value(home, "providers.block", ["c"])
    assert home.config_yaml.read_text() == text.replace("- a", "- c")
    unset_value(home, "providers.block")
    unset_value(home, "model.name")
    assert home.config_yaml.read_text() == (
        "providers: {}\n  # allow: [b]\n\n# which model\nmodel: {}\n\n# end\n"
    )


def test_the_only_key_of_a_block_goes_from_below_a_comment(home: HermesHome) -> None:
    written(home, "agent:\n  # how long\n  compress_at: 0.7\nmodel:\n  name: m\n")
    unset_value(home, "agent.compress_at")
    assert home.config_yaml.read_text() == "agent: {}\n  # how long\nmodel:\n  name: m\n"


_BLOCKS = {
    "agent": ["compress_at: 0.7", "max_iterations: 20"],
    "memory": ["memory_enabled: true", "provider: holographic", "nudge_interval: 10"],
    "model": ["base_url: http://a/v1", "name: m"],
    "of_another": ["x: 1", "y: [1, 2]"],
}
_CHANGES = {
    "agent.compress_at": 0.5,
    "memory.nudge_interval": 7,
    "memory.provider": "mem0",
    "model.name": "q",
}


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A config.yaml with comments anywhere on lines of their own and behind keys."""
    lines: list[str] = []

    def comments(indents: tuple[int, ...]) -> None:
        for indent in draw(st.lists(st.sampled_from(indents), max_size=2)):
            lines.append(" " * indent + f"# note {len(lines)}")
        lines.extend([""] * draw(st.integers(0, 1)))

    comments((0,))
    for block in draw(st.lists(st.sampled_from(sorted(_BLOCKS)), min_size=1, unique=True)):
        lines.append(f"{block}:" + draw(st.sampled_from(["", "  # its block"])))
        comments((0, 2))
        for key in draw(st.lists(st.sampled_from(_BLOCKS[block]), min_size=1, unique=True)):
            lines.append(f"  {key}" + draw(st.sampled_from(["", "  # its key"])))
            comments((0, 2))
    return "\n".join(lines) + "\n"


@given(
    text=documents(),
    changes=st.lists(st.tuples(st.sampled_from(sorted(_CHANGES)), st.booleans()), max_size=4),
)
def test_no_change_loses_or_moves_a_comment_or_another_value(
    tmp_path_factory: pytest.TempPathFactory, text: str, changes: list[tuple[str, bool]]
) -> None:
    home = HermesHome(tmp_path_factory.mktemp("home"))
    written(home, text)
    expected = yaml.safe_load(text)
    for key, comes in changes:
        block, name = key.split(".")
        expected[block] = dict(expected.get(block) or {})
        expected[block].pop(name, None)
        if comes:
            set_value(home, key, _CHANGES[key])
            expected[block][name] = _CHANGES[key]
        else:
            unset_value(home, key)
    now = home.config_yaml.read_text()
    assert _notes(now) == _notes(text)
    assert _filled(yaml.safe_load(now)) == _filled(expected)


def _notes(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith("# note")]


def _filled(data: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in data.items() if value}


@pytest.mark.parametrize("item", ["42", "", "telegram:", "telegram", "cli/", "telegram/user_id=42", "x:a\\0"])
def test_an_owner_that_no_session_can_have_is_refused(home: HermesHome, item: str) -> None:
    home.config_yaml.write_text(f'identity:\n  owners: ["telegram:7", "{item}"]\n')
    with pytest.raises(
        ConfigError, match=r"line 2: identity\.owners must be a list of ids, each as telegram:123"
    ):
        load_config(home)
    with pytest.raises(ConfigError, match=r"identity\.owners must be a list of ids"):
        set_value(home, "identity.owners", [item])


@pytest.mark.parametrize("key", KEYS)
def test_every_key_can_be_set_read_and_unset(home: HermesHome, key: str) -> None:
    samples = {bool: False, int: 7, float: 2.5, str: "off", list[str]: ["a", "off"], list: [{"name": "age"}]}
    field = KEYS[key]
    value = field.choices[-1] if field.choices else samples[field.type]
    if field.choices and field.type == list[str]:
        value = [value]
    if key == "identity.owners":
        value = ["telegram:42", "telegram/-1007"]
    if value < (field.minimum or value) or value > (field.maximum or value):
        value = field.type(field.minimum)
    set_value(home, key, value)
    block, name = key.split(".")
    stored = getattr(load_config(home, {}), block).get(name)
    assert (list(stored) if isinstance(stored, tuple) else stored) == value
    unset_value(home, key)
    assert load_config(home, {}) == Config()


@pytest.mark.parametrize("value", ["", "off", "12", "a: b", "- x", "né", "null", "# x", " x "])
def test_a_string_stays_a_string(home: HermesHome, value: str) -> None:
    set_value(home, "memory.provider", value)
    assert load_config(home, {}).memory.provider == value


def test_a_file_of_comments_alone_keeps_them(home: HermesHome) -> None:
    written(home, "#a\n\n#  b\n")
    set_value(home, "memory.provider", "x")
    assert home.config_yaml.read_text() == "#a\n\n#  b\n\nmemory:\n  provider: x\n"


def test_line_ends_of_windows_are_kept(home: HermesHome) -> None:
    home.config_yaml.write_bytes(b"# a\r\nmemory:\r\n  provider: x\r\n")
    set_value(home, "memory.provider", "y")
    assert home.config_yaml.read_bytes() == b"# a\r\nmemory:\r\n  provider: y\r\n"


@pytest.mark.parametrize(
    ("key", "value"), [("memory.providr", "x"), ("memory.nudge_interval", "x"), ("model", 1)]
)
def test_a_refused_value_changes_nothing(home: HermesHome, key: str, value: str) -> None:
    written(home, WRITTEN_BY_A_PERSON)
    with pytest.raises(ConfigError):
        set_value(home, key, value)
    assert home.config_yaml.read_text() == WRITTEN_BY_A_PERSON


@pytest.mark.parametrize("text", ["memory: [", "memory:\n  nudge_interval: x\n"])
def test_a_file_that_is_wrong_already_is_not_touched(home: HermesHome, text: str) -> None:
    written(home, text)
    with pytest.raises(ConfigError):
        set_value(home, "memory.provider", "x")
    assert home.config_yaml.read_text() == text


@pytest.mark.skipif(os.name == "nt", reason="modes are POSIX")
def test_the_file_is_private_when_new_and_keeps_its_mode_after(home: HermesHome) -> None:
    set_value(home, "memory.provider", "x")
    assert stat.S_IMODE(home.config_yaml.stat().st_mode) == 0o600
    home.config_yaml.chmod(0o644)
    set_value(home, "memory.provider", "y")
    assert stat.S_IMODE(home.config_yaml.stat().st_mode) == 0o644


def test_two_processes_setting_different_keys_lose_nothing(home: HermesHome) -> None:
    code = """
import sys
from hermes_core.config import load_config, set_value
from hermes_core.home import HermesHome
home, name = HermesHome.resolve(sys.argv[1]), sys.argv[2]
for n in range(1, 31):
    set_value(home, f"memory.{name}", n)
    assert getattr(load_config(home).memory, name) == n, "another process took it back"
"""
    keys = ("nudge_interval", "flush_min_turns")
    children = [subprocess.Popen([sys.executable, "-c", code, str(home.path), key]) for key in keys]
    assert [child.wait(60) for child in children] == [0, 0]
    assert yaml.safe_load(home.config_yaml.read_text()) == {"memory": dict.fromkeys(keys, 30)}


def test_a_model_may_be_written_as_its_name_alone() -> None:
    assert parse_config("model: qwen3:8b\n").model.name == "qwen3:8b"


def test_toolsets_are_looked_up_by_platform() -> None:
    found = parse_config("enabled_toolsets:\n  telegram: [memory]\n").enabled_toolsets
    assert found.get("telegram") == ("memory",)
    assert found.get("cli") is None
    assert found.get("get") is None


def test_a_host_names_toolsets_of_a_platform_of_its_own() -> None:
    config = parse_config(
        "enabled_toolsets:\n  my-app: [todo]\n  telegramm: []\n  others: [memory]\n  matrix:\n"
    )
    found = config.enabled_toolsets
    assert [found.get(one) for one in ("my-app", "telegramm", "others", "matrix", "telegram")] == [
        ("todo",),
        (),
        ("memory",),
        None,
        None,
    ]
    assert config.warnings == ("config.yaml line 3: unknown platform 'telegramm', did you mean 'telegram'?",)
    with pytest.raises(
        ConfigError, match=r"enabled_toolsets\.my-app must be a list, each item a string, is 'todo'"
    ):
        parse_config("enabled_toolsets:\n  my-app: todo\n")


def test_the_environment_says_whether_search_is_by_meaning(home: HermesHome) -> None:
    assert load_config(home, {}).recall.semantic == "auto"
    assert load_config(home, {"HERMES_SEMANTIC": "off"}).recall.semantic == "off"
    with pytest.raises(ConfigError, match="HERMES_SEMANTIC must be one of 'auto', 'off', is 'on'"):
        load_config(home, {"HERMES_SEMANTIC": "on"})


def test_a_key_below_the_name_of_a_model_that_stands_alone_can_be_set_and_unset(home: HermesHome) -> None:
    written(home, WRITTEN_BY_A_PERSON)
    set_value(home, "model.base_url", "http://localhost:8080/v1")
    model = load_config(home, {}).model
    assert (model.name, model.base_url) == ("some/model", "http://localhost:8080/v1")
    set_value(home, "model.name", "other")
    assert load_config(home, {}).model.name == "other"
    assert "# of another program" in home.config_yaml.read_text()
    written(home, WRITTEN_BY_A_PERSON)
    unset_value(home, "model.base_url")
    assert home.config_yaml.read_text() == WRITTEN_BY_A_PERSON
    unset_value(home, "model.name")
    assert load_config(home, {}).model == Config().model


@pytest.mark.parametrize("value", ["2024-02-30", "0x_", "!!bool x", "!!float x", "!!int ''", "!!timestamp x"])
def test_a_value_that_fails_in_yaml_itself_is_an_error_with_its_line(home: HermesHome, value: str) -> None:
    written(home, f"memory:\n  memory_char_limit: {value}\n")
    with pytest.raises(ConfigError, match=r"config\.yaml line 2"):
        load_config(home, {})
    text = f"task:\n  due: {value}\n"
    written(home, text)
    assert load_config(home, {}).memory == Config().memory
    with pytest.raises(ConfigError, match=r"config\.yaml can't be"):
        set_value(home, "memory.provider", "holographic")
    assert home.config_yaml.read_text() == text


def test_a_value_with_another_programs_tag_stays(home: HermesHome) -> None:
    text = "http:\n  token: !secret ha_token  # theirs\n  all: !include_dir 'x'\n  one: !one\n    a: [!two 1, b]\n"
    written(home, text)
    set_value(home, "memory.nudge_interval", 5)
    assert home.config_yaml.read_text() == f"{text}memory:\n  nudge_interval: 5\n"
    assert stored_keys(home) == {"memory.nudge_interval"}
    unset_value(home, "memory.nudge_interval")
    assert home.config_yaml.read_text() == f"{text}memory: {{}}\n"


def test_a_tagged_value_of_our_key_can_only_be_replaced_by_hand(home: HermesHome) -> None:
    written(home, text := "memory:\n  provider: !secret mine\n")
    with pytest.raises(ConfigError, match="line 2: could not determine a constructor for the tag '!secret'"):
        set_value(home, "memory.provider", "mem0")
    assert home.config_yaml.read_text() == text


def test_a_block_that_another_one_shares_is_not_changed_under_it(home: HermesHome) -> None:
    text = "theirs: &all\n  provider: one\nmemory: *all\n"
    written(home, text)
    with pytest.raises(ConfigError, match="without harming other values"):
        unset_value(home, "memory.provider")
    assert home.config_yaml.read_text() == text
    set_value(home, "memory.provider", "two")
    assert home.config_yaml.read_text() == text.replace("*all", "{<<: *all, provider: two}")
    assert stored_value(home, "theirs.provider") == "one"


@pytest.mark.parametrize("value", ["none", "default", "builtin", "built-in", " None ", "BUILTIN", '""'])
def test_a_word_for_no_provider_selects_none(hermes_home: HermesHome, value: str) -> None:
    hermes_home.path.mkdir()
    hermes_home.config_yaml.write_text(f"memory:\n  provider: {value}\n")
    config = load_config(hermes_home)
    assert (config.memory.provider, config.selected_providers) == ("", ())


def test_a_memory_that_is_opened_with_a_word_for_no_provider_has_none(hermes_home: HermesHome) -> None:
    for chosen in (None, "None", "built-in"):
        hermes_home.path.mkdir(exist_ok=True)
        hermes_home.config_yaml.write_text("memory:\n  provider: default\n")
        with open_memory(hermes_home, provider=chosen) as memory:
            assert (
                memory.internals.selection.name,
                memory.internals.selection.names,
                list(memory.problems()),
            ) == ("", (), [])
