"""Texts as vectors: what the person configured under `[embedding]`, an endpoint, a model on this machine or a hash.

What comes back is checked before anybody sees it: as many vectors as texts, in their order, one dimension for all and
always the same, finite, none of them zero; then they are made unit length. So a vector that is handed on can be stored
and compared, and everything else is a ServiceProblem that says whether waiting heals it. No message holds the key or a
memory's text. numpy, openai and model2vec are extras, and imported when the first text is embedded.
"""

import base64
import binascii
import json
import re
import warnings
import weakref
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property, lru_cache, partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from unicodedata import name, normalize
from urllib.parse import urlsplit

from oryx_memory.entry import encodable
from oryx_memory.errors import OryxMemoryWarning, ServiceProblem, SettingsError
from oryx_memory.ranking import tokens
from oryx_memory.remote import Pace, asked_wait, host_of, key_in, legible, retold, wait_before

if TYPE_CHECKING:
    import numpy as np
    from model2vec import StaticModel
    from numpy.typing import NDArray
    from openai import APIError, OpenAI

Kind = Literal["document", "query"]

TRIES = 5  # of one request
PATIENCE = {"document": 60.0, "query": 2.0}  # seconds after which no further try begins; behind a query somebody waits
TIMEOUT = 30.0  # seconds


class Preset(NamedTuple):
    """An endpoint that speaks OpenAI's protocol: its address, its default model and that one's dimensions, the variable
    of its key ("": it needs none), texts a request, code points a text.
    """

    base_url: str
    model: str
    dimensions: int
    key: str
    batch: int
    max_chars: int


# A limit in tokens is taken for one in code points. It is exact enough for text in Chinese, the script with the most
# tokens a code point: at most one where the vocabulary is made for it, up to two in OpenAI's.
PRESETS = {
    # "8192 tokens for all embedding models", "2048" texts, "300,000 tokens summed across all inputs": docstring of the
    # SDK's embeddings.create. 32 texts of 4,000 code points, two tokens each, stay below the sum.
    "openai": Preset("https://api.openai.com/v1", "text-embedding-3-small", 1536, "OPENAI_API_KEY", 32, 4000),
    # 8192 tokens, `dimensions` for Qwen3 models only: api-docs.siliconflow.cn/docs/api/embeddings-post. Its 413 says
    # "maximum allowed batch size 64" (github.com/OpenSPG/KAG/issues/232), and 32 in older reports.
    "siliconflow": Preset("https://api.siliconflow.cn/v1", "Pro/BAAI/bge-m3", 1024, "SILICONFLOW_API_KEY", 32, 8000),
    # 3072 tokens, 64 texts, 2048 dimensions unless asked for others: docs.bigmodel.cn, API reference, 文本嵌入.
    "zhipu": Preset("https://open.bigmodel.cn/api/paas/v4", "embedding-3", 2048, "ZHIPUAI_API_KEY", 64, 3000),
    # 10 texts of 8,192 tokens, 1024 dimensions unless asked for others: help.aliyun.com/document_detail/2975738.html.
    "dashscope": Preset(
        "https://dashscope.aliyuncs.com/compatible-mode/v1", "text-embedding-v4", 1024, "DASHSCOPE_API_KEY", 10, 8000
    ),
    # Knows Chinese, unlike the more usual nomic-embed-text. It takes 8192 tokens, but the server's context may be 4,096
    # and what is longer fails (github.com/open-webui/open-webui/pull/22702). The batch is ours: a CPU may compute it.
    "ollama": Preset("http://localhost:11434/v1", "bge-m3", 1024, "", 16, 4000),
}
# Codes of a 429 that waiting a minute does not heal: OpenAI's; zhipu's 1113 (arrears), 1304 (a day's limit), 1308 and
# 1310 (a week's or month's), 1309 (subscription over): docs.bigmodel.cn/cn/faq/api-code.
_QUOTA = {"insufficient_quota", "1113", "1304", "1308", "1309", "1310"}

