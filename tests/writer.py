"""A process that works on one memory until told otherwise; it prints a line for each thing that it acknowledges.

`python writer.py ROOT append NAME COUNT BYTES`: append COUNT entries, print the text of each after it is stored.
`python writer.py ROOT clean`: clean, forget and restore in a loop until standard input closes.
"""

import select
import sys
from datetime import timedelta
from pathlib import Path

from oryx_memory import LongTermMemoryStore, NothingFound, Policy, changes, open_memory


def append(store: LongTermMemoryStore, name: str, count: int, size: int) -> None:
    for number in range(count):
        start = f"{name}-{number}-记 "
        entry = store.append(start + "x" * max(0, size - len(start.encode())))
        print(entry.text.partition("] ")[2].partition(" ")[0], flush=True)


def clean(store: LongTermMemoryStore) -> None:
    policy = Policy(older_than=timedelta(0), keep_entries=5, force=True)
    runs = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        change = store.clean(policy).change
        runs += bool(change.retire)
        if change.retire and runs % 3 == 0:
            try:
                store.edit(changes.restore_run(change.run))
            except NothingFound:
                pass
    print(runs, flush=True)


if __name__ == "__main__":
    root, job, *rest = sys.argv[1:]
    memory = open_memory("ops", root=Path(root), lock_timeout=60)
    if job == "append":
        append(memory, rest[0], int(rest[1]), int(rest[2]))
    else:
        clean(memory)
