"""What holds for every schema, whoever wrote it: some hundreds of them, each from its seed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest

from clawkit.errors import SchemaError
from clawkit.schema.choose import Target, adapt, is_strict_ready

from .generate import Typed, Wild, without_openapi
from .rules import (
    anthropic_problems,
    fits_google,
    google_problems,
    openai_problems,
    strict_problems,
)

Schema = dict[str, Any]

SEEDS = range(600)
CHECKS: dict[Target, Callable[[Schema], list[str]]] = {
    "anthropic": anthropic_problems,
    "openai": openai_problems,
    "google": google_problems,
}


def wild() -> list[tuple[int, Schema]]:
    """Seeds and schemas that have an object at the root, or may have."""
    cases, reasons = [], set()
    for seed in SEEDS:
        schema = Wild(seed).root()
        try:
            adapt(schema, "anthropic")
        except SchemaError as error:
            reasons.add(str(error)[:28])
        else:
            cases.append((seed, schema))
    assert len(cases) >= 300
    assert reasons == {"parameters must be an object"}
    return cases


def typed() -> list[tuple[int, Schema, Any]]:
    """Seeds, schemas and values that the schema accepts."""
    cases = [(seed, *Typed(seed).root()) for seed in SEEDS]
    for seed, schema, value in cases:
        assert jsonschema_rs.validator_for(without_openapi(schema)).is_valid(value), seed
    return cases


@pytest.mark.parametrize("target", CHECKS)
def test_every_form_keeps_its_providers_rules(target: Target) -> None:
    for seed, schema in wild():
        assert CHECKS[target](adapt(schema, target)) == [], seed


def test_the_strict_form_keeps_the_strict_rules_and_knows_it() -> None:
    for seed, schema in wild():
        form = adapt(schema, "openai", strict=True)
        assert strict_problems(form) == [], seed
        assert is_strict_ready(form), seed


@pytest.mark.parametrize("target", CHECKS)
def test_adapting_twice_changes_nothing_more(target: Target) -> None:
    for seed, schema in wild():
        once = adapt(schema, target)
        assert adapt(once, target) == once, seed
        strict = adapt(schema, "openai", strict=True)
        assert adapt(strict, "openai", strict=True) == strict, seed


def test_the_original_is_never_changed() -> None:
    for seed, schema in wild():
        before = copy.deepcopy(schema)
        for target in CHECKS:
            adapt(schema, target)["properties"]["scribble"] = True
            assert "scribble" not in adapt(schema, target)["properties"], seed
        assert json.dumps(schema) == json.dumps(before), seed


@pytest.mark.parametrize("target", ["anthropic", "openai"])
def test_what_the_tool_accepts_is_still_accepted(target: Target) -> None:
    for seed, schema, value in typed():
        errors = list(jsonschema_rs.validator_for(adapt(schema, target)).iter_errors(value))
        assert not errors, (seed, errors[0].message)


def test_a_declaration_lets_through_what_the_tool_accepts() -> None:
    for seed, schema, value in typed():
        assert fits_google(value, adapt(schema, "google")), seed
