"""Files that are read inside one directory and nowhere else."""

import logging
import os
import stat
from pathlib import Path

_log = logging.getLogger("helix_sessions.context")


def read_inside(root: Path, path: Path, max_bytes: int) -> str | None:
    """The text of a file inside a resolved root; `None` if there is none. A link that leads out of the
    root is passed over. Of a longer file the rest is left out, and the text says so."""
    try:
        real = path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if not real.is_relative_to(root):
        _log.warning("%s leads outside of %s, and is not read.", path, root)
        return None
    # The last part is no link any more; should it become one now, it is not followed.
    file = os.open(real, os.O_RDONLY | os.O_NONBLOCK | getattr(os, "O_NOFOLLOW", 0))
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        return None
    with os.fdopen(file, "rb") as opened:
        content = opened.read(max_bytes + 1)
    text = content[:max_bytes].decode(errors="replace")
    return text if len(content) <= max_bytes else f"{text}\n[The file is longer.]"
