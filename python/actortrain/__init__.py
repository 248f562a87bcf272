"""Trains language models with the program `actortrain`: a process for each run.

    import actortrain as at
    run = at.run("quickstart.toml", set={"optimizer.lr": 3e-4})
    for metrics in run:
        print(metrics["step"], metrics.get("loss"))

Everything a run is lies in its directory: this package keeps nothing of its own. Each function is
one command of the program, whose help (`actortrain COMMAND --help`) says what its options do.
"""

from ._board import Board
from ._commands import Generation, RunInfo, evaluate, export, generate, plan, prepare, runs, schema
from ._errors import ActorTrainError, Failure, Mistake
from ._log import TrackerError, log
from ._program import program, version
from ._run import Run, run

__all__ = [
    "ActorTrainError",
    "Board",
    "Failure",
    "Generation",
    "Mistake",
    "Run",
    "RunInfo",
    "TrackerError",
    "evaluate",
    "export",
    "generate",
    "log",
    "plan",
    "prepare",
    "program",
    "run",
    "runs",
    "schema",
    "version",
]
