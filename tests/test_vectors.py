"""Vectors of the index: made once, never of what should not be sent, never mixed, and the search the same everywhere."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import PATIENCE
from conftest import BACKENDS, NOW, Opener
from hypothesis import given
from hypothesis import strategies as st

from oryx_memory import LongTermMemoryStore, OryxMemoryWarning, Workspace, breaker, changes, settings, stores, vectors
from oryx_memory.embeddings import Embedder, Kind
from oryx_memory.errors import ServiceProblem
from oryx_memory.index import Index, after_purge
from oryx_memory.recall import ranked
from oryx_memory.workspace import initialise, named

MEANING = {"部署": 0, "deploy": 0, "花生": 1, "peanut": 1, "周报": 2, "report": 2, "key": 3, "钥匙": 3}


@pytest.fixture(params=BACKENDS)
def open_store(request: pytest.FixtureRequest, workspace: Workspace) -> Opener:
    """As everywhere, for the local backends: the index is of these."""

    def opened(agent: str | None = "ops", now: datetime = NOW) -> LongTermMemoryStore:
        chosen = settings.load(workspace.root, {}, {"backend": request.param})
        return stores.open(workspace, chosen, agent, lambda: now)

    return opened


class Model(Embedder):
    """Knows that words in two languages mean the same. `act` is called with the texts before each answer."""

    def __init__(self, name: str = "model", dimensions: int = 6, act: Callable[[Sequence[str]], None] = list) -> None:
        self.model = name
        self.batch = 3
        self.max_chars = 1000
        self.asked: list[str] = []
        self.queries: list[str] = []
        self._act = act
        self._size = dimensions

    def _answer(self, texts: Sequence[str], kind: Kind) -> Any:
        self._act(texts)
        (self.queries if kind == "query" else self.asked).extend(texts)
        rows = np.zeros((len(texts), self._size))
        for row, text in zip(rows, texts, strict=True):
            for word, place in MEANING.items():
                row[place] += 8 * text.count(word)
            row[4] = 1
            row[5] = 1 + sum(text.encode()) % 7  # so that nearly every text has a vector of its own
        return rows

    def _fault(self, message: str, *, heals: bool = False, of_texts: bool = False) -> ServiceProblem:
        return ServiceProblem(self.model, message, heals=heals, of_texts=of_texts)


def opened(workspace: Workspace) -> Index:
    return vectors.open_index(workspace.index_file)


def standard(workspace: Workspace) -> Index:
    return Index.open(workspace.index_file)


def filled(store: LongTermMemoryStore, *texts: str) -> LongTermMemoryStore:
    for number, text in enumerate(texts or ("部署前先备份", "花生过敏的是张三", "周报发给李雷", "where the 钥匙 is")):
        store.append(text, time=NOW - timedelta(minutes=100 - number))
    return store


def embed(workspace: Workspace, store: LongTermMemoryStore, model: Embedder, **options: Any) -> vectors.Report:
    with opened(workspace) as index:
        return vectors.embed(index, store, model, **options)


def ask(
    workspace: Workspace, store: LongTermMemoryStore, query: str, model: Embedder, **options: Any
) -> tuple[list[str], vectors.Semantic, Mapping[str, str]]:
    """What a ranked recall finds by meaning, its route afterwards, and why routes took no part."""
    semantic = vectors.Semantic(model, options.get("settings", "s"), lambda: options.get("clock", NOW))
    with options.get("open", standard)(workspace) as index:
        hits, skipped = ranked(store, index, query, now=NOW, semantic=semantic)
    return [hit.entry.content for hit in hits if "semantic" in hit.routes], semantic, skipped


def sound(workspace: Workspace, store: LongTermMemoryStore) -> list[str]:
    with opened(workspace) as index:
        return vectors.verify(index, index.update(store))


# Finding by meaning.


@pytest.mark.parametrize("open_index", [opened, standard])
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("deploy", "部署前先备份"),
        ("peanut", "花生过敏的是张三"),
        ("report", "周报发给李雷"),
        ("key", "where the 钥匙 is"),
    ],
)
def test_an_entry_is_found_that_shares_no_word_with_the_query(
    query: str, first: str, open_index: Any, store: LongTermMemoryStore, workspace: Workspace
) -> None:
    embed(workspace, filled(store), Model())
    assert ask(workspace, store, query, Model(), open=open_index)[0][0] == first


def test_recall_asks_for_its_query_once_and_for_nothing_else(open_store: Opener, workspace: Workspace) -> None:
    one, two, model = filled(open_store("one")), filled(open_store("two")), Model()
    for store in (one, two):
        embed(workspace, store, model)
        store.append("new 部署", time=NOW)
    asked = list(model.asked)
    semantic = vectors.Semantic(model, "s", lambda: NOW)
    with opened(workspace) as index:
        for store in (one, two):
            ranked(store, index, "deploy", now=NOW, semantic=semantic)
    assert (model.asked, model.queries) == (asked, ["deploy"])
    assert (semantic.lacking, semantic.entries, semantic.trouble) == (2, 10, "")


def test_where_there_is_no_vector_the_model_is_not_asked(store: LongTermMemoryStore, workspace: Workspace) -> None:
    found, semantic, skipped = ask(workspace, filled(store), "deploy", model := Model())
    assert (found, model.queries, semantic.lacking) == ([], [], 4)
    assert "oryx memory index" in skipped["semantic"]


def test_a_query_with_a_credential_is_not_embedded(store: LongTermMemoryStore, workspace: Workspace) -> None:
    embed(workspace, filled(store), Model())
    _, _, skipped = ask(workspace, store, "password: hunter2x!9Q", model := Model())
    assert (model.queries, "credential" in skipped["semantic"]) == ([], True)


def test_a_query_in_a_script_that_the_model_does_not_know_is_not_embedded(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    class English(Model):
        scripts = frozenset({"Latn"})

    embed(workspace, filled(store), English())
    found, _, skipped = ask(workspace, store, "谁对花生过敏", model := English())
    assert (found, model.queries) == ([], [])
    assert "does not know" in skipped["semantic"]
    assert ask(workspace, store, "peanut", English())[0]


@given(similar=st.dictionaries(st.integers(), st.floats(-1, 1), max_size=40))
def test_what_a_model_gives_to_anything_is_no_hit(similar: dict[int, float]) -> None:
    found = vectors.above(similar)
    assert all(score > 0 for score in found.values())
    assert all(similar[key] > vectors.FLOOR for key in found)
    scores = [found[key] for key in sorted(found, key=similar.__getitem__)]
    assert scores == sorted(scores)
    if len(similar) >= vectors.ENOUGH:
        assert len(found) < len(similar)


# The same answers with sqlite-vec and without.


rows = st.lists(st.floats(-1, 1, width=16), min_size=3, max_size=3).filter(lambda row: sum(x * x for x in row) > 0.1)


@given(
    first=st.lists(rows, min_size=1, max_size=9),
    gone=st.sets(st.integers(0, 8)),
    later=st.lists(rows, max_size=4),
    query=rows,
)
def test_the_chunks_and_the_cache_and_the_search_of_vec0_give_the_same_order(
    first: list[list[float]],
    gone: set[int],
    later: list[list[float]],
    query: list[float],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("same")
    list(initialise(folder))
    place = named(folder)
    store = stores.open(place, settings.load(place.root, {}), "ops", lambda: NOW)

    class Given(Model):
        dimensions = 3

        def _answer(self, texts: Sequence[str], kind: Kind) -> Any:
            return np.array([(first + later)[int(text)] for text in texts], float)

    filled(store, *map(str, range(len(first))))
    with opened(place) as index:
        vectors.embed(index, store, Given())
        for number in gone:
            if number < len(first):
                store.edit(changes.forget(store.recall_by_keyword(str(number))[0].id))
        for number in range(len(first), len(first + later)):
            store.append(str(number), time=NOW)
        memory = index.update(store)
        asked = (np.array(query) / np.linalg.norm(query)).astype(np.float32)
        for _ in range(2):  # with what is stale in the table, and after it was taken out
            limit = len(first) + len(later)
            one = vectors.nearest(index, memory, 1, asked, limit)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(vectors, "_from_chunks", lambda *_: None)
                two = vectors.nearest(index, memory, 1, asked, limit)
            assert one == pytest.approx(two, abs=1e-5)
            for found in (one, two):
                assert list(found.values()) == sorted(found.values(), reverse=True)
            few = vectors.nearest(index, memory, 1, asked, 2)
            assert list(few.values()) == pytest.approx(list(one.values())[:2], abs=1e-5)
            vectors.embed(index, store, Given())
        assert len(one) == len(store.read().archival)
        sql = "SELECT rowid, 1 - distance FROM vectors_1 WHERE memory = ? AND vector MATCH ? AND k = ?"
        its_own = dict(index.connection.execute(sql, (memory, asked.tobytes(), limit)).fetchall())
        assert its_own == pytest.approx(one, abs=1e-5)
        assert vectors.verify(index, memory) == []


@pytest.mark.parametrize("query", ["⇄ ", "rowav", "qqq"])
def test_what_holds_a_query_without_known_words_is_found_beside_what_means_it(
    query: str, store: LongTermMemoryStore, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "CANDIDATES", 1)
    embed(workspace, filled(store, "部署 ⇄ b qqqq", "部署 microwave", "this and that"), Model())
    assert ask(workspace, store, query, Model())[0] == ["this and that"]
    with standard(workspace) as index:
        semantic = vectors.Semantic(Model(), "s", lambda: NOW)
        best = ranked(store, index, query, now=NOW, semantic=semantic).hits[0]
    assert (query.strip() in best.entry.content, best.routes["exact"]) == (True, 1)


@pytest.mark.parametrize("open_index", [opened, standard])
def test_among_what_fits_the_most_similar_are_found(
    open_index: Any, store: LongTermMemoryStore, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "CANDIDATES", 2)
    embed(workspace, filled(store, "花生 周报 部署 #rare", *(f"peanut {n}" for n in range(5))), Model())
    semantic = vectors.Semantic(Model(), "s", lambda: NOW)
    with open_index(workspace) as index:
        hits = ranked(store, index, "花生米", now=NOW, semantic=semantic, fits=lambda entry: "rare" in entry.tags).hits
    assert [hit.entry.content for hit in hits if "semantic" in hit.routes] == ["花生 周报 部署 #rare"]


@pytest.mark.parametrize("open_index", [opened, standard])
def test_the_chunks_are_what_is_searched(
    open_index: Any, store: LongTermMemoryStore, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(workspace, filled(store), Model())
    monkeypatch.delattr(vectors, "_from_cache")
    assert ask(workspace, store, "peanut", Model(), open=open_index)[0][0] == "花生过敏的是张三"


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE vectors_1_chunks SET validity = zeroblob(length(validity))",
        "UPDATE vectors_1_chunks SET rowids = zeroblob(8)",
        "UPDATE vectors_1_vector_chunks00 SET vectors = zeroblob(3)",
        "DELETE FROM vectors_1_vector_chunks00",
    ],
)
def test_chunks_that_are_not_as_they_should_be_are_not_searched(
    damage: str, store: LongTermMemoryStore, workspace: Workspace
) -> None:
    """As a later version of sqlite-vec might leave them."""
    embed(workspace, filled(store), Model())
    with standard(workspace) as index:
        index.connection.execute(damage)
    assert ask(workspace, store, "peanut", Model())[0][0] == "花生过敏的是张三"


def test_the_standard_library_reads_and_writes_a_file_that_has_vec0_tables(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    embed(workspace, filled(store), Model())
    store.edit(changes.forget(store.recall_by_keyword("花生")[0].id))
    store.append("peanut butter", time=NOW)
    with standard(workspace) as index:
        assert isinstance(index.connection, sqlite3.Connection)
        assert index.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert not ranked(store, index, "花生", now=NOW).hits
        assert ranked(store, index, "butter", now=NOW).hits[0].entry.content == "peanut butter"
        index.connection.execute("VACUUM")
    assert sound(workspace, store) == []
    embed(workspace, store, Model())
    assert ask(workspace, store, "花生", Model())[0][0] == "peanut butter"
    assert sound(workspace, store) == []


def test_vectors_made_without_sqlite_vec_are_searched_with_it(store: LongTermMemoryStore, workspace: Workspace) -> None:
    filled(store)
    with standard(workspace) as index:
        vectors.embed(index, store, Model())
    assert ask(workspace, store, "peanut", Model())[0][0] == "花生过敏的是张三"
    assert embed(workspace, store, model := Model()).asked == 0
    assert model.asked == []
    with opened(workspace) as index:
        assert index.connection.execute("SELECT whole FROM filed").fetchall() == [(1,)]
    assert ask(workspace, store, "peanut", Model())[0][0] == "花生过敏的是张三"


def test_a_process_has_the_file_open_through_one_library(store: LongTermMemoryStore, workspace: Workspace) -> None:
    embed(workspace, filled(store), Model())
    with opened(workspace) as one, standard(workspace) as two:
        assert type(one.connection) is type(two.connection) is not sqlite3.Connection
    with standard(workspace) as one, opened(workspace) as two:
        assert type(one.connection) is type(two.connection) is sqlite3.Connection
        semantic = vectors.Semantic(Model(), "s", lambda: NOW)
        assert ranked(store, two, "peanut", now=NOW, semantic=semantic).hits[0].entry.content == "花生过敏的是张三"
    with opened(workspace) as one:
        assert type(one.connection) is not sqlite3.Connection


# What is sent, and how often.


def test_equal_content_is_paid_once(open_store: Opener, workspace: Workspace) -> None:
    model = Model()
    assert embed(workspace, filled(open_store("one")), model).asked == 4
    assert embed(workspace, filled(open_store("two")), model) == (4, 4, 0, {})
    assert sorted(set(model.asked) - {"memory"}) == sorted(entry.content for entry in open_store("one").read().archival)


def test_what_was_restored_edited_back_or_rebuilt_costs_nothing(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    embed(workspace, filled(store), Model())
    entry = store.read().archival[0]
    store.edit(changes.forget(entry.id))
    assert embed(workspace, store, Model()) == (3, 3, 0, {})
    store.edit(changes.restore(entry.id))
    assert embed(workspace, store, Model()) == (4, 4, 0, {})
    with opened(workspace) as index:
        vectors.reset(index, index.rebuild(store))
        assert vectors.embed(index, store, Model()) == (4, 4, 0, {})
        index.connection.execute("UPDATE meta SET value = 'older' WHERE name = 'format'")
    assert embed(workspace, store, Model()) == (4, 4, 0, {})
    assert sound(workspace, store) == []


def test_what_shall_not_be_sent_is_not_sent(store: LongTermMemoryStore, workspace: Workspace) -> None:
    store.append("open", time=NOW)
    store.append("hidden", time=NOW, tags=["private"])
    store.append("password: hunter2x!9Q", time=NOW)
    store.append("触发「问题」⇒ 回答", time=NOW)
    report = embed(workspace, store, model := Model(), exclude_tags=["private"])
    assert report == (3, 1, 1, {"tag": 1, "credential": 1, "footprint": 1})
    assert model.asked == ["memory", "open"]
    assert ask(workspace, store, "x", Model())[1].lacking == 0  # nobody is told to make what shall not be


def test_what_the_model_knows_nothing_of_has_no_vector_and_keeps_nobody_from_theirs(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    """A static model has zeros for what it does not know, and zeros are no vector."""

    class Narrow(Model):
        def knows(self, text: str) -> bool:
            return any(word in text for word in MEANING)

    filled(store, "deploy", "👍", "peanut", "👍")
    for _ in range(2):
        report = embed(workspace, store, model := Narrow())
        assert (report.vectors, report.excluded) == (2, {"unknown": 2})
        assert "👍" not in model.asked
    found, semantic, _ = ask(workspace, store, "花生", Narrow())
    assert (found, semantic.lacking) == (["peanut"], 0)
    assert embed(workspace, store, Model("wider")).vectors == 4
    assert sound(workspace, store) == []


def test_a_line_without_text_has_no_vector(markdown: LongTermMemoryStore, workspace: Workspace) -> None:
    """Endpoints refuse an empty text, and with it all that was sent beside it."""
    filled(markdown, "one", "two")
    with workspace.memory_file("ops").open("a", encoding="utf-8") as file:
        file.write("- [2026-07-22 09:30:00] \n- [2026-07-22 09:30:00] \u3000\n")
    assert embed(workspace, markdown, model := Model()) == (4, 2, 2, {"empty": 2})
    assert [text for text in model.asked if not text.strip()] == []
    assert sound(workspace, markdown) == []


def test_a_tag_that_is_excluded_later_takes_the_vector_away(store: LongTermMemoryStore, workspace: Workspace) -> None:
    store.append("deploy it", time=NOW, tags=["private"])
    assert embed(workspace, store, Model()).vectors == 1
    assert embed(workspace, store, Model(), exclude_tags=["private"]).vectors == 0
    assert ask(workspace, store, "部署", Model())[0] == []
    assert embed(workspace, store, Model()) == (1, 1, 0, {})
    assert sound(workspace, store) == []


def test_nothing_is_locked_while_the_model_is_asked(store: LongTermMemoryStore, workspace: Workspace) -> None:
    def act(texts: Sequence[str]) -> None:
        if len(store.read().archival) < 6:
            store.append(f"meanwhile {len(store.read().archival)}", time=NOW)
            with vectors.open_index(workspace.index_file, timeout=0) as other:
                other.update(store)

    assert embed(workspace, filled(store), Model(act=act)) == (6, 5, 5, {})
    assert embed(workspace, store, Model()) == (6, 6, 1, {})
    assert sound(workspace, store) == []


def test_what_came_before_an_error_is_kept(store: LongTermMemoryStore, workspace: Workspace) -> None:
    def act(texts: Sequence[str]) -> None:
        if "one" in texts:
            raise ServiceProblem("model", "no more", heals=False)

    filled(store, "one", "two", "three", "four", "five")
    with pytest.raises(ServiceProblem):
        embed(workspace, store, Model(act=act))
    assert embed(workspace, store, Model()) == (5, 5, 2, {})


@pytest.mark.parametrize("what", [np.nan, 0.0])
def test_what_is_no_vector_is_not_stored(what: float, store: LongTermMemoryStore, workspace: Workspace) -> None:
    class Broken(Model):
        def _answer(self, texts: Sequence[str], kind: Kind) -> Any:
            return super()._answer(texts, kind) * (what if "two" in texts else 1)

    filled(store, "one", "two", "three", "four", "five")
    with pytest.warns(
        OryxMemoryWarning, match=f"no vector for {store.recall_by_keyword('two')[0].id}: model: vector 1 of 1"
    ):
        report = embed(workspace, store, Broken())
    assert (report.vectors, report.excluded) == (4, {"refused": 1})
    assert sound(workspace, store) == []
    assert embed(workspace, store, Model()) == (5, 5, 1, {})


class Picky(Model):
    """Takes no texts with a word in them, as an endpoint that answers 400."""

    refuses: str | None = "poison"

    def _answer(self, texts: Sequence[str], kind: Kind) -> Any:
        self.queries += texts
        if any(self.refuses is None or self.refuses in text for text in texts):
            raise self._fault("no", of_texts=True)
        return super()._answer(texts, kind)


def test_a_text_that_is_refused_keeps_no_other_from_its_vector(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    filled(store, "one", "poison 1", "two", "poison 2", "poison 3", "three", "four")
    with pytest.warns(
        OryxMemoryWarning, match="no vector for [0-9a-f]{12}, [0-9a-f]{12}, [0-9a-f]{12}: model: no"
    ) as caught:
        report = embed(workspace, store, Picky())
    assert (len(caught), report.vectors, report.asked, report.excluded) == (1, 4, 4, {"refused": 3})
    assert ask(workspace, store, "one", Model())[1].lacking == 0
    assert sound(workspace, store) == []
    assert embed(workspace, store, model := Model()) == (7, 7, 3, {})  # each run tries anew
    assert sorted(model.asked) == ["poison 1", "poison 2", "poison 3"]


def test_a_model_that_takes_no_text_at_all_is_asked_twice(store: LongTermMemoryStore, workspace: Workspace) -> None:
    embed(workspace, filled(store), Model())
    filled(store, *map(str, range(9)))
    model = Picky()
    model.refuses = None
    with pytest.raises(ServiceProblem):
        embed(workspace, store, model)
    assert len(model.queries) == model.batch + 1


def test_a_model_that_refuses_too_much_is_left_alone(store: LongTermMemoryStore, workspace: Workspace) -> None:
    filled(store, *(f"poison {number}" for number in range(40)), "newest")
    with pytest.raises(ServiceProblem):
        embed(workspace, store, model := Picky())
    assert len({text for text in model.queries if "poison" in text}) < vectors.REFUSED + model.batch + 1
    with opened(workspace) as index:
        assert vectors.coverage(index, index.update(store)).vectors == 1


# What changes meanwhile.


def test_a_text_that_changes_while_the_model_is_asked_does_not_get_the_old_ones_vector(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    def act(texts: Sequence[str]) -> None:
        if "three" in texts:
            for text in ("three", "two"):
                store.edit(changes.edit(store.recall_by_keyword(text)[0].id, f"no longer {text}"))
            with opened(workspace) as other:
                other.update(store)

    embed(workspace, filled(store, "one", "two", "three"), Model(act=act))
    assert sound(workspace, store) == []
    assert embed(workspace, store, Model()).asked == 2
    assert sound(workspace, store) == []


def test_a_text_that_comes_while_the_model_is_asked_has_not_the_similarity_of_the_one_that_went(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    embed(workspace, filled(store, "部署", "花生"), Model())
    semantic = vectors.Semantic(Model(), "s", lambda: NOW)

    def slow(*question: Any) -> tuple[Mapping[int, float], str]:
        found = semantic(*question)
        store.edit(changes.edit(store.recall_by_keyword("花生")[0].id, "nothing of the kind"))
        return found

    with opened(workspace) as index:
        hits = ranked(store, index, "peanut", now=NOW, semantic=slow).hits
        assert [hit.entry.content for hit in hits if "semantic" in hit.routes] == ["部署"]
        memory = index.update(store)
        assert index.places(memory + 1, range(9)) == {}


def test_an_agent_that_is_deleted_while_it_is_indexed_leaves_nothing(open_store: Opener, workspace: Workspace) -> None:
    store = filled(open_store("ops"))

    def act(texts: Sequence[str]) -> None:
        with opened(workspace) as other:
            other.prune([open_store("another")])

    assert embed(workspace, store, Model(act=act)).vectors == 0
    with opened(workspace) as index:
        assert index.connection.execute("SELECT count(*) FROM embedded").fetchone() == (0,)
        vectors.prune(index, [open_store("another")])
        assert index.connection.execute("SELECT count(*) FROM embedding").fetchone() == (0,)


def test_another_model_is_never_mixed_with_the_first(store: LongTermMemoryStore, workspace: Workspace) -> None:
    embed(workspace, filled(store), Model("first"))
    found, semantic, _ = ask(workspace, store, "peanut", model := Model("second"))
    assert (found, model.queries) == ([], [])
    assert semantic.trouble == "indexed with first, configured second: run `oryx memory index`"
    assert embed(workspace, store, Model("second")).asked == 4
    assert ask(workspace, store, "peanut", Model("second"))[0][0] == "花生过敏的是张三"
    assert "indexed with second" in ask(workspace, store, "peanut", Model("first"))[1].trouble
    assert embed(workspace, store, Model("first")) == (4, 4, 0, {})
    assert sound(workspace, store) == []


def test_another_dimension_under_the_same_name_is_noticed_and_indexed_anew(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    embed(workspace, filled(store), Model(dimensions=6))
    found, semantic, _ = ask(workspace, store, "peanut", Model(dimensions=8))
    assert (found, "6 dimensions" in semantic.trouble) == ([], True)
    assert embed(workspace, store, Model(dimensions=8)).asked == 4
    assert ask(workspace, store, "peanut", Model(dimensions=8))[0][0] == "花生过敏的是张三"
    assert sound(workspace, store) == []


def test_index_notices_another_dimension_by_itself(store: LongTermMemoryStore, workspace: Workspace) -> None:
    embed(workspace, filled(store), Model(dimensions=6))
    store.append("one more", time=NOW)
    assert embed(workspace, store, Model(dimensions=8)).vectors == 5
    assert sound(workspace, store) == []
    assert ask(workspace, store, "peanut", Model(dimensions=8))[0][0] == "花生过敏的是张三"


def test_a_model_that_is_changed_in_the_middle_of_indexing_is_not_mixed(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    others: list[vectors.Report] = []

    def act(texts: Sequence[str]) -> None:
        if texts != ["memory"] and not others:
            others.append(embed(workspace, store, Model("second", 7)))

    assert embed(workspace, filled(store), Model("first", act=act)).vectors == 4
    assert others[0].vectors == 4
    assert sound(workspace, store) == []
    assert ask(workspace, store, "peanut", Model("first"))[0][0] == "花生过敏的是张三"
    assert embed(workspace, store, Model("second", 7)) == (4, 4, 0, {})
    assert ask(workspace, store, "peanut", Model("second", 7))[0][0] == "花生过敏的是张三"


CHILD = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from test_vectors import Model, embed
from oryx_memory import settings, stores
from oryx_memory.workspace import named
place = named(__import__("pathlib").Path(sys.argv[2]))
store = stores.open(place, settings.load(place.root, {}), "ops")
batches = []
def act(texts):
    batches.append(texts)
    if len(batches) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
embed(place, store, Model(act=act))
"""


