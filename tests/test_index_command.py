"""The command `index`, and what recall and stats say of vectors, against a real server and in real processes."""

import json
import os
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import RELEASE, UV, after, memory, real
from embedding_server import EmbeddingServer, Reply, refusal

from oryx_memory.files import Lock

RECALL = ("recall", "-a", "ops", "--mode", "ranked")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddingServer]:
    """An endpoint that the person has configured in the environment."""
    with EmbeddingServer() as running:
        monkeypatch.setenv("ORYX_EMBEDDING_PROVIDER", "openai")
        monkeypatch.setenv("ORYX_EMBEDDING_MODEL", "m")
        monkeypatch.setenv("ORYX_EMBEDDING_BASE_URL", running.url)
        yield running


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORYX_EMBEDDING_PROVIDER", "hashing")


def index_file(ops: Path) -> Path:
    return ops.parent.parent.parent / "memory-index.db"


def test_index_sends_each_text_once_and_recall_its_query(ops: Path, server: EmbeddingServer) -> None:
    result = memory("index", "-a", "ops")
    assert (result.code, result.out) == (0, "")
    assert result.err.startswith("ops: 2 entries indexed, 2 with a vector of openai@127.0.0.1")
    assert sorted(server.texts()) == sorted(
        ["memory", "Use uv, not pip #tooling", "上线前必须两人复核 #流程 ^release_rule"]
    )
    asked = len(server.asked)
    assert memory("index", "-a", "ops").err.endswith("0 of them new\n")
    assert len(server.asked) == asked
    result = memory(*RECALL, "复核", "--explain", "-n", "1")
    assert (result.code, "semantic=" in result.out) == (0, True)
    assert server.texts()[-1] == "复核"
    assert len(server.asked) == asked + 1


def test_recall_counts_what_lacks_a_vector_and_names_the_command(ops: Path, server: EmbeddingServer) -> None:
    assert "2 of 2 entries have no vector; oryx memory index -a ops makes them" in memory(*RECALL, "复核").err
    assert server.asked == []
    assert memory("index", "--all-agents").code == 0
    assert memory(*RECALL, "复核").err == ""
    assert memory("append", "-q", "-a", "ops", "新的").code == 0
    assert memory(*RECALL, "复核").err == "1 of 3 entries have no vector; oryx memory index -a ops makes them\n"
    assert memory(*RECALL, "复核", "-q").err == ""
    words = ("recall", "--all-agents", "--mode", "ranked", "复核")
    assert memory(*words).err == "1 of 3 entries have no vector; oryx memory index --all-agents makes them\n"


def test_no_vectors_are_missed_where_the_index_is_in_memory(ops: Path, hashing: None) -> None:
    index_file(ops).mkdir()
    result = memory(*RECALL, "复核")
    assert (result.code, result.err.count("\n"), "have no vector" in result.err) == (0, 1, False)


def test_an_index_that_is_made_anew_in_a_search_counts_its_entries_once(ops: Path, hashing: None) -> None:
    assert memory("index", "-a", "ops").code == 0
    with sqlite3.connect(index_file(ops)) as database:
        (page,) = database.execute("SELECT rootpage FROM sqlite_master WHERE name = 'terms_1_data'").fetchone()
        (size,) = database.execute("PRAGMA page_size").fetchone()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    with index_file(ops).open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    assert "2 of 2 entries have no vector" in memory(*RECALL, "复核").err


def test_an_error_that_does_not_heal_stops_a_loop_of_commands_until_index_or_the_settings(
    ops: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memory("index", "-a", "ops").code == 0
    asked = len(server.asked)
    server.plan.extend([refusal(401, "bad key"), refusal(401, "bad key"), refusal(401, "bad key")])
    for _ in range(3):
        result = memory(*RECALL, "复核")
        assert (result.code, result.out.splitlines()[0]) == (0, RELEASE)  # the other routes answer
        assert result.err.startswith("oryx: warning: searched by words and dates only: openai (127.0.0.1")
        assert result.err.count("\n") == 1
        assert len(server.asked) == asked + 1
    assert "bad key" in json.loads(memory("stats", "-a", "ops", "--json").out)["index"]["error"]
    monkeypatch.setenv("OTHER_KEY", "sk-another")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(ops.parent))
    (ops.parent / "oryx-memory").mkdir()
    (ops.parent / "oryx-memory" / "config.toml").write_text('[embedding]\napi_key_env = "OTHER_KEY"\n')
    memory(*RECALL, "复核")
    assert len(server.asked) == asked + 2  # another key is worth a try
    assert b"sk-another" not in index_file(ops).read_bytes()
    (ops.parent / "oryx-memory" / "config.toml").unlink()
    memory("append", "-q", "-a", "ops", "one more")
    result = memory("index", "-a", "ops")  # tries at once
    assert (result.code, len(server.asked)) == (4, asked + 3)
    assert memory("index", "-a", "ops").code == 0
    assert memory(*RECALL, "复核").err == ""
    assert json.loads(memory("stats", "-a", "ops", "--json").out)["index"]["error"] is None


