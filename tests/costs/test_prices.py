"""Prices by model, day and way of calling, and the overlay for what the engine lacks."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from kvcore.costs.overlay import bare_name, overlay
from kvcore.costs.prices import (
    PriceError,
    find,
    listed,
    price_changes,
    rates,
    snapshot,
    storage_price,
    utc,
)

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


def test_the_engine_is_never_updated_from_the_network():
    assert snapshot().from_auto_update is False


@pytest.mark.parametrize(
    ("model", "provider", "read", "short", "long"),
    [
        ("claude-haiku-4-5", "anthropic", "0.1", "1.25", "2"),
        ("claude-opus-4-5", "anthropic", "0.1", "1.25", "2"),
        ("claude-haiku-5-5", "anthropic", "0.1", "1.25", "2"),
        ("claude-opus-5-5", "anthropic", "0.05", "1.25", "2"),
        ("claude-sonnet-5-5", "anthropic", "0.05", "1.25", "2"),
        ("claude-fable-5-1", "anthropic", "0.025", "1.25", "2"),
        ("claude-3-haiku", "anthropic", "0.12", "1.2", "2"),
        ("gpt-5.5", "openai", "0.1", "1", None),
        ("gpt-4.1", "openai", "0.25", "1", None),
        ("gpt-4o", "openai", "0.5", "1", None),
        ("gpt-5.6-sol", "openai", "0.1", "1.25", "2.5"),
        ("gpt-6-sol", "openai", "0.1", "1.25", "2.5"),
        ("gpt-6.1-terra", "openai", "0.05", "1.25", "2.5"),
        ("gemini-3.8-flash", "google", "0.1", "1", None),
        ("gemini-2.0-flash", "google", "0.25", "1", None),
        ("gemini-4-argon", "google", "0.05", "1", None),
        ("grok-4.5", "x-ai", "0.15", "1", None),
        ("kimi-k3", "moonshotai", "0.1", "1", "2"),
        ("kimi-k3.1-pro-highspeed", "moonshotai", "0.05", "1", "2"),
        ("amazon.nova-pro-v1:0", "aws", "0.25", "1", None),
        ("anthropic/claude-opus-5", "openrouter", "0.1", "1.25", "2"),
    ],
)
def test_multipliers_are_each_models_own(model, provider, read, short, long):
    expected = (Decimal(read), Decimal(short), None if long is None else Decimal(long))
    assert rates(model, provider, NOW).multipliers() == expected


def test_the_twelve_models_with_twelve_hour_writes():
    models = [m.model for m in listed("openai")]
    sold = {m for m in models if rates(m, "openai", NOW).multipliers()[2] is not None}
    assert sold == {
        "gpt-5.6-sol",
        "gpt-5.6-terra",
        "gpt-5.6-luna",
        "gpt-5.6-cyber",
        "gpt-6-astra",
        "gpt-6-sol",
        "gpt-6-luna",
        "gpt-6-rosalind",
        "gpt-6-cyber",
        "gpt-6.1-sol",
        "gpt-6.1-terra",
    }
    assert rates("gpt-5.6", "openai", NOW).multipliers()[2] == Decimal("2.5")


def test_a_name_that_begins_like_another_is_not_that_model():
    assert find("claude-opus-5-5", "anthropic")[1].id == "claude-opus-5-5"
    assert find("claude-opus-5", "anthropic")[1].id == "claude-opus-5"


@pytest.mark.parametrize(
    ("reference", "provider", "at", "model"),
    [
        ("claude-opus-5", None, "anthropic", "claude-opus-5"),
        ("anthropic/claude-opus-5", None, "anthropic", "claude-opus-5"),
        ("glm-5p1", "fireworks_ai", "fireworks", "glm-5p1"),
        ("accounts/fireworks/models/glm-5p1", None, "fireworks", "glm-5p1"),
        ("claude-opus-5", "azure_ai", "azure", "claude-opus-5"),
        ("grok-4.6", "xai", "x-ai", "grok-4.6"),
        ("gemini/gemini-2.5-pro", "gemini", "google", "gemini-2.5-pro"),
        ("anthropic/claude-opus-5-20260601", "openrouter", "openrouter", "anthropic/claude-opus-5"),
        (
            "anthropic/claude-4.5-sonnet-20250929",
            "openrouter",
            "openrouter",
            "anthropic/claude-sonnet-4.5",
        ),
        (
            "us.anthropic.claude-opus-4-5-20251101-v1:0",
            None,
            "aws",
            "regional.anthropic.claude-opus-4-5-v1:0",
        ),
        (
            "arn:aws:bedrock:us-east-1:1:inference-profile/global.anthropic.claude-opus-5",
            None,
            "aws",
            "global.anthropic.claude-opus-5",
        ),
    ],
)
def test_models_are_found_as_apis_and_exports_spell_them(reference, provider, at, model):
    entry, info = find(reference, provider)
    assert (entry.id, info.id) == (at, model)


def test_a_long_write_keeps_the_long_context_tier():
    found = rates("gpt-6.1-terra", "openai", NOW)
    assert found.tier_starts() == (272_000,)
    assert found.cache_write_long(272_000) == Decimal("2.5")
    assert found.cache_write_long(272_001) == Decimal("5")


def test_list_prices_change_on_their_day():
    assert date(2027, 1, 1) in price_changes("gemini-3.8-flash", "google")
    assert date(2026, 7, 30) in price_changes("gpt-5.6-luna", "openai")
    luna = [rates("gpt-5.6-luna", "openai", date(2026, 7, d)).fresh() for d in (29, 30)]
    assert luna[1] == luna[0] / 5
    argon = [rates("gemini-4-argon", "google", d).fresh() for d in (NOW, date(2026, 12, 1))]
    assert argon[1] == argon[0] * 2


def test_deepseek_says_that_its_weekends_are_not_in_the_list():
    saturday, monday = datetime(2026, 11, 28, 8, tzinfo=UTC), datetime(2026, 11, 30, 8, tzinfo=UTC)
    assert rates("deepseek-v4-pro", "deepseek", saturday).notes
    assert not rates("deepseek-v4-pro", "deepseek", monday).notes


def test_storage_by_the_hour():
    assert storage_price("google", "gemini-3.8-flash") == Decimal("0.50")
    assert storage_price("google", "gemini-2.5-pro") == Decimal("4.50")
    assert storage_price("google", "gemini-4-argon") is None
    assert storage_price("anthropic", "claude-opus-5") is None


@pytest.mark.parametrize(
    ("model", "geo", "uplift"),
    [
        ("claude-opus-5", "us", "1.1"),
        ("claude-opus-5", "global", "1"),
        ("claude-opus-5", "not_available", "1"),
        ("claude-opus-5", None, "1"),
    ],
)
def test_uplift_by_region(model, geo, uplift):
    assert rates(model, "anthropic", NOW, geo=geo).uplift == Decimal(uplift)


def test_a_way_of_calling_without_a_price_says_so():
    found = rates("claude-opus-5", "anthropic", NOW, service_tier="priority")
    assert any("standard price" in note for note in found.notes)
    assert rates("claude-opus-5", "anthropic", NOW, service_tier="standard").notes == ()


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("global.anthropic.claude-opus-5", "claude-opus-5"),
        ("regional.anthropic.claude-haiku-4-5-20251001-v1:0", "claude-haiku-4-5-20251001-v1"),
        ("anthropic.claude-3-5-haiku-20241022-v1:0", "claude-3-5-haiku-20241022-v1"),
        ("anthropic/claude-opus-5.5:batch", "claude-opus-5-5"),
        ("us.openai.gpt-6-sol", "gpt-6-sol"),
        ("accounts/fireworks/models/glm-5p1", "glm-5p1"),
        ("gpt-5.6-sol", "gpt-5.6-sol"),
    ],
)
def test_bare_names(reference, name):
    assert bare_name(reference) == name


def test_every_row_of_the_overlay_has_a_source_and_a_date():
    known = overlay()["sources"]
    for kind in ("long_writes", "storage", "uplifts", "calling", "minimums", "rules"):
        for row in overlay()[kind]:
            assert all(code in known for code in row["source"].split(", ")), row
            assert date.fromisoformat(row["date"]) <= date(2026, 11, 29)
            assert row["certain"] in (True, False)
            assert row["certain"] or row.get("note") or kind == "rules", row
    for row in overlay()["rules"]:
        for option in row["options"]:
            assert all(code in known for code in option["source"].split(", ")), option
            assert option["seconds_low"] <= option["seconds"] <= option["seconds_high"]
            assert option["certain"] or option["note"]


def test_listed_models_can_be_priced():
    models = listed()
    assert len(models) > 1500
    for model in models[::40]:
        assert rates(model.model, model.provider, NOW).fresh() >= 0


def test_times_without_a_zone_are_utc_and_days_are_their_noon():
    assert utc(datetime(2026, 1, 1, 5)) == datetime(2026, 1, 1, 5, tzinfo=UTC)
    assert utc(date(2026, 1, 1)) == datetime(2026, 1, 1, 12, tzinfo=UTC)


def test_unknown_providers_and_models_name_what_to_do():
    for reference, provider in (("gpt-4o", "nobody"), ("", None), ("nothing-like-it", None)):
        with pytest.raises(PriceError) as caught:
            rates(reference, provider, NOW)
        assert str(caught.value).endswith(".")
