"""Embedders: a real server on loopback behind the real SDK, a model made here behind the real model2vec, and the hash."""

import json
import os
import re
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pytest
from command import real
from embedding_server import EmbeddingServer, Reply, in_base64, refusal, vector
from hypothesis import given
from hypothesis import strategies as st
from model2vec import StaticModel
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from waits import Waits

from oryx_memory import OryxMemoryError, OryxMemoryWarning, SettingsError, Workspace, settings, stores, vectors
from oryx_memory.embeddings import (
    PATIENCE,
    PRESETS,
    TRIES,
    Embedder,
    Kind,
    letters_by_script,
    open_embedder,
    vocabulary_scripts,
)
from oryx_memory.errors import ServiceProblem
from oryx_memory.remote import without_echo

KEY = "sk-proj-0123456789abcdef"
SECRET = "上线前必须两人复核，密码在保险箱里"


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as running:
        yield running


@pytest.fixture
def waits() -> Waits:
    return Waits()


def at(server: EmbeddingServer, waits: Waits | None = None, **options: Any) -> Embedder:
    """The embedder of a server, with a key in the variable KEY."""
    table = {"provider": "openai", "base_url": server.url, "model": "m", "api_key_env": "KEY", **options}
    return opened(table, {"KEY": KEY}, waits)


def opened(options: dict[str, Any], environment: dict[str, str] | None = None, waits: Waits | None = None) -> Embedder:
    embedder = open_embedder(options, environment or {}, pace=(waits or Waits()).pace)
    assert embedder is not None
    return embedder


def problem(embedder: Embedder, texts: Sequence[str] = ("one",), kind: Kind = "document") -> ServiceProblem:
    """The error of an attempt to embed, which says who failed on one line, and neither key nor text."""
    with pytest.raises(ServiceProblem) as caught:
        embedder.embed(texts, kind)
    message = str(caught.value)
    assert message.isprintable()
    assert KEY not in message
    assert not any(len(text) > 5 and text in message for text in texts)
    assert caught.value.exit_code == 4
    return caught.value


def attempt(embedder: Embedder, kind: Kind = "document") -> NDArray[np.float32] | ServiceProblem:
    try:
        return embedder.embed(["text"], kind)
    except ServiceProblem as problem:
        return problem


def units(rows: Sequence[Sequence[float]]) -> NDArray[np.float32]:
    array = np.array(rows, np.float64)
    return (array / np.linalg.norm(array, axis=1, keepdims=True)).astype(np.float32)


def good(vectors: NDArray[np.float32]) -> bool:
    """Whether an array is what every embedder promises."""
    return (
        vectors.dtype == np.float32
        and vectors.flags.c_contiguous
        and bool(np.isfinite(vectors).all())
        and bool(np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5))
    )


# What every embedder does


class Fake(Embedder):
    """An embedder over a function from texts to rows."""

    def __init__(self, rows: Callable[[Sequence[str]], Any], *, batch: int = 3, max_chars: int = 20) -> None:
        self.rows, self.batch, self.max_chars = rows, batch, max_chars
        self.model = "fake"
        self.got: list[list[str]] = []

    def _answer(self, texts: Sequence[str], kind: Kind) -> NDArray[np.float64]:
        self.got.append(list(texts))
        return np.array(self.rows(texts), np.float64)

    def _fault(self, message: str, *, heals: bool = False, of_texts: bool = False) -> ServiceProblem:
        return ServiceProblem(self.model, message, heals=heals, of_texts=of_texts)


@given(st.lists(st.text(max_size=20), max_size=12), st.integers(1, 5))
def test_texts_are_asked_for_in_batches_and_come_in_their_order(texts: list[str], batch: int) -> None:
    def rows(texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, len(text), sum(map(ord, text))] for text in texts]

    embedder = Fake(rows, batch=batch)
    whole = embedder.embed(texts)
    assert whole.shape == (len(texts), 3 if texts else 0)
    assert good(whole)
    assert [text for part in embedder.got for text in part] == texts
    assert all(0 < len(part) <= batch for part in embedder.got)
    assert [row.tolist() for row in whole] == [embedder.embed([text])[0].tolist() for text in texts]


wild = st.floats(allow_nan=True, allow_infinity=True) | st.sampled_from([0.0, -0.0, 5e-324, 1.7e308, -1e-300])


@given(st.lists(st.lists(wild, min_size=3, max_size=3), min_size=1, max_size=4))
def test_any_rows_come_out_as_unit_vectors_or_as_an_error_never_as_nan(rows: list[list[float]]) -> None:
    embedder = Fake(lambda texts: rows, batch=9)
    bad = any(not np.isfinite(row).all() or not any(row) for row in rows)
    if bad:
        assert not problem(embedder, ["text"] * len(rows)).heals
    else:
        vectors = embedder.embed(["text"] * len(rows))
        assert good(vectors)
        assert (np.sign(vectors) == np.sign(np.array(rows))).all() or (np.abs(vectors) < 1e-30).any()


