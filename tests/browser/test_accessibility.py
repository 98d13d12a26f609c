"""The console by ear, by keyboard and on a small screen: every page, in a real Chromium, with something on it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.browser.accessibility import find_faint_text, find_faults, read_tree

pytestmark = [pytest.mark.spec("CON-1"), pytest.mark.browser]

PAGES = ("live", "questions", "changes", "policy", "tools", "work", "figures", "audit", "api")


def go(page: Any, name: str) -> None:
    page.evaluate(f"location.hash = '#/{name}'")
    page.wait_for_selector(f"html[data-ready={name}]")


@pytest.fixture
def busy(session: Any) -> Any:
    """A session with calls of every outcome, a change, a task in the background and a question that waits."""
    one = session("one")
    (one.folder / "a.py").write_text("one = 1\n")
    (one.folder / "surehand.toml").write_text('[permissions]\nallow = ["Edit"]\n')
    one.call("Read", file_path="a.py")
    one.call("Read", file_path=".env")
    one.call("Bash", command="ls nothing-here")
    one.call("Bash", command="sleep 600", run_in_background=True)
    return one


def fill_page(page: Any, name: str) -> None:
    """Open what a page has to open, so that all of it is looked at."""
    match name:
        case "live":
            page.locator(".call", has_text="nothing-here").first.click()
            page.locator(".detail h2", has_text="Bash").wait_for()
        case "questions":
            page.locator(".question .diff").wait_for()
        case "changes":
            page.locator("details.change summary").first.click()
            page.locator(".diff").first.wait_for()
        case "policy":
            page.get_by_label("Check a command").fill("ls && git push --force && cat .env")
            page.locator(".verdict-box table").first.wait_for()
            page.locator("summary", has_text="built-in").click()
        case "tools":
            page.locator("#tool-Bash summary").first.click()
            page.locator("#tool-Bash textarea").first.wait_for()
        case "work":
            page.get_by_role("button", name="Stop sleep 600").wait_for()
        case "figures":
            page.locator(".chart").first.wait_for()
        case "audit":
            page.get_by_role("button", name="Record 1", exact=True).wait_for()
        case _:
            page.locator(".endpoints .card").first.wait_for()


def test_every_page_can_be_heard_and_is_easy_to_see_in_both_themes(pages: Any, busy: Any) -> None:
    page = pages.open("questions")
    busy.begin("Write", file_path="new.py", content="two = 2\n")
    page.locator(".question").get_by_role("button", name="Allow once").click()
    assert busy.result()["ok"]
    page.locator(".question").wait_for(state="detached")
    busy.begin("Edit", file_path="a.py", old_string="one = 1", new_string="one = 1.0")
    faults: dict[str, list[str]] = {}
    for name in PAGES:
        go(page, name)
        fill_page(page, name)
        faults[name] = find_faults(page)
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            faults[f"{name}, {scheme}"] = find_faint_text(page)
    assert {name: found for name, found in faults.items() if found} == {}


def test_a_page_with_nothing_to_show_says_what_brings_something(pages: Any) -> None:
    page = pages.open()
    said: dict[str, str] = {}
    for name in ("live", "questions", "changes", "policy", "tools", "work", "audit"):
        go(page, name)
        page.locator(".empty b").wait_for()
        assert page.locator(".problem:visible").count() == 0
        assert find_faults(page) == []
        said[name] = page.locator(".empty b").inner_text()
    assert said.pop("live") == "No calls yet"
    assert said.pop("questions") == "No questions"
    assert set(said.values()) == {"No workspace yet"}


def test_every_page_fits_a_phone_and_every_page_can_be_reached_there(pages: Any, busy: Any) -> None:
    page = pages.open("questions", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    busy.begin("Write", file_path=f"a-{'very-' * 20}long-name.py", content="two = 2\n")
    page.locator(".question").get_by_role("button", name="Allow once").tap()
    assert busy.result()["ok"]
    page.locator(".question").wait_for(state="detached")
    busy.begin("Edit", file_path="a.py", old_string="one = 1", new_string="one = 1.0")
    wide: dict[str, int] = {}
    for name in PAGES:
        link = page.locator(f"nav a[data-page={name}]")
        if link.is_visible():
            link.tap()
        else:
            page.get_by_role("button", name="More").tap()
            page.get_by_role("dialog").locator(f"a[href='#/{name}']").tap()
        page.wait_for_selector(f"html[data-ready={name}]")
        fill_page(page, name)
        wide[name] = page.evaluate(
            "Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth)"
        )
        assert find_faults(page) == []
    assert {name: width for name, width in wide.items() if width > 390} == {}


def test_a_new_question_is_said_aloud_on_every_page_and_the_focus_goes_on_to_the_next(pages: Any, session: Any) -> None:
    one, two = session("one"), session("two")
    page = pages.open("live")
    one.begin("Bash", command="touch first")
    told = page.get_by_role("status").filter(has_text="Bash asks for permission in one")
    told.wait_for()
    told.get_by_role("link", name="Look at it").click()
    page.wait_for_selector("html[data-ready=questions]")
    page.locator(".question.chosen", has_text="first").wait_for()
    assert page.title() == "(1) Questions · Surehand"
    two.begin("Bash", command="touch second")
    page.get_by_role("status").filter(has_text="Bash asks for permission in two").wait_for(state="attached")
    page.locator(".question", has_text="first").get_by_role("button", name="Allow once").focus()
    page.keyboard.press("Enter")
    assert one.result()["ok"]
    page.locator(".question.chosen:focus", has_text="second").wait_for()


def test_tab_goes_through_a_page_in_its_order_and_what_has_the_focus_is_seen(pages: Any, busy: Any) -> None:
    page = pages.open("live")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("[document.activeElement.id, location.hash]") == ["main", ""]
    go(page, "questions")
    busy.begin("Bash", command="touch new")
    page.locator(".question").wait_for()
    seen: list[str] = []
    while True:
        page.keyboard.press("Tab")
        found = page.evaluate(
            """() => {
            const now = document.activeElement;
            if (now === document.body) return null;
            const before = window.testBefore;
            window.testBefore = now;
            const box = now.getBoundingClientRect();
            return {
              name: now.firstChild?.textContent, inOrder: !before || !!(before.compareDocumentPosition(now) & 4),
              seen: box.width > 0 && box.top >= 0 && box.bottom <= innerHeight,
              ring: getComputedStyle(now).outlineStyle !== 'none',
            };
            }"""
        )
        if found is None:
            break
        assert found["inOrder"], found
        assert found["seen"], found
        assert found["ring"], found
        seen.append(found["name"])
        assert len(seen) < 50
    assert [each.split("…")[0] for each in seen[-6:]] == [
        *("Allow once", "This session", "Always", "Try on a copy", "Edit", "No")
    ]


def test_a_dialog_keeps_the_focus_and_gives_it_back(pages: Any) -> None:
    page = pages.open("live")
    page.get_by_role("button", name="Keys").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Keys")
    dialog.wait_for()
    assert len(read_tree(page).all("button")) == 1, "what is behind a dialog is not told"
    for _ in range(3):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement === document.body || !!document.activeElement.closest('dialog')")
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    assert page.evaluate("document.activeElement.id") == "help"


def test_a_call_far_down_the_list_is_opened_and_closed_where_it_stands(pages: Any, session: Any) -> None:
    one = session("one")
    for number in range(60):
        one.call("echo", text=f"number {number}.")
    page = pages.open("live", viewport={"width": 1280, "height": 500})
    page.locator(".call", has_text="number 59.").wait_for()
    page.evaluate("document.querySelector('.scroller').scrollTop = 38 * 40")
    row = page.locator(".call", has_text="number 15.")
    row.click()
    page.locator(".detail .code", has_text="number 15.").first.wait_for()
    assert page.evaluate("document.querySelector('.scroller').scrollTop") == 38 * 40
    page.keyboard.press("Escape")
    page.locator(".detail").wait_for(state="detached")
    assert "number 15." in page.evaluate("document.activeElement.innerText")
    page.go_back()
    page.locator(".detail").wait_for()
