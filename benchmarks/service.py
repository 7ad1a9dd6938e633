"""What the service adds: the memory block of 1,000 entries against reading and parsing their file, as the issue has it,
and a recall against that of the store itself.
"""

from collections.abc import Callable, Iterator
from functools import partial

from measuring import Place, Plan, Row, entries, interleaved

from oryx_memory import MemoryService, Scope, Workspace, current_agent, settings
from oryx_memory.document import MemoryDocument

CONTEXT_TARGET = 2.0
SIZE = 1_000
KEYWORD = "灰度回滚"


def service_rows(place: Place, plan: Plan) -> Iterator[Row]:
    place.write("served", "".join(entries(SIZE)).encode())
    service = MemoryService(Workspace(place.root), settings=settings.load(place.root, {}))
    store, file = place.store("served"), place.file("served")
    cases: dict[str, Callable[[], object]] = {
        "context": service.build_context,
        "parse": lambda: [*map(MemoryDocument(file.read_bytes()).entries, Scope)],
        "recall": partial(service.recall, KEYWORD),
        "store": partial(store.recall_by_keyword, KEYWORD),
    }
    with current_agent("served"):
        found = interleaved(cases, plan.append_rounds)
    what = f"build_context, {SIZE:,} entries / reading and parsing"
    yield Row(what, found["context"], found["parse"], CONTEXT_TARGET)
    yield Row(f"  recall of the service, {SIZE:,} entries / of the store", found["recall"], found["store"])
