"""Ranking: tokens that FTS5 keeps whole, the dates that a query names, and scores that add up in any order."""

import sqlite3
import subprocess
import sys
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from strategies import sentences

from oryx_memory import dates, ranking

NOW = datetime(2026, 8, 5, 10, 30)  # a Wednesday
TODAY = NOW.date()

signs = st.sampled_from(list("\"'()*^-+:.,/@#%_{}[]\\;&|<>=!?~`$\x00\x1f。，「」·・—…\u3000 \n"))
letters = st.sampled_from(list("aZ9éßİſﬁ5µ的复核上线カのーｶﾞ한글을สวั你हिन्יָЖёΣςعَ𠀀🚀→Ａ５％\u0301\u0323\u200d\ufe0f"))
texts = st.one_of(
    st.text(max_size=30), sentences, st.text(st.one_of(letters, signs), max_size=30),
    st.lists(st.sampled_from(["AND", "NEAR(a b)", "body:x", "OR", "NOT", "^a", '"', "x*", "-y"]), max_size=4).map(" ".join),
)  # fmt: skip


def _table(*texts: str) -> sqlite3.Connection:
    connection = sqlite3.connect(":memory:")
    connection.execute(f'CREATE VIRTUAL TABLE terms USING fts5(body, tokenize = "{ranking.TOKENIZE}")')
    connection.execute("CREATE VIRTUAL TABLE words USING fts5vocab(terms, instance)")
    connection.executemany("INSERT INTO terms (body) VALUES (?)", [(ranking.written(text),) for text in texts])
    return connection


def _found(connection: sqlite3.Connection, tokens: list[str]) -> list[int]:
    match = " OR ".join(f'"{token}"' for token in tokens)
    return [row for (row,) in connection.execute("SELECT rowid FROM terms WHERE terms MATCH ? ORDER BY rank", (match,))]


def _spans(query: str) -> list[tuple[date, date]]:
    return [(span.start, span.end) for span in dates.date_spans(query, NOW)]


@given(texts)
def test_fts5_keeps_every_token_whole_and_in_order(text: str) -> None:
    rows = _table(text).execute("SELECT term FROM words ORDER BY offset").fetchall()
    assert [term for (term,) in rows] == ranking.tokens(text)


@given(texts, texts)
def test_what_is_searched_for_is_never_syntax_and_finds_its_own_text(text: str, other: str) -> None:
    found = ranking.query_tokens(text)
    assume(found)
    assert 1 in _found(_table(text, other), found)


@given(texts)
def test_case_and_width_make_no_other_token(text: str) -> None:
    wide = "".join(chr(ord(char) + 0xFEE0) if "!" <= char <= "~" else char for char in text)
    assert ranking.tokens(wide) == ranking.tokens(text)


@given(st.text(st.sampled_from("复核上线カ한жのสวั的，🚀"), max_size=6), st.sampled_from(["deploy", "gen-itgc"]))
def test_a_word_is_found_whatever_script_is_glued_to_it(text: str, word: str) -> None:
    assert set(ranking.tokens(word)) <= set(ranking.tokens(f"{text}{word}{text}"))