_SCRIPTS = {  # the first word of a letter's Unicode name, and its script's code in ISO 15924
    "LATIN": "Latn", "CJK": "Hani", "IDEOGRAPHIC": "Hani", "HIRAGANA": "Hira", "KATAKANA": "Kana", "HANGUL": "Hang",
    "BOPOMOFO": "Bopo", "CYRILLIC": "Cyrl", "GREEK": "Grek", "ARABIC": "Arab", "HEBREW": "Hebr", "THAI": "Thai",
    "LAO": "Laoo", "MYANMAR": "Mymr", "KHMER": "Khmr", "TIBETAN": "Tibt", "MONGOLIAN": "Mong", "DEVANAGARI": "Deva",
    "BENGALI": "Beng", "GUJARATI": "Gujr", "GURMUKHI": "Guru", "KANNADA": "Knda", "MALAYALAM": "Mlym", "TAMIL": "Taml",
    "TELUGU": "Telu", "SINHALA": "Sinh", "GEORGIAN": "Geor", "ARMENIAN": "Armn", "ETHIOPIC": "Ethi",
}  # fmt: skip
_PROBE = "memory"  # what an endpoint is asked for to see what it gives
_FOREIGN = 0.2  # of a text's letters may be of other scripts: a name or a term does no harm
_VOCABULARY = 5_000  # tokens of a model that are looked at for its scripts


class Embedder(ABC):
    """Makes vectors of texts. `open_embedder` gives the one that is configured."""

    model: str
    """What vectors are keyed by: provider, model and, where asked for, dimensions. Those of two keys never mix."""
    dimensions: int | None = None
    """Of its vectors; None until the first answer where the endpoint decides."""
    max_chars: int
    """Code points of a text; longer ones are cut."""
    batch: int
    """Texts that are embedded at once."""
    remote: bool = False
    """Whether texts leave this machine."""

    @property
    def scripts(self) -> frozenset[str] | None:
        """The scripts that it knows, in ISO 15924's codes (Latn, Hani); None: every one."""
        return None

    def embed(self, texts: Sequence[str], kind: Kind = "document") -> "NDArray[np.float32]":
        """The vectors of texts, one row each, unit length, in C order; all of them, or an error.

        Warns with one OryxMemoryWarning if texts had to be cut. Raises ServiceProblem.
        """
        import numpy as np

        if any(len(text) > self.max_chars for text in texts):
            message = (
                f"what is longer than {self.max_chars:,} characters was cut to that for embedding; "
                "[embedding] max_chars sets the limit"
            )
            warnings.warn(OryxMemoryWarning(message), stacklevel=2)
        parts = [
            self._checked(self._answer([_fitted(text, self) for text in texts[start : start + self.batch]], kind))
            for start in range(0, len(texts), self.batch)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, self.dimensions or 0), np.float32)

    def size(self) -> int:
        """The dimensions of its vectors; an endpoint that decides them is asked. Raises ServiceProblem."""
        return self.dimensions or self.probe()

    def probe(self) -> int:
        """Ask an endpoint for the vector of one word; its dimensions. Raises ServiceProblem."""
        return int(self.embed([_PROBE]).shape[1])

    def knows(self, text: str) -> bool:
        """Whether it knows any part of a text: a model on this machine has nothing but zeros for what it does not."""
        return True

    def reads(self, query: str) -> bool:
        """Whether it makes sense to search with a query's vector: it knows a part of it, and at least four of five letters
        are of scripts that it knows. The rest would be noise.
        """
        known = self.scripts
        if known is None:
            return self.knows(query)
        letters = letters_by_script(query)
        foreign = sum(number for script, number in letters.items() if script not in known)
        return foreign < letters.total() and foreign <= _FOREIGN * letters.total() and self.knows(query)

    @abstractmethod
    def _answer(self, texts: Sequence[str], kind: Kind) -> "NDArray[np.float64]":
        """As many rows as texts, unchecked. No more texts than `batch`, none longer than `max_chars`."""

    @abstractmethod
    def _fault(self, message: str, *, heals: bool = False, of_texts: bool = False) -> ServiceProblem:
        """The error that names this embedder."""

    def _checked(self, rows: "NDArray[np.float64]") -> "NDArray[np.float32]":
        """The rows at unit length, if they are vectors at all."""
        import numpy as np

        number, dimensions = rows.shape
        if self.dimensions not in (None, dimensions):
            raise self._fault(
                f"gave vectors of {dimensions} dimensions where {self.dimensions} were asked for or came before; "
                "they are never mixed: check [embedding] model and dimensions"
            )
        peaks = np.abs(rows).max(axis=1)
        for bad, what in (~np.isfinite(peaks), "has numbers that are not finite"), (peaks == 0, "is all zeros"):
            if bad.any():
                message = f"vector {int(bad.argmax()) + 1} of {number} {what}; nothing was kept of them"
                raise self._fault(message, of_texts=True)
        self.dimensions = dimensions
        scaled = rows / peaks[:, None]  # or the squares of large numbers would overflow
        return np.ascontiguousarray(scaled / np.linalg.norm(scaled, axis=1, keepdims=True), np.float32)