def test_the_error_names_the_row_that_is_no_vector() -> None:
    assert "vector 2 of 2 has numbers that are not finite" in str(
        problem(Fake(lambda _: [[1, 0], [1, np.nan]]), ["a", "b"])
    )
    assert "vector 1 of 2 is all zeros" in str(problem(Fake(lambda _: [[0, 0], [1, 1]]), ["a", "b"]))


def test_another_dimension_than_before_is_an_error_and_the_first_one_stays() -> None:
    sizes = iter([3, 3, 4])
    embedder = Fake(lambda texts: [[1.0] * next(sizes)] * len(texts))
    assert embedder.embed(["a"]).shape == embedder.embed(["b"]).shape == (1, 3)
    assert "gave vectors of 4 dimensions where 3" in str(problem(embedder, ["c"]))
    assert embedder.dimensions == 3


def test_long_texts_are_cut_with_one_notice_a_call() -> None:
    embedder = Fake(lambda texts: [[1.0]] * len(texts), batch=1, max_chars=4)
    with pytest.warns(OryxMemoryWarning) as caught:
        embedder.embed(["复核流程上线", "four", "longer than four", ""])
    assert [str(warning.message) for warning in caught] == [
        "what is longer than 4 characters was cut to that for embedding; [embedding] max_chars sets the limit"
    ]
    assert caught[0].filename.endswith(("embeddings.py", "test_embeddings.py"))
    assert embedder.got == [["复核流程"], ["four"], ["long"], [""]]


def test_lone_surrogates_do_not_reach_an_embedder() -> None:
    embedder = Fake(lambda texts: [[1.0]])
    embedder.embed(["a\udce9b"])
    assert embedder.got == [["a?b"]]


def test_no_texts_are_no_work() -> None:
    embedder = Fake(lambda texts: pytest.fail("asked about nothing"))
    assert embedder.embed([]).shape == (0, 0)


# The protocol


def test_an_endpoint_is_asked_in_its_protocol_and_answers_unit_vectors(server: EmbeddingServer) -> None:
    embedder = at(server)
    assert (embedder.dimensions, embedder.scripts, embedder.remote) == (None, None, False)
    texts = ["上线前必须两人复核", "Never deploy on Friday", "nul \x00 and \u2028"]
    vectors = embedder.embed(texts)
    assert np.allclose(vectors, units([vector(text) for text in texts]), atol=1e-6)
    assert good(vectors)
    assert embedder.dimensions == 8
    (request,) = server.asked
    assert request.path == "/v1/embeddings"
    assert request.body == {"model": "m", "input": texts, "encoding_format": "base64"}
    assert request.headers["authorization"] == f"Bearer {KEY}"


def test_texts_go_out_in_batches_and_none_that_is_too_long(server: EmbeddingServer) -> None:
    embedder = at(server, batch=2, max_chars=3)
    with pytest.warns(OryxMemoryWarning, match="longer than 3 characters"):
        vectors = embedder.embed(["a", "b", "c", "d", "efgh"])
    assert [request.body["input"] for request in server.asked] == [["a", "b"], ["c", "d"], ["efg"]]
    assert np.allclose(vectors, units([vector(text) for text in "abcde"]), atol=1e-6)


@given(data=st.data())
def _answers_in_any_order_and_form(server: EmbeddingServer, embedder: Embedder, data: st.DataObject) -> None:
    number = st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda value: abs(value) > 1e-30 or value == 0)
    rows = data.draw(st.lists(st.lists(number, min_size=4, max_size=4).filter(any), min_size=1, max_size=5))
    order = data.draw(st.permutations(range(len(rows))))
    forms = [data.draw(st.booleans()) for _ in rows]

    def change(answer: dict[str, Any]) -> None:
        answer["data"] = [
            {"index": place, "embedding": in_base64(rows[place]) if forms[place] else rows[place]} for place in order
        ]

    server.plan.append(Reply(change=change))
    vectors = embedder.embed(["text"] * len(rows))
    assert good(vectors)
    peaks = np.abs(rows).max(axis=1, keepdims=True)
    assert np.allclose(vectors, units(np.array(rows) / peaks), atol=1e-6)


def test_vectors_belong_to_their_texts_in_whatever_order_and_form_they_come(server: EmbeddingServer) -> None:
    _answers_in_any_order_and_form(server, at(server))


jsons = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["index", "embedding", "x"]), inner),
    max_leaves=8,
)
bodies = st.one_of(
    st.binary(max_size=40),
    jsons.map(lambda value: json.dumps(value).encode()),
    jsons.map(lambda value: json.dumps({"data": value}).encode()),
    st.lists(jsons, min_size=1, max_size=1).map(lambda value: json.dumps({"data": value}).encode()),
    jsons.map(lambda value: json.dumps({"data": [{"index": 0, "embedding": value}], "model": "m"}).encode()),
    st.lists(st.one_of(st.integers(), st.floats()), max_size=4).map(
        lambda row: json.dumps({"data": [{"index": 0, "embedding": row}], "model": row}).encode()
    ),
)


@given(
    body=bodies, kind=st.sampled_from(["application/json", "text/html", "x/\xff"]), status=st.sampled_from([200, 400])
)
def _anything_is_a_vector_or_a_problem(
    server: EmbeddingServer, embedder: Embedder, body: bytes, kind: str, status: int
) -> None:
    server.plan.append(Reply(status, {"Content-Type": kind}, body))
    outcome = attempt(embedder)
    if isinstance(outcome, ServiceProblem):
        assert not outcome.heals
        assert str(outcome).isprintable()
    else:
        assert good(outcome)


