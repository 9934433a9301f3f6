"""The configuration our tmux server starts with; the person's ~/.tmux.conf is never read.

Every option is set quietly (-q): one that a tmux version does not know must not show an error in an agent's pane.
"""

from __future__ import annotations

from pathlib import Path

from swarm_core import files

DEFAULT_HISTORY_LIMIT = 5000

_TEMPLATE = """\
# Written by swarm; changes are overwritten.
# The screen and the exit code of a program stay until swarm has read them.
set -gq remain-on-exit on
set -gq remain-on-exit-format ""
set -gq history-limit {history_limit}
set -sq exit-empty on
set -gq destroy-unattached off
set -gq detach-on-destroy on

# Output of a program may not rename, ring, copy or reach the outer terminal.
set -gq allow-rename off
set -gq automatic-rename off
set -gq allow-set-title off
set -gq set-titles off
set -sq set-clipboard off
set -sq get-clipboard off
set -gq allow-passthrough off
set -gq monitor-bell off
set -gq bell-action none
set -gq visual-bell off
set -gq monitor-activity off

# Nothing of the environment of an attaching client is taken over.
set -gq update-environment ""

set -sq default-terminal tmux-256color
set -sq escape-time 10
set -sq focus-events off
set -gq mouse on
set -gq window-size latest
set -gq aggressive-resize off

# Pasting into an ended program ends the whole server of tmux 3.3; renaming would hide an instance.
unbind-key -T prefix =
unbind-key -T root MouseDown2Pane
unbind-key -T prefix $
bind-key -T prefix ] if-shell -F "#{{pane_dead}}" "display-message 'the program has ended'" "paste-buffer -p"

set -gq status on
set -gq status-interval 0
set -gq status-style "bg=colour236,fg=colour252"
set -gq status-left " #{{session_name}}#{{?pane_dead, (ended),}} "
set -gq status-left-length 80
set -gq status-right " C-b d leaves it running "
set -gq status-right-length 40
set -gq window-status-format ""
set -gq window-status-current-format ""
"""


def write_config(path: Path, *, history_limit: int = DEFAULT_HISTORY_LIMIT) -> bool:
    """Write the configuration (0600) if it differs, whole or not at all; says whether it was written."""
    text = _TEMPLATE.format(history_limit=history_limit)
    if path.is_file() and path.read_text(errors="replace") == text and path.stat().st_mode & 0o777 == 0o600:
        return False
    files.write_private(path, text.encode())
    return True