def _child(workspace: Workspace, kill_at: int = 0) -> "subprocess.Popen[bytes]":
    words = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(workspace.root), str(kill_at)]
    return subprocess.Popen(words, stderr=subprocess.PIPE)


@pytest.fixture
def markdown(workspace: Workspace) -> LongTermMemoryStore:
    workspace.create_agent("ops")
    return stores.open(workspace, settings.load(workspace.root, {}), "ops", lambda: NOW)


def test_after_a_kill_the_next_run_goes_on(markdown: LongTermMemoryStore, workspace: Workspace) -> None:
    filled(markdown, *(f"entry {number}" for number in range(12)))
    child = _child(workspace, kill_at=4)  # the first is for one word, the others are of three entries
    child.communicate(timeout=PATIENCE)
    assert child.returncode == -signal.SIGKILL
    assert embed(workspace, markdown, Model()) == (12, 12, 6, {})
    assert sound(workspace, markdown) == []


def test_two_processes_index_at_once(markdown: LongTermMemoryStore, workspace: Workspace) -> None:
    filled(markdown, *(f"entry {number}" for number in range(60)))
    children = [_child(workspace) for _ in range(3)]
    assert [(child.communicate(timeout=PATIENCE)[1], child.returncode) for child in children] == [(b"", 0)] * 3
    assert embed(workspace, markdown, Model()) == (60, 60, 0, {})
    assert sound(workspace, markdown) == []


