"""The terminal on the page is the one in tmux: its colours, its widths, its end, and what is typed into it."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from swarm_core.tmux.panes import list_panes
from tests.support import wait_until
from tests.ui.conftest import Opener
from tests.ui.dashboard import Dashboard
from tests.ui.places import settle

ONE = "work-1-a1"
COLOURS = (
    r"printf 'plain \033[1;31mbold-red\033[0m \033[38;5;208mindexed\033[0m \033[38;2;1;200;3mtrue\033[0m"
    r" \033[48;5;21mbehind\033[0m \033[4munder\033[0m \033[7minverse\033[0m\n"
    r"\033[32mstill\ngreen\033[0m\n漢字ab é👍|\n'; exec cat"
)


@pytest.fixture
def one(dashboard: Dashboard) -> Dashboard:
    with dashboard.seeding() as seeding:
        seeding.instance(ONE, issue_title="One", activity="idle")
    return dashboard


def terminal(page: Page) -> Locator:
    return page.get_by_role("group", name=f"Terminal of {ONE}")


def line(page: Page, text: str) -> Locator:
    return terminal(page).locator(".term-line").filter(has_text=text).last


def run_with(page: Page, text: str) -> Locator:
    return terminal(page).get_by_text(text, exact=True).last


def test_colours_and_attributes_are_those_of_the_program(one: Dashboard, visit: Opener) -> None:
    one.session(ONE, COLOURS)
    page = settle(visit(one).page(f"/i/{ONE}"))
    expect(run_with(page, "true")).to_have_css("color", "rgb(1, 200, 3)")
    expect(run_with(page, "indexed")).to_have_css("color", "rgb(255, 135, 0)")
    expect(run_with(page, "behind")).to_have_css("background-color", "rgb(0, 0, 255)")
    weight = run_with(page, "bold-red").evaluate("e => getComputedStyle(e).fontWeight")
    assert int(weight) >= 600
    under = run_with(page, "under").evaluate("e => getComputedStyle(e).textDecorationLine")
    assert under == "underline"
    colour = "e => getComputedStyle(e).color"
    assert run_with(page, "still").evaluate(colour) == run_with(page, "green").evaluate(colour)
    assert run_with(page, "still").evaluate(colour) != line(page, "plain").evaluate(colour)


def test_wide_characters_take_two_cells(one: Dashboard, visit: Opener) -> None:
    one.session(ONE, r"printf '漢字漢字|\nabcdefgh|\n'; exec cat")
    page = settle(visit(one).page(f"/i/{ONE}"))
    expect(line(page, "abcdefgh|")).to_be_visible()
    ends = (
        "e => { const r = document.createRange(); r.selectNodeContents(e);"
        " return r.getBoundingClientRect().right }"
    )
    wide, narrow = line(page, "漢字漢字|").evaluate(ends), line(page, "abcdefgh|").evaluate(ends)
    assert abs(wide - narrow) < 3


def test_output_appears_while_the_program_writes(one: Dashboard, visit: Opener) -> None:
    one.session(ONE)
    page = settle(visit(one).page(f"/i/{ONE}"))
    for n in range(5):
        one.type(ONE, f"output-{n}\n")
        expect(terminal(page)).to_contain_text(f"output-{n}")


def test_the_first_page_shows_the_terminal_of_the_chosen_one(one: Dashboard, visit: Opener) -> None:
    one.session(ONE, "echo on-the-first-page; exec cat")
    page = settle(visit(one).page("/"))
    page.locator(f"#list [data-id='{ONE}']").click()
    expect(terminal(page)).to_contain_text("on-the-first-page")


def test_the_alternate_screen_is_shown_and_left_again(one: Dashboard, visit: Opener) -> None:
    one.session(
        ONE, r"echo before; printf '\033[?1049h\033[2;2Hfull-screen'; read x; printf '\033[?1049l'; exec cat"
    )
    page = settle(visit(one).page(f"/i/{ONE}"))
    expect(terminal(page)).to_contain_text("full-screen")
    expect(terminal(page)).not_to_contain_text("before")
    one.type(ONE, "\n")
    expect(terminal(page)).to_contain_text("before")
    expect(terminal(page)).not_to_contain_text("full-screen")


def test_looking_does_not_change_the_size_of_the_agents_pane(one: Dashboard, visit: Opener) -> None:
    one.session(ONE, cols=97, rows=23)
    page = settle(visit(one, size="phone").page(f"/i/{ONE}"))
    one.type(ONE, "seen\n")
    expect(terminal(page)).to_contain_text("seen")
    size = one.tmux("display-message", "-p", "-t", f"={ONE}:", "#{window_width}x#{window_height}").strip()
    assert size == "97x23"


def test_history_can_be_read_and_following_stops_and_goes_on(one: Dashboard, visit: Opener) -> None:
    one.session(ONE, "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo row-$i-end; done; exec cat")
    page = settle(visit(one).page(f"/i/{ONE}"))
    last = line(page, "row-300-end")
    expect(last).to_be_in_viewport()
    box = terminal(page).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 50, box["y"] + 50)
    page.mouse.wheel(0, -3000)
    expect(last).not_to_be_in_viewport()
    one.type(ONE, "new-output\n")
    expect(line(page, "new-output")).to_be_attached()
    expect(line(page, "new-output")).not_to_be_in_viewport()
    page.keyboard.press(".")
    expect(line(page, "new-output")).to_be_in_viewport()


def test_the_scrollback_is_searched(one: Dashboard, visit: Opener) -> None:
    one.session(ONE, "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo row-$i-end; done; exec cat")
    page = settle(visit(one).page(f"/i/{ONE}"))
    expect(line(page, "row-200-end")).to_be_in_viewport()
    terminal(page).get_by_role("button", name="Find").click()
    page.keyboard.type("row-42-end")
    page.keyboard.press("Enter")
    expect(line(page, "row-42-end")).to_be_in_viewport()


def test_what_is_typed_in_type_mode_reaches_the_program(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.world.open() as swarm:
        made = dashboard.world.work(swarm, "say ready")
        dashboard.world.wait_idle(swarm, made.id)
    page = settle(visit(dashboard).page(f"/i/{made.id}"))
    shown = page.get_by_role("group", name=f"Terminal of {made.id}")
    expect(shown).to_contain_text("ready")
    page.get_by_role("button", name="Type").first.click()
    page.keyboard.type("say n?g!")
    expect(shown).to_contain_text("say n?g!")
    page.keyboard.press("Enter")
    wait_until(lambda: "received: say n?g!" in dashboard.screen(made.id), what="the program has it")
    expect(shown).to_contain_text("received: say n?g!")
    page.keyboard.press("Control+]")
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_be_visible()


def test_nothing_is_typed_into_a_dialog(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.world.open() as swarm:
        made = dashboard.world.work(swarm, "dialog rm -rf build")

        def blocked() -> bool:
            swarm.reconcile()
            return swarm.find(made.id).activity == "blocked"

        wait_until(blocked, what="the agent asks")
    person = visit(dashboard)
    person.watch.allow("status of 409", "status of 403")
    page = settle(person.page(f"/i/{made.id}"))
    shown = page.get_by_role("group", name=f"Terminal of {made.id}")
    expect(shown).to_contain_text("Do you want to proceed?")
    typing = page.get_by_role("button", name="Type").first
    if typing.is_enabled():
        typing.click()
        page.keyboard.type("1")
        expect(page.locator("#toasts, .term-note, [role=alert]").filter(has_text="dialog").first).to_be_visible()
        page.keyboard.press("Control+]")
    assert "answered:" not in dashboard.screen(made.id)
    expect(shown).to_contain_text("Do you want to proceed?")


def test_when_the_program_ends_the_last_screen_stays(one: Dashboard, visit: Opener) -> None:
    one.session(ONE, "echo last-words; read x; exit 3")
    page = settle(visit(one).page(f"/i/{ONE}"))
    expect(terminal(page)).to_contain_text("last-words")
    one.type(ONE, "\n")
    wait_until(lambda: all(p.dead for p in list_panes(one.world.settings.tmux_socket)), what="it has ended")
    expect(page.locator("#main")).to_contain_text("Ended")
    expect(terminal(page)).to_contain_text("last-words")


def test_a_line_of_a_megabyte_and_a_flood_leave_the_page_usable(one: Dashboard, visit: Opener) -> None:
    one.session(
        ONE, "head -c 1000000 /dev/zero | tr '\\0' x; echo; yes flood | head -n 50000; echo all-done; exec cat"
    )
    page = settle(visit(one).page(f"/i/{ONE}"))
    expect(terminal(page)).to_contain_text("all-done", timeout=30_000)
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_be_visible()
    assert page.evaluate("() => document.querySelectorAll('.term-line').length") <= 5000


def test_the_wall_shows_the_last_lines_of_every_one_at_work(one: Dashboard, visit: Opener) -> None:
    with one.seeding() as seeding:
        seeding.instance("work-2-a1", issue_title="Two")
    one.session(ONE, "echo tile-of-one; exec cat")
    one.session("work-2-a1", "echo tile-of-two; exec cat")
    page = settle(visit(one).page("/wall"))
    for text in ("tile-of-one", "tile-of-two"):
        expect(page.locator("#main")).to_contain_text(text)
    one.type("work-2-a1", "more-of-two\n")
    expect(page.locator("#main")).to_contain_text("more-of-two")
