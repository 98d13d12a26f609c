"""Settings from files, environment and flags: order, sources, and errors that point at the place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from surehand import Settings, config
from surehand.core.errors import SettingsError
from surehand.state import locations


def write_user(text: str) -> Path:
    path = Path(locations.user_settings())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def write_project(workspace: Path, text: str) -> Path:
    path = workspace / "surehand.toml"
    path.write_text(text)
    return path


def test_defaults_hold_where_nothing_is_set(tmp_path: Path) -> None:
    loaded = config.load(str(tmp_path))
    assert loaded.settings.engine.timeout_s == 30
    assert loaded.settings.permissions.mode == "default"
    assert loaded.origins == {}


def test_each_source_overrides_the_one_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_user("[engine]\ntimeout = 1\nmax_parallel = 1\noutput_limit = 1000\n[log]\nlevel = 'info'\n")
    write_project(tmp_path, "[engine]\nmax_parallel = 2\noutput_limit = 2000\n[log]\nlevel = 'debug'\n")
    monkeypatch.setenv("SUREHAND_ENGINE__OUTPUT_LIMIT", "3000")
    monkeypatch.setenv("SUREHAND_LOG__LEVEL", "warning")
    loaded = config.load(str(tmp_path), flags={("log", "level"): "error"}, trusted=True)
    engine = loaded.settings.engine
    assert (engine.timeout, engine.max_parallel, engine.output_limit) == (1, 2, 3000)
    assert loaded.settings.log.level == "error"


def test_each_value_says_where_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = write_user("# mine\n\n[engine]\ntimeout = 1\n")
    monkeypatch.setenv("SUREHAND_ENGINE__CACHE", "true")
    rows = {row["key"]: row["from"] for row in config.list_values(config.load(str(tmp_path)))}
    assert rows["engine.timeout"] == f"{user}:4"
    assert rows["engine.cache"] == "SUREHAND_ENGINE__CACHE"
    assert rows["engine.max_parallel"] == "default"


def test_a_wrong_key_names_file_line_and_the_nearest_right_one(tmp_path: Path) -> None:
    user = write_user("[engine]\ncache = true\ntimout = 3\n")
    with pytest.raises(SettingsError) as caught:
        config.load(str(tmp_path))
    assert f"{user}:3" in str(caught.value)
    assert "'engine.timeout'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "line", "name"),
    [
        ("# mine\n[permisions]\nallow = ['Read']\n", 2, "permisions"),
        ("[engine]\ncache = true\n\n[ permisions ]  # mine\n\nallow = ['Read']\n", 4, "permisions"),
        ("[web]\nallowed_hosts = [\n  'a',\n  'b=c',\n]\n[wep.more]\nx = 1\n", 6, "wep"),
        ("permisions.allow = ['Read']\n", 1, "permisions"),
        ("\npermisions = { allow = ['Read'] }\n", 2, "permisions"),
        ("[mcp_servers.\"a.b\"]\ncommand = 'x'\n\n[mcp_servers.c]\ncomand = 'x'\n", 5, "mcp_servers.c.comand"),
        ("[tools.'fs.list_dir']\n# longer\ntimout = 3\n", 3, "tools.fs.list_dir.timout"),
        ("[[hooks]]\nnope = 'x'\n", 2, "nope"),
        ("[[hooks]]\nevent = 'before'\ncommand = 'x'\n[[hooks]]\nnope = 'x'\n", 5, "hooks[1].nope"),
        ("[[permissions.rules]]\nallow = 'Read'\n\n[[permissions.rules]]\nalow = 'x'\n", 5, "rules[1].alow"),
    ],
)
def test_a_misspelt_table_or_key_is_pointed_at_where_it_stands(tmp_path: Path, text: str, line: int, name: str) -> None:
    user = write_user(text)
    with pytest.raises(SettingsError) as caught:
        config.load(str(tmp_path))
    wrong = [each for each in str(caught.value).splitlines() if name in each]
    assert wrong, str(caught.value)
    assert wrong[0].startswith(f"{user}:{line}:"), str(caught.value)


def test_a_wrong_value_names_file_line_and_what_is_wrong(tmp_path: Path) -> None:
    user = write_user("[engine]\ntimeout = 'soon'\n[permissions]\nmode = 'yolo'\n")
    with pytest.raises(SettingsError) as caught:
        config.load(str(tmp_path))
    assert f"{user}:2" in str(caught.value)
    assert f"{user}:4" in str(caught.value)
    assert "'plan'" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("engine.timeout = 'soon'", 'engine.timeout = "soon" is wrong: it must be a number, more than 0'),
        ("engine.max_parallel = 0", "engine.max_parallel = 0 is wrong: it must be a whole number from 1 to 1000"),
        ("sandbox.memory_mb = 1.5", "sandbox.memory_mb = 1.5 is wrong: it must be a whole number, at least 64"),
        ("engine.cache = 3", "engine.cache = 3 is wrong: it must be true or false"),
        ("log.level = 'LOUD'", "it must be one of 'debug', 'info', 'warning', 'error', 'off'"),
        ("permissions.allow = 'Bash'", 'it must be a list of texts, such as ["..."]'),
        ("permissions.deny = [1]", "permissions.deny[0] = 1 is wrong: it must be a text"),
        ("permissions.rules = [{allow = 3}]", "rules[0].allow = 3 is wrong: it must be a text or a list of texts"),
        ("log = 3", "log = 3 is wrong: it must be a table with level, json_lines"),
        ("log = ['a']", "log = [...] is wrong: it must be a table with level, json_lines"),
        ("mcp_servers.a = 'x'", "it must be a table with command, args, env, url"),
        ("hooks = [{event = 'before'}]", "hooks[0].command is missing: it must be a text that is not empty"),
        ("tools.Bash.timout = 3", "there is no setting tools.Bash.timout (did you mean 'tools.Bash.timeout'?)"),
        ("mode = 'plan'", "there is no setting mode (did you mean 'permissions.mode' or 'sandbox.mode'?)"),
        ("log.zzz = 1", "there is no setting log.zzz; log has level, json_lines"),
        ('log."\\u001b[31m" = 1', 'there is no setting log."\\u001b[31m"'),
    ],
)
def test_a_wrong_setting_says_what_is_allowed(tmp_path: Path, text: str, said: str) -> None:
    user = write_user(f"\n{text}\n")
    with pytest.raises(SettingsError) as caught:
        config.load(str(tmp_path))
    assert str(caught.value).startswith(f"{user}:2: ")
    assert said in str(caught.value)
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize("raw", [{"engine": {"timeout": "soon"}}, {"engine": 3}, {"nope": 1}, {3: 4}, [], None, "x"])
def test_settings_made_in_a_program_are_refused_in_the_same_words(raw: Any) -> None:
    with pytest.raises(SettingsError) as caught:
        Settings.parse(raw)
    assert "must be" in str(caught.value) or "there is no setting" in str(caught.value)
    if isinstance(raw, dict) and all(isinstance(key, str) for key in raw):
        with pytest.raises(SettingsError):
            Settings(**raw)


def test_what_may_be_a_secret_is_not_repeated(tmp_path: Path) -> None:
    write_user(
        "[mcp_servers.a]\nenv = 'TOKEN=hush'\n[mcp_servers.b]\nheaders = {Authorization = ['hush']}\n"
        "[mcp_servers.c]\nclient_secret = ['hush']\n"
    )
    with pytest.raises(SettingsError) as caught:
        config.load(str(tmp_path))
    assert "mcp_servers.b.headers.Authorization is wrong: it must be a text" in str(caught.value)
    assert "hush" not in str(caught.value)


def test_of_rules_that_add_up_the_wrong_one_is_pointed_at(tmp_path: Path) -> None:
    user = write_user("[permissions]\ndeny = [1]\n")
    write_project(tmp_path, "[permissions]\n\n\ndeny = ['B']\n")
    with pytest.raises(SettingsError) as caught:
        config.load(str(tmp_path))
    assert str(caught.value).startswith(f"{user}:2: permissions.deny[0] = 1")


def test_the_faults_of_all_sources_are_told_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user = write_user("engine = 3\n")
    project = write_project(tmp_path, "[permissions]\ndeny = 'x'\n")
    monkeypatch.setenv("SUREHAND_ENGINE__TIMEOUT", "soon")
    with pytest.raises(SettingsError) as caught:
        config.load(str(tmp_path))
    places = [line.split(": ")[0] for line in str(caught.value).splitlines()]
    assert places == [f"{user}:1", f"{project}:2", "SUREHAND_ENGINE__TIMEOUT"]


def test_a_strangers_file_cannot_steer_the_terminal_by_its_keys(tmp_path: Path) -> None:
    write_project(tmp_path, '[log]\n"\\u001b]0;owned\\u0007" = 1\n')
    assert "\x1b" not in "".join(config.load(str(tmp_path)).warnings)


def test_a_wrong_variable_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREHAND_ENGIN__TIMEOUT", "3")
    with pytest.raises(SettingsError, match="SUREHAND_ENGIN__TIMEOUT"):
        config.load(str(tmp_path))


@pytest.mark.parametrize(("content", "word"), [(b"[engine\n", "TOML"), (b"\xff\xfe", "UTF-8")])
def test_a_broken_file_is_named(tmp_path: Path, content: bytes, word: str) -> None:
    write_user("").write_bytes(content)
    with pytest.raises(SettingsError, match=word):
        config.load(str(tmp_path))


def test_an_untrusted_project_may_only_narrow(tmp_path: Path) -> None:
    write_project(tmp_path, "[permissions]\ndeny = ['Bash(rm:*)']\n[engine]\ntimeout = 1\n")
    loaded = config.load(str(tmp_path), trusted=False)
    assert loaded.settings.permissions.deny == ("Bash(rm:*)",)
    assert loaded.settings.engine.timeout_s == 30
    assert "not trusted" in loaded.warnings[0]


@pytest.mark.parametrize(
    "text",
    [
        "[permissions]\nallow = ['Bash']\n",
        "[permissions]\nmode = 'bypass'\n",
        "[sandbox]\nmode = 'off'\n",
        "[web]\nallowed_hosts = ['127.0.0.1']\n",
        "[model]\nbase_url = 'http://evil.test'\n",
    ],
)
def test_even_a_trusted_project_cannot_widen(tmp_path: Path, text: str) -> None:
    write_project(tmp_path, text)
    loaded = config.load(str(tmp_path), trusted=True)
    assert loaded.settings == config.load("/nonexistent").settings
    assert "ignored" in loaded.warnings[0]


def test_rules_of_several_sources_add_up(tmp_path: Path) -> None:
    write_user("[permissions]\ndeny = ['A']\n")
    write_project(tmp_path, "[permissions]\ndeny = ['B']\n")
    assert config.load(str(tmp_path)).settings.permissions.deny == ("A", "B")


def test_a_tools_own_settings_keep_their_keys(tmp_path: Path) -> None:
    write_user(
        "[tools.Bash]\ntimeout = 9\n[tools.Bash.custom]\nanyThing = {x = 1}\n[tools.'fs.list_dir']\nenabled = false\n"
    )
    tools = config.load(str(tmp_path)).settings.tools
    assert tools["Bash"].timeout == 9
    assert tools["Bash"].custom == {"anyThing": {"x": 1}}
    assert tools["fs.list_dir"].enabled is False


def test_variables_take_json_and_plain_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREHAND_WEB__ALLOWED_HOSTS", '["127.0.0.1"]')
    monkeypatch.setenv("SUREHAND_WEB__PROXY", "http://127.0.0.1:3128")
    web = config.load(str(tmp_path)).settings.web
    assert web.allowed_hosts == ("127.0.0.1",)
    assert web.proxy == "http://127.0.0.1:3128"


def test_a_variable_for_a_text_is_a_text_whatever_it_looks_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUREHAND_MODEL__NAME", "4")
    monkeypatch.setenv("SUREHAND_MCP_SERVERS__myServer__COMMAND", "true")
    monkeypatch.setenv("SUREHAND_TOOLS__Bash__CUSTOM", '{"a": 1}')
    settings = config.load(str(tmp_path)).settings
    assert settings.model.name == "4"
    assert settings.mcp_servers["myServer"].command == "true"
    assert settings.tools["Bash"].custom == {"a": 1}


def test_a_variable_nested_too_deeply_is_wrong_not_a_crash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREHAND_ENGINE__TIMEOUT", "[" * 100_000)
    with pytest.raises(SettingsError, match="a number"):
        config.load(str(tmp_path))


@pytest.mark.spec("PERM-4")
def test_bypass_must_be_confirmed_by_the_user_and_needs_the_sandbox(tmp_path: Path) -> None:
    from surehand import Surehand, ToolFailure

    with pytest.raises(ToolFailure, match="confirm"):
        Surehand(tmp_path, mode="bypass")
    off = Settings.parse({"permissions": {"confirm_bypass": True}, "sandbox": {"mode": "off"}})
    with pytest.raises(ToolFailure, match="sandbox"):
        Surehand(tmp_path, mode="bypass", settings=off)
    write_project(tmp_path, "[permissions]\nconfirm_bypass = true\n")
    assert "ignored" in config.load(str(tmp_path), trusted=True).warnings[0]


async def test_what_a_deny_rule_covers_is_left_out_of_searches(tmp_path: Path) -> None:
    from surehand.testing import scratch_app

    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "a.txt").write_text("needle\n")
    (tmp_path / "b.txt").write_text("needle\n")
    settings = Settings.parse({"permissions": {"deny": ["Read(private/**)"]}})
    async with scratch_app(tmp_path, settings=settings) as app:
        found = await app.call("Grep", {"pattern": "needle"})
        listed = await app.call("Glob", {"pattern": "**/*.txt"})
    for result in (found, listed):
        assert "b.txt" in result.output
        assert "private" not in result.output
