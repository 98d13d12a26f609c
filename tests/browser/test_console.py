"""The console in a real Chromium, with real sessions in other processes. `make test-browser` runs this."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.providers.model_stub import Stub
from tests.pty_terminal import Terminal

pytestmark = [pytest.mark.browser, pytest.mark.spec("CON-1")]
SEEN_MS = 600
"""A key answers only what has stood on the page for a moment."""


def question(page: Any, number: int = 0) -> Any:
    """Return a question's card, once it is there."""
    card = page.locator(".question").nth(number)
    card.wait_for()
    return card


def test_a_question_of_a_chat_in_a_terminal_is_answered_in_the_page_and_the_chat_goes_on(
    pages: Any, tmp_path: Path, stub: Stub
) -> None:
    write = ("c_1", "Write", json.dumps({"file_path": "a.txt", "content": "two\n"}))
    stub.script = [{"calls": [write]}, {"text": "It is written."}]
    page = pages.open("questions")
    with Terminal("chat", cwd=tmp_path, env=dict(stub.environment)) as terminal:
        terminal.wait_for("Ctrl-D leaves")
        terminal.wait_for(">")
        terminal.type("write it\n")
        terminal.wait_for("Write asks for permission")
        card = question(page)
        assert page.title() == "(1) Questions · Surehand"
        assert "a.txt" in card.inner_text()
        assert "two" in card.locator(".diff").inner_text()
        card.get_by_role("button", name="Allow once").click()
        terminal.wait_for("answered elsewhere by")
        terminal.wait_for("It is written.")
        page.wait_for_selector(".empty:visible")
        assert page.title() == "Questions · Surehand"
        terminal.type("/exit\n")
        assert terminal.ended() == 0
    assert (tmp_path / "a.txt").read_text() == "two\n"


def test_a_command_is_tried_on_a_copy_applied_and_undone_from_the_timeline(pages: Any, session: Any) -> None:
    one = session("one")
    file = one.folder / "a.txt"
    file.write_text("one\n")
    page = pages.open("questions")
    one.begin("Bash", command="date +%N >> a.txt")
    card = question(page)
    card.get_by_role("button", name="Try on a copy").click()
    card.get_by_role("button", name="Apply exactly this").wait_for(timeout=60_000)
    shown = card.locator(".diff tr.add .text").inner_text()
    wide = card.locator(".diff").last.evaluate("(diff) => diff.querySelector('.text').offsetWidth / diff.offsetWidth")
    assert wide > 0.8  # the numbers of lines leave the room to the text
    assert file.read_text() == "one\n"
    card.get_by_role("button", name="Apply exactly this").click()
    assert one.result()["ok"]
    added = file.read_text().splitlines()[1]
    assert added in shown
    page.get_by_role("link", name="Changes").click()
    page.locator("details.change summary").first.click()
    page.locator("[data-action=undo]").click()
    dialog = page.get_by_role("dialog")
    dialog.locator(".diff").wait_for()
    assert added in dialog.inner_text()
    assert file.read_text() == f"one\n{added}\n"
    dialog.get_by_role("button", name="Undo", exact=True).click()
    page.locator("details.change.undone").wait_for()
    assert file.read_text() == "one\n"


def test_the_changes_of_one_prompt_are_taken_back_together_and_shown_side_by_side(
    pages: Any, tmp_path: Path, stub: Stub
) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    writes = [
        (f"c_{name}", "Write", json.dumps({"file_path": name, "content": "two\n"})) for name in ("b.txt", "c.txt")
    ]
    edit = {"file_path": "a.txt", "old_string": "one", "new_string": "two"}
    read = ("c_r", "Read", json.dumps({"file_path": "a.txt"}))
    stub.script = [{"calls": [read]}, {"calls": [*writes, ("c_e", "Edit", json.dumps(edit))]}, {"text": "Done."}]
    words = [sys.executable, "-m", "surehand", "ask", "--mode", "accept-edits", "do it"]
    subprocess.run(words, cwd=tmp_path, env={**os.environ, **stub.environment}, check=True, stdin=subprocess.DEVNULL)
    page = pages.open("changes")
    page.get_by_role("button", name="Undo turn…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Side by side").click()
    row = dialog.locator("table.sides tr", has_text="one").first
    texts = [each.split() for each in row.locator("td.text").all_inner_texts()]
    assert texts == [["removed:", "two"], ["added:", "one"]]
    dialog.get_by_role("button", name="Undo", exact=True).click()
    page.locator(".toast", has_text="estored").wait_for()
    assert sorted(each.name for each in tmp_path.iterdir() if each.suffix) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "one\n"


