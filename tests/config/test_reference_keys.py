from __future__ import annotations

from tests.tables import table

from clawkit.config.lookup import is_known, parse_tree


@table(
    "path",
    [
        ("acp",),
        ("acp", "stream", "deliveryMode"),
        ("$schema",),
        ("messages", "queue", "byChannel", "slack"),
        ("auth", "profiles", "any name", "email"),
        ("hooks", "mappings", 3, "match", "path"),
        ("models", "providers", "x", "models", 0, "cost", "tieredPricing", 2, "range"),
        ("broadcast", "strategy"),
        ("broadcast", "some group", "agents"),
        ("agents", "entries", "home", "identity"),
        ("agents", "list", 0, "identity"),
    ],
)
def test_paths_of_the_list_are_known(path: tuple[str | int, ...]) -> None:
    assert is_known(path)


@table(
    "path",
    [
        ("acpp",),
        ("ACP",),
        ("acp", "strem"),
        ("acp", 0),
        ("hooks", "mappings", "3", "match", "nothing"),
        ("agents", "list", 0, "tools", "dney"),
        ("auth", "profiles", "x", "email", "deeper"),
        ("",),
        ("*", "x"),
    ],
)
def test_other_paths_are_not(path: tuple[str | int, ...]) -> None:
    assert not is_known(path)


def test_the_list_nests_by_indentation() -> None:
    text = "# note\n: a b\nc: d e\n f\n  *: g\n h: i\nj\n"
    assert parse_tree(text) == {
        "a": {},
        "b": {},
        "c": {"d": {}, "e": {}, "f": {"*": {"g": {}}}, "h": {"i": {}}},
        "j": {},
    }
