"""Make the screenshots of docs/console.md: a console, two sessions with something to show, a real Chromium.

.venv/bin/python -m tests.browser.screenshots        (after `make test-browser`)
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from tests.browser.conftest import FLAGS, ConsoleProcess, SessionProcess

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SHOP = '''"""Prices."""


def total(prices: list[float]) -> float:
    return sum(prices)
'''


def fill_workspace(session: SessionProcess) -> None:
    """Make calls worth looking at; what needs an answer waits."""
    folder = session.folder
    (folder / "shop.py").write_text(SHOP)
    (folder / "README.md").write_text("# Shop\n\nPrices and sums.\n")
    session.call("Glob", pattern="**/*.py")
    session.call("Read", file_path="shop.py")
    session.call("Grep", pattern="def ", path=".")
    session.call("Read", file_path="README.md")
    session.call("Bash", command="wc -l shop.py README.md")


def main() -> None:
    """Take the pictures."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / "home"
        home.mkdir()
        os.environ.update(HOME=str(home), SUREHAND_HOME=str(home / "surehand"))
        # Paths on the pictures should be those of nobody's machine.
        place = Path(tempfile.mkdtemp(prefix="demo-", dir="/tmp"))
        console = ConsoleProcess()
        sessions: list[SessionProcess] = []
        try:
            for name in ("shop", "notes"):
                (place / name).mkdir()
                sessions.append(SessionProcess(place / name, name))
            with sync_playwright() as playwright:
                chromium = shutil.which("chromium")
                browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
                take_all(browser, console, sessions)
                browser.close()
        finally:
            for each in sessions:
                each.process.kill()
                each.process.wait()
            console.close()
            shutil.rmtree(place)


def take_all(browser: Any, console: ConsoleProcess, sessions: list[SessionProcess]) -> None:
    """Show each page in a state worth a picture."""
    shop, notes = sessions
    context = browser.new_context(viewport={"width": 1200, "height": 760}, color_scheme="light")
    page = context.new_page()
    page.goto(console.url)
    page.wait_for_selector("html[data-ready=live]")
    for each in sessions:
        fill_workspace(each)
    edit = {"file_path": "shop.py", "old_string": "return sum(prices)", "new_string": "return round(sum(prices), 2)"}
    shop.begin("Edit", **edit)
    go(page, "questions")
    page.get_by_role("button", name="Allow once").click()
    shop.result()
    notes.begin("Bash", command="sed -i 's/sums/totals/' README.md && echo 'See shop.py.' >> README.md")
    shop.begin("Bash", command="git push --force origin main")
    page.locator(".question").nth(1).wait_for()
    first = page.locator(".question", has_text="sed -i")
    first.get_by_role("button", name="Try on a copy").click()
    first.get_by_role("button", name="Apply exactly this").wait_for(timeout=60_000)
    first.evaluate("(card) => card.scrollIntoView({ block: 'start' })")
    shoot(page, "questions")
    go(page, "changes")
    page.locator("#main select").first.select_option(str(shop.folder))
    page.wait_for_selector("html[data-ready=changes]")
    page.locator("details.change summary").first.click()
    page.locator(".diff").first.wait_for()
    shoot(page, "changes")
    go(page, "live")
    page.locator(".call", has_text="wc -l").first.click()
    page.locator(".detail .code").first.wait_for()
    page.emulate_media(color_scheme="dark")
    shoot(page, "live-dark")
    for name in ("policy", "tools", "figures"):
        go(page, name)
        page.wait_for_timeout(1000)
        page.emulate_media(color_scheme="light")
        shoot(page, name)
    page.set_viewport_size({"width": 390, "height": 844})
    go(page, "questions")
    page.locator(".question").first.wait_for()
    shoot(page, "phone")


def go(page: Any, name: str) -> None:
    """Go to a page, and wait until it is there."""
    page.evaluate(f"location.hash = '#/{name}'")
    page.wait_for_selector(f"html[data-ready={name}]")


def shoot(page: Any, name: str) -> None:
    """Take one picture, once nothing moves any more."""
    page.locator(".toast").first.wait_for(state="detached")
    page.wait_for_timeout(300)
    page.screenshot(path=str(IMAGES / f"console-{name}.png"))


if __name__ == "__main__":
    main()
