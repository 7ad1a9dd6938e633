"""Episodes: turns of past sessions are found, kept in step with the sessions, and give nothing away."""

import json
import os
import shutil
import sqlite3
import warnings
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from command import ORYX, make_ops, memory, real, with_path
from conftest import NOW
from hypothesis import given
from hypothesis import strategies as st
from strategies import sentences
from test_cli_environments import EVIL, plain, terminal

from oryx_memory import (
    FileProblem,
    MemoryService,
    NothingFound,
    OryxMemoryWarning,
    RejectedInput,
    current_agent,
    vectors,
)
from oryx_memory.embeddings import open_embedder
from oryx_memory.episodes import MOST, TURNS, Episode, Episodes, recall
from oryx_memory.index import Index, Parts
from oryx_memory.messages import Message, ToolCall, compact
from oryx_memory.sessions import Sessions

SAMPLE = Path(__file__).parents[1] / "fixtures" / "oryxos-sample.db"
OPS, WEB, OLD = "cli:local:ops", "web:u-1:ops", "admin:console:ops"
SECRET = "ghp_R4nd0mT0kenOf36LettersAndDigits01abc"  # what the guard takes for a token of GitHub
TURNS_OF_OPS = (
    (Message("user", "上线前要谁复核？"), Message("assistant", "两个人 / two people")),
    (Message("user", "Why did the canary roll back?"), Message("assistant", "The connection pool ran dry")),
    (
        Message("user", f"推送用的令牌是 {SECRET}，记住"),
        Message("assistant", "", tool_calls=(ToolCall("c1", "save_memory", '{"content":"argumentword"}'),)),
        Message("tool", "resultword", "save_memory", "c1"),
        Message("system", "systemword"),
        Message("assistant", "不记令牌。"),
        Message("assistant", "Keep it in a vault."),
    ),
)


@pytest.fixture
def sessions(tmp_path: Path) -> Sessions:
    """Two sessions of ops, the first of three turns, and one of another agent."""
    made = _open(tmp_path / "oryxos.db")
    for turn in TURNS_OF_OPS:
        _say(made, OPS, *turn)
    _say(made, WEB, Message("user", "灰度发布何时开始？"), Message("assistant", "周五下午"))
    _say(made, "cli:local:other", Message("user", "灰度发布是什么颜色？"), Message("assistant", "grey"))
    return made


@pytest.fixture
def index(tmp_path: Path) -> Iterator[Index]:
    with Index.open(tmp_path / "memory-index.db") as opened:
        yield opened


def _open(path: Path, now: datetime = NOW) -> Sessions:
    return Sessions(path, lambda: now, zone=ZoneInfo("UTC"))


def _say(sessions: Sessions, session_id: str, *messages: Message) -> None:
    sessions.create(session_id)
    sessions.append(session_id, *messages)


def _sql(sessions: Sessions, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(sessions.path)) as connection:
        connection.execute(sql, values)
        connection.commit()


def _ask(sessions: Sessions, index: Index, query: str, without: str | None = None, agent: str = "ops") -> list[Episode]:
    return recall(sessions, index, query, agents=(agent,), now=NOW, top_k=50, without=without)


def _found(episodes: list[Episode]) -> list[tuple[str, int]]:
    return [(episode.session, episode.turn) for episode in episodes]


# What is found.


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("复核", (OPS, 1)),
        ("who reviews: two people", (OPS, 1)),
        ("canaries", (OPS, 2)),
        ("connection pool", (OPS, 2)),
        ("灰度发布什么时候", (WEB, 1)),
        ("vault", (OPS, 3)),
    ],
)
def test_a_turn_is_found_by_what_either_side_said(
    query: str, answer: tuple[str, int], sessions: Sessions, index: Index
) -> None:
    assert _found(_ask(sessions, index, query))[0] == answer


def test_an_episode_has_both_sides_as_they_were_said(sessions: Sessions, index: Index) -> None:
    _say(sessions, WEB, Message("user", "第一行\n第二行 zebra"), Message("assistant", "- one\n- two"))
    (found, *_) = _ask(sessions, index, "zebra")
    assert found._replace(score=0) == Episode(WEB, 2, NOW, "ops", "第一行\n第二行 zebra", "- one\n- two", 0)
    assert found.score > 0


