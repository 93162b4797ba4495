from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from hermes_core import Field
from hermes_core.errors import ConfigError
from hermes_core.kit import Settings, load_settings, save_settings

FIELDS = (
    Field("mode", default="local", choices=("local", "cloud")),
    Field("url", default="https://example.test", env="DEMO_URL", identity=True),
    Field(
        "api_key", secret=True, required=True, env="DEMO_KEY", when={"mode": "cloud"}, url="https://k.test"
    ),
    Field("limit", int, 10, minimum=1, maximum=50),
    Field("weight", float, 0.5, minimum=0.0),
    Field("auto", bool, False),
)


def load(home: Path, environ: dict[str, str] | None = None, **overrides: object) -> Settings:
    return load_settings(FIELDS, home, "demo", {}, overrides, (environ or {}).get)


def write(home: Path, data: object) -> Path:
    path = home / "demo.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def test_without_a_file_every_setting_is_its_default(tmp_path: Path) -> None:
    settings = load(tmp_path)
    assert (settings.mode, settings.limit, settings.weight, settings.auto) == ("local", 10, 0.5, False)
    assert settings.source("limit") == "default"


def test_a_setting_may_be_called_as_what_settings_have(tmp_path: Path) -> None:
    fields = (Field("source", default="wiki"), Field("missing", int, 3))
    settings = load_settings(fields, tmp_path, "notes", environ={})
    assert (settings["source"], settings["missing"]) == ("wiki", 3)
    assert settings.source("source") == "default"


def test_environment_comes_before_the_file_and_the_file_before_the_default(tmp_path: Path) -> None:
    write(tmp_path, {"url": "https://file.test", "limit": 20})
    from_file = load(tmp_path)
    from_env = load(tmp_path, {"DEMO_URL": "https://env.test"})
    assert (from_file.url, from_file.source("url")) == ("https://file.test", "file")
    assert (from_env.url, from_env.source("url")) == ("https://env.test", "env")
    assert load(tmp_path, {"DEMO_URL": "x"}, url="given").url == "given"


def test_an_empty_variable_counts_as_not_set(tmp_path: Path) -> None:
    assert load(tmp_path, {"DEMO_URL": ""}).source("url") == "default"


def test_a_variable_is_found_in_the_homes_env_file(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("DEMO_KEY=k-123456\n")
    assert load_settings(FIELDS, tmp_path, "demo", {}).api_key == "k-123456"


@pytest.mark.parametrize(
    ("raw", "value"),
    [(raw, True) for raw in ("true", "Yes", "ON", "1", 1, True)]
    + [(raw, False) for raw in ("false", "no", "off", "0", 0, False)],
)
def test_one_reading_of_truth_values(tmp_path: Path, raw: object, value: bool) -> None:
    write(tmp_path, {"auto": raw})
    assert load(tmp_path).auto is value


@pytest.mark.parametrize(
    "stored",
    [
        *({"auto": wrong} for wrong in ("n", 2, [])),
        *({"limit": wrong} for wrong in ("ten", "010", "0x10", "", 1.5, True, 0, 51, 10**30, [10], {"a": 1})),
        *({"weight": wrong} for wrong in ("nan", "inf", -1, "9" * 400)),
        {"mode": "both"},
        {"url": {"x": 1}},
    ],
)
def test_a_wrong_value_names_file_key_and_what_to_write(tmp_path: Path, stored: dict[str, object]) -> None:
    path = write(tmp_path, stored)
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    (key, value), *_ = stored.items()
    assert all(part in str(caught.value) for part in (str(path), repr(key), repr(value)[:70], "write"))


@pytest.mark.parametrize(("raw", "kept"), [(50, 20), ("0", 1), (20, 20)])
def test_a_number_that_used_to_be_clamped_still_is_and_a_warning_says_so(
    tmp_path: Path, raw: object, kept: int
) -> None:
    fields = (Field("results", int, 10, minimum=1, maximum=20, clamp=True),)
    path = write(tmp_path, {"results": raw})
    settings = load_settings(fields, tmp_path, "demo", {})
    assert settings.results == kept
    told = [f"'results' in {path} is {raw!r}, so {kept} is used; write a whole number from 1 up to 20"]
    assert list(settings.warnings) == (told if raw != kept else [])
    with pytest.raises(ConfigError, match="from 1 up to 20"):
        save_settings(fields, tmp_path, "demo", {"results": 50})


@pytest.mark.parametrize("field", [Field("on", bool, clamp=True), Field("on", float, minimum=1, clamp=True)])
def test_a_setting_that_no_range_moves_gives_no_warning(tmp_path: Path, field: Field) -> None:
    for raw in ("1", None):
        write(tmp_path, {"on": raw})
        settings = load_settings((field,), tmp_path, "demo", {})
        assert (settings.on, settings.warnings) == (raw and 1, ())


def test_numbers_that_a_wizard_stored_as_text_are_read(tmp_path: Path) -> None:
    write(tmp_path, {"limit": "20", "weight": "0.25"})
    assert (load(tmp_path).limit, load(tmp_path).weight) == (20, 0.25)


def test_an_unknown_key_is_warned_about_by_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, {"limt": 20})
    with caplog.at_level(logging.WARNING):
        (warning,) = load(tmp_path).warnings
    assert "'limt'" in warning
    assert "did you mean 'limit'?" in warning
    assert warning in caplog.text