def _fitted(text: str, embedder: Embedder) -> str:
    """A text that can be sent: not too long, and without lone surrogates, which UTF-8 cannot write."""
    return encodable(text[: embedder.max_chars])


def letters_by_script(text: str) -> Counter[str]:
    """How many letters of each script a text has, by ISO 15924's codes; "Zzzz" for scripts that have no name here."""
    scripts = map(_script, filter(str.isalpha, normalize("NFKC", text)))
    return Counter(scripts)


@lru_cache(1 << 15)
def _script(letter: str) -> str:
    first = re.split("[ -]", name(letter, ""), maxsplit=1)[0]
    return _SCRIPTS.get(first, "Zzzz")


def open_embedder(
    options: Mapping[str, Any], environment: Mapping[str, str], *, pace: Pace | None = None
) -> Embedder | None:
    """The embedder of the checked table `[embedding]`, or None if it names no provider.

    Keys of `options`: provider, model, base_url, dimensions, api_key_env, timeout (seconds), batch, max_chars; all but
    the first may be missing, empty or None. Nothing is imported or asked yet. Raises SettingsError: an extra that is
    not installed, a key that is not in `environment`, a model that is not on this machine.
    """
    provider = options.get("provider") or ""
    if not provider:
        return None
    if provider == "hashing":
        _require("numpy", "vectors", provider)
        return _Hashing(options)
    if provider == "model2vec":
        _require("model2vec", "local", provider)
        return _Static(options, environment)
    if provider in PRESETS:
        for module in ("openai", "numpy"):
            _require(module, "models", provider)
        return _Endpoint(provider, options, environment, pace or Pace())
    known = ", ".join(sorted([*PRESETS, "hashing", "model2vec"]))
    raise SettingsError(f"embedding.provider: unknown provider {provider!r}; it must be one of {known}")


def _require(module: str, extra: str, provider: str) -> None:
    if find_spec(module) is None:
        raise SettingsError(
            f"embedding.provider {provider} needs the package {module}: run pip install 'oryx-memory[{extra}]'"
        )


