"""Five situations are dealt with by keyboard alone, and what was done is looked up where it happened."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from swarm_core.errors import Conflict
from swarm_core.models import Instance, Pull
from swarm_core.store import events, instances, verdicts
from swarm_core.swarm import Swarm
from tests.support import git_run, wait_until
from tests.ui.conftest import Opener
from tests.ui.dashboard import Dashboard
from tests.ui.places import at, settle

_FOCUSED = "() => document.activeElement?.getAttribute('aria-label') ?? document.activeElement?.textContent ?? ''"


def tab_to(page: Page, label: str, *, most: int = 150) -> None:
    """Press Tab until what has the focus is called so."""
    for _ in range(most):
        if page.evaluate(_FOCUSED).startswith(label):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not lead to {label!r}")


def until(swarm: Swarm, instance_id: str, **wanted: str) -> Instance:
    def found() -> Instance | None:
        one = swarm.find(instance_id)
        return one if all(getattr(one, name) == value for name, value in wanted.items()) else None

    made = wait_until(found, what=f"{instance_id} {wanted}")
    assert isinstance(made, Instance)
    return made


def happened(dashboard: Dashboard, instance_id: str, name: str) -> list[str]:
    with dashboard.db() as db:
        return [e.actor for e in events.newest(db, instance_id=instance_id, limit=200) if e.name == name]


def test_five_situations_are_dealt_with_by_keyboard_alone(staffed: Dashboard, visit: Opener) -> None:
    with staffed.world.open() as swarm:
        asks = staffed.world.work(swarm, "dialog rm -rf build", name="asks")
        fails = staffed.world.work(swarm, "say about to end\nexit 3", name="fails")
        rounds = staffed.world.work(swarm, "write done.txt done\ncommit it is done", name="rounds")
        spent = staffed.world.work(swarm, "say ready", name="spent")
        merges = staffed.world.work(swarm, "write new.txt new\ncommit a new file", name="merges")
        until(swarm, asks.id, activity="blocked")
        until(swarm, fails.id, status="failed")
        for one in (rounds, spent, merges):
            until(swarm, one.id, activity="idle")
        with swarm.context.db.write():
            instances.set_fields(swarm.context.db, rounds.id, needs_person="all review rounds are used (3 of 3)")
            held = {"budget_usd": 1.0, "cost_usd": 4.0, "budget_state": "held"}
            instances.set_fields(swarm.context.db, spent.id, **held)
        pull = swarm.open_pull(merges.id, title="A new file", description="New.")
        assert isinstance(pull, Pull)

    person = visit(staffed, link=staffed.link(name="anna"))
    person.watch.allow("status of 409")
    page = settle(person.page("/"))
    expect(page).to_have_title("(5) Swarm")

    tab_to(page, f"Yes: {asks.id}")
    page.keyboard.press("Enter")
    wait_until(lambda: "answered: yes" in staffed.screen(asks.id), what="the agent has its answer")
    expect(page).to_have_title("(4) Swarm")
    assert happened(staffed, asks.id, "dialog:answered") == ["operator:anna"]

    tab_to(page, f"Approve: {rounds.id}")
    page.keyboard.press("Enter")
    wait_until(lambda: happened(staffed, rounds.id, "work:accepted") == ["operator:anna"], what="approved")
    expect(page).to_have_title("(3) Swarm")

    tab_to(page, "Raise by")
    page.keyboard.press("Enter")
    wait_until(lambda: "operator:anna" in happened(staffed, spent.id, "budget:set"), what="the budget is raised")
    expect(page).to_have_title("(2) Swarm")

    page.keyboard.press("g")
    page.keyboard.press("i")
    at(page, "/inbox")
    tab_to(page, f"Merge #{pull.number}: {merges.id}")
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open]")).to_be_visible()
    tab_to(page, "Merge")
    page.keyboard.press("Enter")
    merged = lambda: git_run(staffed.world.repo, "log", "--oneline", "main").count("a new file")  # noqa: E731
    wait_until(merged, what="main has the commit")
    expect(page).to_have_title("(1) Inbox · Swarm")

    tab_to(page, f"Restart: {fails.id}")
    page.keyboard.press("Enter")
    dialog = page.locator("dialog[open]")
    if dialog.count():
        page.keyboard.press("Enter")
    with staffed.world.open() as swarm:
        wait_until(lambda: swarm.find(fails.id).epoch == 2, what="it was started again")


def test_a_question_is_answered_with_words(staffed: Dashboard, visit: Opener) -> None:
    with staffed.world.open() as swarm:
        asks = staffed.world.work(swarm, "ask Which currency?")
        until(swarm, asks.id, activity="blocked")
    page = settle(visit(staffed).page("/"))
    expect(page.locator("#strip")).to_contain_text("Which currency?")
    tab_to(page, f"Answer: {asks.id}")
    page.keyboard.press("Enter")
    expect(page.locator("dialog[open]")).to_contain_text("Which currency?")
    page.keyboard.type("euro, <b>always</b>")
    page.keyboard.press("Control+Enter")
    wait_until(lambda: "euro, <b>always</b>" in staffed.screen(asks.id), what="the agent has the answer")
    expect(page.locator("#strip")).to_be_hidden()


def test_a_message_reaches_the_agent_and_its_receipt_is_shown(staffed: Dashboard, visit: Opener) -> None:
    with staffed.world.open() as swarm:
        made = staffed.world.work(swarm, "say ready")
        until(swarm, made.id, activity="idle")
        page = settle(visit(staffed).page(f"/?i={made.id}"))
        expect(page.get_by_role("group", name=f"Terminal of {made.id}")).to_contain_text("ready")
        page.keyboard.press("m")
        page.keyboard.type("say thank you")
        page.keyboard.press("Control+Enter")

        wait_until(lambda: "thank you" in staffed.screen(made.id), what="the agent has the message")
        wait_until(lambda: swarm.detail(made.id).messages[-1].state == "acknowledged", what="the receipt")
    expect(page.get_by_role("group", name=f"Terminal of {made.id}")).to_contain_text("thank you")


def test_an_agent_is_started_and_stopped_by_keyboard(staffed: Dashboard, visit: Opener) -> None:
    with staffed.world.open() as swarm:
        staffed.world.work(swarm, "say ready")
    person = visit(staffed)
    person.watch.allow("status of 409")
    page = settle(person.page("/"))
    expect(page.locator("#list [data-id]")).to_have_count(1)
    page.keyboard.press("n")
    form = page.locator("dialog[open]")
    expect(form).to_be_visible()
    form.get_by_label("Prompt", exact=False).or_(form.locator("textarea")).first.focus()
    page.keyboard.type("say I am new")
    chosen = form.get_by_label("Agent")
    chosen.select_option("scripted")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#list [data-id]")).to_have_count(2)
    new = page.locator("#list [data-id='work-a2']")
    expect(new).to_be_visible()
    wait_until(lambda: "I am new" in staffed.screen("work-a2"), what="it runs")
    page.goto(f"{person.base}/?i=work-a2")
    settle(page)
    page.keyboard.press("s")
    expect(page.locator("dialog[open]")).to_contain_text("work-a2")
    with staffed.db() as db:
        assert instances.get(db, "work-a2").wanted == "running", "one key alone stops nothing"
    tab_to(page, "Stop")
    page.keyboard.press("Enter")
    with staffed.db() as db:
        wait_until(lambda: instances.get(db, "work-a2").wanted == "stopped", what="it is stopped")
    expect(page.locator("#list [data-id='work-a2']")).to_contain_text("done")


def test_an_action_that_fails_is_told_with_code_and_hint_and_can_be_tried_again(
    staffed: Dashboard, visit: Opener
) -> None:
    with staffed.world.open() as swarm:
        made = staffed.world.work(swarm, "say gone\nexit 1")
        until(swarm, made.id, status="failed")
        with swarm.context.db.write():
            instances.set_fields(swarm.context.db, made.id, agent="no-such-agent")
    person = visit(staffed)
    person.watch.allow("status of")
    page = settle(person.page("/"))
    tab_to(page, f"Restart: {made.id}")
    page.keyboard.press("Enter")
    toast = page.locator("#toasts")
    expect(toast.get_by_role("button", name="Retry")).to_be_visible()
    expect(page.locator("#strip").get_by_role("button", name=f"Restart: {made.id}")).to_be_enabled()


def test_the_inbox_is_worked_off_with_its_own_keys(dashboard: Dashboard, visit: Opener) -> None:
    repo = dashboard.world.repo
    done = git_run(repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "Done")
    with dashboard.seeding() as seeding:
        for n in range(3):
            git_run(repo, "branch", f"swarm/work-{n + 1}-a1", done)
            seeding.instance(
                f"work-{n + 1}-a1",
                minutes=60 - n,
                needs_person="all review rounds are used",
                issue_title=f"Task {n}",
                repo_path=str(repo),
                base_branch="main",
                base_commit=git_run(repo, "rev-parse", "main"),
            )
    page = settle(visit(dashboard).page("/inbox"))
    expect(page).to_have_title("(3) Inbox · Swarm")
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("x")
    expect(page).to_have_title("(2) Inbox · Swarm")
    with dashboard.db() as db:
        rows = db.rows("SELECT instance_id FROM dismissed")
        assert [r[0] for r in rows] == ["work-1-a1"]
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("a")
    wait_until(lambda: happened(dashboard, "work-2-a1", "work:accepted") == ["operator"], what="approved")
    expect(page).to_have_title("(1) Inbox · Swarm")


def test_a_refused_pull_request_is_merged_with_a_reason_and_not_without(staffed: Dashboard, visit: Opener) -> None:
    with staffed.world.open() as swarm:
        work = staffed.world.work(swarm, "write new.txt new\ncommit a new file", name="refused")
        until(swarm, work.id, activity="idle")
        pull = swarm.open_pull(work.id, title="A new file", description="New.")
        with swarm.context.db.write():
            verdicts.add(swarm.context.db, work.id, pull.head_commit, "needs_work", by="review-9-a1")
    page = settle(visit(staffed, link=staffed.link(name="anna")).page("/pulls"))
    row = page.get_by_role("region", name="Open pull requests")
    expect(row).to_contain_text("changes requested")
    expect(row).to_contain_text("changes are requested by review-9-a1")
    row.get_by_role("button", name="Merge:").click()
    dialog = page.locator("dialog[open]")
    expect(dialog).to_contain_text("changes are requested by review-9-a1")
    dialog.get_by_role("button", name="Merge", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("It is not ready")
    dialog.get_by_label("Merge anyway, because").fill("the demo is at noon")
    dialog.get_by_role("button", name="Merge", exact=True).click()
    message = lambda: git_run(staffed.world.repo, "log", "-1", "--format=%B", "main")  # noqa: E731
    wait_until(lambda: "Merged-anyway: the demo is at noon (by operator:anna)" in message(), what="it is merged")
    assert happened(staffed, work.id, "pull:overridden") == ["operator:anna"]


def test_what_a_failed_check_said_is_on_the_page_of_its_pull_request(staffed: Dashboard, visit: Opener) -> None:
    (staffed.world.repo / ".swarm").mkdir()
    (staffed.world.repo / ".swarm/check").write_text("ls no-such-file\n")
    git_run(staffed.world.repo, "add", "-A")
    git_run(staffed.world.repo, "commit", "-q", "-m", "check merges")
    with staffed.world.open() as swarm:
        work = staffed.world.work(swarm, "write new.txt new\ncommit a new file", name="failing")
        until(swarm, work.id, activity="idle")
        swarm.open_pull(work.id, title="A new file", description="New.")
        with pytest.raises(Conflict) as caught:
            swarm.pulls.merge(work.id)
        assert caught.value.code == "CHECK_FAILED"
    page = settle(visit(staffed).page(f"/i/{work.id}?tab=pull"))
    expect(page.get_by_role("region", name="Checks", exact=True)).to_contain_text("ls no-such-file")
    page.get_by_role("region", name="Checks", exact=True).locator("summary").click()
    expect(page.get_by_role("region", name="Checks", exact=True)).to_contain_text("No such file")
