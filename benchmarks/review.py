"""Reviewing in git at size: `diff`, `check`, and a merge with the driver, each in repositories made for it.

The issue asks for "in seconds", so these rows have no target: the seconds stand there, and beside them what git or a
plain reading takes on the same data. What is measured must also be right: a merge that lacks a line, a diff with
another number of changes, or a check that finds something in a clean memory ends the run.
"""

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from measuring import Place, Plan, Row, entries, interleaved, program, run

from oryx_memory import git
from oryx_memory.workspace import initialise

READ = "import sys, oryx_memory; oryx_memory.open_memory(sys.argv[2], root=sys.argv[1]).read()"


def review_rows(place: Place, plan: Plan) -> Iterator[Row]:
    yield from diff_rows(repository(place.folder / "compared"), plan)
    yield from check_rows(repository(place.folder / "checked"), plan)
    yield from merge_rows(place.folder, plan)


def repository(folder: Path, *, driver: bool = True) -> Place:
    """An empty repository with a workspace; without the driver as in a clone in which nobody has run `init`."""
    folder.mkdir()
    run(["git", "init", "-q", "-b", "main", str(folder)])
    list(initialise(folder))
    if driver:
        git.install_driver(folder)
    return Place(folder)


def in_git(place: Place, *arguments: str) -> bytes:
    return run(["git", "-C", str(place.folder), *arguments])


def commit(place: Place, message: str) -> None:
    in_git(place, "add", "-A")
    in_git(place, "commit", "-q", "-m", message)


def diff_rows(place: Place, plan: Plan) -> Iterator[Row]:
    """Half of the changes are edits by hand, the dearer kind, whose two sides have to be found by their likeness."""
    half = plan.middle // 2
    lines = list(entries(plan.middle + half, distinct=True))
    place.write("ops", "".join(lines[: plan.middle]).encode())
    commit(place, "记忆")
    edited = [f"{line[:-1]} 已更新\n" for line in lines[:half]]
    place.write("ops", "".join([*edited, *lines[half:]]).encode())
    oryx = [program("oryx"), "memory", "diff", "--root", str(place.root), "-a", "ops"]
    found = run(oryx).count(b"\n")
    if found != 3 * half:
        raise SystemExit(f"diff shows {found:,} lines, and there are two for each of {half:,} edits and {half:,} more")
    plain = partial(in_git, place, "diff", "--", str(place.file("ops")))
    times = interleaved({"oryx": partial(run, oryx), "git": plain}, plan.slow_rounds)
    yield Row(f"cold oryx memory diff, {2 * half:,} changes / git diff", times["oryx"], times["git"], unit="s")


def check_rows(place: Place, plan: Plan) -> Iterator[Row]:
    place.write("ops", "".join(entries(plan.large, distinct=True)).encode())
    commit(place, "记忆")
    oryx = [program("oryx"), "memory", "check", "--root", str(place.root)]
    if found := run(oryx, check=False):
        raise SystemExit(f"check finds something in a clean memory: {found.decode().splitlines()[0]}")
    read = [sys.executable, "-c", READ, str(place.root), "ops"]
    times = interleaved({"oryx": partial(run, oryx), "read": partial(run, read)}, plan.slow_rounds)
    what = f"cold oryx memory check, {plan.large:,} entries / cold reading and parsing"
    yield Row(what, times["oryx"], times["read"], unit="s")


def merge_rows(folder: Path, plan: Plan) -> Iterator[Row]:
    """Both branches add at the end, which is a conflict for git alone. Its baseline is as much text that it can merge:
    one branch's lines stand at the front.
    """
    lines = list(entries(plan.middle + 2 * plan.branch, distinct=True))
    base, ours, theirs = lines[: plan.middle], lines[plan.middle :: 2], lines[plan.middle + 1 :: 2]
    places = {
        "driver": branches(repository(folder / "merged"), base, [*base, *ours], [*base, *theirs]),
        "text": branches(repository(folder / "plain", driver=False), base, [*base, *ours], [*theirs, *base]),
    }
    times = interleaved(
        {name: partial(in_git, place, "merge", "-q", "--no-edit", "theirs") for name, place in places.items()},
        plan.slow_rounds,
        {name: partial(in_git, place, "reset", "-q", "--hard", "ours") for name, place in places.items()},
    )
    for name, place in places.items():
        merged = place.file("ops").read_text(encoding="utf-8").splitlines(keepends=True)
        if sorted(merged[-len(lines) :]) != sorted(lines):
            raise SystemExit(f"{place.file('ops')}: the merge ({name}) has not exactly the lines of both branches")
    what = f"git merge of 2 x {plan.branch:,} entries into {plan.middle:,}, with the driver / as text"
    yield Row(what, times["driver"], times["text"], unit="s")


def branches(place: Place, base: Sequence[str], ours: Sequence[str], theirs: Sequence[str]) -> Place:
    """Commit `base`, from it `theirs` on a branch, and `ours` on the one that stays checked out, tagged `ours`."""
    for version, switch in ((base, ()), (theirs, ("-b", "theirs")), (ours, ("main",))):
        if switch:
            in_git(place, "checkout", "-q", *switch)
        place.write("ops", "".join(version).encode())
        commit(place, "记忆")
    in_git(place, "tag", "ours")
    return place