def test_a_question_is_told_by_the_browser_while_the_page_is_in_the_background(pages: Any, session: Any) -> None:
    one = session("one")
    page = pages.open("live")
    page.evaluate(
        """() => {
        Object.defineProperty(document, 'hidden', { get: () => true });
        window.Notification = class {
          constructor(title, { body }) {
            const told = document.createElement('p');
            told.id = 'told';
            told.textContent = `${title}|${body}`;
            document.body.append(told);
          }
        };
        window.Notification.permission = 'granted';
        }"""
    )
    one.begin("Bash", command="touch one")
    told = page.locator("#told")
    told.wait_for()
    assert told.inner_text().startswith("Bash asks for permission|one: ")


def test_a_tool_is_disabled_on_the_page_and_a_running_session_obeys(pages: Any, session: Any) -> None:
    one = session("one")
    assert one.call("Glob", pattern="*")["ok"]
    page = pages.open("tools")
    card = page.locator("#tool-Glob")
    card.locator("summary").first.click()
    card.get_by_role("button", name="Disable").click()
    page.locator(".toast", has_text="Glob is disabled").wait_for()
    card.locator(".chip", has_text="switched off").wait_for()
    assert "switched off" in one.call("Glob", pattern="*")["output"]
    card.locator("summary").first.click()
    card.get_by_role("button", name="Enable").click()
    page.locator(".toast", has_text="Glob is enabled").wait_for()
    assert one.call("Glob", pattern="*")["ok"]


def test_a_rule_is_changed_before_it_is_saved_and_the_running_session_obeys_it(pages: Any, session: Any) -> None:
    one = session("one")
    page = pages.open("questions")
    one.begin("Bash", command="touch one")
    card = question(page)
    card.get_by_role("button", name="Always").click()
    rule = card.get_by_label("This rule is added to your settings")
    rule.fill("Bash(")
    card.get_by_role("button", name="Save and allow").click()
    card.locator(".problem:visible").wait_for()
    rule.fill("Bash(touch:*)")
    card.get_by_role("button", name="Save and allow").click()
    assert one.result()["ok"]
    assert one.call("Bash", command="touch two")["ok"]
    assert sorted(each.name for each in one.folder.iterdir()) == ["one", "two"]


def test_a_rule_typed_on_the_policy_page_is_obeyed_by_a_session_that_runs(pages: Any, session: Any) -> None:
    one = session("one")
    one.call("echo", text="here")
    page = pages.open("policy")
    page.get_by_label("Check a command").fill("touch two")
    page.locator(".verdict-box .chip", has_text="ask").first.wait_for()
    page.get_by_label("Try rules").fill("allow Bash(touch:*)")
    page.locator(".verdict-box .chip", has_text="allow").first.wait_for()
    page.get_by_role("button", name="Save the rule").click()
    page.locator(".toast", has_text="Saved").wait_for()
    assert one.call("Bash", command="touch two")["ok"]