@given(texts)
def test_a_query_is_searched_for_by_its_own_tokens_each_at_most_twice(text: str) -> None:
    indexed, searched = ranking.tokens(text), ranking.query_tokens(text)
    assert set(searched) <= set(indexed)
    assert bool(searched) == bool(indexed)
    assert all(searched.count(token) <= min(2, indexed.count(token)) for token in searched)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("DEC-0054", "dec-0054 dec 0054"),
        ("snake_case", "snake_case snake case"),
        ("getUserName", "getusernam get user name"),
        ("HTTPServer", "httpserver http server"),
        ("src/lib/x.ts", "src/lib/x.ts x.ts src lib x ts"),
        ("2026.4.10", "2026.4.10 2026 4 10"),
        ("@scope/pkg", "@scope/pkg scope pkg"),
        ("C++ C# c", "c++ c c# c c"),
        ("50% 5０％", "50% 50 50% 50"),
        (".env", ".env env"),
        ("std::vector", "std::vector std vector"),
        ("ops@example.org", "ops@example.org example.org op exampl org"),
        ("p99", "p99 99"),
        ("4,000 people", "4000 peopl"),
        ("don't user's O'Brien’s", "dont user obrien brien"),
        ("café Ünïcode", "cafe unicod"),
        ("deploys deployed deployment", "deploy deploy deploy"),
        ("-x --force 'quoted' (a)", "x forc quot a"),
        ("重跑gen-itgc后", "重跑 重 跑 gen-itgc gen itgc 后"),
        ("复核", "复核 复 核"),
        ("𠀀𠀁", "𠀀𠀁 𠀀 𠀁"),
        ("サーバーを再起動", "サー ーバ バー ーを を再 再起 起動 再 起 動"),
        ("서버를", "서버 버를 서 버 를"),
        ("серверы сервера", "сервер сервер"),
        ("สวัสดี", "สว วั ัส สด ดี"),
        ("ship it 🚀→", "ship it 🚀 →"),
        ("C:\\tools\\x", "c:/tools/x c tool x"),
        ("。，!? ()*", ""),
        ("", ""),
    ],
)
def test_tokens(text: str, expected: str) -> None:
    assert ranking.tokens(text) == expected.split()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("what did we say about the deploy?", "say deploy"),
        ("我的密码是什么", "我的 的密 密码 码是 是什 什么 密 码"),
        ("who are you", "who are you"),
        ("的", "的"),
        ("a AND b", "b"),
        ("NEAR(", "near"),
        ("log log log rotate", "log rotat log"),
        ("*", ""),
    ],
)
def test_query_tokens(query: str, expected: str) -> None:
    assert ranking.query_tokens(query) == expected.split()


def test_a_pasted_file_is_searched_for_by_its_first_words() -> None:
    assert len(ranking.query_tokens(" ".join(f"word{number}" for number in range(5000)))) == ranking.MOST_SEARCHED
    assert ranking.tokens("x" * 5000) == ["x" * ranking.LONGEST]


slips = st.text(st.sampled_from("abc"), min_size=4, max_size=7)


@given(slips, slips)
def test_respellings_are_those_one_edit_away(word: str, other: str) -> None:
    edits = {
        word[:at] + letter + word[at + cut :]
        for at in range(len(word) + 1)
        for letter in ("", *"abc")
        for cut in (0, 1)
    }
    edits |= {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)}
    assert ranking.respellings(word, [other]) == ([other] if other in edits - {word} else [])


@pytest.mark.parametrize("word", ["tar", "2026", "c++", "dec-0054"])
def test_short_words_and_identifiers_are_never_respelled(word: str) -> None:
    assert ranking.respellings(word, [word + "s", word[:-1], word[::-1]]) == []