# The breaker.


def _failing(heals: bool) -> Model:
    def act(texts: Sequence[str]) -> None:
        calls.append(texts)
        raise ServiceProblem("shop", "no", heals=heals)

    calls: list[Sequence[str]] = []
    model = Model(act=act)
    model.asked = calls  # type: ignore[assignment]  # how often it was asked
    return model


def test_an_error_that_does_not_heal_is_not_asked_into_again(store: LongTermMemoryStore, workspace: Workspace) -> None:
    embed(workspace, filled(store), Model())
    model = _failing(heals=False)
    for days in range(3):
        found, semantic, skipped = ask(workspace, store, "peanut 花生", model, clock=NOW + timedelta(days=days))
        assert (found, semantic.trouble) == ([], skipped["semantic"])
        assert skipped["semantic"].startswith("shop: no")
        assert len(model.asked) == 1
    ask(workspace, store, "peanut", model, settings="others")
    assert len(model.asked) == 2
    with opened(workspace) as index:
        breaker.note_success(index)  # as `oryx memory index` does
    assert ask(workspace, store, "peanut", Model())[0][0] == "花生过敏的是张三"


def test_an_error_that_heals_is_left_alone_for_a_time_that_doubles(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    embed(workspace, filled(store), Model())
    model, clock = _failing(heals=True), NOW
    waits = []
    for number in range(1, 9):
        ask(workspace, store, "peanut", model, clock=clock)
        assert len(model.asked) == number
        with opened(workspace) as index:
            seconds = next(s for s in range(2000) if not breaker.resting(index, "s", clock + timedelta(seconds=s)))
        waits.append(seconds)
        ask(workspace, store, "peanut", model, clock=clock + timedelta(seconds=seconds - 1))
        assert len(model.asked) == number
        clock += timedelta(seconds=seconds)
    assert waits == [30, 60, 120, 240, 480, 900, 900, 900]
    ask(workspace, store, "peanut", Model(), clock=clock)
    ask(workspace, store, "peanut", model, clock=clock)
    with opened(workspace) as index:
        assert breaker.resting(index, "s", clock + timedelta(seconds=29))
        assert breaker.resting(index, "s", clock + timedelta(seconds=30)) is None  # it began anew
        assert breaker.resting(index, "s", clock - timedelta(days=9)) is None  # a clock that was set back


def test_settings_are_told_apart_and_the_key_cannot_be_read() -> None:
    model = Model()
    options: dict[str, Any] = {"provider": "openai", "base_url": "", "api_key_env": ""}
    plain = breaker.fingerprint(model, options, {"OPENAI_API_KEY": "sk-secret"})
    assert plain == breaker.fingerprint(model, dict(options), {"OPENAI_API_KEY": "sk-secret", "OTHER": "x"})
    others = [
        breaker.fingerprint(model, options, {"OPENAI_API_KEY": "sk-other"}),
        breaker.fingerprint(model, {**options, "base_url": "http://127.0.0.1"}, {"OPENAI_API_KEY": "sk-secret"}),
        breaker.fingerprint(Model("other"), options, {"OPENAI_API_KEY": "sk-secret"}),
    ]
    assert len({plain, *others}) == 4
    assert (len(plain), "secret" in plain) == (16, False)


# Taking away.


def _damaged(statement: str) -> Callable[[Workspace, LongTermMemoryStore], None]:
    def act(workspace: Workspace, store: LongTermMemoryStore) -> None:
        with standard(workspace) as index:
            index.connection.execute(statement)

    return act


def _rebuilt(workspace: Workspace, store: LongTermMemoryStore) -> None:
    with opened(workspace) as index:
        vectors.reset(index, index.rebuild(store))


_PARTS = [f"vectors_1_{part}" for part in ("chunks", "rowids", "vector_chunks00", "info")]
BEFORE = {
    "nothing": lambda workspace, store: None,
    "another format": _damaged("UPDATE meta SET value = '2 old'"),
    "a table that is not filed": _damaged("DELETE FROM filed"),
    "a rebuild": _rebuilt,
    **{f"{part} is gone": _damaged(f"DROP TABLE {part}") for part in _PARTS},
    **{f"{part} is empty": _damaged(f"DELETE FROM {part}") for part in _PARTS},
}


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("purge_with", ["sqlite-vec", "the standard library"])
def test_what_is_purged_leaves_its_vector_nowhere(
    purge_with: str, before: str, store: LongTermMemoryStore, workspace: Workspace
) -> None:
    embed(workspace, filled(store), model := Model())
    secret = store.append("the 4711 key is under the peanut", time=NOW)
    for used in (Model("other", 7), model):
        embed(workspace, store, used)
    digest = vectors._digest(secret.content)
    traces = [digest, *(used.embed([secret.content])[0].tobytes() for used in (model, Model("other", 7)))]

    def left() -> list[bool]:
        data = b"".join(path.read_bytes() for path in workspace.root.rglob("memory-index.db*"))
        return [trace in data for trace in traces]

    assert left() == [True] * 3
    BEFORE[before](workspace, store)
    store.edit(changes.forget(secret.id, purge=True))
    if purge_with == "sqlite-vec":
        after_purge(workspace.index_file, store, 10)
    else:
        with standard(workspace):  # so that the file is opened through it
            after_purge(workspace.index_file, store, 10)
    assert left() == [False] * 3
    assert sound(workspace, store) == []
    assert embed(workspace, store, Model()) == (4, 4, 0, {})
    assert ask(workspace, store, "peanut", Model())[0][0] == "花生过敏的是张三"
    assert sound(workspace, store) == []


def test_pruning_keeps_what_is_live_or_retired_of_any_model(open_store: Opener, workspace: Workspace) -> None:
    one, two = filled(open_store("one"), "mine", "ours"), filled(open_store("two"), "ours", "theirs")
    for name in ("first", "second"):
        for store in (one, two):
            embed(workspace, store, Model(name))
    one.edit(changes.forget(one.read().archival[0].id))
    with opened(workspace) as index:
        assert vectors.prune(index, [one, two]) == 0
        assert index.prune([one]) == 1
        assert vectors.prune(index, [one]) == 2  # "theirs" of both models
        assert vectors.prune(index, [one]) == 0
        one.edit(changes.forget(one.read(retired=True).retired[0].id, purge=True))
        index.update(one)
        assert vectors.prune(index, [one]) == 2
        assert vectors.embed(index, one, Model("first")) == (1, 1, 0, {})
        assert vectors.verify(index, index.update(one)) == []


_CHUNKS = "UPDATE vectors_1_chunks SET"
DAMAGE = {
    "missing": ("DELETE FROM embedding WHERE number = 1", "missing"),
    "of another text": ("UPDATE embedding SET digest = x'00' WHERE number = 1", "another text"),
    "cut": ("UPDATE embedding SET vector = substr(vector, 5) WHERE number = 1", "has 5 numbers, not 6"),
    "zeros": ("UPDATE embedding SET vector = zeroblob(24) WHERE number = 1", "length 0"),
    "not finite": (
        "UPDATE embedding SET vector = CAST(x'0000C07F' || substr(vector, 5) AS BLOB) WHERE number = 1",
        "length nan",
    ),
    "of another model": ("UPDATE embedding SET model = 9 WHERE number = 1", "another model"),
    "orphan": ("UPDATE embedded SET entry = 999 WHERE embedding = 1", "is gone"),
    "misfiled": ("DELETE FROM vectors_1 WHERE rowid = 1", "table that is searched"),
    "chunk of no entry": (f"{_CHUNKS} validity = zeroblob(length(validity))", "table that is searched"),
    "chunk of other entries": (f"{_CHUNKS} rowids = zeroblob(length(rowids))", "table that is searched"),
    "chunk cut": ("UPDATE vectors_1_vector_chunks00 SET vectors = zeroblob(3)", "table that is searched"),
    "miscounted": ("UPDATE covered SET without = without + 1", "are miscounted"),
    "nothing": ("UPDATE embedding SET vector = NULL WHERE number = 4", "is no vector"),
    "a text": ("UPDATE embedding SET vector = 'x' WHERE number = 4", "is no vector"),
    "chunks with other columns": ("ALTER TABLE vectors_1_chunks RENAME COLUMN validity TO other", "cannot be read"),
    **{f"without {part}": (f"DROP TABLE {part}", "is not whole") for part in _PARTS},
}


@pytest.mark.parametrize("name", DAMAGE)
def test_verify_names_what_is_wrong_and_a_rebuild_mends_it(
    name: str, store: LongTermMemoryStore, workspace: Workspace
) -> None:
    embed(workspace, filled(store), Model())
    assert sound(workspace, store) == []
    statement, message = DAMAGE[name]
    with opened(workspace) as index:
        index.connection.execute(statement)
    assert any(message in line for line in sound(workspace, store))
    with opened(workspace) as index:
        vectors.reset(index, index.rebuild(store))
        assert vectors.embed(index, store, Model()).vectors == 4
    assert sound(workspace, store) == []


@pytest.mark.parametrize("part", _PARTS)
def test_index_makes_a_damaged_table_anew(part: str, store: LongTermMemoryStore, workspace: Workspace) -> None:
    embed(workspace, filled(store), Model())
    _damaged(f"DROP TABLE {part}")(workspace, store)
    store.edit(changes.edit(store.recall_by_keyword("花生")[0].id, "peanut butter"))
    assert embed(workspace, store, Model()) == (4, 4, 1, {})
    assert sound(workspace, store) == []
    assert ask(workspace, store, "花生", Model())[0][0] == "peanut butter"


def test_no_table_of_a_model_that_is_not_used_is_left(store: LongTermMemoryStore, workspace: Workspace) -> None:
    embed(workspace, filled(store), Model("first"))
    embed(workspace, store, Model())
    with opened(workspace) as index:
        vectors.reset(index, index.rebuild(store))
        vectors.embed(index, store, Model())
        vectors.prune(index, [store])
        names = {name for (name,) in index.connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert {name for name in names if name.startswith("vectors_")} == {
        "vectors_2",
        *(f"vectors_2_{p[10:]}" for p in _PARTS),
    }


def test_an_index_without_vectors_has_nothing_to_verify_prune_or_purge(
    store: LongTermMemoryStore, workspace: Workspace
) -> None:
    filled(store)
    with opened(workspace) as index:
        memory = index.update(store)
        assert (vectors.verify(index, memory), vectors.prune(index, [store])) == ([], 0)
        vectors.purge(index, store)
        vectors.reset(index, memory)
        assert vectors.coverage(index, memory) == (None, None, 4, 0, 4)
    assert vectors.describe(workspace.index_file, store, 10)["entries"] == 4


def test_an_empty_memory_needs_no_model(store: LongTermMemoryStore, workspace: Workspace) -> None:
    assert embed(workspace, store, Model()) == (0, 0, 0, {})


def test_a_file_of_another_machine_is_compared_alike(
    store: LongTermMemoryStore, workspace: Workspace, tmp_path: Path
) -> None:
    """Deleting the file loses nothing but time."""
    embed(workspace, filled(store), Model())
    first = ask(workspace, store, "peanut", Model())[0]
    for path in workspace.root.glob("memory-index.db*"):
        os.unlink(path)
    embed(workspace, store, Model())
    assert ask(workspace, store, "peanut", Model())[0] == first


def test_the_time_of_the_last_problem_is_told(store: LongTermMemoryStore, workspace: Workspace) -> None:
    embed(workspace, filled(store), Model())
    ask(workspace, store, "peanut", _failing(heals=False), clock=datetime(2026, 8, 1, 3, 4, 5))
    told = vectors.describe(workspace.index_file, store, 10)
    assert (told["vectors"], told["model"], told["error"]) == (4, "model", "2026-08-01 03:04:05: shop: no")
    assert shutil.disk_usage(workspace.root).total > told["bytes"] > 0
