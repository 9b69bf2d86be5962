import tomllib
from pathlib import Path

import altair as alt
import pandas as pd
import pytest

from kvcore.charts.theme import Role, colour, dash, in_order, painted, spec

CONFIG = Path(__file__).resolve().parents[2] / ".streamlit" / "config.toml"

# The colour roles of the design, light and dark, in the order of Role.
LIGHT = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#999999"]
DARK = ["#56B4E9", "#E69F00", "#2FD6A3", "#E39BC4", "#0072B2", "#FF8A4C", "#BBBBBB"]


def test_the_theme_holds_one_colour_a_role():
    theme = tomllib.loads(CONFIG.read_text())["theme"]
    assert theme["light"]["chartCategoricalColors"] == LIGHT
    assert theme["dark"]["chartCategoricalColors"] == DARK
    assert len(Role) == len(LIGHT)
    for mode in ("light", "dark"):
        assert len(theme[mode]["chartSequentialColors"]) == 10


def test_a_series_takes_the_place_of_its_role_in_the_palette():
    encoding = colour("way", {"without": Role.UNCACHED, "with": Role.CACHED}).to_dict()
    domain = encoding["scale"]["domain"]
    assert domain.index("with") == list(Role).index(Role.CACHED)
    assert domain.index("without") == list(Role).index(Role.UNCACHED)
    assert len(domain) == len(Role)
    assert encoding["legend"]["values"] == ["without", "with"]


def test_two_series_cannot_share_a_role():
    with pytest.raises(ValueError, match="share"):
        colour("way", {"a": Role.CACHED, "b": Role.CACHED})


def test_dashes_differ():
    encoding = dash("way", {role.name: role for role in Role}).to_dict()
    dashes = [tuple(pattern) for pattern in encoding["scale"]["range"]]
    assert len(set(dashes)) == len(Role)


def test_more_series_than_roles_are_refused():
    assert list(in_order(["a", "b"])) == ["a", "b"]
    with pytest.raises(ValueError, match="tells"):
        in_order([str(number) for number in range(7)])


def test_specs_carry_no_data_and_no_colours():
    frame = pd.DataFrame({"x": [1.0], "y": [2.0]})
    line = painted(alt.Chart(frame).mark_line().encode(x="x:Q", y="y:Q"), Role.SAVED)
    drawn = spec(line + line.mark_point())
    text = str(drawn)
    assert "'data'" not in text
    assert "datasets" not in text
    assert "config" not in drawn
    assert "#" not in text