@pytest.mark.parametrize(
    ("query", "start", "end"),
    [
        ("5月2号做了什么", "2026-05-02", "2026-05-02"),
        ("三月五日", "2026-03-05", "2026-03-05"),
        ("２０２５年１０月", "2025-10-01", "2025-10-31"),
        ("二〇二五年十月二十一日", "2025-10-21", "2025-10-21"),
        ("24年2月", "2024-02-01", "2024-02-29"),
        ("5月2日到5日", "2026-05-02", "2026-05-05"),
        ("4月下旬", "2026-04-21", "2026-04-30"),
        ("去年三月", "2025-03-01", "2025-03-31"),
        ("2025年", "2025-01-01", "2025-12-31"),
        ("去年夏天", "2025-06-01", "2025-08-31"),
        ("2025年冬天", "2025-12-01", "2026-02-28"),
        ("2025年底", "2025-11-01", "2025-12-31"),
        ("今天早上", "2026-08-05", "2026-08-05"),
        ("昨天", "2026-08-04", "2026-08-04"),
        ("昨晚", "2026-08-04", "2026-08-04"),
        ("大前天", "2026-08-02", "2026-08-02"),
        ("上周三", "2026-07-29", "2026-07-29"),
        ("上個禮拜天", "2026-08-02", "2026-08-02"),
        ("上上周", "2026-07-20", "2026-07-26"),
        ("这周末", "2026-08-08", "2026-08-09"),
        ("周一", "2026-08-03", "2026-08-03"),
        ("上个月", "2026-07-01", "2026-07-31"),
        ("上个月5号", "2026-07-05", "2026-07-05"),
        ("本月初", "2026-08-01", "2026-08-10"),
        ("前两天", "2026-08-03", "2026-08-05"),
        ("最近三周", "2026-07-15", "2026-08-05"),
        ("两天前", "2026-08-03", "2026-08-03"),
        ("三个月前", "2026-05-01", "2026-05-31"),
        ("半年前", "2026-02-01", "2026-02-28"),
        ("上季度", "2026-04-01", "2026-06-30"),
        ("去年第三季度", "2025-07-01", "2025-09-30"),
        ("5월 2일", "2026-05-02", "2026-05-02"),
        ("May 2nd", "2026-05-02", "2026-05-02"),
        ("on the 2nd of May", "2026-05-02", "2026-05-02"),
        ("7 May 2023", "2023-05-07", "2023-05-07"),
        ("Sept. 9, 2025", "2025-09-09", "2025-09-09"),
        ("May 2-5", "2026-05-02", "2026-05-05"),
        ("in March", "2026-03-01", "2026-03-31"),
        ("late March 2025", "2025-03-21", "2025-03-31"),
        ("last October", "2025-10-01", "2025-10-31"),
        ("march last year", "2025-03-01", "2025-03-31"),
        ("what happened in 2024?", "2024-01-01", "2024-12-31"),
        ("Q3 2025", "2025-07-01", "2025-09-30"),
        ("2025Q3", "2025-07-01", "2025-09-30"),
        ("yesterday", "2026-08-04", "2026-08-04"),
        ("the day before yesterday", "2026-08-03", "2026-08-03"),
        ("this morning", "2026-08-05", "2026-08-05"),
        ("this week", "2026-08-03", "2026-08-09"),
        ("last week", "2026-07-27", "2026-08-02"),
        ("last weekend", "2026-08-01", "2026-08-02"),
        ("last Friday", "2026-07-31", "2026-07-31"),
        ("last Wednesday", "2026-07-29", "2026-07-29"),
        ("last month", "2026-07-01", "2026-07-31"),
        ("last year", "2025-01-01", "2025-12-31"),
        ("last winter", "2025-12-01", "2026-02-28"),
        ("two days ago", "2026-08-03", "2026-08-03"),
        ("a few days ago", "2026-07-30", "2026-08-03"),
        ("a couple of weeks ago", "2026-07-12", "2026-08-01"),
        ("3 months ago", "2026-05-01", "2026-05-31"),
        ("the past 3 days", "2026-08-02", "2026-08-05"),
        ("2025-10-02", "2025-10-02", "2025-10-02"),
        ("2025/10/2", "2025-10-02", "2025-10-02"),
        ("2025-10", "2025-10-01", "2025-10-31"),
        ("20251002", "2025-10-02", "2025-10-02"),
        ("10/2", "2025-10-02", "2025-10-02"),
        ("25/12", "2025-12-25", "2025-12-25"),
        ("2月29日", "2024-02-29", "2024-02-29"),
        ("三个半月前", "2026-04-01", "2026-05-31"),
        ("一年半前", "2025-02-01", "2025-02-28"),
        ("去年的今天", "2025-08-05", "2025-08-05"),
        ("2024年今天", "2024-08-05", "2024-08-05"),
        ("两年前的今天", "2024-08-05", "2024-08-05"),
        ("三个月前的今天", "2026-05-05", "2026-05-05"),
        ("上个月的今天", "2026-07-05", "2026-07-05"),
        ("two years ago today", "2024-08-05", "2024-08-05"),
        ("大后天", "2026-08-08", "2026-08-08"),
        ("下周", "2026-08-10", "2026-08-16"),
        ("下下周", "2026-08-17", "2026-08-23"),
        ("下下周三", "2026-08-19", "2026-08-19"),
        ("下下个月", "2026-10-01", "2026-10-31"),
        ("5月2-5日", "2026-05-02", "2026-05-05"),
        ("5月2～5号", "2026-05-02", "2026-05-05"),
        ("5月30日到6月2日", "2026-05-30", "2026-06-02"),
        ("5月30-6月2日", "2026-05-30", "2026-06-02"),
        ("12月30日至1月2日", "2025-12-30", "2026-01-02"),
        ("2024年12月30日至2025年1月2日", "2024-12-30", "2025-01-02"),
        ("去年3月到5月", "2025-03-01", "2025-05-31"),
    ],
)
def test_the_first_span_of_a_date(query: str, start: str, end: str) -> None:
    assert _spans(query)[0] == (date.fromisoformat(start), date.fromisoformat(end))