def test_whatever_an_endpoint_answers_is_a_good_vector_or_a_service_problem(server: EmbeddingServer) -> None:
    _anything_is_a_vector_or_a_problem(server, at(server))


def test_a_deeply_nested_answer_is_a_service_problem(server: EmbeddingServer) -> None:
    server.plan.append(Reply(body=b"[" * 200_000))
    assert "something else than JSON" in str(problem(at(server)))


def _with(place: int, **fields: Any) -> Callable[[dict[str, Any]], None]:
    return lambda answer: answer["data"][place].update(fields)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (Reply(body=b"<html>Welcome</html>", headers={"Content-Type": "text/html"}), "something else than JSON"),
        (Reply(body=b'{"data": [{"index": 0, "embe'), "something else than JSON"),
        (Reply(body=b'{"ok": true}'), "without a list of embeddings"),
        (Reply(change=lambda answer: answer["data"].pop()), "gave 1 vectors for 2 texts"),
        (Reply(change=lambda answer: answer["data"].append(answer["data"][0])), "gave 3 vectors for 2 texts"),
        (Reply(change=_with(1, index=0)), "numbered the vectors of an answer wrongly"),
        (Reply(change=_with(1, index=2)), "numbered the vectors of an answer wrongly"),
        (Reply(change=_with(0, index=None)), "numbered the vectors of an answer wrongly"),
        (Reply(change=_with(1, embedding=[1.0, 2.0])), "gave vectors of 2 and 8 dimensions in one answer"),
        (Reply(change=_with(0, embedding=[float("nan")] * 8)), "vector 1 of 2 has numbers that are not finite"),
        (Reply(change=_with(1, embedding=in_base64([float("inf")] * 8))), "vector 2 of 2 has numbers that are not"),
        (Reply(change=_with(1, embedding=[0] * 8)), "vector 2 of 2 is all zeros"),
        (Reply(change=_with(0, embedding="$$$$")), "neither a list of numbers nor base64"),
        (Reply(change=_with(0, embedding="AAA=")), "neither a list of numbers nor base64"),
        (Reply(change=_with(0, embedding=["1"] * 8)), "neither a list of numbers nor base64"),
        (Reply(change=_with(0, embedding=[True] * 8)), "neither a list of numbers nor base64"),
        (Reply(change=_with(0, embedding=[10**400] * 8)), "neither a list of numbers nor base64"),
        (Reply(change=_with(0, embedding=None)), "neither a list of numbers nor base64"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_answer_is_named_and_does_not_heal(server: EmbeddingServer, reply: Reply, said: str) -> None:
    server.plan.append(reply)
    caught = problem(at(server), ["one", "two"])
    assert said in str(caught)
    assert not caught.heals
    assert len(server.asked) == 1


def test_an_answer_without_indices_is_taken_in_its_order(server: EmbeddingServer) -> None:
    server.plan.append(Reply(change=lambda answer: [item.pop("index") for item in answer["data"]] and None))
    assert np.allclose(at(server).embed(["a", "b"]), units([vector("a"), vector("b")]), atol=1e-6)


def test_dimensions_are_asked_for_and_must_come(server: EmbeddingServer) -> None:
    embedder = at(server, dimensions=4)
    assert embedder.dimensions == 4
    assert embedder.embed(["a"]).shape == (1, 4)
    assert server.asked[0].body["dimensions"] == 4
    assert embedder.model.endswith(":m:4")
    server.plan.append(Reply(change=_with(0, embedding=[1.0] * 8)))
    assert "8 dimensions where 4 were asked for" in str(problem(at(server, dimensions=4)))


def test_a_model_that_changes_in_the_middle_of_the_work_stops_it(server: EmbeddingServer) -> None:
    server.plan.extend([Reply(), Reply(change=lambda answer: answer.update(model="m2\x1b[0m"))])
    with pytest.raises(ServiceProblem, match=r"answered as model m2\\u001b\[0m after m;") as caught:
        at(server, batch=1).embed(["a", "b", "c"])
    assert not caught.value.heals
    assert server.texts() == ["a", "b"]


# Errors and retries


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (refusal(401, "bad key"), "refused the key (401: bad key); put a valid key into KEY"),
        (refusal(402, "pay"), "no credit or quota left (402: pay)"),
        (refusal(403, "余额不足"), "refused access (403: 余额不足)"),
        (refusal(404, "no such model"), "knows no m at http://127.0.0.1"),
        (refusal(400, "batch too large"), "refused the request (400: batch too large)"),
        (refusal(413), "refused the request (413: no)"),
        (refusal(429, code="insufficient_quota"), "no credit or quota left (429: no)"),
        (refusal(429, "您的账户已欠费", code="1113"), "no credit or quota left (429: 您的账户已欠费)"),
        (refusal(307, Location="http://127.0.0.1:9/"), "a redirect (307), which is not followed"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_waiting_does_not_heal_is_asked_once(
    server: EmbeddingServer, waits: Waits, reply: Reply, said: str
) -> None:
    server.plan.append(reply)
    caught = problem(at(server, waits))
    assert said in str(caught)
    assert not caught.heals
    assert (len(server.asked), waits.slept) == (1, [])


@pytest.mark.parametrize(
    "reply", [refusal(429), refusal(500), refusal(503), refusal(408), Reply(cut=True), Reply(502, body=b"<html>")]
)
def test_what_waiting_may_heal_is_asked_again_until_it_has(server: EmbeddingServer, waits: Waits, reply: Reply) -> None:
    server.plan.extend([reply] * (TRIES - 1))
    assert np.allclose(at(server, waits).embed(["a"]), units([vector("a")]), atol=1e-6)
    assert waits.slept == [0.375, 0.75, 1.5, 3.0]
    assert server.texts() == ["a"] * TRIES


def test_retries_end_and_the_error_says_how_many_there_were(server: EmbeddingServer, waits: Waits) -> None:
    server.plan.extend([refusal(503, "busy")] * 9)
    caught = problem(at(server, waits))
    assert caught.heals
    assert "failed (503: busy), after 5 tries; try again later" in str(caught)
    assert len(server.asked) == TRIES


@given(
    st.lists(st.tuples(st.sampled_from([200, 429, 500, 401]), st.none() | st.integers(0, 90)), max_size=7),
    st.booleans(),
)
def _retries_are_bounded(
    server: EmbeddingServer, make: Callable[[Waits], Embedder], replies: list[tuple[int, int | None]], asking: bool
) -> None:
    waits = Waits()
    server.plan.clear()
    server.asked.clear()
    for status, after in replies:
        server.plan.append(
            Reply() if status == 200 else refusal(status, **({} if after is None else {"retry_after": str(after)}))
        )
    kind: Kind = "query" if asking else "document"
    outcome = attempt(make(waits), kind)
    last = replies[len(server.asked) - 1][0] if isinstance(outcome, ServiceProblem) else 200
    assert not isinstance(outcome, ServiceProblem) or outcome.heals == (last != 401)
    asked = [status for status, _ in [*replies, (200, None)]][: len(server.asked)]
    assert set(asked[:-1]) <= {429, 500}
    assert asked[-1] == last
    assert len(asked) <= TRIES
    assert sum(waits.slept) <= PATIENCE[kind]
    for (_, after), slept in zip(replies, waits.slept, strict=False):
        assert slept >= (after or 0)


def test_retries_are_bounded_in_number_and_time_and_wait_as_long_as_asked(server: EmbeddingServer) -> None:
    shared = at(server)

    def make(waits: Waits) -> Embedder:
        shared._pace = waits.pace  # type: ignore[attr-defined] # a client for each example would be most of the work
        return shared

    _retries_are_bounded(server, make)


def test_retry_after_is_honoured_as_seconds_and_as_a_date_by_the_servers_clock(
    server: EmbeddingServer, waits: Waits
) -> None:
    sent = datetime(1999, 12, 31, 23, 59, 50, tzinfo=UTC)
    date = {"Date": format_datetime(sent, usegmt=True)}
    until = format_datetime(sent + timedelta(seconds=20), usegmt=True)
    server.plan.extend(
        [refusal(429, retry_after="7"), refusal(503, retry_after=until, **date), refusal(429, retry_after="soon")]
    )
    at(server, waits).embed(["a"])
    assert waits.slept == [7.5, 20.5, 1.5]


def test_who_is_told_to_come_back_after_our_patience_is_told_so_at_once(server: EmbeddingServer, waits: Waits) -> None:
    server.plan.append(refusal(429, retry_after="3600"))
    caught = problem(at(server, waits))
    assert caught.heals
    assert "it asks to wait 3600 s" in str(caught)
    assert waits.slept == []


def test_a_query_waits_less_than_a_document_since_somebody_waits_for_it(server: EmbeddingServer) -> None:
    tries = {}
    for kind in ("document", "query"):
        server.asked.clear()
        server.plan.extend([refusal(500)] * TRIES)
        problem(at(server), kind=kind)  # type: ignore[arg-type]
        tries[kind] = len(server.asked)
        server.plan.clear()
    assert tries == {"document": 5, "query": 3}


def test_a_slow_endpoint_is_given_up(server: EmbeddingServer, waits: Waits) -> None:
    free = threading.Event()
    server.plan.extend([Reply(wait=free)] * TRIES)
    try:
        caught = problem(at(server, waits, timeout=0.1))
    finally:
        free.set()
    assert caught.heals
    assert "gave no answer within 0.1 s, after 5 tries" in str(caught)


def test_nobody_listening_heals() -> None:
    with EmbeddingServer() as gone:
        pass
    caught = problem(at(gone))
    assert caught.heals
    assert "did not answer at http://127.0.0.1" in str(caught)
    assert "Connection refused" in str(caught)


# What goes out, and what an error may say


def test_a_message_quotes_neither_the_key_nor_the_texts_that_were_sent(server: EmbeddingServer) -> None:
    server.plan.append(
        refusal(400, f"key {KEY} (sk-proj-) and input '{SECRET[:12]}' or '{SECRET}' or 'pin7' are wrong")
    )
    message = str(problem(at(server), [SECRET, "pin7"]))
    assert "key … (…) and input '…' or '…' or '…' are wrong" in message


def test_a_message_is_one_line_that_no_terminal_obeys_and_says_that_it_was_cut(server: EmbeddingServer) -> None:
    server.plan.append(refusal(400, "\x1b[2J one\ntwo \u202e " + "长" * 300))
    message = str(problem(at(server)))
    assert "(400: \\u001b[2J one two \\u202e 长长" in message
    assert "长… (cut))" in message
    assert len(message) < 400


@given(st.text(max_size=60), st.lists(st.text(min_size=1, max_size=40), max_size=3), st.integers(2, 12), st.data())
def test_no_run_of_a_secret_is_left_in_a_message(
    message: str, secrets: list[str], shared: int, data: st.DataObject
) -> None:
    for secret in secrets:
        start = data.draw(st.integers(0, len(secret)))
        at = data.draw(st.integers(0, len(message)))
        message = message[:at] + secret[start : data.draw(st.integers(start, len(secret)))] + message[at:]
    kept = without_echo(message, secrets, shared)
    known = [secret.encode("utf-8", "replace") for secret in secrets]
    for piece in kept.encode("utf-8", "replace").split("…".encode()):
        runs = (piece[at : at + shared] for at in range(len(piece) - shared + 1))
        assert not any(run in secret for run in runs for secret in known)
        assert not any(3 < len(secret) < shared and secret in piece for secret in known)
    if not secrets:
        assert kept == message


def test_the_key_of_a_provider_goes_to_no_other_address(server: EmbeddingServer) -> None:
    options = {"provider": "openai", "base_url": server.url, "model": "m"}
    opened(options, {"OPENAI_API_KEY": KEY}).embed(["a"])
    assert "authorization" not in server.asked[0].headers
    server.plan.append(refusal(401))
    caught = problem(opened(options, {"OPENAI_API_KEY": KEY}))
    assert "name the environment variable that holds its key under [embedding] api_key_env" in str(caught)


def test_what_the_sdk_finds_in_the_environment_does_not_go_out(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, f"secret {name}")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Team: secret\nAuthorization: secret")
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/")
    at(server).embed(["a"])
    opened({"provider": "openai", "base_url": server.url}).embed(["a"])
    for request in server.asked:
        assert "secret" not in str(request.headers)
        assert not any(name.startswith(("x-stainless-os", "x-stainless-arch", "openai-")) for name in request.headers)


def test_texts_for_this_machine_pass_no_proxy_and_follow_no_redirect(
    server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddingServer() as elsewhere:
        proxy = elsewhere.url.removesuffix("/v1")
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        at(server).embed(["a"])
        server.plan.append(refusal(307, Location=f"{elsewhere.url}/embeddings"))
        problem(at(server))
        assert elsewhere.asked == []
    assert len(server.asked) == 2


def test_no_traceback_of_an_error_holds_the_request(server: EmbeddingServer) -> None:
    server.plan.append(refusal(401))
    caught = problem(at(server), [SECRET])
    assert caught.__cause__ is None
    assert caught.__suppress_context__


# What is configured


@pytest.mark.parametrize("provider", [name for name in PRESETS if PRESETS[name].key])
def test_a_preset_needs_its_key_and_nothing_else(provider: str) -> None:
    preset = PRESETS[provider]
    with pytest.raises(SettingsError, match=f"{provider} needs its key in the environment variable {preset.key}$"):
        open_embedder({"provider": provider}, {preset.key: " \n"})
    embedder = opened({"provider": provider, "dimensions": None, "batch": None, "model": ""}, {preset.key: f"{KEY}\n"})
    assert embedder.model == f"{provider}:{preset.model}"
    assert (embedder.dimensions, embedder.batch, embedder.max_chars) == (
        preset.dimensions,
        preset.batch,
        preset.max_chars,
    )
    assert embedder.remote
    same = opened(
        {"provider": provider, "dimensions": preset.dimensions, "base_url": preset.base_url + "/"}, {preset.key: KEY}
    )
    assert same.model == embedder.model
    other = opened({"provider": provider, "dimensions": 256}, {preset.key: KEY})
    assert (other.model, other.dimensions) == (f"{provider}:{preset.model}:256", 256)


def test_ollama_needs_no_key_and_is_here_unless_it_is_somewhere_else() -> None:
    assert not opened({"provider": "ollama"}).remote
    away = opened({"provider": "ollama", "base_url": "http://gpu.lan:11434/v1"})
    assert away.remote
    assert away.model == "ollama@gpu.lan:11434/v1:bge-m3"


@pytest.mark.parametrize(
    ("base_url", "remote"),
    [
        ("http://127.0.0.1:1/v1", False),
        ("http://127.8.8.8/v1", False),
        ("http://localhost:11434/v1", False),
        ("http://[::1]:1/v1", False),
        ("http://0.0.0.0:1/v1", True),
        ("http://localhost.example.com/v1", True),
        ("https://127.0.0.1.nip.io/v1", True),
        ("http://10.0.0.1/v1", True),
    ],
)
def test_only_loopback_is_this_machine(base_url: str, remote: bool) -> None:
    assert opened({"provider": "openai", "base_url": base_url}).remote == remote


@pytest.mark.parametrize(
    ("options", "environment", "message"),
    [
        (
            {"provider": "opnai"},
            {},
            "unknown provider 'opnai'; it must be one of dashscope, hashing, model2vec, ollama",
        ),
        ({"provider": "ollama", "base_url": "ftp://x/"}, {}, "must be like https://"),
        ({"provider": "ollama", "base_url": "x"}, {}, "must be like https://"),
        ({"provider": "ollama", "base_url": "http://a b/v1"}, {}, "must be like https://"),
        ({"provider": "ollama", "base_url": "http://x/v1?a=1"}, {}, "must be like https://"),
        ({"provider": "ollama", "base_url": "http://x:99999/"}, {}, "embedding.base_url: Port out of range"),
        ({"provider": "ollama", "base_url": "http://..:1/"}, {}, "embedding.base_url: "),
        ({"provider": "ollama", "base_url": f"http://{'a' * 300}/"}, {}, "embedding.base_url: "),
        ({"provider": "ollama", "base_url": "http://[::1/"}, {}, "embedding.base_url: "),
        ({"provider": "ollama", "base_url": f"http://me:{KEY}@x/v1"}, {}, "holds a name or a password"),
        (
            {"provider": "ollama", "api_key_env": "K"},
            {"K": f"{KEY}\x00"},
            "the environment variable K holds characters",
        ),
        ({"provider": "ollama", "api_key_env": "K"}, {"K": f"密{KEY}"}, "the environment variable K holds characters"),
        ({"provider": "ollama", "api_key_env": "K"}, {}, "needs its key in the environment variable K"),
        ({"provider": "model2vec"}, {}, "model2vec needs an absolute path of a folder"),
        ({"provider": "model2vec", "model": "models/../x"}, {}, "model2vec needs an absolute path of a folder"),
        ({"provider": "model2vec", "model": "/nowhere/at/all"}, {}, "no model.safetensors in /nowhere/at/all"),
    ],
)
def test_wrong_settings_are_named_before_anything_is_asked(
    options: dict[str, Any], environment: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        open_embedder(options, environment)
    assert message in str(caught.value)
    assert KEY not in str(caught.value)
    assert str(caught.value).isprintable()


def test_no_provider_is_no_embedder() -> None:
    assert open_embedder({"provider": ""}, {}) is None
    assert open_embedder({}, {}) is None


@pytest.mark.parametrize(
    ("provider", "module", "extra"),
    [
        ("openai", "openai", "models"),
        ("siliconflow", "numpy", "models"),
        ("model2vec", "model2vec", "local"),
        ("hashing", "numpy", "vectors"),
    ],
)
def test_an_extra_that_is_missing_is_named_with_the_command_that_installs_it(
    provider: str, module: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SettingsError, match=re.escape(f"run pip install 'oryx-memory[{extra}]'")):
        open_embedder({"provider": provider}, {"OPENAI_API_KEY": KEY, "SILICONFLOW_API_KEY": KEY})


def test_opening_an_embedder_imports_none_of_the_extras(small_model: Path) -> None:
    code = (
        "import sys\nfrom oryx_memory.embeddings import open_embedder\n"
        "for provider in ('openai', 'ollama', 'hashing', 'model2vec'):\n"
        "    assert open_embedder({'provider': provider, 'model': sys.argv[1]}, {'OPENAI_API_KEY': 'k'})\n"
        "print({'numpy', 'openai', 'model2vec', 'tokenizers', 'httpx', 'httpx2'} & set(sys.modules))"
    )
    assert real([sys.executable, "-c", code, str(small_model)]).out == "set()\n"


# Static models

ENGLISH = ["deploy", "friday", "review", "release", "never", "before", "two", "people", "cat"]
CHINESE = list("上线前必须两人复核周五发布猫")


def make_model(folder: Path, words: Sequence[str], seed: int = 0) -> Path:
    """A static model of some words, English ones and single Chinese characters, saved in a folder."""
    vocabulary = {word: place for place, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    rows = np.random.default_rng(seed).normal(size=(len(vocabulary), 16)).astype(np.float32)
    StaticModel(rows, tokenizer).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "small", ENGLISH + CHINESE)


def static(folder: Path | str, **options: Any) -> Embedder:
    return opened({"provider": "model2vec", "model": str(folder), **options})


def test_a_static_model_from_a_folder_gives_the_mean_of_its_tokens(small_model: Path) -> None:
    embedder = static(small_model)
    assert not embedder.remote
    vectors = embedder.embed(["Review, release!", "复核", "复核 review"])
    assert good(vectors)
    table = dict(zip(["[UNK]", *ENGLISH, *CHINESE], StaticModel.from_pretrained(small_model).embedding, strict=True))
    means = [table["review"] + table["release"], table["复"] + table["核"], table["复"] + table["核"] + table["review"]]
    assert np.allclose(vectors, units(means), atol=1e-5)
    assert embedder.dimensions == 16


@pytest.mark.parametrize("words", [ENGLISH, CHINESE])
def test_a_static_model_of_one_language_indexes_a_memory_in_two(
    words: Sequence[str], workspace: Workspace, tmp_path: Path
) -> None:
    embedder = static(make_model(tmp_path / "m", words))
    store = stores.open(workspace, settings.load(workspace.root, {}), "ops")
    for text in (*ENGLISH[:2], *CHINESE[:2], "👍"):
        store.append(text)
    with vectors.open_index(workspace.index_file) as index:
        report = vectors.embed(index, store, embedder)
        assert (report.entries, report.vectors, report.excluded) == (5, 2, {"unknown": 3})
        assert vectors.verify(index, index.update(store)) == []


def test_a_long_text_is_embedded_whole_as_far_as_max_chars(small_model: Path) -> None:
    text = "deploy " * 600 + "cat " * 600  # the library itself would stop at 512 tokens, without a word
    embedder = static(small_model)
    assert np.allclose(embedder.embed([text]), embedder.embed(["deploy cat"]), atol=1e-4)


def test_a_static_model_can_be_asked_for_fewer_dimensions(small_model: Path) -> None:
    embedder = static(small_model, dimensions=4)
    assert embedder.embed(["cat"]).shape == (1, 4)
    assert embedder.model == f"{static(small_model).model}:4"
    assert "cannot be loaded" in str(problem(static(small_model, dimensions=99)))


def test_the_key_of_a_static_model_tells_its_weights_and_not_where_it_lies(tmp_path: Path) -> None:
    one = static(make_model(tmp_path / "a" / "m", ENGLISH)).model
    assert one == static(make_model(tmp_path / "b" / "m", ENGLISH)).model
    assert re.fullmatch("model2vec:m@[0-9a-f]{12}", one)
    assert one != static(make_model(tmp_path / "c" / "m", ENGLISH, seed=1)).model
    assert one != static(make_model(tmp_path / "d" / "m", ENGLISH[::-1])).model


def test_weights_too_many_to_read_whole_are_still_told_apart(tmp_path: Path) -> None:
    words = [f"w{number}" for number in range(20_000)]
    keys = {static(make_model(tmp_path / str(seed) / "m", words, seed)).model for seed in (0, 1)}
    assert (tmp_path / "0" / "m" / "model.safetensors").stat().st_size > 1 << 20
    assert len(keys) == 2


def test_a_hub_name_is_looked_up_in_the_cache_and_never_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_model(tmp_path / "someone" / "tiny", ENGLISH, seed=9)  # a folder of the project by the same name
    options = {"provider": "model2vec", "model": "someone/tiny"}
    home = {"HOME": str(tmp_path / "home")}
    with pytest.raises(
        SettingsError, match=r"someone/tiny is not in .*/home/\.cache/huggingface/hub; run: hf download someone/tiny$"
    ):
        open_embedder(options, home)
    for environment in (
        home,
        {"XDG_CACHE_HOME": str(tmp_path / "xdg")},
        {"HF_HOME": str(tmp_path / "hf")},
        {"HF_HUB_CACHE": str(tmp_path / "hub")},
    ):
        (kind,) = environment
        cache = Path(environment[kind]) / {
            "HOME": ".cache/huggingface/hub", "XDG_CACHE_HOME": "huggingface/hub", "HF_HOME": "hub", "HF_HUB_CACHE": ""
        }[kind]  # fmt: skip
        repository = cache / "models--someone--tiny"
        make_model(repository / "snapshots" / "0123abcd", ENGLISH)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text("0123abcd")
        embedder = opened(options, environment)
        assert embedder.model.startswith("model2vec:someone/tiny@")
        assert good(embedder.embed(["deploy"]))
        assert np.array_equal(embedder.embed(["cat"]), static(repository / "snapshots" / "0123abcd").embed(["cat"]))


def test_a_folder_below_home_is_found(tmp_path: Path) -> None:
    make_model(tmp_path / "models" / "m", ENGLISH)
    embedder = opened({"provider": "model2vec", "model": "~/models/m"}, {"HOME": str(tmp_path)})
    assert embedder.model.startswith("model2vec:m@")
    assert good(embedder.embed(["cat"]))


@pytest.mark.parametrize("broken", ["tokenizer.json", "model.safetensors", "config.json"])
def test_a_broken_model_is_a_service_problem(tmp_path: Path, broken: str) -> None:
    (make_model(tmp_path / "m", ENGLISH) / broken).write_bytes(b"\x00\x1b[2J broken")
    caught = problem(static(tmp_path / "m"))
    assert "cannot be loaded" in str(caught)
    assert not caught.heals


def test_a_static_model_with_nan_in_its_table_gives_an_error_and_no_nan(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "good": 1, "bad": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    StaticModel(np.array([[1, 1], [1, 2], [np.nan, 1]], np.float32), tokenizer).save_pretrained(tmp_path / "m")
    embedder = static(tmp_path / "m")
    assert good(embedder.embed(["good"]))
    assert "vector 2 of 2 has numbers that are not finite" in str(problem(embedder, ["good", "bad"]))


def test_what_a_static_model_has_no_token_for_is_known_beforehand(small_model: Path, tmp_path: Path) -> None:
    both, english = static(small_model), static(make_model(tmp_path / "m", ENGLISH))
    assert both.scripts == {"Latn", "Hani"}
    assert english.scripts == {"Latn"}
    texts = ["deploy on Friday", "never deploy for 张", "周五发布 deploy", "👍 123", "unheard", "𠮷", ""]
    assert [both.reads(text) for text in texts] == [True, True, True, False, False, False, False]
    assert [english.reads(text) for text in texts] == [True, True, False, False, False, False, False]
    with pytest.raises(ServiceProblem, match="vector 1 of 1 is all zeros"):
        english.embed(["周五发布"])


@given(st.lists(st.sampled_from([*ENGLISH, *CHINESE, "unheard", "𠮷", "é", "👍", "7", "\ud800", "\x00"]), max_size=6))
def _known_texts_embed(embedder: Embedder, words: list[str]) -> None:
    text = " ".join(words)
    if embedder.reads(text):
        assert good(embedder.embed([text]))


def test_every_text_that_a_static_model_knows_can_be_embedded(small_model: Path) -> None:
    _known_texts_embed(static(small_model))


def test_a_byte_level_vocabulary_is_read_as_text(tmp_path: Path) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(["上线前必须复核 " * 9, "привет мир " * 9], trainer)
    rows = np.ones((tokenizer.get_vocab_size(), 4), np.float32)
    StaticModel(rows, tokenizer).save_pretrained(tmp_path / "m")
    embedder = static(tmp_path / "m")
    assert embedder.scripts == {"Hani", "Cyrl"}
    assert embedder.reads("复核")
    assert not embedder.reads("review")


# Scripts


def test_an_english_vocabulary_with_letters_and_some_characters_of_others_is_english() -> None:
    english = [f"{one}{two}{three}" for one in "abcdefghijklmn" for two in "aeiouy" for three in "bcdfghklmnprst"]
    letters = [
        *"abcdefghijklmnopqrstuvwxyz",
        *"αβγδ",
        *"абвгде",
        *"かきくけこ",
        *"קרש",
        *"ᄀᄂᄃ",
        "[PAD]",
        "##s",
        "7",
        "。",
    ]
    assert vocabulary_scripts(english + letters + list("一三上下不世中主久之也事")) == {"Latn"}
    assert vocabulary_scripts(english + letters + [chr(0x4E00 + number) for number in range(60)]) == {"Latn", "Hani"}
    assert vocabulary_scripts([*english, "привет", "##мир"]) == {"Latn", "Cyrl"}
    assert vocabulary_scripts([*english, "の", "です", "日本の"]) == {"Latn", "Hira"}
    assert vocabulary_scripts([]) == frozenset()


@given(st.text())
def test_letters_of_every_text_are_counted_once(text: str) -> None:
    counts = letters_by_script(text)
    assert counts.total() == sum(map(str.isalpha, normalize("NFKC", text)))
    assert all(re.fullmatch("[A-Z][a-z]{3}", script) for script in counts)


def test_scripts_are_told_apart() -> None:
    assert letters_by_script("Straße ＡＢＣ é 10%") == {"Latn": 10}
    assert letters_by_script("上线、々 にほん カタカナー 한글 привет") == {
        "Hani": 3,
        "Hira": 3,
        "Kana": 5,
        "Hang": 2,
        "Cyrl": 6,
    }
    assert letters_by_script("ᚠᚢ") == {"Zzzz": 2}


# The hash


@given(st.text(), st.integers(1, 300))
def test_every_text_has_a_hashed_vector_and_always_the_same(text: str, dimensions: int) -> None:
    embedder = opened({"provider": "hashing", "dimensions": dimensions})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        vectors = embedder.embed([text, text], "query")
    assert vectors.shape == (2, dimensions)
    assert good(vectors)
    assert vectors[0].tolist() == vectors[1].tolist()
    assert embedder.reads(text)


def test_the_hash_is_the_same_in_every_process() -> None:
    code = (
        "from oryx_memory.embeddings import open_embedder\n"
        "print(open_embedder({'provider': 'hashing', 'dimensions': 8}, {}).embed(['上线 deploy', '', '👍']).tolist())"
    )
    answers = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, check=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        answers.add(done.stdout)
    assert len(answers) == 1
    here = opened({"provider": "hashing", "dimensions": 8}).embed(["上线 deploy", "", "👍"]).tolist()
    assert json.loads(answers.pop()) == here


def test_texts_with_the_same_words_are_near_and_others_are_not() -> None:
    embedder = opened({"provider": "hashing"})
    assert embedder.model == "hashing:256"
    one, same, other = embedder.embed(
        ["上线前必须两人复核", "必须两人复核，上线前", "The cat sleeps on a warm windowsill"]
    )
    assert one @ same > 0.8
    assert abs(one @ other) < 0.3


def test_a_service_problem_is_one_of_our_errors() -> None:
    error = ServiceProblem("openai", "failed", heals=True)
    assert isinstance(error, OryxMemoryError)
    assert (str(error), error.service, error.heals) == ("openai: failed", "openai", True)
