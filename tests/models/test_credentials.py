from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs

import pytest

from clawkit.config.load import loads
from clawkit.config.modelref import ModelRef
from clawkit.config.sections.models import Provider
from clawkit.config.sections.shared import RequestAuth, RequestSettings
from clawkit.errors import ConfigError
from clawkit.models.client import auth_headers
from clawkit.models.credentials import Credential, Credentials
from clawkit.models.protocols import Api, Endpoint, ErrorKind, ModelError
from clawkit.net.route import NetError

SECRET = "hunter2-very-secret"
NOW = 1_800_000_000.0


MINE = {"mine": 1, "failureCounts": {"timeout": 3}}


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


class Tokens:
    """A service that renews tokens; keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, bytes]] = []

    async def __call__(
        self, url: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, bytes]:
        self.asked.append((url, headers["Content-Type"], body))
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, data = answer
        return status, data if isinstance(data, bytes) else json.dumps(data).encode()


class Place:
    """An agent's directory with its auth-profiles.json."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "auth-profiles.json"
        self.clock = Clock()

    def store(self, profiles: Mapping[str, Any], **more: Any) -> None:
        data = {"version": 1, "profiles": profiles, **more}
        self.file.write_text(json.dumps(data), encoding="utf-8")
        self.file.chmod(0o600)

    def read(self) -> dict[str, Any]:
        data: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        return data

    def credentials(self, config: Any = None, post: Any = None, **env: str) -> Credentials:
        loaded = loads(json.dumps(config or {}), env={"CLAWKIT_HOME": str(self.folder), **env})
        return Credentials(loaded.config, loaded.env, str(self.folder), post=post, clock=self.clock)

    def ids(self, provider: str = "openai", config: Any = None, **env: str) -> list[str]:
        return [each.id for each in self.credentials(config, **env).for_provider(provider)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    folder = tmp_path / "agent"
    folder.mkdir(mode=0o700)
    return Place(folder)


def own(**settings: Any) -> dict[str, Any]:
    settings = {"baseUrl": "https://own.test/v1", "models": [{"id": "m"}], **settings}
    return {"models": {"providers": {"own": settings}}}


def api_key(provider: str = "openai", key: str = "k") -> dict[str, Any]:
    return {"type": "api_key", "provider": provider, "key": key}


class TestOrder:
    def test_stored_ones_come_before_variables_and_these_before_settings(
        self, place: Place
    ) -> None:
        place.store({"openai:work": api_key(key="a")})
        config = {"models": {"providers": {"openai": {"apiKey": "c"}}}}
        found = place.credentials(config, OPENAI_API_KEY="b").for_provider("openai")
        assert [(each.id, each.secret) for each in found] == [
            ("openai:work", "a"),
            ("env:OPENAI_API_KEY", "b"),
            ("models.providers.openai.apiKey", "c"),
        ]

    def test_variables_are_tried_in_their_order_and_a_secret_once(self, place: Place) -> None:
        env = {"GOOGLE_API_KEY": "b", "GEMINI_API_KEY": "a"}
        assert place.ids("google", **env) == ["env:GEMINI_API_KEY", "env:GOOGLE_API_KEY"]
        env["GOOGLE_API_KEY"] = " a "
        assert place.ids("gemini", **env) == ["env:GEMINI_API_KEY"]

    def test_the_usual_order_is_by_kind_then_by_last_use(self, place: Place) -> None:
        place.store(
            {
                "openai:late": api_key(key="1"),
                "openai:early": api_key(key="2"),
                "openai:never": api_key(key="3"),
                "openai:token": {"type": "token", "provider": "openai", "token": "t"},
                "openai:oauth": {"type": "oauth", "provider": "openai", "access": "o"},
                "zai:other": api_key("z.ai"),
            },
            usageStats={"openai:late": {"lastUsed": 200}, "openai:early": {"lastUsed": 100}},
        )
        assert place.ids() == [
            "openai:oauth",
            "openai:token",
            "openai:never",
            "openai:early",
            "openai:late",
        ]
        assert place.ids("zai") == ["zai:other"]

    def test_a_configured_order_holds_and_leaves_out_the_rest(self, place: Place) -> None:
        place.store(
            {
                "openai:a": api_key(key="1"),
                "openai:b": api_key(key="2"),
                "openai:c": api_key(key="3"),
            }
        )
        order = {"auth": {"order": {"OpenAI": ["openai:c", "openai:gone", "openai:a"]}}}
        assert place.ids(config=order) == ["openai:c", "openai:a"]

    def test_those_that_rest_come_last_the_soonest_first(self, place: Place) -> None:
        now = int(NOW * 1000)
        place.store(
            {
                "openai:a": api_key(key="1"),
                "openai:b": api_key(key="2"),
                "openai:c": api_key(key="3"),
            },
            usageStats={
                "openai:a": {"cooldownUntil": now + 60_000},
                "openai:b": {"disabledUntil": now + 30_000},
                "openai:c": {"cooldownUntil": now - 1, "lastUsed": now},
            },
        )
        assert place.ids(OPENAI_API_KEY="env") == [
            "openai:c",
            "env:OPENAI_API_KEY",
            "openai:b",
            "openai:a",
        ]

    def test_a_field_that_cannot_be_used_is_as_if_it_were_not_there(self, place: Place) -> None:
        now = int(NOW * 1000)
        signed_in = {"type": "oauth", "provider": "openai", "access": "1", "refresh": "r"}
        place.store(
            {
                "openai:a": {**signed_in, "expires": None, "clientId": 5},
                "openai:b": api_key(key="2") | {"keyRef": {"source": "moon"}},
            },
            usageStats={"openai:a": {"disabledUntil": float(now + 60_000), "cooldownUntil": None}},
        )
        assert place.ids() == ["openai:b", "openai:a"]

    def test_what_is_stored_meanwhile_is_seen(self, place: Place) -> None:
        credentials = place.credentials()
        assert credentials.for_provider("openai") == []
        place.store({"openai:a": api_key(key="1")})
        assert [each.secret for each in credentials.for_provider("openai")] == ["1"]
        place.file.unlink()
        assert not credentials.has("openai")


class TestSettings:
    @pytest.mark.parametrize(
        ("value", "env", "expected"),
        [
            ("sk-plain", {}, ["sk-plain"]),
            ("LITELLM_KEY", {"LITELLM_KEY": SECRET}, [SECRET]),
            ("LITELLM_KEY", {}, []),
            ("EMPTY", {}, ["EMPTY"]),
            ("EMPTY", {"EMPTY": SECRET}, [SECRET]),
            ("${OWN}", {"OWN": SECRET}, [SECRET]),
            ("${OWN}", {}, []),
            ("$OWN", {"OWN": SECRET}, [SECRET]),
            ({"source": "env", "id": "OWN"}, {"OWN": f" {SECRET}\n"}, [SECRET]),
            ({"source": "env", "id": "OWN"}, {}, []),
            ({"source": "store", "id": "OWN"}, {}, [""]),
            ("", {}, []),
        ],
    )
    def test_a_key_is_itself_or_the_name_of_a_variable(
        self, place: Place, value: Any, env: dict[str, str], expected: list[str]
    ) -> None:
        found = place.credentials(own(apiKey=value), **env).for_provider("own")
        assert [each.secret for each in found] == expected

    @pytest.mark.parametrize(
        ("settings", "needs_none"),
        [
            ({"baseUrl": "http://127.0.0.1:8/v1"}, True),
            ({"baseUrl": "http://[::1]:8/v1"}, True),
            ({"baseUrl": "http://192.168.0.9:8/v1"}, False),
            (
                {"baseUrl": "http://192.168.0.9/v1", "request": {"allowPrivateNetwork": True}},
                True,
            ),
            ({"headers": {"Authorization": "Basic x"}}, True),
            ({"request": {"headers": {"X-Api-Key": "x"}}}, True),
            ({"headers": {"X-Tenant": "acme"}}, False),
            ({"baseUrl": "nonsense"}, False),
        ],
    )
    def test_servers_at_home_and_own_headers_need_no_key(
        self, place: Place, settings: dict[str, Any], needs_none: bool
    ) -> None:
        found = place.credentials(own(**settings)).for_provider("own")
        assert [(each.kind, each.secret) for each in found] == [("none", "")] * needs_none

    def test_known_servers_at_home_need_no_key_unless_they_are_elsewhere(
        self, place: Place
    ) -> None:
        assert place.ids("ollama") == ["none"]
        elsewhere = {"models": {"providers": {"ollama": {"baseUrl": "https://ollama.test"}}}}
        assert place.ids("ollama", elsewhere) == []

    def test_what_is_missing_says_where_to_put_it(self, place: Place) -> None:
        error = place.credentials().missing("google")
        assert error.kind == "auth"
        assert "GEMINI_API_KEY or GOOGLE_API_KEY or models.providers.google.apiKey" in str(error)
        named = place.credentials(own(apiKey="LITELLM_KEY")).missing("own")
        assert "set LITELLM_KEY or models.providers.own.apiKey" in str(named)
        unset = place.credentials(own(apiKey="${GONE}"))
        assert not unset.has("own")
        assert "apiKey: the environment variable GONE is not set" in str(unset.missing("own"))

    def test_a_credential_of_the_request_takes_the_place_of_all_others(self, place: Place) -> None:
        place.store({"own:a": api_key("own")})
        auth = {"mode": "authorization-bearer", "token": "$TOKEN"}
        found = place.credentials(own(apiKey="x", request={"auth": auth}), TOKEN=SECRET)
        assert [each.secret for each in found.for_provider("own")] == [SECRET]

    def test_signing_in_with_aws_is_told_to_be_missing(self, place: Place) -> None:
        credentials = place.credentials(own(auth="aws-sdk"))
        with pytest.raises(ConfigError, match=r"models\.providers\.own\.auth: .*not supported"):
            credentials.for_provider("own")
        assert not credentials.has("own")


class TestFile:
    def test_one_that_others_can_write_is_not_used(self, place: Place) -> None:
        place.store({"openai:a": api_key(key=SECRET)})
        place.file.chmod(0o620)
        with pytest.raises(ConfigError, match="chmod 600"):
            place.ids()

    def test_a_broken_one_is_told_with_its_line_and_shows_nothing(self, place: Place) -> None:
        place.file.write_text(f'{{"profiles":\n {{"a": "{SECRET}" ! }}', encoding="utf-8")
        place.file.chmod(0o600)
        with pytest.raises(ConfigError, match=r"auth-profiles\.json:2:") as caught:
            place.ids()
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(
        "profile",
        [
            None,
            5,
            {},
            {"type": "api_key", "provider": "openai"},
            {"type": "api_key", "provider": "openai", "key": 5},
            {"type": "api_key", "provider": "openai", "keyRef": {"source": "moon", "id": "x"}},
            {"type": "oauth", "provider": "openai"},
            {"type": "magic", "provider": "openai", "key": "x"},
        ],
    )
    def test_a_profile_that_says_nothing_is_left_out(self, place: Place, profile: Any) -> None:
        odd = {"lastUsed": "x", "errorCount": True, "cooldownUntil": 1e300, "failureCounts": 3}
        place.store(
            {"openai:odd": profile, "openai:a": api_key()}, usageStats={"openai:a": odd, "b": 1}
        )
        assert place.ids() == ["openai:a"]

    @pytest.mark.parametrize(
        ("data", "said"),
        [(b"\xff", "not UTF-8"), (b"[]", "must contain an object"), (b"", "expected")],
    )
    def test_what_holds_no_profiles_is_told(self, place: Place, data: bytes, said: str) -> None:
        place.file.write_bytes(data)
        place.file.chmod(0o600)
        with pytest.raises(ConfigError, match=said):
            place.ids()

    def test_an_invalid_directory_is_reported(self, place: Place) -> None:
        (place.folder / "file").write_text("", encoding="utf-8")
        loaded = loads("{}", env={})
        credentials = Credentials(loaded.config, {}, str(place.folder / "file"), services={})
        with pytest.raises(ConfigError, match="cannot be read"):
            credentials.for_provider("openai")

    def test_a_representation_never_shows_the_secret(self, place: Place) -> None:
        place.store(
            {
                "openai:a": {
                    "type": "oauth",
                    "provider": "openai",
                    "access": SECRET,
                    "refresh": SECRET,
                }
            }
        )
        credentials = place.credentials()
        (found,) = credentials.for_provider("openai")
        assert found.secret == SECRET
        shown = f"{found!r} {found} {credentials!r} {credentials._profiles.read()!r}"
        assert SECRET not in shown
        assert "'openai:a'" in shown


class TestResting:
    @pytest.mark.parametrize("kind", ["rate_limit", "auth"])
    def test_a_refusal_lets_it_rest_longer_every_time(self, place: Place, kind: ErrorKind) -> None:
        place.store({"openai:a": api_key()})
        credentials = place.credentials()
        (key,) = credentials.for_provider("openai")
        for expected in (30, 60, 300, 300):
            credentials.mark_failed(key, kind)
            assert credentials.cooldown_s(key) == expected
            assert place.credentials().cooldown_s(key) == expected
            place.clock.now += expected

    def test_billing_doubles_up_to_a_day(self, place: Place) -> None:
        credentials = place.credentials(OPENAI_API_KEY="k")
        (key,) = credentials.for_provider("openai")
        rests = []
        for _ in range(10):
            credentials.mark_failed(key, "billing")
            rests.append(credentials.cooldown_s(key))
            place.clock.now += rests[-1]
        assert rests[:3] == [600, 1200, 2400]
        assert rests[-1] == 86_400

    def test_requests_that_fail_together_count_once(self, place: Place) -> None:
        credentials = place.credentials(OPENAI_API_KEY="k")
        (key,) = credentials.for_provider("openai")
        for _ in range(5):
            credentials.mark_failed(key, "rate_limit")
        assert credentials.cooldown_s(key) == 30

    @pytest.mark.parametrize("kind", ["server", "network", "overflow", "timeout", "overloaded"])
    def test_other_failures_are_not_its_fault(self, place: Place, kind: ErrorKind) -> None:
        credentials = place.credentials(OPENAI_API_KEY="k")
        (key,) = credentials.for_provider("openai")
        credentials.mark_failed(key, kind)
        assert credentials.cooldown_s(key) == 0

    def test_a_success_forgets_refusals_and_is_written_down(self, place: Place) -> None:
        place.store({"openai:a": api_key()}, usageStats={"openai:a": MINE}, mine=2)
        credentials = place.credentials()
        (key,) = credentials.for_provider("openai")
        credentials.mark_failed(key, "auth")
        place.clock.now += 31
        credentials.mark_used(key)
        credentials.mark_failed(key, "auth")
        assert credentials.cooldown_s(key) == 30
        data = place.read()
        assert (data["mine"], data["usageStats"]["openai:a"]["mine"]) == (2, 1)
        assert data["usageStats"]["openai:a"]["lastUsed"] == int((NOW + 31) * 1000)
        assert data["usageStats"]["openai:a"]["failureCounts"] == {"timeout": 3, "billing": 0}
        assert data["profiles"] == {"openai:a": api_key()}
        assert stat.S_IMODE(place.file.stat().st_mode) == 0o600

    def test_frequent_use_is_not_written_down_every_time(self, place: Place) -> None:
        place.store({"openai:a": api_key()})
        credentials = place.credentials()
        (key,) = credentials.for_provider("openai")
        seen = set()
        for _ in range(10):
            credentials.mark_used(key)
            seen.add(place.file.stat().st_ino)
            place.clock.now += 10
        assert len(seen) == 2

    def test_a_day_later_refusals_no_longer_count(self, place: Place) -> None:
        credentials = place.credentials(OPENAI_API_KEY="k")
        (key,) = credentials.for_provider("openai")
        credentials.mark_failed(key, "auth")
        place.clock.now += 25 * 3600
        credentials.mark_failed(key, "auth")
        assert credentials.cooldown_s(key) == 30

    def test_what_is_not_a_profile_is_not_put_into_the_file(self, place: Place) -> None:
        credentials = place.credentials(OPENAI_API_KEY="k")
        (key,) = credentials.for_provider("openai")
        credentials.mark_failed(key, "auth")
        credentials.mark_used(key)
        assert not place.file.exists()

    def test_a_file_that_breaks_meanwhile_stops_nothing(self, place: Place) -> None:
        place.store({"openai:a": api_key()})
        credentials = place.credentials()
        (key,) = credentials.for_provider("openai")
        place.file.write_text("{broken", encoding="utf-8")
        credentials.mark_failed(key, "auth")
        assert credentials.cooldown_s(key) == 30
        assert place.file.read_text(encoding="utf-8") == "{broken"


class TestFetching:
    async def test_a_secret_in_a_file_is_read_when_it_is_needed_and_kept_for_a_while(
        self, place: Place
    ) -> None:
        secret = place.folder / "secret"
        secret.write_text(f"{SECRET}\n", encoding="utf-8")
        secret.chmod(0o600)
        config = own(apiKey={"source": "file", "id": "value", "provider": "f"})
        config["secrets"] = {
            "providers": {"f": {"source": "file", "path": str(secret), "mode": "singleValue"}}
        }
        credentials = place.credentials(config)
        (key,) = credentials.for_provider("own")
        assert key.secret == ""
        assert (await credentials.ready(key)).secret == SECRET
        secret.write_text("new", encoding="utf-8")
        assert (await credentials.ready(key)).secret == SECRET
        place.clock.now += 301
        assert (await credentials.ready(key)).secret == "new"
        secret.write_text("newer", encoding="utf-8")
        credentials.mark_failed(key, "auth")
        assert (await credentials.ready(key)).secret == "newer"
        assert "newer" not in repr(await credentials.ready(key))

    async def test_what_needs_no_work_is_ready(self, place: Place) -> None:
        credentials = place.credentials(OPENAI_API_KEY=SECRET)
        (key,) = credentials.for_provider("openai")
        assert await credentials.ready(key) == key
        place.file.write_text("{broken", encoding="utf-8")
        with pytest.raises(ConfigError, match=r"auth-profiles\.json"):
            credentials.for_provider("openai")

    async def test_a_profile_may_refer_to_its_key(self, place: Place) -> None:
        ref = {"type": "api_key", "provider": "openai", "keyRef": {"source": "env", "id": "WORK"}}
        place.store({"openai:a": ref})
        credentials = place.credentials(WORK=SECRET)
        (key,) = credentials.for_provider("openai")
        assert (await credentials.ready(key)).secret == SECRET

    async def test_a_secret_that_cannot_be_had_is_an_error_of_that_credential(
        self, place: Place
    ) -> None:
        config = own(apiKey={"source": "file", "id": "value", "provider": "f"})
        config["secrets"] = {
            "providers": {"f": {"source": "file", "path": "/nowhere/x", "mode": "singleValue"}}
        }
        credentials = place.credentials(config)
        (key,) = credentials.for_provider("own")
        with pytest.raises(ModelError, match="/nowhere/x") as caught:
            await credentials.ready(key)
        assert caught.value.kind == "auth"

    async def test_a_token_that_has_ended_is_refused_before_it_is_sent(self, place: Place) -> None:
        end = int(NOW * 1000)
        place.store(
            {"openai:t": {"type": "token", "provider": "openai", "token": SECRET, "expires": end}}
        )
        credentials = place.credentials()
        (key,) = credentials.for_provider("openai")
        with pytest.raises(ModelError, match="sign in again") as caught:
            await credentials.ready(key)
        assert SECRET not in str(caught.value)
        place.clock.now -= 1
        assert (await credentials.ready(key)).secret == SECRET


def oauth(provider: str = "own", ends_in_s: float = 30, **more: Any) -> dict[str, Any]:
    expires = int((NOW + ends_in_s) * 1000)
    token = {"access": "old", "refresh": "again", "expires": expires}
    return {"type": "oauth", "provider": provider, **token, **more}


class TestRenewing:
    URL = "https://sign-in.test/token"

    async def test_a_token_about_to_end_is_renewed_and_stored(self, place: Place) -> None:
        place.store({"own:me": oauth(tokenUrl=self.URL, clientId="app", mine=1)})
        post = Tokens((200, {"access_token": "new", "refresh_token": "next", "expires_in": 120}))
        credentials = place.credentials(own(), post)
        (key,) = credentials.for_provider("own")
        assert key.secret == ""
        assert (await credentials.ready(key)).secret == "new"
        ((url, kind, body),) = post.asked
        assert (url, kind) == (self.URL, "application/x-www-form-urlencoded")
        assert parse_qs(body.decode()) == {
            "grant_type": ["refresh_token"],
            "refresh_token": ["again"],
            "client_id": ["app"],
        }
        stored = place.read()["profiles"]["own:me"]
        assert (stored["access"], stored["refresh"], stored["mine"]) == ("new", "next", 1)
        assert stored["expires"] == int((NOW + 120) * 1000)
        assert stat.S_IMODE(place.file.stat().st_mode) == 0o600
        assert [each.secret for each in credentials.for_provider("own")] == ["new"]

    async def test_every_secret_is_told_before_it_is_used(self, place: Place) -> None:
        place.store({"own:me": oauth(tokenUrl=self.URL)})
        post = Tokens((200, {"access_token": "new", "refresh_token": "next", "expires_in": 120}))
        credentials = place.credentials(own(), post)
        told: list[str] = []
        credentials.learn = told.extend
        await credentials.ready(credentials.for_provider("own")[0])
        assert told == ["next", "new"]

    async def test_a_token_that_lasts_is_used_as_it_is(self, place: Place) -> None:
        place.store({"own:me": oauth(ends_in_s=61), "own:ever": oauth(ends_in_s=-NOW)})
        credentials = place.credentials(own(), Tokens())
        for key in credentials.for_provider("own"):
            assert (await credentials.ready(key)).secret == "old"

    async def test_known_services_are_asked_at_their_own_address(self, place: Place) -> None:
        place.store({"anthropic:me": oauth("anthropic")})
        post = Tokens((200, {"access_token": "new"}))
        credentials = place.credentials(post=post)
        (key,) = credentials.for_provider("anthropic")
        assert (await credentials.ready(key)).secret == "new"
        url, kind, body = post.asked[0]
        assert url.startswith("https://console.anthropic.com/")
        assert kind == "application/json"
        assert json.loads(body)["refresh_token"] == "again"
        assert place.read()["profiles"]["anthropic:me"]["refresh"] == "again"

    @pytest.mark.parametrize(
        ("answer", "kind"),
        [
            ((400, {"error": "invalid_grant"}), "auth"),
            ((401, b""), "auth"),
            ((200, b"<html>"), "auth"),
            ((200, {"access_token": ""}), "auth"),
            ((200, {"access_token": 5}), "auth"),
            ((200, [1]), "auth"),
            ((200, b"[" * 100_000), "auth"),
            ((429, b""), "rate_limit"),
            ((503, b""), "server"),
            (NetError("connect", "nobody"), "network"),
            (ConnectionResetError(), "network"),
            (TimeoutError(), "network"),
        ],
    )
    async def test_a_refusal_asks_to_sign_in_again_and_a_failure_does_not(
        self, place: Place, answer: Any, kind: str
    ) -> None:
        place.store({"own:me": oauth(tokenUrl=self.URL)})
        credentials = place.credentials(own(), Tokens(answer))
        (key,) = credentials.for_provider("own")
        with pytest.raises(ModelError) as caught:
            await credentials.ready(key)
        assert caught.value.kind == kind
        assert ("sign in to own again" in str(caught.value)) == (kind == "auth")
        assert "again" not in str(caught.value).replace("sign in to own again", "")
        assert place.read()["profiles"]["own:me"]["access"] == "old"

    @pytest.mark.parametrize(
        "profile",
        [
            oauth(),
            oauth(tokenUrl="http://sign-in.test/token"),
            oauth(tokenUrl="file:///etc/passwd"),
            oauth(tokenUrl="https://["),
            oauth(tokenUrl=URL, refresh=""),
        ],
    )
    async def test_a_token_goes_nowhere_but_to_a_safe_address(
        self, place: Place, profile: dict[str, Any]
    ) -> None:
        place.store({"own:me": profile})
        post = Tokens()
        credentials = place.credentials(own(), post)
        (key,) = credentials.for_provider("own")
        with pytest.raises(ModelError, match="sign in to own again"):
            await credentials.ready(key)
        assert post.asked == []

    async def test_two_at_once_ask_once(self, place: Place) -> None:
        place.store({"own:me": oauth(tokenUrl=self.URL)})
        post = Tokens((200, {"access_token": "new", "expires_in": 900}))
        several = [place.credentials(own(), post) for _ in range(3)]
        keys = [each.for_provider("own")[0] for each in several]
        ready = await asyncio.gather(
            *(each.ready(key) for each, key in zip(several, keys, strict=True))
        )
        assert [each.secret for each in ready] == ["new"] * 3
        assert len(post.asked) == 1

    async def test_a_profile_that_was_removed_meanwhile_stays_removed(self, place: Place) -> None:
        place.store({"own:me": oauth(tokenUrl=self.URL)})

        class Removing(Tokens):
            async def __call__(self, *given: Any) -> tuple[int, bytes]:
                place.store({})
                return await super().__call__(*given)

        credentials = place.credentials(own(), Removing((200, {"access_token": "new"})))
        (key,) = credentials.for_provider("own")
        assert (await credentials.ready(key)).secret == "new"
        assert place.read()["profiles"] == {}

    async def test_a_token_that_cannot_be_stored_is_used_all_the_same(self, place: Place) -> None:
        place.store({"own:me": oauth(tokenUrl=self.URL)})
        real = place.folder / "elsewhere.json"
        place.file.rename(real)
        place.file.symlink_to(real)
        credentials = place.credentials(own(), Tokens((200, {"access_token": "new"})))
        (key,) = credentials.for_provider("own")
        assert (await credentials.ready(key)).secret == "new"
        assert [each.secret for each in credentials.for_provider("own")] == ["new"]
        assert (await credentials.ready(key)).secret == "new"
        credentials.mark_failed(key, "auth")
        assert credentials.cooldown_s(key) == 30
        assert json.loads(real.read_text(encoding="utf-8"))["profiles"]["own:me"]["access"] == "old"

    async def test_without_a_lock_nothing_is_renewed(self, place: Place) -> None:
        place.store({"own:me": oauth(tokenUrl=self.URL)})
        (place.folder / "auth-profiles.json.refresh.lock").symlink_to("/nowhere")
        post = Tokens()
        credentials = place.credentials(own(), post)
        with pytest.raises(ModelError, match="cannot be locked"):
            await credentials.ready(credentials.for_provider("own")[0])
        assert post.asked == []

    async def test_giving_up_while_waiting_leaves_no_lock(self, place: Place) -> None:
        place.store({"own:me": oauth(tokenUrl=self.URL)})
        asked, go_on = asyncio.Event(), asyncio.Event()

        class Slow(Tokens):
            async def __call__(self, *given: Any) -> tuple[int, bytes]:
                asked.set()
                await go_on.wait()
                return await super().__call__(*given)

        first = place.credentials(own(), Slow())
        task = asyncio.ensure_future(first.ready(first.for_provider("own")[0]))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        second = place.credentials(own(), Tokens((200, {"access_token": "new"})))
        assert (await second.ready(second.for_provider("own")[0])).secret == "new"


RENEW = """
import asyncio, sys
from clawkit.config.load import loads
from clawkit.models.credentials import Credentials

async def post(url, headers, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    writer.write(body + b"\\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return 200, answer

async def main():
    own = "{baseUrl: 'http://x.test', models: [{id: 'm'}]}"
    config = loads("{models: {providers: {own: " + own + "}}}", env={}).config
    credentials = Credentials(config, {}, sys.argv[1], post=post)
    key = credentials.for_provider("own")[0]
    print("at the start", flush=True)
    sys.stdin.readline()
    print((await credentials.ready(key)).secret)

asyncio.run(main())
"""


async def test_two_processes_renew_once(place: Place) -> None:
    place.store({"own:me": oauth(ends_in_s=-NOW + 1, tokenUrl="http://127.0.0.1/token")})
    asked: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readline())
        writer.write(json.dumps({"access_token": f"new-{len(asked)}"}).encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = str(server.sockets[0].getsockname()[1])
    pipe = asyncio.subprocess.PIPE
    async with server:
        runs = [
            await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", RENEW, str(place.folder), port),
                stdin=pipe,
                stdout=pipe,
                env={**os.environ, "CLAWKIT_HOME": str(place.folder)},
            )
            for _ in range(2)
        ]
        for run in runs:
            assert run.stdout is not None
            assert await run.stdout.readline() == b"at the start\n"
        outputs = await asyncio.gather(*(run.communicate(b"\n") for run in runs))
    assert [output for output, _ in outputs] == [b"new-1\n"] * 2
    assert len(asked) == 1
    assert place.read()["profiles"]["own:me"]["access"] == "new-1"