@pytest.mark.parametrize(
    "query",
    [
        "2月30日", "13月1日", "100月", "2026-04-31", "Feb 30", "31 June", "0/5", "42", "2024", "5", "十", "DEC-0054", "DEC 0054",
        "version 2026.4", "10/2/x", "src/10/2", "1/2/3", "3:10", "you may march", "every weekday", "每周三", "一周三次", "晚上月亮",
        "third time", "三个月", "may I", "sat down", "monday.com", "9999年前", "", "9" * 3000,
    ],
)  # fmt: skip
def test_what_is_no_date(query: str) -> None:
    assert _spans(query) == []


def test_a_date_without_a_year_means_every_year_the_newest_most() -> None:
    spans = dates.date_spans("9月1日", NOW)
    assert [span.start.year for span in spans[:2]] == [2025, 2024]
    assert [span.weight for span in spans] == sorted({span.weight for span in spans}, reverse=True)
    assert spans[0].weight == 1


@pytest.mark.parametrize(
    "query",
    ["三个半月前", "去年的今天", "两年前的今天", "two years ago today", "大后天", "下下周", "2024年5月30日到6月2日"],
)
def test_a_date_is_read_whole(query: str) -> None:
    assert len(_spans(query)) == 1


def test_several_dates_of_a_query_count_all() -> None:
    assert _spans("昨天 and last week") == [(date(2026, 8, 4),) * 2, (date(2026, 7, 27), date(2026, 8, 2))]


def test_a_day_says_more_than_a_month_and_a_month_more_than_a_year() -> None:
    time = datetime(2025, 10, 2, 23, 59, 59)
    scores = [dates.date_score(time, dates.date_spans(query, NOW)) for query in ("2025-10-02", "2025年10月", "in 2025")]
    assert scores[0] == 1
    assert scores == sorted(set(scores), reverse=True)
    assert dates.date_score(time + timedelta(seconds=1), dates.date_spans("2025-10-02", NOW)) == 0
    assert dates.date_score(time, []) == 0


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("5月2号 发布", "发布"), ("what broke last week?", "what broke ?"), ("昨天", ""), ("release 2026.4.10", "release 2026.4.10"),
        ("Deploy", "deploy"), ("10/2 deploy", "10/2 deploy"),
    ],
)  # fmt: skip
def test_what_is_left_of_a_query_without_its_dates(query: str, left: str) -> None:
    assert ranking.undated(query).split() == left.split()


pieces = st.sampled_from(
    """
    上 下 本 这 去年 前 后 大 天 昨 今 周 星期 月 年 日 号 季度 半 个 几 两 十 三 一 二〇二五 2025 31 2 0 99 - / . 到 last next this in of on
    past may march dec fri day week month year ago few a the nd th q3 third quarter summer weekend
    """.split()  # noqa: SIM905 - in quotes and commas nobody would read it
)


@given(st.lists(st.one_of(pieces, pieces, st.text(max_size=2)), max_size=12), st.sampled_from(["", " "]))
def test_no_query_breaks_the_dates_and_each_span_is_one(parts: list[str], between: str) -> None:
    query = between.join(parts)
    for span in dates.date_spans(query, NOW):
        assert span.start <= span.end
        assert 0 < span.weight <= 1
    ranking.undated(query)


@given(st.dates(date(1990, 1, 1), date(2099, 12, 31)))
def test_every_day_is_read_however_it_is_written(day: date) -> None:
    for query in (
        f"{day}",
        f"{day:%Y/%m/%d}",
        f"{day.year}年{day.month}月{day.day}日",
        f"{day:%B} {day.day}, {day.year}",
    ):
        assert (day, day) in _spans(query), query


scores = st.dictionaries(st.integers(0, 6), st.floats(0, 1e6), max_size=6)


