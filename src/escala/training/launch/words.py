"""The last words of a rank: a file that torchelastic reads, so that whoever started the ranks tells them."""

import json
import os
import time
from pathlib import Path
from typing import Final

FILE: Final = "TORCHELASTIC_ERROR_FILE"


def leave_words(text: str, trace: str = "") -> None:
    """Write why this rank ends, where its launcher looks for it; nothing where no launcher does.

    The file appears whole: a rank may be ended while it writes, and torchelastic fails over half a file.
    """
    path = os.environ.get(FILE)
    if not path:
        return
    more = {"py_callstack": trace or text, "timestamp": str(int(time.time()))}
    draft = Path(f"{path}.draft")
    draft.write_text(json.dumps({"message": {"message": text, "extraInfo": more}}), encoding="utf-8")
    draft.replace(path)
