"""Starts ranks as the command line does; prints how it ended as one JSON line."""

import json
import sys
from pathlib import Path

from escala.training.launch import RunFailed, start

if __name__ == "__main__":
    work, folder, ranks, restarts = sys.argv[1:]
    told: list[str] = []
    end, code = "done", 0
    try:
        start(
            int(ranks),
            f"start_work:{work}",
            [folder],
            folder=Path(folder) / "run",
            restarts=int(restarts),
            tell=told.append,
        )
    except RunFailed as failed:
        end, code = str(failed), failed.exit_code
    except KeyboardInterrupt:
        end, code = "interrupted", 130
    print(json.dumps({"end": end, "code": code, "told": told}))
