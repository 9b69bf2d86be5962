"""Axe on every page, light and dark. What is left stands inside Streamlit's own widgets."""

from pathlib import Path

import pytest
from playwright.sync_api import Page

from pages.common.links import TITLES
from tests.journeys.app import path_of, visit

AXE = Path(__file__).resolve().parents[2] / "build/node/node_modules/axe-core/axe.min.js"

# Rule → elements of Streamlit 1.67 whose own markup breaks it, not ours to mend: sparklines and
# Vega's marks (the chart itself has its description), the menu's list, a container that scrolls,
# and the white it writes on primary buttons and chosen options whatever the theme's colour.
UPSTREAM = {
    "svg-img-alt": "[data-testid=stMetric], [data-testid=stVegaLiteChart]",
    "list": "[data-testid=stSidebarNav]",
    "listitem": "[data-testid=stSidebarNav]",
    "scrollable-region-focusable": "[data-testid=stVerticalBlock]",
    "color-contrast": "[data-testid=stBaseButton-primary], [data-testid=stMultiSelect]",
}

FIND = """
async () => {
    const found = await axe.run(document, {resultTypes: ['violations']});
    return found.violations
        .filter(each => ['serious', 'critical'].includes(each.impact))
        .flatMap(each => each.nodes.map(node => ({
            rule: each.id, html: node.html, where: node.target.join(' '),
        })));
}
"""


@pytest.fixture(scope="module")
def axe() -> str:
    if not AXE.exists():
        pytest.skip("axe-core was not fetched: it needs npm")
    return AXE.read_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", TITLES)
def test_no_serious_violation(app_url, page: Page, axe, name, scheme):
    page.emulate_media(color_scheme=scheme)
    visit(page, app_url + path_of(name))
    page.evaluate(axe)
    found = [each for each in page.evaluate(FIND) if not _is_upstream(page, each)]
    assert not found, "\n".join(f"{each['rule']}: {each['html'][:200]}" for each in found)


def _is_upstream(page: Page, violation: dict[str, str]) -> bool:
    holder = UPSTREAM.get(violation["rule"])
    if holder is None:
        return False
    inside = "([where, holder]) => !!document.querySelector(where)?.closest(holder)"
    return page.evaluate(inside, [violation["where"], holder])