def test_index_that_fails_keeps_what_came_and_ends_with_4(
    ops: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(ops.parent))
    (ops.parent / "oryx-memory").mkdir()
    (ops.parent / "oryx-memory" / "config.toml").write_text("[embedding]\nbatch = 1\n")
    server.plan.extend([Reply(), Reply(), refusal(402, "pay first")])
    result = memory("index", "-a", "ops")
    assert (result.code, result.out) == (4, "")
    assert result.err.splitlines()[0] == "ops: 1 of 2 entries have a vector; the next run goes on from there"
    assert "pay first" in result.err.splitlines()[1]
    asked = len(server.asked)
    assert memory("index", "-a", "ops").code == 0
    assert len(server.asked) == asked + 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(change=lambda answer: answer["data"].pop()),
        Reply(change=lambda answer: answer["data"][0].update(embedding=[1.0] * 5)),
        Reply(body=b"<html>"),
    ],
    ids=["too few", "other dimension", "HTML"],
)
def test_what_is_no_answer_is_not_stored(reply: Reply, ops: Path, server: EmbeddingServer) -> None:
    server.plan.extend([Reply(), reply])
    assert memory("index", "-a", "ops").code == 4
    assert json.loads(memory("stats", "-a", "ops", "--json").out)["index"]["vectors"] == 0
    assert memory("index", "-a", "ops").code == 0
    assert memory("index", "-a", "ops", "--verify").code == 0


ZEROS = Reply(change=lambda answer: answer["data"][0].update(embedding=[0.0] * 8))
NAN = Reply(change=lambda answer: answer["data"][0].update(embedding=[float("nan")] * 8))


@pytest.mark.parametrize("reply", [ZEROS, NAN, refusal(400, "too long")], ids=["zeros", "NaN", "400"])
def test_a_text_that_is_refused_is_named_and_all_others_are_indexed(
    reply: Reply, ops: Path, server: EmbeddingServer
) -> None:
    server.plan.extend([Reply(), reply, Reply(), reply])  # a probe, both, a probe, the first of them
    result = memory("index", "-a", "ops")
    assert (result.code, result.err.count("\n")) == (0, 2)
    assert result.err.startswith("oryx: warning: no vector for ")
    assert result.err.endswith("1 of them new; left out: 1 refused by the model\n")
    refused = result.err.split()[5].rstrip(":")
    assert server.asked[-2].body["input"] == [json.loads(memory("show", refused, "-a", "ops", "--json").out)["content"]]
    assert memory(*RECALL, "复核").err == ""
    assert memory("index", "-a", "ops").code == 0
    assert json.loads(memory("stats", "-a", "ops", "--json").out)["index"]["vectors"] == 2
    assert memory("index", "-a", "ops", "--verify").code == 0


def test_a_model_changed_since_is_named_and_index_makes_the_new_ones(
    ops: Path, hashing: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memory("index", "-a", "ops").code == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(ops.parent))
    (ops.parent / "oryx-memory").mkdir()
    (ops.parent / "oryx-memory" / "config.toml").write_text("[embedding]\ndimensions = 64\n")
    monkeypatch.delenv("ORYX_EMBEDDING_PROVIDER")
    (ops.parent / "oryx-memory" / "config.toml").write_text('[embedding]\nprovider = "hashing"\ndimensions = 64\n')
    told = "indexed with hashing:256, configured hashing:64: run `oryx memory index`"
    assert told in memory(*RECALL, "复核").err
    assert "hashing:64, 2 of them new" in memory("index", "-a", "ops").err
    assert memory(*RECALL, "复核").err == ""
    assert json.loads(memory("index", "--all-agents", "--json").out)["removed"] == {"memories": 0, "vectors": 0}