@given(
    st.dictionaries(st.sampled_from("abcd"), scores),
    scores.map(lambda found: {key: min(1.0, found[key]) for key in found}),
)
def test_fusion_does_not_depend_on_the_order_of_routes_or_keys(
    routes: dict[str, dict[int, float]], newness: dict[int, float]
) -> None:
    weights = {"a": 1.0, "b": 0.5, "c": 0.1, "d": 0.7}
    turned = {name: dict(reversed(list(routes[name].items()))) for name in reversed(list(routes))}
    fused = ranking.fuse(routes, weights, newness)
    assert fused == ranking.fuse(turned, weights, newness)
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)
    assert {key for key, _ in fused} == {key for found in routes.values() for key in found if found[key] > 0}


@given(scores, st.floats(0.001, 1000))
def test_the_scale_of_a_route_does_not_matter(found: dict[int, float], factor: float) -> None:
    assume(all(score == 0 or score > 1e-9 for score in found.values()))
    scaled = {key: score * factor for key, score in found.items()}
    before, after = (dict(ranking.fuse({"a": route}, {"a": 1.0}, {})) for route in (found, scaled))
    assert after == pytest.approx(before)


def test_newness_breaks_ties_and_never_turns_a_clear_order() -> None:
    routes = {"a": {1: 10.0, 2: 10.0, 3: 9.0, 4: 10.0}}
    assert [key for key, _ in ranking.fuse(routes, {"a": 1.0}, {1: 0.2, 3: 1.0, 4: 0.2})] == [4, 1, 2, 3]


def test_newness() -> None:
    old, new = datetime(2025, 1, 1), datetime(2025, 1, 3)
    assert [ranking.newness(time, new, old) for time in (old, datetime(2025, 1, 2), new, None)] == [0, 0.5, 1, 0]
    assert ranking.newness(new + timedelta(1), new, old) == 1
    assert ranking.newness(old, old, old) == 0


def test_neighbours_in_time_get_a_share_that_falls_with_the_distance() -> None:
    places = {key: key for key in range(5)}
    times: dict[int, datetime | None] = {key: NOW + timedelta(minutes=key) for key in range(5)}
    spread = ranking.neighbours({1: 4.0}, places, times)
    assert spread[1] == 4
    assert 0 < spread[3] < spread[2] == spread[0] < 1
    assert 4 not in spread
    far = ranking.neighbours({1: 4.0}, places, times | {2: NOW + timedelta(days=30)})
    assert far[2] < 1e-9 < far[3]
    untimed = ranking.neighbours({1: 4.0}, places, times | {2: None})
    assert untimed.get(2, 0.0) == 0
    assert ranking.neighbours({}, places, times) == {}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("触发「怎么回滚？」⇒ 先看日志", True),
        ("触发「（空）」⇒ （空）", True),
        ("触发「say 「hi」」⇒ hi…", True),
        ("见 触发「x」⇒ y", False),
        ("触发「告警」之后打电话", False),
        ("trigger: x => y", False),
    ],
)
def test_footprints(content: str, expected: bool) -> None:
    assert ranking.is_footprint(content) is expected


def test_the_stemmer_is_imported_only_for_a_word_that_needs_it() -> None:
    code = (
        "import sys\nfrom oryx_memory import ranking\nbefore = 'Stemmer' in sys.modules\nranking.tokens('复核')\n"
        "print(before, 'Stemmer' in sys.modules, ranking.tokens('deploys'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout.decode().split(" ", 2) == ["False", "False", "['deploy']\n"]


def test_the_evaluation_prints_every_set_and_mode_and_reaches_what_recall_must() -> None:
    script = Path(__file__).parent.parent / "evaluation" / "evaluate.py"
    command = [sys.executable, str(script), "--mode", "keyword", "--mode", "recall --mode ranked"]
    lines = subprocess.run(command, capture_output=True, check=True).stdout.decode().splitlines()
    assert len(lines) == 3 * 3 + 1
    best = {lines[at].split()[0]: float(lines[at + 2].split()[-3]) for at in (0, 3, 6)}
    least = {"memorybank_en": 0.85, "madial_zh": 0.66, "lifebench_zh_a": 0.72}
    assert {name: figure >= least[name] for name, figure in best.items()} == dict.fromkeys(least, True)
