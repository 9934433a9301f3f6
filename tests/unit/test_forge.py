from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swarm_core.forge import TITLE_CHARS, Issue, parse_remote, split_title
from swarm_core.github import api_url_of
from swarm_core.local_forge import LocalIssues


def write_issue(folder, number, text):
    path = folder / ".swarm" / "issues" / f"{number}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_an_issue_is_a_markdown_file_whose_first_line_is_the_title(tmp_path):
    path = write_issue(tmp_path, 7, "\n# Fix the *parser*\n\nIt breaks on tabs.\n\nSee tests.\n")
    issue = LocalIssues(tmp_path).get_issue(7)
    assert issue == Issue(7, "Fix the *parser*", "It breaks on tabs.\n\nSee tests.", path.resolve().as_uri())


def test_a_missing_issue_is_none_and_nothing_is_made(tmp_path):
    forge = LocalIssues(tmp_path)
    assert forge.get_issue(1) is None
    assert forge.get_issue(0) is None
    assert forge.get_issue(-1) is None
    assert list(tmp_path.iterdir()) == [tmp_path / "user-home"]


def test_issues_are_listed_with_the_highest_number_first(tmp_path):
    for number in (2, 10, 1):
        write_issue(tmp_path, number, f"# Number {number}\n")
    write_issue(tmp_path, "notes", "# No issue\n")
    assert [issue.number for issue in LocalIssues(tmp_path).list_issues(limit=2)] == [10, 2]


def test_a_folder_in_place_of_an_issue_is_no_issue(tmp_path):
    (tmp_path / ".swarm" / "issues" / "3.md").mkdir(parents=True)
    assert LocalIssues(tmp_path).get_issue(3) is None


def test_an_issue_that_links_out_of_the_repository_is_not_read(tmp_path):
    repo = tmp_path / "repo"
    (repo / ".swarm" / "issues").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (repo / ".swarm" / "issues" / "4.md").symlink_to(tmp_path / "secret")
    assert LocalIssues(repo).get_issue(4) is None


def test_a_huge_title_is_cut_and_kept_whole_in_the_body(tmp_path):
    title = "t" * 10_000
    write_issue(tmp_path, 1, f"# {title}\n\nrest\n")
    issue = LocalIssues(tmp_path).get_issue(1)
    assert issue is not None
    assert issue.title == "t" * TITLE_CHARS
    assert title in issue.body
    assert issue.body.endswith("rest")


@pytest.mark.parametrize(
    ("text", "title", "body"),
    [
        ("plain title", "plain title", ""),
        ("#hashtag is no heading\nb", "#hashtag is no heading", "b"),
        ("###### deep\r\nbody", "deep", "body"),
        ("tab\there\x1b[31m", "tab here [31m", ""),
        ("", "", ""),
        ("#\nbody", "", "body"),
    ],
)
def test_titles_are_split_off(text, title, body):
    assert split_title(text) == (title, body)


def test_an_empty_file_and_bytes_that_are_no_text_are_still_issues(tmp_path):
    write_issue(tmp_path, 1, "")
    write_issue(tmp_path, 2, b"\xef\xbb\xbf# caf\xff\n")
    first, second = LocalIssues(tmp_path).get_issue(1), LocalIssues(tmp_path).get_issue(2)
    assert first is not None
    assert first.title == "Issue 1"
    assert second is not None
    assert second.title == "caf\ufffd"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://github.com/acme/widgets", ("github.com", "acme", "widgets")),
        ("https://github.com/acme/widgets.git", ("github.com", "acme", "widgets")),
        ("https://github.com/acme/widgets.git/", ("github.com", "acme", "widgets")),
        ("https://GitHub.com/acme/Widgets.js.git", ("github.com", "acme", "Widgets.js")),
        ("https://user:ghp_secret@github.com/acme/widgets.git", ("github.com", "acme", "widgets")),
        ("https://ghp_secret@ghe.corp.example:8443/acme/widgets", ("ghe.corp.example:8443", "acme", "widgets")),
        ("https://github.com:443/acme/widgets", ("github.com", "acme", "widgets")),
        ("http://ghe.local/acme/widgets", ("ghe.local", "acme", "widgets")),
        ("ssh://git@github.com/acme/widgets.git", ("github.com", "acme", "widgets")),
        ("ssh://git@ghe.corp.example:2222/acme/widgets.git", ("ghe.corp.example", "acme", "widgets")),
        ("ssh://git@ssh.github.com:443/acme/widgets.git", ("github.com", "acme", "widgets")),
        ("git@github.com:acme/widgets.git", ("github.com", "acme", "widgets")),
        ("git@github.com:/acme/widgets", ("github.com", "acme", "widgets")),
        ("github.com:acme/widgets", ("github.com", "acme", "widgets")),
        ("git://github.com/acme/widgets.git", ("github.com", "acme", "widgets")),
        ("  git@ghe.corp.example:acme/widgets.git\n", ("ghe.corp.example", "acme", "widgets")),
        ("", None),
        ("/srv/git/widgets.git", None),
        ("../widgets", None),
        ("C:/code/widgets", None),
        ("file:///srv/git/widgets.git", None),
        ("https://github.com/acme", None),
        ("https://github.com/group/sub/widgets", None),
        ("https://github.com/../widgets", None),
        ("https://github.com/acme/wid gets", None),
        ("https://github.com/acme/widgets?x=1", None),
        ("https://github.com:99999/acme/widgets", None),
        ("https://[::1/acme/widgets", None),
        ("-oProxyCommand=x:acme/widgets", None),
        ("ext::sh -c acme/widgets", None),
    ],
)
def test_remotes_are_parsed(url, expected):
    assert parse_remote(url) == expected


@given(st.text(max_size=80))
def test_any_text_is_a_remote_or_none(text):
    parsed = parse_remote(text)
    assert parsed is None or all(parsed)


@given(st.sampled_from(["https://{}@github.com/a/b", "ssh://{}@github.com/a/b", "{}@github.com:a/b"]))
def test_credentials_are_never_kept(form):
    assert parse_remote(form.format("s3cr3t-value")) == ("github.com", "a", "b")


def test_the_api_of_an_enterprise_host_is_on_the_host():
    assert api_url_of("github.com") == "https://api.github.com"
    assert api_url_of("ghe.corp.example:8443") == "https://ghe.corp.example:8443/api/v3"