def test_the_current_session_is_left_out_whatever_the_route(sessions: Sessions, index: Index) -> None:
    for query in ("复核", "connection pool", "2026-08-01", "Why did the canary roll back?"):
        assert OPS in {session for session, _ in _found(_ask(sessions, index, query))}
        assert OPS not in {session for session, _ in _found(_ask(sessions, index, query, without=OPS))}


def test_a_long_current_session_does_not_crowd_the_others_out(sessions: Sessions, index: Index) -> None:
    sessions.append(OPS, *(Message("user", f"灰度发布 {number}") for number in range(600)))
    assert _found(_ask(sessions, index, "灰度发布", without=OPS)) == [(WEB, 1)]
    assert _found(_ask(sessions, index, "2026-08-01", without=OPS)) == [(WEB, 1)]


def test_agents_do_not_see_each_other(sessions: Sessions, index: Index) -> None:
    assert [episode.agent for episode in _ask(sessions, index, "灰度发布", agent="other")] == ["other"]
    assert {episode.agent for episode in _ask(sessions, index, "灰度发布")} == {"ops"}


def test_nothing_but_signs_or_blanks_is_no_question(sessions: Sessions, index: Index) -> None:
    assert _ask(sessions, index, "？！") == []
    with pytest.raises(RejectedInput):
        _ask(sessions, index, "　")
    with pytest.raises(NothingFound):
        _ask(sessions, index, "复核", without="cli:nobody:ops")


def test_times_are_those_that_a_session_tells(tmp_path: Path, index: Index) -> None:
    path = tmp_path / "days.db"
    turn = (Message("user", "zebra"), Message("assistant", "斑马"))
    _say(_open(path, datetime(2026, 7, 1, 9)), OPS, *turn)
    _open(path, datetime(2026, 7, 1, 18)).append(OPS, *turn, *turn)
    one_day = [episode.time for episode in sorted(_ask(_open(path), index, "zebra"), key=lambda item: item.turn)]
    assert one_day == [datetime(2026, 7, 1, 9), datetime(2026, 7, 1, 9), datetime(2026, 7, 1, 18)]
    later = _open(path, datetime(2026, 7, 20, 12))
    later.append(OPS, *turn)
    several = [episode.time for episode in sorted(_ask(later, index, "zebra"), key=lambda item: item.turn)]
    assert several == [datetime(2026, 7, 1, 9), None, None, datetime(2026, 7, 20, 12)]
    assert _found(_ask(later, index, "7月20日说了什么"))[0] == (OPS, 4)


# What is not in the index.


def test_credentials_tool_calls_results_and_system_messages_are_not_indexed(
    sessions: Sessions, index: Index, tmp_path: Path
) -> None:
    (found, *_) = _ask(sessions, index, "令牌")
    assert (found.user, found.reply) == ("推送用的令牌是 [github-token]，记住", "不记令牌。\nKeep it in a vault.")
    for word in ("argumentword", "resultword", "systemword", SECRET):
        assert _ask(sessions, index, word) == []
        for path in tmp_path.glob("memory-index.db*"):
            assert word.encode() not in path.read_bytes()
    assert SECRET.lower() not in {term for (term,) in index.connection.execute("SELECT term FROM word")}


def test_of_a_pasted_file_the_start_is_searched_and_all_is_shown(sessions: Sessions, index: Index) -> None:
    text = f"aardvark {'x ' * MOST} walrus"
    _say(sessions, WEB, Message("user", text))
    (found, *_) = _ask(sessions, index, "aardvark")
    assert found.user == text
    assert _ask(sessions, index, "walrus") == []


def test_turns_in_which_nobody_speaks_are_no_episodes(sessions: Sessions) -> None:
    _say(sessions, "cli:x:quiet", Message("tool", "result", "t", "c"), Message("user", " \n"), Message("assistant", ""))
    assert Episodes(sessions, "quiet").read().archival == ()


# In step with the sessions.


def test_only_sessions_that_changed_are_parsed(sessions: Sessions) -> None:
    source = Episodes(sessions, "ops")
    first = source.archival_since(None)
    assert source.archival_since(first.mark) == Parts([], first.mark)
    _say(sessions, WEB, Message("user", "还有吗？"))
    (changed,) = source.archival_since(first.mark).changed
    assert changed.places == source.places(WEB)
    assert [entry.content for entry in changed.entries.values()] == ["灰度发布何时开始？ ⇒ 周五下午", "还有吗？ ⇒"]
    sessions.archive(WEB)
    assert len(source.archival_since(first.mark).changed) == 1  # an archived session is a past one