def test_a_no_with_a_reason_reaches_the_model_and_changed_arguments_are_asked_about_anew(
    pages: Any, session: Any
) -> None:
    one = session("one")
    page = pages.open("questions")
    one.begin("Bash", command="touch one")
    card = question(page)
    card.get_by_role("button", name="Edit").click()
    card.get_by_label("Arguments (JSON)").fill('{"command": "touch two"}')
    card.get_by_role("button", name="Ask again with these").click()
    page.locator(".exact", has_text="touch two").wait_for()
    card = question(page)
    card.get_by_role("button", name="No").click()
    card.get_by_label("Why not?").fill("use the other file")
    card.get_by_role("button", name="Refuse").click()
    result = one.result()
    assert not result["ok"]
    assert "use the other file" in result["output"]
    assert not list(one.folder.iterdir())


def test_calls_of_two_processes_are_live_on_the_page_and_one_is_stopped(pages: Any, session: Any) -> None:
    page = pages.open()
    one, two = session("one"), session("two")
    page.locator(".session-card").nth(1).wait_for()
    one.call("echo", text="from the first")
    two.call("echo", text="from the second")
    page.locator(".call", has_text="from the first").wait_for()
    page.locator(".call", has_text="from the second").wait_for()
    two.begin("wait")
    running = page.locator(".call.is-running", has_text="wait")
    running.click()
    page.get_by_role("button", name="Stop").click()
    assert not two.result()["ok"]
    page.locator(".detail", has_text="cancelled").wait_for()
    page.get_by_label("Filter by text").fill("second")
    page.locator(".call", has_text="from the first").wait_for(state="detached")
    assert page.locator(".call", has_text="from the second").count() == 1


HOSTILE = '<img src=x onerror="alert(1)"><script>alert(2)</script>'


def test_hostile_names_and_results_are_text_and_nothing_else(pages: Any, session: Any) -> None:
    one = session("one")
    name = "<img src=x onerror=alert(3)>.txt\"'`"
    (one.folder / name).write_text(f"{HOSTILE}\u202e\x1b[31mred\n" + "x" * 5_000_000 + "\n")
    page = pages.open()
    one.call("echo", text=HOSTILE + "\u202e\x1b[2J")
    one.call("Read", file_path=name)
    page.locator(".call", has_text="echo").click()
    page.locator(".detail .code").last.wait_for()
    assert HOSTILE in page.locator(".detail").inner_text()
    assert "U+202E" in page.locator(".detail").inner_text()
    page.locator(".call", has_text="Read").click()
    page.locator(".detail h2", has_text="Read").wait_for()
    page.evaluate("location.hash = '#/questions'")
    one.begin("Write", file_path="new<b>.html", content=HOSTILE + "\u202e\n")
    card = question(page)
    assert HOSTILE in card.inner_text()
    card.get_by_role("button", name="Allow once").click()
    assert one.result()["ok"]
    page.get_by_role("link", name="Changes").click()
    page.locator("details.change summary").first.click()
    page.locator(".diff", has_text="onerror").wait_for()
    assert page.locator("main img, main script, main b b").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_answers_with_a_thumb(pages: Any, session: Any, scheme: str) -> None:
    page = pages.open(
        "questions", viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, color_scheme=scheme
    )
    one = session("one")
    one.begin("Bash", command="touch a-file-with-a-name-that-is-far-too-long-for-a-narrow-screen-" + "x" * 120)
    card = question(page)
    wide = page.evaluate("document.documentElement.scrollWidth")
    allow = card.get_by_role("button", name="Allow once")
    size = allow.bounding_box()
    assert wide <= 390
    assert size["height"] >= 44
    allow.tap()
    assert one.result()["ok"]
    for name in ("live", "changes"):
        page.evaluate(f"location.hash = '#/{name}'")
        page.wait_for_selector(f"html[data-ready={name}]")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_keyboard_alone_is_enough(pages: Any, session: Any) -> None:
    one, two = session("one"), session("two")
    page = pages.open()
    page.keyboard.press("2")
    page.wait_for_selector("html[data-ready=questions]")
    one.begin("Bash", command="touch first")
    question(page)
    two.begin("Bash", command="touch second")
    question(page, 1)
    page.keyboard.press("?")
    assert "allow once" in page.get_by_role("dialog").inner_text()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    page.wait_for_timeout(SEEN_MS)
    page.keyboard.press("n")
    page.keyboard.type("not that one")
    page.keyboard.press("Enter")
    assert "not that one" in two.result()["output"]
    page.wait_for_selector(".question.chosen:has-text('first')")
    page.wait_for_timeout(SEEN_MS)
    page.keyboard.press("d")
    page.locator(".question", has_text="Apply exactly this").wait_for(timeout=60_000)
    page.keyboard.press("y")
    assert one.result()["ok"]
    assert (one.folder / "first").exists()


