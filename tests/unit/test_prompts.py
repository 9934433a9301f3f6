"""The texts agents start with, and templates: what is filled in, what is added, what is refused."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from docs import source
from swarm_core.errors import InvalidInput
from swarm_core.forge import Issue
from swarm_core.models import Feedback, Instance, Relationship
from swarm_core.ops import prompts, templates

ISSUE = Issue(7, "Login fails", "Steps to reproduce.", "https://example.invalid/7")


def instance(**fields: Any) -> Instance:
    known = {f.name: "" for f in dataclasses.fields(Instance)}
    given: dict[str, Any] = {**known, "epoch": 1, "agent_number": 1, "id": "work-7-a1", "branch": "work/work-7-a1"}
    given |= {
        "base_branch": "main",
        "worktree_path": "/w/work-7-a1",
        "issue_number": 7,
        "issue_title": "Login fails",
    }
    given |= {"prompt": "fix the login", "parent_id": None}
    return Instance(**(given | fields))


REVIEW = instance(id="review-7-a1", branch="review/review-7-a1", worktree_path="/w/review-7-a1")


def a_round(**fields: Any) -> prompts.Round:
    facts: Any = {"head_commit": "c" * 40, "base_commit": "b" * 40, "start": "a" * 40, "commits": 2}
    facts |= {"files": ["src/a.py", "src/b.py"], "files_count": 3, "added": 10, "deleted": 4}
    given: dict[str, Any] = {"work": instance(), "facts": facts, "base_branch": "main", "number": 2, "limit": 3}
    return prompts.Round(**(given | {"focus": "", "by_author": True} | fields))


def work(template: str | None, prompt: str, *, issue: Issue | None = None, plain: bool = False) -> str:
    number = issue.number if issue else None
    text = prompts.task(prompt, issue_number=number, issue=issue)
    return prompts.work(template, text, issue_number=number, issue=issue, plain=plain)(instance())


def test_a_prompt_without_issue_and_template_stays_the_persons_words() -> None:
    words = "  write a.txt {{ task }}\n\ncommit done \n"
    assert work(None, words) == words
    assert work(None, words, plain=True) == words


def test_an_agent_that_carries_out_its_prompt_gets_the_issue_and_no_instructions() -> None:
    text = work(None, "say hi", issue=ISSUE, plain=True)
    assert text == "# Work on issue #7: Login fails\n\nhttps://example.invalid/7\n\nSteps to reproduce.\n\nsay hi"


def test_a_model_gets_the_issue_where_it_works_and_what_to_do() -> None:
    text = work(None, "mind the tests", issue=ISSUE)
    for part in ("Steps to reproduce.", "mind the tests", "work-7-a1", "work/work-7-a1", "/w/work-7-a1", "main"):
        assert part in text
    assert "spawn_review_instance" in text
    assert "{{" not in text


def test_a_repositorys_template_takes_the_place_of_ours() -> None:
    text = work("You are {{instance_id}} on {{ branch }}.\n\n{{ task }}\n\nBe brief.", "fix it", plain=True)
    assert text == "You are work-7-a1 on work/work-7-a1.\n\nfix it\n\nBe brief."


def test_an_instance_without_a_task_gets_no_template() -> None:
    assert work("Hello {{ instance_id }}", "") == ""


def test_a_task_that_the_template_leaves_out_is_added() -> None:
    assert work("Be brief.", "fix it") == "Be brief.\n\n## Task\n\nfix it"


def test_what_a_value_contains_is_not_taken_for_a_name() -> None:
    assert work("{{ task }}!", "use {{ secret }} and {{ branch }}") == "use {{ secret }} and {{ branch }}!"


@pytest.mark.parametrize("name", ["secret", "Task", "task.x", "", "task | upper", "__class__"])
def test_an_unknown_name_is_refused_with_the_known_ones(name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        work(f"{{{{ {name} }}}} {{{{ task }}}}", "fix it")
    assert refused.value.code == "TEMPLATE_INVALID"
    assert refused.value.details["unknown"] == [name]
    assert "task" in (refused.value.hint or "")


@pytest.mark.parametrize("template", ["{ task }", "{{ a { b }} }}", "{{\ntask\n}}", "${{ }", "%s {0}"])
def test_other_braces_are_text(template: str) -> None:
    assert templates.fill(template, {"task": "x"}, sections={}) == template.strip()


def test_a_reviewer_is_told_what_where_how_and_its_two_outcomes() -> None:
    text = prompts.review(None, a_round())(REVIEW)
    for part in ("work-7-a1", "/w/review-7-a1", "review/review-7-a1", "work/work-7-a1", "main", "c" * 40):
        assert part in text
    assert "Round 2 of 3" in text
    assert "2 commits, 3 files, +10 -4 lines" in text
    assert "- src/a.py\n- src/b.py\n- and 1 more" in text
    assert "<task>\nfix the login\n</task>" in text
    assert f"git diff {'a' * 40} {'c' * 40}" in text
    for word in ("correctness", "security", "maintainability", "requirement"):
        assert word in text
    assert "needs_work" in text
    assert '"approved"' in text
    assert "create_pull_request" in text
    assert "{{" not in text
    assert "\n\n\n" not in text


@pytest.mark.parametrize(("by_author", "who"), [(True, "the author of the work"), (False, "the person")])
def test_what_to_look_at_besides_is_named_as_somebodys_words(by_author: bool, who: str) -> None:
    text = prompts.review(None, a_round(focus="the migrations", by_author=by_author))(REVIEW)
    assert "the migrations" in text
    assert who in text


def test_earlier_rounds_are_named_with_their_feedback() -> None:
    before = Relationship(1, "work-7-a1", "review-7-a1", "spawned_review", 1, "d" * 40, "", "needs_work", "")
    said = Feedback(
        "fb-1", "review-7-a1", "work-7-a1", 1, "needs_work", "high", "x", "/f/fb-1.md", "m", None, None, ""
    )
    text = prompts.review(None, a_round(earlier=[(before, [said])]))(REVIEW)
    assert "Round 1, review-7-a1: verdict needs_work" in text
    assert "/f/fb-1.md" in text


def test_a_review_template_keeps_the_task_and_the_focus() -> None:
    text = prompts.review("Look at {{ commit }}.", a_round(focus="the tests"))(REVIEW)
    assert text.startswith(f"Look at {'c' * 40}.")
    assert "fix the login" in text
    assert "the tests" in text


def test_a_task_too_long_for_a_reviewer_is_cut_and_says_so() -> None:
    text = prompts.review(None, a_round(work=instance(prompt="x" * 300_000)))(REVIEW)
    assert len(text) < 250_000
    assert "300000 characters" in text


def test_a_client_without_an_instance_gets_task_and_instructions() -> None:
    assert prompts.work_steps("fix it").startswith("fix it\n\n## How to work")


@pytest.mark.parametrize("kind", ["work", "review"])
def test_the_page_about_templates_lists_every_name(kind: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        work("{{ x }}", "fix it") if kind == "work" else prompts.review("{{ x }}", a_round())(REVIEW)
    page = (source.ROOT / "docs" / "how-to" / "prompts.md").read_text()
    assert [name for name in refused.value.details["known"] if f"`{name}`" not in page] == []