def test_of_a_session_that_grew_only_what_is_new_is_indexed(sessions: Sessions, index: Index) -> None:
    rows = "SELECT place % ?, number FROM entry WHERE raw NOT LIKE '%灰度%' ORDER BY place"
    index.update(Episodes(sessions, "ops"))
    before = dict(index.connection.execute(rows, (TURNS,)))
    later = _open(sessions.path, datetime(2026, 8, 1, 9))
    later.append(OPS, Message("user", "And now?"))
    index.update(Episodes(later, "ops"))
    after = dict(index.connection.execute(rows, (TURNS,)))
    assert list(after) == [1, 2, 3, 4]
    assert {turn for turn in after if after[turn] == before.get(turn)} == {1, 2, 3}


def test_what_has_not_changed_since_it_settled_is_not_read_at_all(sessions: Sessions, index: Index) -> None:
    class Counting(Episodes):
        asked = 0

        def archival_since(self, mark: str | None) -> Parts:
            self.asked += 1
            return super().archival_since(mark)

    source = Counting(sessions, "ops")
    for path in sessions.path.parent.glob("oryxos.db*"):
        os.utime(path, (1, 1))
    for _ in range(3):
        index.update(source)
    assert source.asked == 1


def _remake(sessions: Sessions, session_id: str, text: str) -> None:
    _sql(sessions, "DELETE FROM sessions WHERE session_id = ?", session_id)
    _say(sessions, session_id, Message("user", text))


def _turn(text: str) -> str:
    return compact([{"role": "user", "content": text}, {"role": "assistant", "content": f"{text} 好的"}])


_SET = "UPDATE sessions SET messages_json = ? WHERE session_id = ?"
CHANGES: dict[str, Callable[[Sessions, str, str], object]] = {
    "ask": lambda sessions, name, text: _say(sessions, name, Message("user", text)),
    "reply": lambda sessions, name, text: _say(sessions, name, Message("assistant", text), Message("tool", text)),
    "rewrite": lambda sessions, name, text: _sql(sessions, _SET, _turn(text), name),
    "break": lambda sessions, name, text: _sql(sessions, _SET, text[:3] + "[{", name),
    "empty": lambda sessions, name, text: _sql(sessions, _SET, None, name),
    "delete": lambda sessions, name, text: _sql(sessions, "DELETE FROM sessions WHERE session_id = ?", name),
    "delete and make": _remake,
    "date": lambda sessions, name, text: _sql(
        sessions, "UPDATE sessions SET created_at = 1e12 * ? WHERE session_id = ?", len(text) % 3, name
    ),
    "vacuum": lambda sessions, name, text: _sql(sessions, "VACUUM"),
}
names = st.sampled_from([OPS, WEB, OLD, "cli:local:other"])
steps = st.tuples(st.sampled_from(["ask", "ask", "reply", *CHANGES]), names, sentences.filter(str.strip), st.booleans())


