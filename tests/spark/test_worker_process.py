"""Workers of Spark's: what they do once."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import gc, os
from kfast.spark.source.read_task import freeze_modules

class Loop:
    def __init__(self):
        self.me = self

def frozen():
    freeze_modules()
    return gc.get_freeze_count()

old = Loop()
one = frozen()
new = Loop()
two = frozen()
known = gc.get_objects()
print(any(each is old for each in known), any(each is new for each in known))
print(one > 1000 and two == one)
child = os.fork()
if child == 0:
    os._exit(frozen() <= one)  # more was made since, and it is another process
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_what_is_there_after_the_first_task_is_left_alone_by_the_collector() -> None:
    line = [sys.executable, "-c", CODE]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "True", "True", "0"], done.stderr
