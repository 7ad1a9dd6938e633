"""The benchmarks run and give every row its figures. How good these are is judged by people, not here."""

import math
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from command import real

BENCH = Path(__file__).parent.parent / "benchmarks" / "bench.py"
ROWS = """\
cold oryx memory append / cold import typer
cold oryx memory load / cold import typer
cold oryx memory recall / cold import typer
for comparison: cold python -c 'import typer'
for comparison: cold python -c pass
for comparison: sh -c 'echo >> file'
append to N entries / append to N
for comparison: append after another program wrote (N entries)
for comparison: read, add, write anew (N entries)
for comparison: open, write, fsync
append to N MB / append to N
append with the journal / without it (N entries)
for comparison: append that fills a journal segment (N) / reading and parsing
recall, English keyword, N hits of N / read, decode, count
recall, Chinese keyword, N hits of N / read, decode, count
recall, full-width keyword, N hits of N / read, decode, count
peak memory of append, N MB / size of the file
peak memory of load, N MB / size of the file
peak memory of recall, N MB / size of the file
for comparison: peak memory of the imports alone
peak memory of migrating N entries / N, imports included
sqlite: cold oryx memory append, N entries / cold import typer
sqlite: cold oryx memory recall, N entries / cold import typer
sqlite: append to N / append to N
sqlite: recall, English keyword of N / on markdown
sqlite: recall, Chinese keyword of N / on markdown
sqlite: recall, full-width keyword of N / on markdown
migrate N entries to sqlite / reading and parsing the file
cold oryx memory diff, N changes / git diff
cold oryx memory check, N entries / cold reading and parsing
git merge of N x N entries into N, with the driver / as text
indexing, for N of N entries / N ms
indexing one more entry of N / appending it
index of N entries / MEMORY.md
indexing, for N of N entries / N ms
indexing one more entry of N / appending it
index of N entries / MEMORY.md
indexing, for N of N entries / N ms
indexing one more entry of N / appending it
index of N entries / MEMORY.md
ranked recall, warm, N entries / N ms
for comparison: keyword recall on markdown, N entries
for comparison: keyword recall on sqlite, N entries
ranked recall, warm, N entries / N ms
for comparison: keyword recall on markdown, N entries
for comparison: keyword recall on sqlite, N entries
ranked recall, warm, N entries / N ms
for comparison: keyword recall on markdown, N entries
for comparison: keyword recall on sqlite, N entries
making and storing vectors, for N of N dimensions, N entries / hashing them
vectors of N dimensions, N entries, in the index / MEMORY.md
making and storing vectors, for N of N dimensions, N entries / hashing them
vectors of N dimensions, N entries, in the index / MEMORY.md
making and storing vectors, for N of N dimensions, N entries / hashing them
vectors of N dimensions, N entries, in the index / MEMORY.md
ranked recall with vectors, warm, N dimensions, N entries / N ms
ranked recall with vectors, warm, N dimensions, N entries / N ms
ranked recall with vectors, warm, N dimensions, N entries / N ms
making and storing vectors, for N of N dimensions, N entries / hashing them
vectors of N dimensions, N entries, in the index / MEMORY.md
making and storing vectors, for N of N dimensions, N entries / hashing them
vectors of N dimensions, N entries, in the index / MEMORY.md
making and storing vectors, for N of N dimensions, N entries / hashing them
vectors of N dimensions, N entries, in the index / MEMORY.md
ranked recall with vectors, warm, N dimensions, N entries / N ms
ranked recall with vectors, warm, N dimensions, N entries / N ms
ranked recall with vectors, warm, N dimensions, N entries / N ms
cold oryx memory recall --mode ranked, N entries / cold import typer
cold oryx memory recall --mode ranked, N entries / cold import typer
cold oryx memory recall --mode ranked, N entries / cold import typer
peak memory of ranked recall, N entries / of the imports
peak memory of ranked recall, N entries / of the imports
peak memory of ranked recall, N entries / of the imports
build_context, N entries / reading and parsing
recall of the service, N entries / of the store
MCP: start to first answer / importing the SDK
peak memory of the MCP server / of importing the SDK
""".splitlines()


def test_a_quick_run_has_every_row_with_finite_figures_and_a_picture_where_matplotlib_is(tmp_path: Path) -> None:
    picture = tmp_path / "results" / "bench.png"
    done = real([sys.executable, str(BENCH), "--quick", "--markdown", "--plot", str(picture)])
    assert done.code == 0, done.err
    table = [line.strip("| ").split(" | ") for line in done.out.splitlines() if line.startswith("| ")][2:]
    names = [re.sub(r"\d+(,\d{3})*", "N", what) for what, *_ in table]
    assert [name for name in names if "grep" not in name] == ROWS
    for what, *cells in table:
        measured, baseline, ratio = (float(cell.split()[0].replace(",", "")) for cell in cells[:3])
        assert all(math.isfinite(figure) for figure in (measured, baseline, ratio)), what
        assert ratio > 0, what
    if find_spec("matplotlib"):
        assert picture.read_bytes().startswith(b"\x89PNG")
        assert done.err == f"plot: {picture}\n"
    else:
        assert done.err == "plot: needs matplotlib; pip install --editable '.[bench]' brings it\n"
