"""More than one person: acting at the same time, and looking without being allowed to act."""

from __future__ import annotations

import http.client
import json

from playwright.sync_api import expect

from swarm_core.store import events
from tests.support import git_run, wait_until
from tests.ui.conftest import Opener
from tests.ui.dashboard import Dashboard
from tests.ui.places import PAGES, settle


def committed(dashboard: Dashboard) -> dict[str, str]:
    """Where work-1-a1 has a commit of its own, without which nothing can be approved."""
    repo = dashboard.world.repo
    done = git_run(repo, "commit-tree", "main^{tree}", "-p", "main", "-m", "Done")
    git_run(repo, "branch", "swarm/work-1-a1", done)
    return {"repo_path": str(repo), "base_branch": "main", "base_commit": git_run(repo, "rev-parse", "main")}


def test_of_two_who_approve_at_once_one_does_and_both_see_it(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seeding.instance(
            "work-1-a1", needs_person="all review rounds are used", issue_title="One", **committed(dashboard)
        )
        seeding.instance("work-2-a1", needs_person="all review rounds are used", issue_title="Two")
    anna = visit(dashboard, link=dashboard.link(name="anna"))
    ben = visit(dashboard, link=dashboard.link(name="ben"), theme="dark")
    pages = []
    for person in (anna, ben):
        person.watch.allow("status of 409")
        pages.append(settle(person.page("/?i=work-1-a1")))
    for page in pages:
        button = page.locator("#strip").get_by_role("button", name="Approve: work-1-a1")
        button.evaluate("button => setTimeout(() => button.click(), 500)")
    for page in pages:
        expect(page.locator("#strip")).not_to_contain_text("work-1-a1")
        expect(page.locator("#strip")).to_contain_text("Two")
    with dashboard.db() as db:
        accepted = [e for e in events.newest(db, instance_id="work-1-a1") if e.name == "work:accepted"]
    assert len(accepted) == 1
    assert accepted[0].actor in ("operator:anna", "operator:ben")


def test_what_one_does_the_other_sees(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seeding.instance(
            "work-1-a1", needs_person="all review rounds are used", issue_title="One", **committed(dashboard)
        )
    one, other = (settle(visit(dashboard).page("/")) for _ in range(2))
    expect(other.locator("#strip")).to_be_visible()
    one.locator("#strip").get_by_role("button", name="Approve").first.click()
    dialog = one.locator("dialog[open]")
    if dialog.count():
        dialog.locator(".primary").first.click()
    expect(other.locator("#strip")).to_be_hidden()
    expect(other).to_have_title("Swarm")


def test_a_read_only_link_shows_everything_and_can_do_nothing(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seeding.instance("work-1-a1", needs_person="all review rounds are used", issue_title="One")
    link = dashboard.link(read_only=True)
    guest = visit(dashboard, link=link)
    page = settle(guest.page("/"))
    expect(page.locator("#live")).to_contain_text("read-only")
    expect(page.locator("#strip").get_by_role("button", name="Approve").first).to_be_disabled()
    for name in ("inbox", "events", "pulls", "health", "graph"):
        settle(guest.page(PAGES[name][0]))
    cookie = next(c for c in guest.context.cookies() if c["name"] == f"swarm_{dashboard.port}")
    assert cookie["httpOnly"] is True
    assert cookie["sameSite"] == "Strict"
    headers = {
        "Cookie": f"{cookie['name']}={cookie['value']}",
        "Origin": dashboard.base,
        "Sec-Fetch-Site": "same-origin",
        "Content-Type": "application/json",
    }
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=10)
    connection.request("POST", "/api/v1/instances/work-1-a1/approve", body="{}", headers=headers)
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    assert (answer.status, body["ok"]) == (403, False)
    with dashboard.db() as db:
        assert [e for e in events.newest(db) if e.name == "work:accepted"] == []
    settle(visit(dashboard, link=link).page("/"))


def test_a_person_who_types_keeps_the_words_when_rows_change(dashboard: Dashboard, visit: Opener) -> None:
    with dashboard.seeding() as seeding:
        seeding.instance("work-1-a1", issue_title="One", activity="idle")
    page = settle(visit(dashboard).page("/?i=work-1-a1"))
    page.keyboard.press("m")
    box = page.locator("textarea:visible").first
    box.fill("half a sentence")
    box.focus()
    with dashboard.seeding() as seeding:
        for n in range(5):
            seeding.instance(f"work-{n + 10}-a1", issue_title=f"Another {n}")
    wait_until(lambda: page.locator("#list [data-id]").count() == 6, what="the others are shown")
    expect(box).to_have_value("half a sentence")
    expect(box).to_be_focused()