PRESS_WHEN_CHOSEN = """() => new MutationObserver(() => {
  const { dataset } = document.documentElement;
  if (dataset.pressed || !document.querySelector('.question.chosen')?.textContent.includes('second')) return;
  dataset.pressed = 'y';
  document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'y', bubbles: true }));
}).observe(document.getElementById('main'), { subtree: true, attributes: true, childList: true })"""


def test_a_key_pressed_while_the_list_moves_answers_nothing(pages: Any, session: Any) -> None:
    one, two = session("one"), session("two")
    page = pages.open("questions")
    one.begin("Bash", command="touch first")
    question(page)
    two.begin("Bash", command="touch second")
    question(page, 1)
    page.wait_for_timeout(SEEN_MS)
    page.evaluate(PRESS_WHEN_CHOSEN)  # meant for the first; pressed from here, it could come late
    page.keyboard.press("y")
    assert one.result()["ok"]
    page.wait_for_selector("html[data-pressed]")
    page.wait_for_timeout(300)
    assert page.locator(".question").count() == 1
    assert not (two.folder / "second").exists()


def test_a_button_of_a_card_that_is_half_out_of_sight_is_hit(pages: Any, session: Any) -> None:
    one, two = session("one"), session("two")
    page = pages.open("questions", viewport={"width": 1280, "height": 480})
    one.begin("Bash", command="touch first")
    question(page)
    two.begin("Bash", command="touch second")
    question(page, 1).get_by_role("button", name="Allow once").click()
    assert two.result()["ok"]


def test_what_is_answered_elsewhere_says_by_whom(pages: Any, session: Any) -> None:
    one = session("one")
    first = pages.open("questions")
    one.begin("Bash", command="touch one")
    card = question(first)
    first.get_by_role("button", name="Add a device").click()
    address = first.get_by_role("dialog").locator("pre").inner_text()
    second = first.context.browser.new_page()
    second.goto(address)
    second.wait_for_selector("html[data-ready=live]")
    second.get_by_role("link", name="Questions").click()
    question(second).get_by_role("button", name="Allow once").click()
    assert one.result()["ok"]
    first.locator(".outcome", has_text="in the console").wait_for()
    card.wait_for(state="detached")
    second.close()


def test_ten_thousand_calls_are_a_handful_of_elements(pages: Any) -> None:
    page = pages.open()
    page.evaluate(
        """async () => {
        const { CallList } = await import('/pages/live_list.js');
        const list = new CallList({ open() {}, more() {} });
        list.element.style.height = '600px';
        document.body.append(list.element);
        const call = (n) => ({ call_id: `c${n}`, session_id: 's', tool: 'T', at: n, state: 'ok', duration_ms: 1 });
        list.replace(Array.from({ length: 10000 }, (_, n) => call(n)));
        window.testList = list;
        }"""
    )
    rows = page.locator("body > .scroller .call")
    rows.first.wait_for()
    assert rows.count() < 60
    page.evaluate("testList.element.scrollTop = 38 * 5000")
    page.locator("body > .scroller .call[data-call=c4999]").wait_for()
    assert rows.count() < 60


def test_a_used_code_lets_nobody_in_and_the_page_says_so(pages: Any, console: Any, browser: Any) -> None:
    pages.open()
    page = browser.new_page()
    page.goto(console.url)
    page.wait_for_selector("html[data-ready=login]")
    page.locator(".problem", has_text="already used").wait_for()
    assert "code" not in page.url
    page.close()