@given(steps=st.lists(steps, min_size=1, max_size=8), without=names)
def test_after_any_changes_a_kept_index_answers_as_a_new_one(
    steps: list[tuple[str, str, str, bool]], without: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    sessions = _open(folder / "oryxos.db")
    sessions.create(without)
    with Index.open(folder / "memory-index.db") as kept, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # broken sessions are named
        for number, (what, name, text, asked) in enumerate(steps):
            with suppress(FileProblem):  # nothing is added to a broken session
                CHANGES[what](_open(sessions.path, datetime(2026, 8, 1 + number, 12)), name, text)
            if not asked and number < len(steps) - 1:
                continue
            there = _sessions_there(sessions)
            for left_out in (None, without if without in there else None):
                with Index.in_memory() as new:
                    assert _ask(sessions, kept, text, left_out) == _ask(sessions, new, text, left_out)
            assert kept.verify(Episodes(sessions, "ops")) == []


def _sessions_there(sessions: Sessions) -> set[str]:
    with closing(sqlite3.connect(sessions.path)) as connection:
        return {name for (name,) in connection.execute("SELECT session_id FROM sessions")}


def test_a_deleted_session_leaves_the_index_and_a_broken_one_is_named(sessions: Sessions, index: Index) -> None:
    assert len(_ask(sessions, index, "复核")) > 0
    _sql(sessions, _SET, "[{", OPS)
    with pytest.warns(OryxMemoryWarning, match="messages of session cli:local:ops cannot be read.*left out"):
        assert _ask(sessions, index, "复核") == []
    _sql(sessions, "DELETE FROM sessions")
    assert _ask(sessions, index, "灰度") == []
    assert index.connection.execute("SELECT count(*) FROM entry").fetchone() == (0,)


def test_a_row_number_that_makes_no_place_is_not_indexed(sessions: Sessions, index: Index) -> None:
    for number in (-1, 2**62):
        _sql(sessions, "UPDATE sessions SET rowid = ? WHERE session_id = ?", number, OPS)
        assert _ask(sessions, index, "复核") == []
        assert _found(_ask(sessions, index, "灰度发布", without=OPS)) == [(WEB, 1)]


def test_what_goes_while_it_is_read_is_left_out(sessions: Sessions, index: Index) -> None:
    source = Episodes(sessions, "ops")
    from oryx_memory.recall import ranked

    hits = ranked(source, index, "复核 canary", now=NOW).hits
    assert {turn for _, turn in _found(source.episodes(hits))} >= {1, 2}
    _sql(sessions, _SET, _turn("another text"), OPS)
    assert OPS not in {session for session, _ in _found(source.episodes(hits))}


def test_meaning_takes_part_where_vectors_were_made(sessions: Sessions, tmp_path: Path) -> None:
    embedder = open_embedder({"provider": "hashing"}, {})
    assert embedder
    source = Episodes(sessions, "ops")
    with vectors.open_index(tmp_path / "vectors.db") as index:
        report = vectors.embed(index, source, embedder)
        assert (report.entries, report.vectors, report.asked) == (4, 4, 4)
        semantic = vectors.Semantic(embedder, "", lambda: NOW)
        found = recall(sessions, index, "connections", agents=("ops",), now=NOW, semantic=semantic)
        assert (_found(found)[0], semantic.lacking, semantic.trouble) == ((OPS, 2), 0, "")
        left = recall(sessions, index, "connections", agents=("ops",), now=NOW, semantic=semantic, without=OPS)
        assert OPS not in {session for session, _ in _found(left)}
        sessions.append(WEB, Message("user", "new"))
        recall(sessions, index, "new", agents=("ops",), now=NOW, semantic=semantic)
        assert semantic.lacking > 0  # asking makes none
        assert index.verify(source) == vectors.verify(index, index.update(source)) == []


# The service and the command.


@pytest.fixture
def place(tmp_path: Path, sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with the agent ops, whose own sessions stand beside it."""
    monkeypatch.chdir(tmp_path)
    make_ops(tmp_path)
    (tmp_path / ".oryxos" / "memory.toml").write_text('[time]\nzone = "UTC"\n')
    return tmp_path


def test_the_service_recalls_for_its_agent_and_leaves_the_current_session_out(place: Path, sessions: Sessions) -> None:
    service = MemoryService(place, clock=lambda: NOW)
    for blank in ("", " "):
        with pytest.raises(RejectedInput):
            service.recall_episodes(blank)
    assert service.recall_episodes("复核") == ()
    assert not (place / ".oryxos" / "memory-index.db").exists()
    with current_agent("ops"):
        assert _found(list(service.recall_episodes("复核", top_k=1))) == [(OPS, 1)]
        assert service.recall_episodes("颜色") == ()
        with pytest.raises(RejectedInput):
            service.recall_episodes(" ")
    with current_agent("nobody"):
        assert service.recall_episodes("复核") == ()
    found = service.recall_episodes("复核 灰度发布", session=sessions.get(OPS))
    assert {episode.session for episode in found} == {WEB}


SHOWN = f"""{OPS}\t2\t2026-08-01 02:00:00
  user
    Why did the canary roll back?
  assistant
    The connection pool ran dry
"""
OBJECT = {
    "session": OPS, "turn": 2, "time": "2026-08-01T02:00:00", "agent": "ops", "user": "Why did the canary roll back?",
    "reply": "The connection pool ran dry",
}  # fmt: skip


def test_the_command_prints_session_turn_time_and_what_was_said(place: Path) -> None:
    result = memory("episodes", "-a", "ops", "canary", "--top-k", "1")
    assert result == (0, SHOWN, "")
    (item,) = json.loads(memory("episodes", "canary", "--top-k", "1", "--json").out)
    assert item.pop("score") > 0
    assert item == OBJECT
    result = memory("episodes", "灰度发布")
    assert {line.split("\t")[0] for line in result.out.splitlines() if line[0] != " "} >= {WEB, "cli:local:other"}
    assert OPS not in memory("episodes", "灰度发布", "--session", OPS).out


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["canary", "--session", OPS, "-a", "ops"], 1, "no past session of ops answers 'canary'"),
        (["canary", "--session", "cli:lokal:ops"], 1, "did you mean cli:local:ops?"),
        (["canary", "-a", "opps"], 3, "did you mean ops?"),
        (["canary", "dry"], 2, "quote it"),
        (["　"], 2, "blank"),
        ([], 2, "QUERY"),
        (["canary", "--top-k", "0"], 2, "--top-k"),
    ],
)
def test_what_finds_nothing_or_is_wrong_is_told_in_one_line(
    words: list[str], code: int, told: str, place: Path
) -> None:
    result = memory("episodes", *words)
    assert (result.code, result.out, result.err.count("\n")) == (code, "", 1)
    assert told in result.err


def test_without_sessions_no_file_is_made(ops: Path, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    result = memory("episodes", "-a", "ops", "复核", "--json")
    assert (result.code, result.out) == (1, "[]\n")
    assert memory("episodes", " ").code == 2
    assert sorted(tmp_path.rglob("*")) == before


def test_index_makes_the_vectors_of_episodes_and_keeps_them(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORYX_EMBEDDING_PROVIDER", "hashing")
    assert "4 of 4 entries have no vector" in memory("episodes", "-a", "ops", "canary").err
    told = memory("index", "--all-agents").err
    assert "ops, sessions: 4 entries indexed, 4 with a vector" in told
    assert "other, sessions: 1 entry indexed, 1 with a vector" in told
    again = json.loads(memory("index", "--all-agents", "--json").out)
    assert again["removed"] == {"memories": 0, "vectors": 0}
    assert [(item["agent"], item["asked"]) for item in again["memories"] if item.get("sessions")] == [
        ("ops", 0),
        ("other", 0),
    ]
    assert memory("episodes", "-a", "ops", "canary", "--top-k", "1") == (0, SHOWN, "")
    assert memory("index", "--all-agents", "--verify") == (0, "", "")
    purged = json.loads(memory("list", "-a", "ops", "--json").out)[-1]["id"]
    assert memory("forget", "-a", "ops", "--purge", purged).code == 0
    assert memory("index", "--all-agents", "--verify") == (0, "", "")


def test_a_database_that_cannot_be_read_keeps_no_memory_from_being_indexed(place: Path) -> None:
    for path in place.glob("oryxos.db*"):
        path.unlink()
    (place / "oryxos.db").write_bytes(b"no database at all, but long enough to be one" * 20)
    result = memory("index", "-a", "ops")
    assert result.code == 0
    assert "sessions were left out" in result.err
    assert "ops: 2 entries indexed" in result.err
    assert memory("episodes", "canary").code == 3


def test_real_processes_see_what_others_say(tmp_path: Path) -> None:
    make_ops(tmp_path)
    shutil.copyfile(SAMPLE, tmp_path / "oryxos.db")
    sessions = _open(tmp_path / "oryxos.db")
    for words, text in (("灰度发布", "已经记下了。"), ("walrus", "海象在周三说过")):
        command = [ORYX, "memory", "episodes", "-a", "ops", words, "--top-k", "1"]
        result = real(command, cwd=tmp_path, env=with_path())
        assert (result.code, result.err) == (0, "")
        assert f"  assistant\n    {text}\n" in result.out
        _say(sessions, OPS, Message("user", "Where was the walrus?"), Message("assistant", "海象在周三说过"))


def test_a_terminal_is_not_steered_and_is_told_what_was_cut(place: Path, sessions: Sessions) -> None:
    _say(sessions, WEB, Message("user", f"narwhal {EVIL}"), Message("assistant", f"{EVIL}\n" + "很长" * 1000))
    code, text = terminal(["episodes", "narwhal", "--top-k", "1"], place, talk=False)
    assert code == 0
    assert "\x1b]0;" not in text
    assert "\u202e" not in text
    assert "assistant, the first 600 of 2,0" in plain(text)
    assert "很长" * 1000 in memory("episodes", "narwhal", "--top-k", "1").out
