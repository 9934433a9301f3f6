"""Issues of a repository without a forge: Markdown files `.swarm/issues/<N>.md` whose first line is the title."""

from __future__ import annotations

from pathlib import Path

from swarm_core.errors import ExternalFailure
from swarm_core.forge import Issue, split_title


class LocalIssues:
    def __init__(self, repo_path: str | Path) -> None:
        self._root = Path(repo_path).resolve()

    def get_issue(self, number: int) -> Issue | None:
        path = (self._root / ".swarm" / "issues" / f"{int(number)}.md").resolve()
        if number < 1 or not path.is_relative_to(self._root) or not path.is_file():
            return None
        try:
            text = path.read_text(encoding="utf-8-sig", errors="replace")
        except OSError as error:
            raise ExternalFailure(
                f"cannot read issue {number}: {error.strerror}", hint=f"Check {path}.", details={"path": str(path)}
            ) from error
        title, body = split_title(text)
        return Issue(number, title or f"Issue {number}", body, path.as_uri())

    def list_issues(self, *, limit: int) -> list[Issue]:
        """Highest number first: files tell nothing better of what is new."""
        names = [path.stem for path in (self._root / ".swarm" / "issues").glob("*.md")]
        numbers = sorted((int(n) for n in names if n.isascii() and n.isdigit()), reverse=True)
        found = (self.get_issue(number) for number in numbers[:limit])
        return [issue for issue in found if issue is not None]