def sent(
    api: Api, kind: str = "api-key", secret: str = "key", auth_header: bool | None = None
) -> dict[str, str]:
    endpoint = Endpoint(ModelRef("own", "m"), api, "https://own.test")
    credential = Credential("id", kind, secret, "own")  # type: ignore[arg-type]
    return auth_headers(endpoint, Provider(auth_header=auth_header), credential)


class TestHeaders:
    BEARER: ClassVar[dict[str, str]] = {"Authorization": "Bearer key"}

    @pytest.mark.parametrize(
        ("api", "plain"),
        [
            ("openai-completions", BEARER),
            ("openai-responses", BEARER),
            ("anthropic-messages", {"x-api-key": "key"}),
            ("google-generative-ai", {"x-goog-api-key": "key"}),
        ],
    )
    def test_every_api_has_its_own_header(self, api: Api, plain: dict[str, str]) -> None:
        assert sent(api) == plain
        assert sent(api, auth_header=False) == plain
        assert sent(api, auth_header=True) == self.BEARER
        assert sent(api, "token") == self.BEARER
        assert sent(api, "none", "") == {}

    def test_anthropic_wants_to_be_told_about_oauth(self) -> None:
        beta = {"anthropic-beta": "oauth-2025-04-20"}
        assert sent("anthropic-messages", "oauth") == self.BEARER | beta
        token = "sk-ant-oat01-abc"
        assert (
            sent("anthropic-messages", secret=token) == {"Authorization": f"Bearer {token}"} | beta
        )
        assert sent("openai-responses", "oauth") == self.BEARER

    def test_settings_of_the_request_decide(self) -> None:
        endpoint = Endpoint(ModelRef("own", "m"), "anthropic-messages", "https://own.test")
        credential = Credential("id", "api-key", "key", "own")

        def made(**auth: Any) -> dict[str, str]:
            settings = Provider(request=RequestSettings(auth=RequestAuth(**auth)), auth_header=True)
            return auth_headers(endpoint, settings, credential)

        assert made(mode="header", header_name="X-Auth", value="v") == {"X-Auth": "key"}
        assert made(mode="header", header_name="X-Auth", prefix="Token ") == {"X-Auth": "Token key"}
        assert made(mode="authorization-bearer", token="t") == self.BEARER
        assert made(mode="provider-default") == self.BEARER
        for bad in ("Bad Name", "", "Content-Length"):
            with pytest.raises(ModelError, match=r"request\.auth of own"):
                made(mode="header", header_name=bad)

    @pytest.mark.parametrize(
        "secret", [f"{SECRET}\nX: 1", f"{SECRET}\r", f"{SECRET}€", f"{SECRET}\0"]
    )
    def test_a_secret_that_cannot_be_sent_is_refused_and_not_shown(self, secret: str) -> None:
        with pytest.raises(ModelError, match="credential id of own cannot be sent") as caught:
            sent("openai-responses", secret=secret)
        assert caught.value.kind == "auth"
        assert SECRET not in str(caught.value)
