"""The last words of a rank: a file that torchelastic reads, so that whoever started the ranks tells them."""

import json
import os
import time
from pathlib import Path
from typing import Final

FILE: Final = "TORCHELASTIC_ERROR_FILE"
DOING: Final = "doing"
"""Key of what the rank was doing: an error at the same place after a new start is no passing one."""


def leave_words(text: str, trace: str = "", doing: str = "") -> None:
    """Write why this rank ends and in the middle of what, where its launcher looks; nothing without one.

    The file appears whole: a rank may be ended while it writes, and torchelastic fails over half a file.
    """
    path = os.environ.get(FILE)
    if not path:
        return
    more = {"py_callstack": trace or text, "timestamp": str(int(time.time())), DOING: doing}
    draft = Path(f"{path}.draft")
    draft.write_text(json.dumps({"message": {"message": text, "extraInfo": more}}), encoding="utf-8")
    draft.replace(path)
