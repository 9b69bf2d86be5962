"""Takes a picture of every page at both widths, light and dark, into build/screenshots."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from playwright.sync_api import sync_playwright

from pages.common.links import TITLES
from tests.journeys.app import path_of, settled
from tests.journeys.conftest import (
    DESKTOP,
    FLAGS,
    PHONE,
    find_chromium,
    start_server,
    stop_server,
)

FOLDER = Path("build/screenshots")
MAX_HEIGHT = 8_000
CHARTS_NEED_MS = 1_500


def main(names: list[str]) -> None:
    chromium = find_chromium()
    if chromium is None:
        sys.exit("No Chromium was found; install one, for example with apt install chromium.")
    FOLDER.mkdir(parents=True, exist_ok=True)
    process, url = start_server()
    try:
        with sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
            for name in names or TITLES:
                for size in (DESKTOP, PHONE):
                    for scheme in ("light", "dark"):
                        print(_take(browser, url, name, size, scheme), flush=True)
            browser.close()
    finally:
        stop_server(process)


def _take(browser: object, url: str, name: str, size: dict[str, int], scheme: str) -> Path:
    page = browser.new_page(viewport=size, color_scheme=scheme)
    page.goto(url + path_of(name))
    page.get_by_test_id("stApp").wait_for(timeout=60_000)
    settled(page)
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({**size, "height": min(height + 60, MAX_HEIGHT)})
    page.wait_for_timeout(CHARTS_NEED_MS)
    path = FOLDER / f"{name}-{size['width']}-{scheme}.png"
    page.screenshot(path=path)
    page.close()
    return path


if __name__ == "__main__":
    main(sys.argv[1:])
