"""The folder of a watch completed: run.json and watch.json beside what was sampled. Sums up nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from escala.errors import InvalidInput
from escala.measurement.watch.command import Held
from escala.measurement.watch.run import Request, watch
from escala.measurement.watch.watched import Watched
from escala.report.runfile import save_run
from escala.wholefile import write_whole

RUN: Final = "run.json"
SUMMARY: Final = "watch.json"


def watched(asked: Request, held: Held, say: Callable[[str], None]) -> Watched:
    """Run and sample a command, and write its record and the summary of the watch."""
    found = watch(asked, held, say)
    try:
        if found.run is not None:
            save_run(found.run, str(Path(found.folder) / RUN))
        content = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
        write_whole(Path(found.folder) / SUMMARY, content)
    except InvalidInput as error:  # the exit code stays that of the command
        say(str(error))
    return found