def test_an_unknown_override_is_warned_about_by_name(tmp_path: Path) -> None:
    settings = load(tmp_path, limt=20)
    assert settings.warnings == ("unknown setting 'limt' in the overrides; did you mean 'limit'?",)
    assert settings.limit == 10


@pytest.mark.parametrize(
    "text", ["{", "[1]", '"text"', "", "[" * 100_000, f'{{"limit": {"9" * 5000}}}'], ids=range(6)
)
def test_a_file_that_is_no_json_object_is_an_error_that_names_it(tmp_path: Path, text: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError, match=path.name):
        load(tmp_path)


def test_a_secret_is_not_read_from_the_file_and_the_warning_says_where_it_belongs(tmp_path: Path) -> None:
    write(tmp_path, {"api_key": "k-123456"})
    settings = load(tmp_path)
    assert settings.api_key is None
    assert ".env as DEMO_KEY" in settings.warnings[0]
    assert "k-123456" not in settings.warnings[0]


def test_a_secret_shows_nowhere(tmp_path: Path) -> None:
    settings = load(tmp_path, {"DEMO_KEY": "k-123456"})
    assert settings.api_key == "k-123456"
    assert "k-123456" not in repr(settings) + repr(settings.as_dict())


def test_a_required_setting_is_missing_only_if_other_settings_ask_for_it(tmp_path: Path) -> None:
    assert load(tmp_path).availability
    cloud = load(tmp_path, mode="cloud")
    assert [field.name for field in cloud.missing] == ["api_key"]
    assert cloud.availability.reason == "'api_key' is not set"
    assert cloud.availability.remedy == "set DEMO_KEY in the environment or .env (https://k.test)"
    assert load(tmp_path, {"DEMO_KEY": "k"}, mode="cloud").availability


def test_the_fingerprint_changes_with_identity_and_with_nothing_else(tmp_path: Path) -> None:
    before = load(tmp_path).fingerprint
    assert before
    assert load(tmp_path, limit=20).fingerprint == before
    assert load(tmp_path, url="https://other.test").fingerprint != before
    assert load_settings(FIELDS[:1], tmp_path, "demo", {}).fingerprint == ""


def test_an_undeclared_name_is_an_attribute_error(tmp_path: Path) -> None:
    with pytest.raises(AttributeError, match="'demo' declares no setting 'limt'"):
        _ = load(tmp_path).limt


def test_saved_settings_read_back_and_keep_what_else_the_file_holds(tmp_path: Path) -> None:
    path = write(tmp_path, {"later": 1, "mode": "cloud"})
    assert save_settings(FIELDS, tmp_path, "demo", {"limit": "20", "mode": None}) == path
    assert json.loads(path.read_text()) == {"later": 1, "limit": 20}
    assert path.stat().st_mode & 0o777 == 0o600
    assert load(tmp_path).limit == 20


@pytest.mark.parametrize("values", [{"api_key": "k"}, {"limit": 99}, {"limt": 2}])
def test_a_refused_value_is_not_saved_and_changes_nothing(tmp_path: Path, values: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        save_settings(FIELDS, tmp_path, "demo", {"mode": "cloud", **values})
    assert not (tmp_path / "demo.json").exists()


@pytest.mark.parametrize("name", ["", "  ", "..", "a/b", "a\\b"])
def test_settings_without_a_name_of_their_own_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="set name = "):
        load_settings(FIELDS, tmp_path, name)
    with pytest.raises(ConfigError, match="set name = "):
        save_settings(FIELDS, tmp_path, name, {"limit": 5})
    assert list(tmp_path.iterdir()) == []


TABLES = (
    Field("names", dict),
    Field("levels", list),
    Field("url", default="https://example.test", identity=True),
)


@pytest.mark.parametrize("given", [{"names": {"42": "mel"}}, {"names": '{"42": "mel"}'}])
def test_a_setting_may_be_a_table(tmp_path: Path, given: dict[str, object]) -> None:
    write(tmp_path, given)
    assert load_settings(TABLES, tmp_path, "demo", {}).names == {"42": "mel"}


@pytest.mark.parametrize("wrong", [{"names": ["mel"]}, {"names": "mel"}, {"levels": {"a": 1}}, {"levels": 3}])
def test_a_table_of_the_wrong_form_is_named(tmp_path: Path, wrong: dict[str, object]) -> None:
    write(tmp_path, wrong)
    with pytest.raises(ConfigError, match=f"{next(iter(wrong))!r} in .* must be a JSON (object|list), is "):
        load_settings(TABLES, tmp_path, "demo", {})


SHARED = {
    "url": "https://all.test",
    "levels": [1],
    "hosts": {
        "hermes": {"url": "https://hermes.test", "levels": None},
        "hermes_work": {"url": "https://work.test"},
        "another": {"url": "https://another.test", "unheard": True},
    },
}