def test_what_is_left_out_is_counted(ops: Path, hashing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(ops.parent))
    (ops.parent / "oryx-memory").mkdir()
    (ops.parent / "oryx-memory" / "config.toml").write_text('[embedding]\nexclude_tags = ["tooling"]\n')
    memory("append", "-q", "-a", "ops", "触发「问」⇒ 答")
    memory("append", "-q", "-a", "ops", "password: hunter2x!9Q")
    result = memory("index", "-a", "ops")
    assert result.err.endswith("1 of them new; left out: 1 by tag, 1 with a credential, 1 footprints\n")
    (made,) = json.loads(memory("index", "-a", "ops", "--json").out)["memories"]
    assert made == {
        "agent": "ops", "entries": 3, "vectors": 1, "asked": 0, "excluded": {"tag": 1, "credential": 1, "footprint": 1},
    }  # fmt: skip
    text = memory("index", "--help").out
    assert all(word in " ".join(text.split()) for word in ("exclude_tags", "footprints", "credential"))


def test_without_an_embedder_index_makes_the_words(ops: Path) -> None:
    result = memory("index", "-a", "ops")
    assert (result.code, result.err.splitlines()) == (
        0,
        ["ops: 2 entries indexed", "no vectors: [embedding] in your own config.toml names no provider"],
    )
    assert json.loads(memory("index", "-a", "ops", "--json").out)["model"] is None
    assert memory(*RECALL, "复核").err == ""


