"""Likely credentials in a text: one detector for all that store, show or send texts.

A finding is a kind and a place, so that what is said about it can leave out the value. Prose about passwords is never
a finding: a word such as password, token or 密码 counts only with a value that looks like one, and references
(`$DB_PASSWORD`, `os.environ[…]`) and placeholders (`<your-key>`, `changeme`, `****`) do not. Not seen, since nothing
tells them from prose: passwords of several words, and of letters alone unless in quotes.

The guard is a matter of the command line and of MemoryService: `LongTermMemoryStore.append` takes every text, for its
caller decides.
Linear in the text. A regular expression is compiled only when a text has the literal that it needs: most entries have
none, and pay for one look at the lengths of their words and some searches for a substring.
"""

import re


class Finding:
    """A likely credential: its kind, and the code point offsets of its value."""

    __slots__ = ("end", "kind", "start")  # a data class would take longer to make than most texts take to search

    def __init__(self, kind: str, start: int, end: int) -> None:
        self.kind = kind
        self.start = start
        self.end = end

    def __repr__(self) -> str:
        return f"Finding({self.kind!r}, {self.start}, {self.end})"


# Where each shape comes from:
#   private-key              RFC 7468, RFC 4716, RFC 9580 (armour)
#   aws-access-key           docs.aws.amazon.com/IAM/latest/UserGuide/reference_identifiers.html (AKIA, ASIA)
#   github-token             docs.github.com, "About authentication to GitHub", GitHub's token formats
#   gitlab-token             docs.gitlab.com/security/tokens, token prefixes
#   slack-token, -webhook    docs.slack.dev/authentication/tokens; incoming webhooks
#   openai-key               platform.openai.com; DeepSeek, Moonshot, DashScope and SiliconFlow also begin with sk-
#   anthropic-key            docs.anthropic.com, API overview
#   google-api-key, -secret  cloud.google.com/docs/authentication/api-keys; OAuth client secrets
#   stripe-key               docs.stripe.com/keys; webhook signing secrets
#   npm-token                github.blog/changelog/2021-09-23-npm-has-a-new-access-token-format
#   pypi-token               pypi.org/help#apitoken (a macaroon, whose first bytes are always the same)
#   huggingface-token        huggingface.co/docs/hub/security-tokens
#   telegram-bot-token       core.telegram.org/bots/api#authorizing-your-bot
#   sendgrid-, docker-, digitalocean-, groq-   their API references, and GitHub's list of supported secret patterns
#   jwt                      RFC 7519: both of its first two parts are base64url of `{"`
#   aliyun-, tencent-, volcengine-, baidu-access-key   AccessKey and SecretId pages of the four clouds
#   chat-webhook             robot addresses of Feishu, WeCom and Discord: who has one can post
# Each begins only where no token character stands before it, so that a long token is looked at once.
_START = r"(?<![A-Za-z0-9_-])"
_SHAPES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("private-key", ("-----BEGIN ",), r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"),
    ("aws-access-key", ("AKIA", "ASIA"), _START + r"A(?:KIA|SIA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    (
        "github-token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        _START + r"(?:gh[oprsu]_[A-Za-z0-9]{36,255}+|github_pat_[A-Za-z0-9_]{22,255}+)",
    ),
    (
        "gitlab-token",
        ("glpat-", "gldt-", "glrt-", "glptt-", "glcbt-", "gloas-"),
        _START + r"gl(?:pat|dt|rt|ptt|cbt|oas)-[A-Za-z0-9_.-]{20,}+",
    ),
    ("slack-token", ("xox", "xapp-"), _START + r"(?:xox[abeoprs]|xapp)-(?=[A-Za-z-]*[0-9])[A-Za-z0-9-]{10,}+"),
    ("slack-webhook", ("hooks.slack.com",), r"hooks\.slack\.com/(?:services|workflows)/([A-Za-z0-9_/+-]{20,}+)"),
    ("anthropic-key", ("sk-ant-",), _START + r"sk-ant-[A-Za-z0-9_-]{20,}+"),
    (
        "openai-key",
        ("sk-",),
        # Names of style sheets (sk-cube-grid-…) begin so too: one part must be long and there must be a digit.
        _START + r"sk-(?=[A-Za-z0-9_-]*?[A-Za-z0-9]{16})(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}+",
    ),
    ("google-api-key", ("AIza",), _START + r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    ("google-secret", ("GOCSPX-",), _START + r"GOCSPX-[A-Za-z0-9_-]{28}"),
    (
        "stripe-key",
        ("k_live_", "k_test_", "whsec_"),
        _START + r"(?:[rs]k_(?:live|test)_[A-Za-z0-9]{16,}+|whsec_[A-Za-z0-9+/]{24,}+)",
    ),
    ("npm-token", ("npm_",), _START + r"npm_[A-Za-z0-9]{36}"),
    ("pypi-token", ("pypi-AgE",), _START + r"pypi-AgE[A-Za-z0-9_-]{50,}+"),
    ("huggingface-token", ("hf_",), _START + r"hf_[A-Za-z0-9]{30,}+"),
    ("telegram-bot-token", (":AA",), r"(?<![0-9A-Za-z])[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    ("sendgrid-key", ("SG.",), _START + r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}"),
    ("docker-token", ("dckr_",), _START + r"dckr_[op]at_[A-Za-z0-9_-]{27,}+"),
    ("digitalocean-token", ("_v1_",), _START + r"do[opr]_v1_[a-f0-9]{64}"),
    ("groq-key", ("gsk_",), _START + r"gsk_[A-Za-z0-9]{40,}+"),
    ("aliyun-access-key", ("LTAI",), _START + r"LTAI[A-Za-z0-9]{12,26}+(?![A-Za-z0-9_-])"),
    ("tencent-access-key", ("AKID",), _START + r"AKID[A-Za-z0-9]{13,40}+(?![A-Za-z0-9_-])"),
    ("volcengine-access-key", ("AKLT", "AKTP"), _START + r"AK(?:LT|TP)[A-Za-z0-9_-]{20,}+"),
    ("baidu-access-key", ("ALTAK",), _START + r"ALTAK-?[A-Za-z0-9]{17,}+"),
    (
        "chat-webhook",
        ("/bot/v2/hook/", "/webhook/send?key=", "/api/webhooks/"),
        r"(?:/open-apis/bot/v2/hook/|qyapi\.weixin\.qq\.com/cgi-bin/webhook/send\?key=|discord(?:app)?\.com/api/webhooks/)"
        r"([A-Za-z0-9/_-]{20,}+)",
    ),
    (
        "jwt",
        ("eyJ",),
        _START + r"eyJ[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{10,}+",
    ),
    ("url-password", ("://",), r"(?<=[A-Za-z0-9])://[^\s:/@?#]*+:([!#-&(-.0-;=?-_a-~]+)@[A-Za-z0-9\[]"),
)

# Every shape but a private key and a URL is one run of 16 ASCII characters or more; possessive, so each is seen once.
_SHORT_RUNS = re.compile(r"(?:[!-~]{0,15}+[^!-~]++)*+[!-~]{0,15}+\Z")

# What is in the word that a value is assigned to, and the kind of that value; the first counts.
_WORDS = {
    "basic": "basic-auth",
    "bearer": "bearer-token",
    "authorization": "bearer-token",
    "pass": "password",
    "pwd": "password",
    "identified": "password",
    "口令": "password",
    "密码": "password",
    "密碼": "password",
    "token": "token",
    "令牌": "token",
    "secret": "secret",
    "密钥": "secret",
    "秘钥": "secret",
    "密鑰": "secret",
    "key": "api-key",
}
# A text without any of these has no assignment. The Chinese ones are looked for in texts that can have them.
_WORD_HINTS = ("passw", "passp", "passc", "pwd", "token", "secret", "key", "bearer", "authorization", "identified by")
_CHINESE_HINTS = ("密码", "密钥", "口令", "令牌", "秘钥", "密碼", "密鑰")
_KEY = r"(?:api|access|app|auth|account|encryption|signing|master)[ _-]?key"
_WORD = (
    r"(?P<word>(?P<direct>密[码碼]|口令)|密[钥鑰]|秘钥|令牌"
    r"|(?P<header>bearer|authorization[\"']?\s?[:=]\s?[\"']?(?:basic|token)(?=\s))"
    rf"|(?P<option>--(?:[a-z]{{1,12}}+-){{0,3}}(?:password|passwd|token|secret|{_KEY}))"
    rf"|pass(?:word|wd|phrase|code)|pwd|identified by|token|secret(?:[ _-]?(?:access[ _-]?)?key)?|{_KEY})"
)
_CLOSED = r"[\"'`*”」】]{0,3}(?:\s?[（(][^()（）]{1,40}[）)])?[\"'`*”」】]{0,2}"
_LINK = (
    # `password: str = x`, `password=x`, `密码：x`
    r"(?:\s{0,3}(?::\s?str(?:ing)?\s?=|:=|=>|[:=：＝](?![=~]))[*_]{0,2}\s{0,3}(?:已?(?:改|换|设置?)[为成]\s?)?"
    # `密码改成了 x`, `password is x`
    r"|\s{0,3}(?:重新|已)?(?:改|换|更新|重置|设置?)?(?:[为成]了?|就?是)\s?[:：]?\s{0,3}"
    r"|\s(?:(?:(?:is|was)\s)?(?:(?:re)?set|changed)\sto|(?:is|was)(?:\snow)?)\s?:?\s{1,3}"
    # `密码 x`, `Bearer x`, `--password x`, `PASSWORD 'x'`
    r"|(?(direct)\s{0,3}|(?(header)\s{1,3}|(?(option)\s{1,3}|\s{1,3}(?=[\"'])))))"
)
_VALUE = (
    r"(?:\"(?P<double>[!#-~]{4,256}+)\"|'(?P<single>[!-&(-~]{4,256}+)'|`(?P<code>[!-_a-~]{4,256}+)`"
    r"|[“「『](?P<curly>[!-~]{4,256}+)[”」』]|[\"'`“「『*]{0,3}+(?P<plain>[!#-&+\--/0-9?@A-Z^_a-z~*]{4,256}+={0,2}))"
)
# The value is looked at, not taken: what is none may have the next word in it.
_ASSIGNMENT = f"{_WORD}{_CLOSED}{_LINK}(?={_VALUE})"

_NONE = r"[xX•._-]+\Z|.*?(?:change[-_]?(?:me|it)|placeholder|redacted|example|your|x{4}|\*{3}|\.{3}|dummy|sample|replace|insert)"
_NO_VALUES = {
    "boolean", "change", "confirm", "correct", "credentials", "current", "disabled", "email", "empty", "enabled",
    "encrypted", "expired", "false", "forgotten", "hashed", "hidden", "incorrect", "integer", "invalid", "masked",
    "missing", "nil", "none", "null", "nullable", "number", "optional", "pass", "passcode", "passphrase", "passwd",
    "password", "plaintext", "prompt", "pwd", "repeat", "required", "reset", "rotated", "secret", "string", "text",
    "token", "true", "unchanged", "unknown", "username", "varchar", "wrong",
}  # fmt: skip
# Names of things that have letters and digits too: algorithms, versions, dates, spans, tickets, products.
_TERM = (
    r"(?:(?:aes|sha|sha[123]|md|rsa|dsa|hs|rs|es|hmac|pbkdf|argon|bcrypt|scrypt|base|ed|curve|x|utf|utf8mb|oauth|sm|p|fido|ipv|"
    r"iso|rfc|http|pkcs)[-_]?\d{1,5}(?:[-_]?(?:cbc|gcm|ctr|id|d|i|url|sha\d+))?"
    r"|v?\d+(?:\.\d+)+\w{0,8}|\d{4}-\d\d(?:-\d\d)?(?:t[\d.+z-]*)?|\d+(?:[-~]\d+)?(?:[a-z]|[kmg]b|bits?|bytes?|chars?|"
    r"days?|hours?|weeks?|months?|years?|min(?:ute)?s?|secs?|seconds?|times|digits|characters)?|[a-z]{2,10}-\d{1,6}|ssh-ed25519|1password)[!.?]?\Z"
)
_REFERENCE = (
    r"(?:\$\w+|%\w+%|[#^@][\w/-]+|[A-Z][A-Z0-9]*+(?:_[A-Z0-9]++)+|[A-Za-z_]\w{0,23}+(?:\.[A-Za-z_]\w{0,23}+)++"
    r"|(?:~|\.{1,2})?/[\w./-]+|[\w.-]++(?:/[\w.-]++){2,}|[\w.+-]++@[\w-]++(?:\.[\w-]++)+"
    r"|[\w.-]+\.(?:md|txt|ya?ml|json|toml|env|py|sh|kdbx|gpg|pem|key|ini|conf|cfg|csv|db|com|cn|org|net|io|dev|local))\Z"
)
_NO_VALUE = f"(?i:{_NONE}|{_TERM})|{_REFERENCE}"
_MIXED = "(?=.*[0-9]).*[A-Za-z]"
_NAME_PART = r"(?:\A|_)(?:password|passwd|pwd|token|secret|key)(?:_|\Z)"
_PART = r"(?:(?:[A-Z]?[a-z]{1,16}+){1,3}+\d{0,2}|[A-Z]{1,12}+\d{0,2}|\d{1,4}[a-z]?|[A-Za-z0-9]{1,3})(?=[-_./+=]|\Z)"
_NAMED = rf"{_PART}(?:[-_./+]{_PART})*+={{0,2}}\Z"
_COUNTED = r"\s?(?:[个位次年月日天条字人元秒分小种到至级层~—]|times|attempts|digits|chars|bytes|users|or\s|to\s)"
_CLAUSE_END = r"\s*(?:\Z|[，。；、！？）」”\n,.;)\"'`])"


def find(text: str) -> list[Finding]:
    """The likely credentials of a text, in order, none over another."""
    found: list[tuple[int, int, str, int]] = []
    if "://" in text or "-----BEGIN" in text or not _SHORT_RUNS.match(text):
        found += [(start, rank, kind, end) for rank, (kind, start, end) in enumerate(_shaped(text))]
    folded = text.replace("İ", "I").lower()  # the one letter whose lower case is longer: offsets must stay
    if _has_any(_WORD_HINTS, folded) or (not text.isascii() and _has_any(_CHINESE_HINTS, text)):
        found += [(start, len(found), kind, end) for kind, start, end in _assigned(text, folded)]
    kept: list[Finding] = []
    for start, _, kind, end in sorted(found):  # where two begin at one place, the shape says more than the word
        if not kept or start >= kept[-1].end:
            kept.append(Finding(kind, start, end))
    return kept


def kinds(text: str) -> str:
    """The kinds of the likely credentials in a text, parted by commas; empty where there is none. Never their values."""
    return ", ".join(dict.fromkeys(finding.kind for finding in find(text)))


def masked(text: str) -> str:
    """A text in which whatever looks like a credential is replaced by its kind."""
    for found in reversed(find(text)):
        text = f"{text[: found.start]}[{found.kind}]{text[found.end :]}"
    return text


def refusal(kinds: str) -> str:
    """What is said where `[guard] secrets = "refuse"` keeps a text out, given the kinds found in it."""
    return (
        f'looks like a credential ({kinds}), and [guard] secrets = "refuse" keeps those out of memories; '
        "remember where it is kept instead"
    )


def _has_any(hints: tuple[str, ...], text: str) -> bool:
    for hint in hints:  # noqa: SIM110 - a generator takes three times as long, and this is what every entry pays
        if hint in text:
            return True
    return False


def _shaped(text: str) -> list[tuple[str, int, int]]:
    """Kind, start and end of what has the shape of some provider's credential, in the order of the shapes."""
    found: list[tuple[str, int, int]] = []
    for kind, hints, pattern in _SHAPES:
        if not _has_any(hints, text):
            continue
        for match in re.finditer(pattern, text):
            start, end = match.span(match.lastindex or 0)
            if kind == "private-key" or not _is_sample(kind, text[start:end]):
                found.append((kind, start, end))
    return found


def _is_sample(kind: str, value: str) -> bool:
    """Whether a value is a placeholder, a reference or one of a manual's samples."""
    low = value.lower()
    if low in _NO_VALUES or re.match(f"(?i:{_NONE})", value):
        return True
    if kind == "url-password":
        return value[0] in "{[" or value[:2] in ("${", "$(") or bool(re.match(_REFERENCE, value))
    return len(set(value)) < 8  # AKIA0000…; even 32 random hex digits have fewer only once in 20 million times


def _assigned(text: str, folded: str) -> list[tuple[str, int, int]]:
    """Kind, start and end of what a word such as password or 密码 is given as its value. `folded`: in lower case."""
    found: list[tuple[str, int, int]] = []
    for match in re.finditer(_ASSIGNMENT, folded):
        word = match["word"]
        kind = next(kind for part, kind in _WORDS.items() if part in word)
        how = match.lastgroup or "plain"
        start, end = match.span(how)
        value = text[start:end]
        if how == "plain":
            if text[end : end + 1] in ("(", "[", "{") or "***" in value or "..." in value:
                continue  # a call, a look-up, or masked
            value = value.rstrip("*.?")
        looks = _LOOKS.get(kind, _looks_random)
        if looks(value, how != "plain", text[end : end + 12]):
            found.append((kind, start, start + len(value)))
    return found


def _looks_random(value: str, quoted: bool, after: str) -> bool:
    """Whether a value looks like a token or key and not like a name: words and short numbers, joined."""
    return (
        len(value) >= 8
        and re.match(_MIXED, value) is not None
        and not re.match(_NAMED, value)
        and len(set(value)) >= 6
        and not _is_no_value(value)
    )


def _looks_password(value: str, quoted: bool, after: str) -> bool:
    """Whether a value looks like a password: letters with digits or signs, digits alone, in quotes letters alone."""
    if value.isdigit():
        return _is_number_secret(value, after)
    if len(value) < 6 or (value.isalpha() and not quoted):
        return False
    if value.isidentifier() and "_" in value and re.search(_NAME_PART, value.lower()):
        return False  # a variable
    mixed = value.isalpha() or re.match(_MIXED, value) or re.search("[@#$%^&*!]", value[1:-1])
    return bool(mixed) and not _is_no_value(value)


def _looks_encoded(value: str, quoted: bool, after: str) -> bool:
    """Whether a value looks like base64: capitals and small letters."""
    return len(value) >= 8 and value.upper() != value != value.lower() and not _is_no_value(value)


def _is_no_value(value: str) -> bool:
    """Whether a value is a placeholder, a reference or the name of a thing."""
    return value.lower() in _NO_VALUES or re.match(_NO_VALUE, value) is not None


def _is_number_secret(value: str, after: str) -> bool:
    """Whether digits alone are a password: no count, no year. `after`: the text behind them."""
    if len(value) >= 6:
        return not re.match(_COUNTED, after.lower())
    return len(value) >= 4 and value[:2] not in ("19", "20") and re.match(_CLAUSE_END, after) is not None


_LOOKS = {"password": _looks_password, "basic-auth": _looks_encoded}
