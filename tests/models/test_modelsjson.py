from __future__ import annotations

import json
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.tables import table

from clawkit.config.load import loads
from clawkit.config.modelref import ModelRef
from clawkit.errors import ConfigError
from clawkit.models.catalog import Catalog
from clawkit.models.providers import agent_dir, key_mark

SECRET = "hunter2-very-secret"
ONE = ModelRef("own", "one")
MODELS = [{"id": "one"}]


class Place:
    """A home with an agent's models.json in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.folder = home / "agents" / "main" / "agent"
        self.file = self.folder / "models.json"

    def store(self, providers: Any) -> None:
        self.store_text(json.dumps({"providers": providers}))

    def store_text(self, text: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.file.write_text(text, encoding="utf-8")
        self.file.chmod(0o600)

    def catalog(self, models: Mapping[str, Any] | None = None, **env: str) -> Catalog:
        env = {"CLAWKIT_HOME": str(self.home), **env}
        return Catalog.of(loads(json.dumps({"models": models or {}}), env=env))

    def own(
        self, *, mode: str = "merge", env: Mapping[str, str] | None = None, **settings: Any
    ) -> Catalog:
        settings = {"baseUrl": "https://config.test/v1", "models": MODELS, **settings}
        return self.catalog({"mode": mode, "providers": {"own": settings}}, **(env or {}))

    def written(self) -> dict[str, Any]:
        data = json.loads(self.file.read_text(encoding="utf-8"))
        providers: dict[str, Any] = data["providers"]
        return providers


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def keys_of(catalog: Catalog, provider: str = "own") -> list[str]:
    return [each.secret for each in catalog.credentials.for_provider(provider)]


class TestDirectory:
    @pytest.mark.parametrize(
        ("env", "expected"),
        [
            ({}, "/h/agents/work/agent"),
            ({"PI_CODING_AGENT_DIR": "/pi"}, "/pi"),
            ({"PI_CODING_AGENT_DIR": "/pi", "OPENCLAW_AGENT_DIR": "/oc"}, "/oc"),
            ({"OPENCLAW_AGENT_DIR": "/oc", "CLAWKIT_AGENT_DIR": "/ck"}, "/ck"),
            ({"OPENCLAW_AGENT_DIR": ""}, "/h/agents/work/agent"),
        ],
    )
    def test_a_variable_moves_it(self, env: dict[str, str], expected: str) -> None:
        env = {"CLAWKIT_HOME": "/h", **env}
        config = loads("{agents: {list: [{id: 'Work'}]}}", env=env).config
        assert agent_dir(config, env, "WORK") == expected

    def test_an_agent_may_have_its_own(self) -> None:
        env = {"CLAWKIT_HOME": "/h", "HOME": "/me"}
        config = loads("{agents: {list: [{id: 'work', agentDir: '~/w'}]}}", env=env).config
        assert agent_dir(config, env, "work") == "/me/w"
        assert agent_dir(config, env, "main") == "/h/agents/main/agent"

    @pytest.mark.parametrize("path", [".pi/agent", "agent", "./x", "../x", "~other/x"])
    def test_no_repository_brings_its_own(self, path: str) -> None:
        config = loads(json.dumps({"agents": {"list": [{"id": "work", "agentDir": path}]}})).config
        for env, agent, where in (
            ({"PI_CODING_AGENT_DIR": path}, "main", "PI_CODING_AGENT_DIR"),
            ({}, "work", "agents.list[0].agentDir"),
        ):
            with pytest.raises(ConfigError, match="is not an absolute path") as caught:
                agent_dir(config, env, agent)
            assert caught.value.issues[0].path == where

    @pytest.mark.parametrize("name", ["../x", "a/b", "..", ".", "a\0b", ""])
    def test_a_name_cannot_lead_elsewhere(self, name: str) -> None:
        config = loads("{}", env={}).config
        with pytest.raises(ConfigError, match="cannot be used as the name of a directory"):
            agent_dir(config, {"CLAWKIT_HOME": "/h"}, name)


class TestReading:
    def test_a_link_that_leads_nowhere_is_told(self, place: Place) -> None:
        place.folder.mkdir(parents=True)
        place.file.symlink_to("nowhere")
        with pytest.raises(ConfigError, match="cannot be read: No such file"):
            place.catalog()

    @pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
    def test_one_that_others_can_write_is_not_used(self, place: Place, mode: int) -> None:
        place.store({"own": {"baseUrl": "https://evil.test", "models": MODELS}})
        place.file.chmod(mode)
        with pytest.raises(ConfigError, match="can be written by others"):
            place.catalog()

    def test_a_provider_may_be_there_alone(self, place: Place) -> None:
        place.store_text(
            "{providers: {own: {baseUrl: 'http://127.0.0.1:7', models: [{id: 'one'}]}}} // mine"
        )
        catalog = place.catalog()
        assert catalog.endpoint(catalog.find("own/one")).base_url == "http://127.0.0.1:7"
        assert catalog.list()[0].source == "models.json"

    def test_its_address_wins_and_an_empty_one_does_not(self, place: Place) -> None:
        place.store({"own": {"baseUrl": "https://stored.test/v1"}})
        assert place.own().endpoint(ONE).base_url == "https://stored.test/v1"
        place.store({"own": {"baseUrl": ""}})
        assert place.own().endpoint(ONE).base_url == "https://config.test/v1"

    def test_configured_values_take_precedence_for_everything_else(self, place: Place) -> None:
        stored = {
            "api": "anthropic-messages",
            "timeoutSeconds": 5,
            "headers": {"X-A": "stored", "X-B": "stored"},
            "models": [{"id": "one", "contextWindow": 9_000, "name": "Stored"}, {"id": "two"}],
        }
        place.store({"own": stored})
        catalog = place.own(
            api="openai-completions",
            headers={"X-A": "config"},
            models=[{"id": "one", "name": "Mine"}],
        )
        assert catalog.endpoint(ONE).api == "openai-completions"
        assert catalog.timeout_s(ONE) == 5
        assert catalog.headers(ONE) == {"X-A": "config", "X-B": "stored"}
        assert catalog.facts(ONE).name == "Mine"
        assert catalog.facts(ONE).context_window == 9_000
        sources = {entry.ref.id: entry.source for entry in catalog.list()[:2]}
        assert sources == {"one": "config", "two": "models.json"}

    def test_provider_aliases_are_the_same_there(self, place: Place) -> None:
        place.store({"z.ai": {"baseUrl": "https://stored.test/v4"}})
        catalog = place.catalog()
        assert catalog.endpoint(ModelRef("zai", "glm-4.7")).base_url == "https://stored.test/v4"

    def test_replacing_does_not_look_at_it(self, place: Place) -> None:
        place.store_text("broken")
        assert place.own(mode="replace").endpoint(ONE).base_url == "https://config.test/v1"

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("{\n  providers: {\n    own: {,\n", ":3:"),
            (
                '{"providers": {\n"own": {\n"baseUrl": 5}}}',
                r":3: providers\.own\.baseUrl: expected",
            ),
            ('{"providers": {"own": {\n"bseUrl": "x"}}}', r":2: providers\.own\.bseUrl: unknown"),
            ("[]", "expected an object"),
            ('{"providers": {"own": {"models": [{}]}}}', "the setting 'id' is missing"),
            ('{"providers": {"own": {"apiKey": 7}}}', "apiKey"),
            ("[" * 5000, "levels"),
        ],
    )
    def test_a_broken_file_is_told_with_its_line(self, place: Place, text: str, said: str) -> None:
        place.store_text(text)
        with pytest.raises(ConfigError, match=said) as caught:
            place.catalog()
        assert str(place.file) in str(caught.value)

    def test_what_is_not_a_file_is_refused_at_once(self, place: Place) -> None:
        place.file.mkdir(parents=True)
        with pytest.raises(ConfigError, match=r"models\.json: is a directory"):
            place.catalog()


class TestKeys:
    def test_a_stored_key_wins_over_one_that_is_written_out(self, place: Place) -> None:
        place.store({"own": {"apiKey": "stored"}})
        assert keys_of(place.own(apiKey="written")) == ["stored"]
        assert keys_of(place.own()) == ["stored"]

    @pytest.mark.parametrize(
        "managed", ["${OWN_KEY}", "$OWN_KEY", {"source": "env", "id": "OWN_KEY"}, "OWN_KEY"]
    )
    def test_a_key_that_is_only_referred_to_wins(self, place: Place, managed: Any) -> None:
        place.store({"own": {"apiKey": "stored"}})
        assert keys_of(place.own(apiKey=managed, env={"OWN_KEY": SECRET})) == [SECRET]

    @pytest.mark.parametrize("mark", ["OTHER_KEY", "NOTHING", "secretref-managed", ""])
    def test_a_marker_is_never_the_key(self, place: Place, mark: str) -> None:
        place.store({"own": {"apiKey": mark}})
        assert keys_of(place.own()) == []
        assert keys_of(place.own(apiKey="written")) == ["written"]

    def test_a_marker_of_a_variable_is_its_value(self, place: Place) -> None:
        place.store({"own": {"apiKey": "OWN_KEY"}})
        assert keys_of(place.own(env={"OWN_KEY": SECRET})) == [SECRET]

    def test_markers_in_headers_are_never_sent(self, place: Place) -> None:
        headers = {
            "X-Env": "secretref-env:OWN_KEY",
            "X-Odd": "secretref-env:no name",
            "X-File": "secretref-managed",
            "X-Plain": "plain",
        }
        place.store({"own": {"headers": headers, "models": [{"id": "one", "headers": headers}]}})
        catalog = place.own(env={"OWN_KEY": SECRET})
        assert catalog.headers(ONE) == {"X-Env": SECRET, "X-Plain": "plain"}
        catalog = place.own(headers={"X-File": "from config"}, env={"OWN_KEY": SECRET})
        assert catalog.headers(ONE)["X-File"] == "from config"


class TestWriting:
    SOURCES: ClassVar[dict[str, Any]] = {
        "apiKey": "${OWN_KEY}",
        "headers": {
            "X-Env": {"source": "env", "id": "OWN_KEY"},
            "X-Shell": "${OWN_KEY}",
            "X-Mixed": "Token ${OWN_KEY}",
            "X-File": {"source": "file", "id": "/a", "provider": "vault"},
            "X-Tenant": "acme",
            "Authorization": f"Bearer {SECRET}",
        },
        "request": {"auth": {"mode": "authorization-bearer", "token": SECRET}},
        "models": [{"id": "one", "headers": {"X-Api-Key": SECRET}}],
    }

    def test_no_secret_is_in_it_and_only_the_owner_can_read_it(self, place: Place) -> None:
        catalog = place.own(env={"OWN_KEY": SECRET}, **self.SOURCES)
        assert catalog.write_models_json() == str(place.file)
        assert SECRET not in place.file.read_text(encoding="utf-8")
        assert stat.S_IMODE(place.file.stat().st_mode) == 0o600
        assert stat.S_IMODE(place.folder.stat().st_mode) == 0o700
        own = place.written()["own"]
        assert own["apiKey"] == "OWN_KEY"
        assert own["headers"] == {
            "X-Env": "secretref-env:OWN_KEY",
            "X-Shell": "secretref-env:OWN_KEY",
            "X-Mixed": "secretref-managed",
            "X-File": "secretref-managed",
            "X-Tenant": "acme",
        }
        assert own["models"] == [{"id": "one", "headers": {}}]

    def test_what_was_written_means_the_same_when_it_is_read(self, place: Place) -> None:
        secrets: dict[str, Any] = {"apiKey": "${OWN_KEY}", "headers": {"X-Env": "${OWN_KEY}"}}
        catalog = place.own(env={"OWN_KEY": SECRET}, **secrets)
        before = catalog.endpoint(ONE), catalog.headers(ONE), keys_of(catalog)
        catalog.write_models_json()
        for again in (
            place.own(env={"OWN_KEY": SECRET}, **secrets),
            place.catalog(OWN_KEY=SECRET),
        ):
            assert (again.endpoint(ONE), again.headers(ONE), keys_of(again)) == before

    def test_a_key_that_is_written_out_stays_where_it_is(self, place: Place) -> None:
        place.own(apiKey=SECRET).write_models_json()
        assert "apiKey" not in place.written()["own"]

    def test_without_the_source_nothing_is_written(self, place: Place) -> None:
        loaded = loads("{}", env={"CLAWKIT_HOME": str(place.home)})
        with pytest.raises(ValueError, match="created with"):
            Catalog(loaded.config, loaded.env, "main").write_models_json()
        assert not place.file.exists()

    def test_merging_keeps_what_is_there(self, place: Place) -> None:
        place.store(
            {
                "other": {"baseUrl": "https://other.test", "apiKey": "kept"},
                "own": {
                    "baseUrl": "https://stored.test/v1",
                    "apiKey": "kept",
                    "models": [{"id": "two"}],
                },
            }
        )
        place.own(apiKey="written", api="openai-completions").write_models_json()
        written = place.written()
        assert written["other"] == {"baseUrl": "https://other.test", "apiKey": "kept"}
        assert written["own"]["baseUrl"] == "https://stored.test/v1"
        assert written["own"]["apiKey"] == "kept"
        assert written["own"]["api"] == "openai-completions"
        assert [model["id"] for model in written["own"]["models"]] == ["two", "one"]

    def test_replacing_rewrites_all_of_it(self, place: Place) -> None:
        place.store({"other": {"baseUrl": "https://other.test"}, "own": {"apiKey": "old"}})
        place.own(mode="replace").write_models_json()
        assert place.written() == {"own": {"baseUrl": "https://config.test/v1", "models": MODELS}}

    def test_a_broken_file_is_not_written_over(self, place: Place) -> None:
        place.store({})
        catalog = place.own()
        place.store_text("{broken")
        with pytest.raises(ConfigError):
            catalog.write_models_json()
        assert place.file.read_text(encoding="utf-8") == "{broken"

    def test_other_spellings_of_keys_become_the_documented_one(self, place: Place) -> None:
        place.own(timeout_seconds=9).write_models_json()
        assert place.written()["own"]["timeoutSeconds"] == 9
        assert place.catalog().timeout_s(ONE) == 9


@table(
    ("value", "mark"),
    [
        ({"source": "env", "id": "A_KEY"}, "A_KEY"),
        ({"source": "exec", "id": "x"}, "secretref-managed"),
        ("${A_KEY}", "A_KEY"),
        ("$A_KEY", "A_KEY"),
        ("a ${A_KEY}", "secretref-managed"),
        ("A_KEY", "A_KEY"),
        ("sk-abc", ""),
        ("", ""),
        (None, ""),
        (5, ""),
    ],
)
def test_a_key_becomes_a_mark_when_it_is_elsewhere(value: Any, mark: str) -> None:
    assert key_mark(value) == mark