def test_an_embedder_that_cannot_be_opened_leaves_the_other_routes(ops: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORYX_EMBEDDING_PROVIDER", "siliconflow")
    monkeypatch.delenv("SILICONFLOW_API_KEY", raising=False)
    result = memory(*RECALL, "复核")
    assert (result.code, result.out.splitlines()[0]) == (0, RELEASE)
    assert "SILICONFLOW_API_KEY" in result.err
    assert memory("index", "-a", "ops").code == 3


def test_verify_prints_what_differs_and_ends_with_1(ops: Path, hashing: None) -> None:
    assert memory("index", "-a", "ops", "--verify").code == 0
    assert not index_file(ops).exists()
    assert memory("index", "-a", "ops").code == 0
    assert memory("index", "-a", "ops", "--verify") == (0, "", "")
    with sqlite3.connect(index_file(ops)) as database:
        database.execute("UPDATE embedding SET vector = zeroblob(1024)")
    database.close()
    result = memory("index", "-a", "ops", "--verify")
    assert (result.code, result.out.count("length 0")) == (1, 2)
    assert all(line.startswith("ops\t") for line in result.out.splitlines())
    assert {found["agent"] for found in json.loads(memory("index", "-a", "ops", "--verify", "--json").out)} == {"ops"}
    assert memory("index", "-a", "ops", "--rebuild").code == 0
    assert memory("index", "-a", "ops", "--verify") == (0, "", "")
    assert memory("index", "-a", "ops", "--verify", "--rebuild").code == 2


def test_all_agents_deletes_what_is_gone(ops: Path, hashing: None) -> None:
    memory("append", "-q", "-a", "other", "theirs alone")
    assert "other: 1 entry indexed" in memory("index", "--all-agents").err
    other = ops.parent.parent / "other"
    for path in sorted(other.rglob("*")):
        path.unlink()
    other.rmdir()
    assert memory("index", "--all-agents").err.endswith("deleted: 1 memories that are gone, 1 vectors of no entry\n")
    assert memory("index", "--all-agents", "-a", "ops").code == 2
    assert memory("index", "-a", "nobody").code == 3


def test_a_second_index_waits_for_the_first_and_nobody_else_does(ops: Path, hashing: None) -> None:
    with Lock(ops.parent.parent.parent / ".locks" / "indexing.lock", (), 1):
        assert memory("index", "-a", "ops", "--lock-timeout", "0").code == 5
        assert memory("append", "-q", "-a", "ops", "x", "--lock-timeout", "0").code == 0
        assert memory(*RECALL, "复核", "--lock-timeout", "0").code == 0
        assert memory("index", "-a", "ops", "--verify", "--lock-timeout", "0").code == 0
    assert memory("index", "-a", "ops").code == 0


def test_a_purged_text_leaves_its_vector_nowhere(ops: Path, hashing: None) -> None:
    from hashlib import sha256

    from oryx_memory.embeddings import open_embedder

    memory("append", "-q", "-a", "ops", "geheimzahl 4711 机密")
    assert memory("index", "-a", "ops").code == 0
    embedder = open_embedder({"provider": "hashing"}, {})
    assert embedder is not None
    traces = [sha256("geheimzahl 4711 机密".encode()).digest(), embedder.embed(["geheimzahl 4711 机密"])[0].tobytes()]
    files = list(index_file(ops).parent.glob("memory-index.db*"))
    assert all(any(trace in path.read_bytes() for path in files) for trace in traces)
    reference = json.loads(memory("list", "-a", "ops", "--json").out)[-1]["id"]
    assert memory("forget", "-a", "ops", "--purge", reference).code == 0
    for path in index_file(ops).parent.rglob("*"):
        data = path.read_bytes() if path.is_file() else b""
        assert not any(trace in data for trace in (*traces, b"geheimzah")), path


def test_stats_shows_the_index_and_makes_none(ops: Path, hashing: None) -> None:
    assert "index" not in json.loads(memory("stats", "-a", "ops", "--json").out)
    assert not index_file(ops).exists()
    memory("index", "-a", "ops")
    memory("append", "-q", "-a", "ops", "later")
    told = json.loads(memory("stats", "-a", "ops", "--json").out)["index"]
    assert {**told, "bytes": 0} == {"entries": 2, "vectors": 2, "model": "hashing:256", "bytes": 0, "error": None}
    assert told["bytes"] == index_file(ops).stat().st_size
    assert "index_model\thashing:256\n" in memory("stats", "-a", "ops").out


# Without sqlite-vec.

NOT_INSTALLED = "import sys; sys.modules['pysqlite3'] = sys.modules['sqlite_vec'] = None"
UNLOADABLE = "import sys; sys.path.insert(0, {folder!r})"


@pytest.mark.parametrize("without", [NOT_INSTALLED, UNLOADABLE], ids=["not installed", "unloadable"])
def test_without_sqlite_vec_all_commands_give_the_same(without: str, ops: Path, hashing: None, tmp_path: Path) -> None:
    fake = tmp_path / "fake" / "sqlite_vec"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("raise SystemExit('is not to be imported')\n")
    (fake / "vec0.so").write_bytes(b"\x7fELF of another machine")
    prelude = without.format(folder=str(fake.parent))
    for text in ("rotate the keys", "张三对花生过敏", "deploy with uv"):
        memory("append", "-q", "-a", "ops", text)
    queries = ("uv", "花生", "keys")

    def answers(prelude: str) -> list[str]:
        words = [after(prelude, "memory", *RECALL, query, "--explain") for query in queries]
        results = [real(command, env={**os.environ, "PYTHONPATH": ""}) for command in words]
        assert all("semantic=" in result.out and not result.err.count("warning") for result in results)
        return [result.out for result in results]

    def index(prelude: str, *more: str) -> str:
        result = real(after(prelude, "memory", "index", "-a", "ops", *more))
        assert result.code == 0, result.err
        return result.err

    index("")
    with_it = answers("")
    assert answers(prelude) == with_it
    memory("append", "-q", "-a", "ops", "uv and keys and 花生")
    assert "1 of them new" in index(prelude)
    without_it = answers(prelude)
    assert answers("") == without_it != with_it
    assert index(prelude, "--verify") == index("", "--verify") == ""
    assert real(after(prelude, "memory", "forget", "-a", "ops", "--purge", "--", _last_id())).code == 0
    index("")
    assert answers("") == answers(prelude) == with_it


def _last_id() -> str:
    return str(json.loads(memory("list", "-a", "ops", "--json").out)[-1]["id"])


def test_ranked_recall_without_an_embedder_imports_nothing_of_it(ops: Path) -> None:
    code = "import sys\nfrom oryx_memory.cli.main import oryx\ntry:\n    oryx()\nfinally:\n    print(*sys.modules)"
    result = real([sys.executable, "-c", code, "memory", *RECALL, "复核"])
    names = result.out.splitlines()[-1].split()
    assert "oryx_memory.recall" in names
    foreign = {"numpy", "pysqlite3", "sqlite_vec", "openai", "model2vec"}
    ours = {f"oryx_memory.{name}" for name in ("vectors", "embeddings", "cli.indexing", "cli.hints", "guard")}
    assert {*names, *(name.split(".")[0] for name in names)} & (foreign | ours) == set()


def test_a_server_that_searches_by_itself_has_no_index(ops: Path, hashing: None) -> None:
    result = memory("index", "-a", "ops", "--backend", "mem0")
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert not index_file(ops).exists()


def test_index_on_a_sqlite_backend(ops: Path, hashing: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORYX_MEMORY_BACKEND", "sqlite")
    assert memory("append", "-q", "-a", "ops", "use uv").code == 0
    assert "1 entry indexed, 1 with a vector" in memory("index", "-a", "ops").err
    assert "semantic=1.00" in memory(*RECALL, "uv", "--explain").out
    assert memory("index", "-a", "ops", "--verify").code == 0
    monkeypatch.delenv("ORYX_MEMORY_BACKEND")
    assert UV.split("] ")[1] not in memory(*RECALL, "花生").out
