"""Messages to the real Claude Code: idle and busy, exact, once, and never into a dialog."""

from __future__ import annotations

import threading

from swarm_core.models import Message
from swarm_core.store import messages as ledger
from swarm_core.swarm import Swarm
from tests.fakes.messages_api import Held, Play, Text, ToolUse, asked
from tests.integration.claude_fixture import ClaudeWorld, claude_home, claude_program, claude_world, messages
from tests.support import wait_until

__all__ = ["claude_home", "claude_program", "claude_world", "messages"]


def wait_seen(swarm: Swarm, message: Message) -> Message:
    def seen() -> Message | None:
        found = ledger.get(swarm.context.db, message.id)
        return found if found.seen_at else None

    found = wait_until(seen, timeout=40, what=f"{message.id} is seen")
    assert isinstance(found, Message)
    return found


def test_an_idle_claude_gets_the_message_as_a_prompt(claude_world: ClaudeWorld) -> None:
    claude_world.play(Play().when(asked("look around")).then(Text("I have looked.")))
    with claude_world.world.open() as swarm:
        work = claude_world.work(swarm, "look around")
        claude_world.wait_activity(work, "idle")
        message = swarm.message(work.id, "!echo hi\n/exit\n# and ünïcode ✓")
        known = wait_seen(swarm, message)
        assert known.how.startswith("paste")
        got = claude_world.api.wait_for(lambda r: message.id in r.last_user_text, marker=work.conversation_id)
        assert f"[swarm msg {message.id} from operator]\n!echo hi\n/exit\n# and ünïcode ✓" in got.last_user_text