def home_of(tmp_path: Path, profile: str = "") -> Path:
    home = tmp_path / "profiles" / profile if profile else tmp_path
    home.mkdir(parents=True, exist_ok=True)
    write(home, SHARED)
    return home


@pytest.mark.parametrize(
    ("profile", "url"),
    [("", "https://hermes.test"), ("work", "https://work.test"), ("play", "https://all.test")],
)
def test_the_block_of_this_host_wins_in_a_shared_file(tmp_path: Path, profile: str, url: str) -> None:
    settings = load_settings(TABLES, home_of(tmp_path, profile), "demo", {})
    assert (settings.url, settings.levels, settings.warnings) == (url, [1], ())


def test_the_account_in_a_hosts_block_is_part_of_the_fingerprint(tmp_path: Path) -> None:
    ours = load_settings(TABLES, home_of(tmp_path), "demo", {})
    plain = load_settings(TABLES, home_of(tmp_path, "play"), "demo", {})
    assert ours.fingerprint != plain.fingerprint


def test_a_value_is_saved_where_it_takes_effect(tmp_path: Path) -> None:
    path = save_settings(TABLES, home_of(tmp_path), "demo", {"url": "https://new.test", "levels": None})
    kept = json.loads(path.read_text())
    assert kept["hosts"]["hermes"] == {"url": "https://new.test"}
    assert (kept["url"], "levels" in kept) == ("https://all.test", False)
    assert kept["hosts"]["another"] == SHARED["hosts"]["another"]  # type: ignore[index]
    assert load_settings(TABLES, tmp_path, "demo", {}).url == "https://new.test"


def test_a_list_in_the_file_is_read_as_a_text_of_commas(tmp_path: Path) -> None:
    tags = (Field("tags"), Field("scopes"))
    write(tmp_path, {"tags": ["home", "work"], "scopes": [["a"], ["b"]]})
    settings = load_settings(tags, tmp_path, "demo", {})
    assert (settings.tags, settings.scopes) == ("home, work", '[["a"], ["b"]]')


OLDER = (
    Field("budget", aliases=("recall.budget", "effort")),
    Field("url", default="https://example.test"),
    Field("key", secret=True, env="DEMO_KEY", aliases=("apiKey",)),
)


@pytest.mark.parametrize(
    ("stored", "budget"),
    [
        ({"recall": {"budget": "high"}}, "high"),
        ({"effort": "low"}, "low"),
        ({"effort": "low", "budget": "mid"}, "mid"),
        ({"recall": "high"}, None),
    ],
)
def test_an_older_key_of_the_file_is_read_when_the_present_one_is_not_there(
    tmp_path: Path, stored: dict[str, object], budget: str | None
) -> None:
    write(tmp_path, stored)
    settings = load_settings(OLDER, tmp_path, "demo", {})
    assert (settings.budget, settings.warnings) == (budget, ())


def test_a_secret_under_an_older_key_is_a_warning_and_not_read(tmp_path: Path) -> None:
    write(tmp_path, {"apiKey": "k-1"})
    settings = load_settings(OLDER, tmp_path, "demo", {})
    assert settings.key is None
    assert "move it to .env as DEMO_KEY" in settings.warnings[0]


def test_the_older_file_is_read_until_the_new_one_exists(tmp_path: Path) -> None:
    older = tmp_path / "demo" / "config.json"
    older.parent.mkdir()
    older.write_text(json.dumps({"url": "https://older.test", "effort": "low", "apiKey": "k", "other": 1}))
    assert load_settings(FIELDS, tmp_path, "demo", {}).url == "https://example.test"
    assert load_settings(OLDER, tmp_path, "demo", {}).url == "https://older.test"
    path = save_settings(OLDER, tmp_path, "demo", {"budget": "mid"})
    assert json.loads(path.read_text()) == {"url": "https://older.test", "effort": "low", "budget": "mid"}
    assert older.exists()
    assert load_settings(OLDER, tmp_path, "demo", {}).budget == "mid"


DOTTED = (Field("capture.enabled", bool, False), Field("capture.model"))


def test_a_dotted_name_is_a_place_within_the_file(tmp_path: Path) -> None:
    write(tmp_path, {"capture": {"model": "tiny", "depth": 2}, "capture.enabled": False})
    path = save_settings(DOTTED, tmp_path, "demo", {"capture.enabled": True, "capture.model": None})
    assert json.loads(path.read_text()) == {"capture": {"enabled": True, "depth": 2}}
    settings = load_settings(DOTTED, tmp_path, "demo", {})
    assert (settings.as_dict(), settings.warnings) == ({"capture.enabled": True, "capture.model": None}, ())


def test_a_dotted_name_that_another_program_wrote_as_one_key_is_read(tmp_path: Path) -> None:
    write(tmp_path, {"capture.enabled": True})
    settings = load_settings(DOTTED, tmp_path, "demo", {})
    assert (settings.as_dict()["capture.enabled"], settings.warnings) == (True, ())