class _Hashing(Embedder):
    """Each token adds 1 or -1 at a place that its hash gives: the words of a text, and nothing of its meaning. For tests,
    which need vectors without a model; OryxOS calls its own of this kind "mock".
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.dimensions = self._size = options.get("dimensions") or 256
        self.model = f"hashing:{self._size}"
        self.batch = options.get("batch") or 1024
        self.max_chars = options.get("max_chars") or 100_000

    def _answer(self, texts: Sequence[str], kind: Kind) -> "NDArray[np.float64]":
        import numpy as np

        rows = np.zeros((len(texts), self._size))
        for row, text in zip(rows, texts, strict=True):
            self._add(row, tokens(text))
            if not row.any():  # no tokens, or two that cancel each other
                self._add(row, [text])
        return rows

    def _add(self, row: "NDArray[np.float64]", words: Iterable[str]) -> None:
        from hashlib import blake2b

        for word in words:  # not hash(), which differs from process to process
            number = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big")
            row[(number >> 1) % self._size] += 1 if number & 1 else -1

    def _fault(self, message: str, *, heals: bool = False, of_texts: bool = False) -> ServiceProblem:
        return ServiceProblem(self.model, message, heals=heals, of_texts=of_texts)


class _Static(Embedder):
    """A static model: the mean of its tokens' vectors, from a table. Loaded with the first text; never from a network.

    The key holds a digest of the model's files, so that other weights under the same name are another model.
    """

    def __init__(self, options: Mapping[str, Any], environment: Mapping[str, str]) -> None:
        given = options.get("model") or ""
        self._folder = _model_folder(given, environment)
        self._asked = options.get("dimensions") or None
        self._name = given if not given.startswith(("/", "~")) else self._folder.name
        self.model = f"model2vec:{self._name}@{_digest(self._folder)}" + (f":{self._asked}" if self._asked else "")
        self.batch = options.get("batch") or 256
        self.max_chars = options.get("max_chars") or 8000  # the model has no limit; a mean of more says little

    @cached_property
    def _model(self) -> "StaticModel":
        from model2vec import StaticModel

        try:
            return StaticModel.from_pretrained(self._folder, dimensionality=self._asked)
        except Exception as error:  # tokenizers and safetensors raise bare exceptions of their own
            raise self._fault(f"{self._folder} cannot be loaded: {legible(str(error))}") from error

    @cached_property
    def scripts(self) -> frozenset[str]:
        """The scripts of the vocabulary; see `vocabulary_scripts`."""
        tokenizer = self._model.tokenizer
        size = tokenizer.get_vocab_size()
        # As texts: a byte-level vocabulary writes its tokens in an alphabet of its own.
        return vocabulary_scripts(
            tokenizer.decode_batch([[token] for token in range(0, size, 1 + size // _VOCABULARY)])
        )

    def probe(self) -> int:
        return int(self._model.dim)

    def knows(self, text: str) -> bool:
        return bool(self._answer([_fitted(text, self)], "document").any())

    def _answer(self, texts: Sequence[str], kind: Kind) -> "NDArray[np.float64]":
        import numpy as np

        model = self._model
        try:  # without max_length=None it would cut at 512 tokens, and not say so
            found = model.encode(list(texts), max_length=None, use_multiprocessing=False)
        except Exception as error:  # tokenizers raises bare exceptions; their messages may hold the text
            raise self._fault(f"could not embed these texts ({type(error).__name__})") from None
        return np.asarray(found, np.float64)

    def _fault(self, message: str, *, heals: bool = False, of_texts: bool = False) -> ServiceProblem:
        return ServiceProblem(f"model2vec ({self._name})", message, heals=heals, of_texts=of_texts)


def vocabulary_scripts(vocabulary: Iterable[str]) -> frozenset[str]:
    """The scripts that a model knows by its tokens: those in which one word of a thousand is written, one of forty for
    Han. A word is a token of two letters or more, in Han of one.

    Single letters do not count, since English vocabularies have nearly every alphabet to spell names with; and that of
    BERT (30,522 tokens) has some 450 Han characters, while those made for Chinese as well have many thousands.
    """
    counts: Counter[str] = Counter()
    words = 0
    for token in vocabulary:
        letters = letters_by_script(token)
        if letters.total() > 1 or "Hani" in letters:
            words += 1
            counts.update(letters.keys())
    return frozenset(
        script
        for script, number in counts.items()
        if script != "Zzzz" and number * (40 if script == "Hani" else 1000) >= words
    )


def _model_folder(given: str, environment: Mapping[str, str]) -> Path:
    """Where the files of a model2vec model are. Raises SettingsError.

    A folder is written as an absolute path or from `~/`; everything else is a name on the hub, which is looked up in the
    local cache of huggingface_hub. So no folder of a project that somebody works in can take the place of a hub's model.
    """
    if given.startswith(("/", "~/")):
        folder = Path(environment.get("HOME", "~"), given[2:]) if given.startswith("~") else Path(given)
    elif re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", given, re.ASCII):
        repository = _hub_cache(environment) / f"models--{given.replace('/', '--')}"
        try:
            folder = repository / "snapshots" / (repository / "refs" / "main").read_text().strip()
        except (OSError, ValueError):
            raise SettingsError(
                f"embedding.model: {given} is not in {repository.parent}; run: hf download {given}"
            ) from None
    else:
        raise SettingsError(
            f"embedding.model: model2vec needs an absolute path of a folder, or a hub's name such as "
            f"minishlab/potion-multilingual-128M, not {given!r}"
        )
    if not any((folder / path).is_file() for path in _MODEL_FILES if path.endswith(".safetensors")):
        raise SettingsError(f"embedding.model: no model.safetensors in {folder}")
    return folder


def _hub_cache(environment: Mapping[str, str]) -> Path:
    """The cache of huggingface_hub, found as its own documentation says."""
    if cache := environment.get("HF_HUB_CACHE"):
        return Path(cache)
    home = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME", "~"), ".cache")
    return Path(environment.get("HF_HOME") or Path(home, "huggingface"), "hub")


_MODEL_FILES = (
    "config.json",
    "config_sentence_transformers.json",
    "tokenizer.json",
    "model.safetensors",
    "0_StaticEmbedding/tokenizer.json",
    "0_StaticEmbedding/model.safetensors",
)
_WHOLE = 1 << 20  # bytes up to which a file is digested whole
_BLOCKS = 256  # of 4 KiB, evenly spread over a larger one: training changes every weight, and 500 MB take half a second


def _digest(folder: Path) -> str:
    """12 hex digits that change with the files of a model. Raises SettingsError."""
    from hashlib import blake2b

    digest = blake2b(digest_size=6)
    for path in _MODEL_FILES:
        try:
            with open(folder / path, "rb") as file:
                size = file.seek(0, 2)
                digest.update(f"{path} {size}\n".encode())
                for start in range(0, size, max(4096, size // _BLOCKS if size > _WHOLE else 0)):
                    file.seek(start)
                    digest.update(file.read(4096))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise SettingsError(f"embedding.model: {folder / path} cannot be read: {error.strerror}") from error
    return digest.hexdigest()


class _Endpoint(Embedder):
    """An endpoint that speaks OpenAI's protocol, asked through its SDK."""

    def __init__(self, provider: str, options: Mapping[str, Any], environment: Mapping[str, str], pace: Pace) -> None:
        preset = PRESETS[provider]
        self._base_url = options.get("base_url") or preset.base_url
        host, self.remote = host_of(self._base_url, "embedding.base_url")
        own = self._base_url.rstrip("/") == preset.base_url
        self._name = options.get("model") or preset.model
        asked = options.get("dimensions") or None
        usual = preset.dimensions if own and self._name == preset.model else None
        self.dimensions = asked or usual
        self._sent = None if asked == usual else asked  # siliconflow's bge-m3 takes no such parameter
        # Another address may serve another model under this name.
        place = provider if own else f"{provider}@{host}{urlsplit(self._base_url).path.rstrip('/')}"
        self.model = f"{place}:{self._name}" + (f":{self._sent}" if self._sent else "")
        self.batch = options.get("batch") or preset.batch
        self.max_chars = options.get("max_chars") or preset.max_chars
        # A provider's key goes to that provider only; for another address the person has to name a variable.
        self._variable = options.get("api_key_env") or (preset.key if own else "")
        self._key = key_in(self._variable, f"embedding.provider {provider}", environment)
        self._timeout = float(options.get("timeout") or TIMEOUT)
        self._where = f"{provider} ({host})"
        self._kept = _HEADERS | (_OPENAI_HEADERS if own and provider == "openai" else set())
        self._pace = pace
        self._answered: str | None = None  # the model's name in the answers

    @cached_property
    def _client(self) -> "OpenAI":
        import openai

        try:
            http = openai.DefaultHttpxClient(
                timeout=self._timeout,
                follow_redirects=False,  # or the texts would go to an address that nobody configured
                trust_env=self.remote,  # a proxy of the environment would take them off this machine
                event_hooks={"request": [partial(_strip, self._key, self._kept)]},
            )
            client = openai.OpenAI(
                api_key=self._key or "none", base_url=self._base_url, max_retries=0, http_client=http
            )
        except Exception as error:  # httpx has several for an odd address or proxy, and no base for them
            raise self._fault(f"cannot be asked at {self._base_url}: {self._said(str(error), [])}") from None
        weakref.finalize(self, http.close)
        return client

    def _answer(self, texts: Sequence[str], kind: Kind) -> "NDArray[np.float64]":
        return self._vectors(self._body(texts, PATIENCE[kind]), len(texts))

    def _body(self, texts: Sequence[str], patience: float) -> bytes:
        """What the endpoint answers, asked again while that may help."""
        import openai

        began = self._pace.clock()
        for tries in count(1):
            try:
                return self._post(texts)
            except openai.APIError as error:  # from None: it holds the request, and so the key and the texts
                problem = self._problem(error, texts, tries)
                wait = wait_before(tries, _asked_wait(error), self._pace)
                if not problem.heals or tries == TRIES or self._pace.clock() - began + wait > patience:
                    raise problem from None
            self._pace.sleep(wait)
        raise AssertionError("unreachable")

    def _post(self, texts: Sequence[str]) -> bytes:
        import openai

        answer = self._client.embeddings.with_raw_response.create(
            input=list(texts),
            model=self._name,
            encoding_format="base64",  # a quarter of the bytes; endpoints that do not know it send numbers
            dimensions=self._sent or openai.omit,
        )
        return answer.content

    def _vectors(self, body: bytes, number: int) -> "NDArray[np.float64]":
        """The vectors of an answer in the order of the texts. Raises ServiceProblem for what is no such answer."""
        import numpy as np

        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise self._fault("answered with something else than JSON, or half of it; check base_url") from None
        items = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
            raise self._fault("answered without a list of embeddings; check base_url")
        if len(items) != number:
            raise self._fault(f"gave {len(items)} vectors for {number} texts; which is whose cannot be known")
        self._check_model(answer.get("model"))
        rows = [self._numbers(item.get("embedding")) for item in self._in_order(items)]
        sizes = sorted({len(row) for row in rows})
        if len(sizes) > 1 or sizes[0] == 0:
            raise self._fault(f"gave vectors of {' and '.join(map(str, sizes))} dimensions in one answer")
        return np.stack(rows)

    def _in_order(self, items: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        by_index = {item["index"]: item for item in items if type(item.get("index")) is int}
        if not by_index and not any("index" in item for item in items):
            return items
        if set(by_index) != set(range(len(items))):
            raise self._fault("numbered the vectors of an answer wrongly; which is whose cannot be known")
        return [by_index[place] for place in range(len(items))]

    def _numbers(self, value: Any) -> "NDArray[np.float64]":
        import numpy as np

        try:
            if isinstance(value, str):
                return np.frombuffer(base64.b64decode(value, validate=True), "<f4").astype(np.float64)
            if isinstance(value, list) and all(type(number) in (int, float) for number in value):
                return np.array(value, np.float64)
        except (binascii.Error, ValueError, OverflowError):
            pass
        raise self._fault("gave an embedding that is neither a list of numbers nor base64 of them")

    def _check_model(self, named: Any) -> None:
        """Stop if the model changes in the middle of the work. It may call itself otherwise than it was asked for."""
        if not isinstance(named, str) or not named:
            return
        if self._answered not in (None, named):
            before = self._said(self._answered or "", [])
            raise self._fault(f"answered as model {self._said(named, [])} after {before}; their vectors do not mix")
        self._answered = named

    def _problem(self, error: "APIError", texts: Sequence[str], tries: int) -> ServiceProblem:
        """What an error of the SDK means: what happened, whether it heals, what to do."""
        import openai

        again = f", after {tries} tries" if tries > 1 else ""
        if isinstance(error, openai.APITimeoutError):
            return self._fault(f"gave no answer within {self._timeout:g} s{again}", heals=True)
        if not isinstance(error, openai.APIStatusError):
            said = self._said(str(error.__cause__ or "") or error.message, texts)
            return self._fault(f"did not answer at {self._base_url}: {said}{again}", heals=True)
        status = error.status_code
        said = f"({status}: {self._said(_server_message(error), texts)})"
        if status == 402 or (status == 429 and {error.code, error.type} & _QUOTA):
            return self._fault(f"the account has no credit or quota left {said}; top it up, or choose another provider")
        if status == 429:
            return self._fault(f"too many requests {said}{again}{_come_back(error)}", heals=True)
        if status >= 500 or status == 408:
            return self._fault(f"failed {said}{again}{_come_back(error)}", heals=True)
        if status == 401:
            remedy = f"put a valid key into {self._variable}" if self._variable else (
                "name the environment variable that holds its key under [embedding] api_key_env"
            )  # fmt: skip
            return self._fault(f"refused the key {said}; {remedy}")
        if status == 403:
            return self._fault(f"refused access {said}; check the rights and the credit of the account")
        if status == 404:
            return self._fault(
                f"knows no {self._name} at {self._base_url} {said}; check [embedding] model and base_url"
            )
        if status < 400:
            return self._fault(f"answered with a redirect ({status}), which is not followed; check base_url")
        remedy = "check [embedding] model, dimensions, batch and max_chars"
        return self._fault(f"refused the request {said}; {remedy}", of_texts=True)

    def _said(self, message: str, texts: Sequence[str]) -> str:
        """What the server said, without our key and texts."""
        return retold(message, self._key, texts)

    def _fault(self, message: str, *, heals: bool = False, of_texts: bool = False) -> ServiceProblem:
        return ServiceProblem(self._where, message, heals=heals, of_texts=of_texts)


def _strip(key: str, kept: Set[str], request: Any) -> None:
    """Leave the headers that the protocol needs. The SDK adds what OPENAI_ORG_ID and OPENAI_CUSTOM_HEADERS hold and what
    it knows of this machine, whichever provider it asks.
    """
    for header in list(request.headers):
        if header.lower() not in kept:
            del request.headers[header]
    if key:
        request.headers["Authorization"] = f"Bearer {key}"


_OPENAI_HEADERS = {"openai-organization", "openai-project"}
_HEADERS = {
    "host", "accept", "accept-encoding", "connection", "content-length", "content-type", "user-agent",
    "x-stainless-raw-response",  # read back from the request by the SDK, which would parse the answer itself without it
}  # fmt: skip


def _asked_wait(error: "APIError") -> float | None:
    response = getattr(error, "response", None)
    return asked_wait(response.headers) if response is not None else None


def _come_back(error: "APIError") -> str:
    wait = _asked_wait(error)
    return f"; it asks to wait {wait:g} s" if wait else "; try again later"


def _server_message(error: "APIError") -> str:
    body = error.body
    message = body.get("message") if isinstance(body, dict) else body
    return message if isinstance(message, str) and message else "no message"
