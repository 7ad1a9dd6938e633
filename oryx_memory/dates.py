"""The moments that a query names, in Chinese and English, absolute (`5月2号`, `7 May 2023`) or from now (`上周三`).

What a form of writing matches is taken out of the query before the next form looks at it, so `2月30日`, which is no
day, is not read as February afterwards. A bare number is no date. Where a date names no year, it means each of the
last years, the newest most: nobody can know which one is meant, and memories of other years simply have none.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime, timedelta
from typing import NamedTuple
from unicodedata import normalize


class DateSpan(NamedTuple):
    """Days that a query names, both ends included, and how much being one of them says: at most 1."""

    start: date
    end: date
    weight: float


MOST_READ = 2000  # code points of a query; a pasted file names thousands of dates, which is as good as none
_AMBIGUOUS = re.compile("[0-9./]+")

_Days = tuple[date, date, float]  # first, last, share of the weight
_Reader = Callable[["re.Match[str]", date], Iterable[_Days]]

_WEIGHTS = ((1, 1.0), (10, 0.8), (31, 0.6), (92, 0.4))  # days, weight: a longer span says less about each of its days
_LONGER = 0.3
_YEARS = 10  # that a date without a year is looked for in
_FADING = 0.9  # from one of these years to the one before
_PERHAPS = 0.5  # a weekday alone is as often a rule (周三例会) as a day

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_CHINESE_WEEKDAYS = "一二三四五六日"
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_DIGITS = {digit: value for value, digit in enumerate("〇一二三四五六七八九")} | {"零": 0, "两": 2, "兩": 2}
_NUMBERS = {
    "a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9,
    "ten": 10, "first": 1, "second": 2, "third": 3, "fourth": 4,
}  # fmt: skip
_VAGUE = {"couple": (1, 3), "few": (2, 6), "several": (2, 7), "几": (2, 6), "幾": (2, 6), "数": (2, 7), "數": (2, 7)}
_YEARS_BACK = {"今年": 0, "本年": 0, "去年": 1, "前年": 2, "大前年": 3, "明年": -1}
_BACK = {"上上": 2, "上": 1, "这": 0, "這": 0, "本": 0, "当": 0, "當": 0, "下": -1, "下下": -2}
_BACK |= {"last": 1, "past": 1, "previous": 1, "this": 0, "on": 0, "next": -1}
_DAYS_BACK = {
    "大前天": 3,
    "前天": 2,
    "昨": 1,
    "今": 0,
    "明": -1,
    "后": -2,
    "後": -2,
    "大后": -3,
    "大後": -3,
    "day before": 2,
}
_DAYS_BACK |= {"yesterday": 1, "last night": 1, "today": 0, "tonight": 0, "this": 0, "tomorrow": -1}
_PARTS_OF_MONTH = {  # first and last day
    "初": (1, 10), "上旬": (1, 10), "early": (1, 10), "beginning of": (1, 10), "中旬": (11, 20), "mid": (11, 20),
    "下旬": (21, 31), "底": (21, 31), "末": (21, 31), "late": (21, 31), "end of": (21, 31),
}  # fmt: skip
_PARTS_OF_YEAR = {  # first and last month
    "初": (1, 2), "年初": (1, 2), "上半年": (1, 6), "下半年": (7, 12), "底": (11, 12), "年底": (11, 12), "末": (11, 12),
    "年末": (11, 12), "春": (3, 5), "夏": (6, 8), "秋": (9, 11), "冬": (12, 2),
}  # fmt: skip
_UNIT_DAYS = {"day": 1, "week": 7, "month": 31, "year": 366}


def date_spans(query: str, now: datetime) -> list[DateSpan]:
    """The spans of days that a query names, in no particular order; `now` (local) is what relative ones count from.
    Only the first MOST_READ code points of a query are looked at.
    """
    today = now.date()
    return list(dict.fromkeys(span for match, read in _matches(query)[0] for span in _spans(read, match, today)))


def undated(query: str) -> str:
    """A query without the dates that it names: what is left to look for as words, where entries of these dates exist.

    Forms that may as well be a version or a path (`2026.4.10`, `10/2`, `20261002`) stay.
    """
    return _matches(query)[1]


def _matches(query: str) -> tuple[list[tuple["re.Match[str]", _Reader]], str]:
    """The dates of a query, and the query without them."""
    rest = normalize("NFKC", query[:MOST_READ]).lower()
    found: list[tuple[re.Match[str], _Reader]] = []
    words = list(rest)
    for literals, pattern, read in _FORMS:
        # A regular expression is compiled only for a query that has what it needs: most name no date.
        if any(literal in rest for literal in literals):
            for match in re.finditer(pattern, rest):
                found.append((match, read))
                blank = "\0" * (match.end() - match.start())
                rest = rest[: match.start()] + blank + rest[match.end() :]
                if not _AMBIGUOUS.fullmatch(match[0]):
                    words[match.start() : match.end()] = " " * len(blank)
    return found, "".join(words) + query[MOST_READ:]


def date_score(time: datetime, spans: Iterable[DateSpan]) -> float:
    """How well a memory's time fits: the largest weight of the spans that it is in, 0 outside of all."""
    day = time.date()
    return max((span.weight for span in spans if span.start <= day <= span.end), default=0.0)


def _spans(read: _Reader, match: "re.Match[str]", today: date) -> list[DateSpan]:
    try:
        days = [(start, end, share) for start, end, share in read(match, today) if start <= end]
        return [DateSpan(start, end, share * _weight(start, end)) for start, end, share in days]
    except (ValueError, OverflowError):  # 2025年13月, 9999 years ago: no moment
        return []


def _weight(start: date, end: date) -> float:
    days = (end - start).days + 1
    return next((weight for limit, weight in _WEIGHTS if days <= limit), _LONGER)


def _number(text: str) -> int:
    """A count or a digit-by-digit number (二〇二五) in digits, Chinese or English. Raises ValueError."""
    if text.isascii():
        return _NUMBERS[text] if text in _NUMBERS else int(text)
    tens, ten, ones = text.partition("十")
    if ten:
        return 10 * (_DIGITS[tens] if tens else 1) + (_DIGITS[ones] if ones else 0)
    return int("".join(str(_DIGITS[digit]) for digit in text))


def _year(groups: dict[str, str | None], today: date) -> int | None:
    """The year that a match names, if any."""
    if text := groups.get("year") or groups.get("year2"):
        year = _number(text)
        return year + 2000 if year < 100 else year
    if text := groups.get("from"):
        return today.year - _YEARS_BACK[text]
    if text := groups.get("back"):
        return today.year - _BACK[text]
    return None


def _month(year: int, month: int) -> tuple[date, date]:
    return date(year, month, 1), date(year, month, monthrange(year, month)[1])


def _months_before(today: date, months: int) -> tuple[date, date]:
    year, month = divmod(today.year * 12 + today.month - 1 - months, 12)
    return _month(year, month + 1)


def _quarter(year: int, quarter: int) -> tuple[date, date]:
    if not 1 <= quarter <= 4:
        raise ValueError(quarter)
    return date(year, 3 * quarter - 2, 1), _month(year, 3 * quarter)[1]


def _each_year(year: int | None, today: date, days: Callable[[int], tuple[date, date]]) -> Iterator[_Days]:
    """The days in the year that was named, or else in each of the last years that has them."""
    if year is not None:
        yield (*days(year), 1.0)
        return
    share = 1.0
    for past in range(today.year, today.year - _YEARS, -1):
        try:
            start, end = days(past)
        except ValueError:  # 29 February
            continue
        if start <= today:
            yield start, end, share
            share *= _FADING


def _in_month(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    groups = match.groupdict()
    name = match["month"]
    month = _MONTHS.index(name[:3]) + 1 if name[:3] in _MONTHS else _number(name)
    day, last, part = groups.get("day"), groups.get("last"), groups.get("part")

    def days(year: int) -> tuple[date, date]:
        start, end = _month(year, month)
        if day:
            return start.replace(day=_number(day)), start.replace(day=_number(last or day))
        if part:
            first, until = _PARTS_OF_MONTH[part]
            return start.replace(day=first), end.replace(day=min(until, end.day))
        return start, end

    return _each_year(_year(groups, today), today, days)


def _across_months(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    first, last = _number(match["month"]), _number(match["last_month"])

    def days(year: int) -> tuple[date, date]:
        start, _ = _month(year, first)
        _, end = _month(_number(match["last_year"]) if match["last_year"] else year + (last < first), last)
        return (
            start.replace(day=_number(match["day"])) if match["day"] else start,
            end.replace(day=_number(match["last"])) if match["last"] else end,
        )

    return _each_year(_year(match.groupdict(), today), today, days)


def _this_day(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    """The day of another month or year that has the number of today."""
    groups = match.groupdict()
    year = _year({name: groups.get(name) for name in ("year", "from")}, today)
    if year is not None:
        day = today.replace(year=year)
        yield day, day, 1.0
        return
    least, most = _count(match["count"]) if groups["count"] else (_BACK[match["back"]],) * 2
    months = 12 if groups["unit"] in ("年", "year") else 1
    for count in range(least, most + 1):
        day = _months_before(today, count * months)[0].replace(day=today.day)
        yield day, day, 1.0


def _slashed(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    month, day = int(match["first"]), int(match["second"])
    if month > 12:
        month, day = day, month
    return _each_year(_year(match.groupdict(), today), today, lambda year: (date(year, month, day),) * 2)


def _in_near_month(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    start, end = _months_before(today, _BACK[match["back"]])
    if match["day"]:
        start = end = start.replace(day=_number(match["day"]))
    elif match["part"]:
        first, until = _PARTS_OF_MONTH[match["part"]]
        start, end = start.replace(day=first), end.replace(day=min(until, end.day))
    yield start, end, 1.0


def _named_month_near(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    month = _MONTHS.index(match["month"][:3]) + 1
    back = _BACK[match["back"]]
    year = today.year - (back > 0 and month >= today.month) + (back < 0 and month <= today.month)
    yield (*_month(year, month), 1.0)


def _in_year(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    part = match.groupdict().get("part")
    first, last = _PARTS_OF_YEAR[part] if part else (1, 12)

    def days(year: int) -> tuple[date, date]:
        return date(year, first, 1), _month(year + (last < first), last)[1]

    return _each_year(_year(match.groupdict(), today), today, days)


def _in_quarter(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    quarter = _number(match["zh"] or match["q"] or match["en"])
    return _each_year(_year(match.groupdict(), today), today, lambda year: _quarter(year, quarter))


def _near_day(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    back = next(days for name, days in _DAYS_BACK.items() if match["day"].startswith(name))
    day = today - timedelta(days=back)
    yield day, day, 1.0


def _week(today: date, back: int) -> tuple[date, date]:
    monday = today - timedelta(days=today.weekday() + 7 * back)
    return monday, monday + timedelta(days=6)


def _in_week(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    monday, sunday = _week(today, _BACK[match["back"]])
    name = match["weekday"]
    if not name:
        yield monday, sunday, 1.0
    elif name == "末":
        yield sunday - timedelta(days=1), sunday, 1.0
    else:
        day = monday + timedelta(days=_weekday(name))
        yield day, day, 1.0


def _weekday(name: str) -> int:
    if name[:3] in _WEEKDAYS:
        return _WEEKDAYS.index(name[:3])
    return _CHINESE_WEEKDAYS.index(name.replace("天", "日"))


def _near_weekday(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    """The last such day; `last Friday` is not today."""
    word = match.groupdict().get("back")
    days = (today.weekday() - _weekday(match["weekday"])) % 7
    if word and _BACK[word]:
        days = (days or 7) if _BACK[word] > 0 else days - 7
    day = today - timedelta(days=days)
    yield day, day, _PERHAPS if word in (None, "on") else 1.0


def _near_span(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    back, unit = _BACK[match["back"]], match["unit"]
    if unit == "week":
        yield (*_week(today, back), 1.0)
    elif unit == "weekend":
        sunday = _week(today, back)[1]
        yield sunday - timedelta(days=1), sunday, 1.0
    elif unit == "month":
        yield (*_months_before(today, back), 1.0)
    elif unit == "year":
        yield date(today.year - back, 1, 1), date(today.year - back, 12, 31), 1.0
    elif unit in ("quarter", "季"):
        year, quarter = divmod(today.year * 4 + (today.month - 1) // 3 - back, 4)
        yield (*_quarter(year, quarter + 1), 1.0)
    else:
        yield (*_season(today, _SEASONS[unit], back), 1.0)


def _season(today: date, month: int, back: int) -> tuple[date, date]:
    """The season that began last, or if `back`, that ended last; none lies ahead."""
    start = date(today.year, month, 1)
    while start > today or (back > 0 and _months_before(start, -2)[1] >= today):
        start = start.replace(year=start.year - 1)
    return start, _months_before(start, -2)[1]


def _count(text: str) -> tuple[int, int]:
    """The least and the most that a count may mean."""
    for word, bounds in _VAGUE.items():
        if word in text:
            return bounds
    return (_number(text),) * 2


def _unit(text: str) -> str:
    if text in _UNIT_DAYS:
        return text
    return "day" if text in "天日" else "year" if text == "年" else "month" if text[-1] == "月" else "week"


def _units_before(today: date, unit: str, count: int) -> tuple[date, date]:
    if unit == "month":
        return _months_before(today, count)
    if unit == "year":
        return date(today.year - count, 1, 1), date(today.year - count, 12, 31)
    day = today - timedelta(days=count * _UNIT_DAYS[unit])
    slack = timedelta(days=3 if unit == "week" else 0)
    return day - slack, day + slack


def _ago(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    least, most = _count(match["count"])
    unit = _unit(match["unit"])
    yield _units_before(today, unit, most)[0], _units_before(today, unit, least)[1], 1.0


def _half_ago(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    if match["unit"] in ("年", "year"):
        yield (*_months_before(today, 6), 1.0)
    else:
        yield (*_units_before(today, "week", 2), 1.0)


def _and_a_half_ago(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    count = _number(match["count"])
    if match["month"]:
        yield _months_before(today, count + 1)[0], _months_before(today, count)[1], 1.0
    else:
        yield (*_months_before(today, 12 * count + 6), 1.0)


def _since(match: "re.Match[str]", today: date) -> Iterator[_Days]:
    most = _count(match["count"] or "1")[1]
    yield today - timedelta(days=most * _UNIT_DAYS[_unit(match["unit"])]), today, 1.0


# Parts of the patterns below.
_N = "[0-9]{1,2}|[二三]?十[一二三四五六七八九]?|[一二三四五六七八九两兩]"
_Y = "[0-9]{4}|[〇零一二三四五六七八九]{4}"
_FROM = "今年|本年|去年|大?前年|明年"
_NEAR = "(?<![早晚])(?P<back>上上|上|这|這|本|当|當|下下|下)一?[个個]?"
_WEEK = "周|週|星期|礼拜|禮拜"
_UNIT = f"天|日|[个個]?(?:{_WEEK})|[个個]月|年"
_MONTH = (
    "jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    "nov(?:ember)?|dec(?:ember)?"
)
_NO_VERB = "january|february|april|june|july|august|september|october|november|december"  # as may and march are
_WEEKDAY = "mon(?:day)?|tue(?:s(?:day)?)?|wed(?:nesday)?|thu(?:r(?:s(?:day)?)?)?|fri(?:day)?|sat(?:urday)?|sun(?:day)?"
_COUNT = (
    "[0-9]{1,3}|one|two|three|four|five|six|seven|eight|nine|ten|(?:a )?couple(?: of)?|(?:a )?few|(?:a )?several|an?"
)
_OF_YEAR = r"(?:,? (?:of )?(?:(?P<year>[12][0-9]{3})\b(?![-/])|(?P<back>last|this|next) year\b))"
_PART = "early|mid|late|beginning of|end of"
_BEFORE = "in|of|since|during|until|till|by|before|after|from"
_TO = "[到至~–—-]"
_DIGIT = tuple("0123456789")
_WEEK_SIGNS = ("周", "週", "星期", "礼拜", "禮拜")

# The forms in the order in which they look: literals of which a query must have one, pattern, reader.
_FORMS: tuple[tuple[tuple[str, ...], str, _Reader], ...] = (
    (
        ("今天", "今日"),  # 去年的今天, 两年前的今天, 上个月的今天
        rf"(?:(?<![0-9〇零一二三四五六七八九])(?P<year>{_Y}) ?年|(?P<from>{_FROM})|{_NEAR}月"
        rf"|(?<![0-9第])(?P<count>{_N})(?P<unit>[个個]月|年)(?:之|以)?前)的?今[天日]",
        _this_day,
    ),
    ((" ago today",), rf"\b(?P<count>{_COUNT}) (?P<unit>month|year)s? ago today\b", _this_day),
    (
        _DIGIT,  # 2025-10-02, 2025/10/2, 2025.10.2
        r"(?<![0-9a-z./-])(?P<year>[12][0-9]{3})(?P<sign>[-/.])(?P<month>[0-9]{1,2})(?P=sign)(?P<day>[0-9]{1,2})"
        r"(?![0-9/-]|\.[0-9])",
        _in_month,
    ),
    (
        ("-", "/"),  # 2025-10
        r"(?<![0-9a-z./-])(?P<year>[12][0-9]{3})[-/](?P<month>0[1-9]|1[0-2])(?![0-9/-]|\.[0-9])",
        _in_month,
    ),
    (
        ("19", "20"),  # 20251002
        r"(?<![0-9a-z])(?P<year>(?:19|20)[0-9]{2})(?P<month>0[1-9]|1[0-2])(?P<day>0[1-9]|[12][0-9]|3[01])(?![0-9])",
        _in_month,
    ),
    (
        ("/",),  # 10/2, 10/2/2025; 25/12 the other way round
        r"(?<![\w./-])(?P<first>[0-9]{1,2})/(?P<second>[0-9]{1,2})(?:/(?P<year>[0-9]{4}|[0-9]{2}))?(?![\w/-]|\.[0-9])",
        _slashed,
    ),
    (
        ("月", "월"),  # 5月30日到6月2日, 2025年3月至5月
        rf"(?<![0-9一二三四五六七八九十])(?:(?P<year>{_Y}|[0-9]{{2}}) ?[年년] ?|(?P<from>{_FROM})的?)?"
        rf"(?P<month>{_N}) ?[月월]份?(?: ?(?P<day>{_N}) ?[日号號일]?)? ?{_TO} ?"
        rf"(?:(?P<last_year>{_Y}) ?[年년] ?)?(?P<last_month>{_N}) ?[月월]份?(?: ?(?P<last>{_N}) ?[日号號일])?",
        _across_months,
    ),
    (
        ("月", "월"),  # 5月2号, 2025年10月, 去年三月, 4月下旬, 5月2日到5日, 5月2-5日, 5월 2일
        rf"(?<![0-9一二三四五六七八九十])(?:(?P<year>{_Y}|[0-9]{{2}}|[〇零一二三四五六七八九]{{2}}) ?[年년] ?"
        rf"|(?P<from>{_FROM})的?)?(?P<month>{_N}) ?[月월]份?"
        rf"(?: ?(?P<day>{_N})(?:(?: ?[日号號일])? ?{_TO} ?(?P<last>{_N}))? ?[日号號일]|的?(?P<part>[上中下]旬|初|底|末))?",
        _in_month,
    ),
    (
        ("月",),  # 上个月, 本月5号, 上月底
        rf"{_NEAR}月份?(?:的?(?P<day>{_N})[日号號]|(?P<part>[上中下]旬|初|底|末))?",
        _in_near_month,
    ),
    (("季",), f"{_NEAR}(?P<unit>季)度?", _near_span),
    (
        ("季", "q", " quarter"),  # Q3, 2025Q3, Q3 2025, 去年第三季度, third quarter
        rf"(?:(?<![0-9])(?P<year>[12][0-9]{{3}}) ?年?[ 的/-]?|(?P<from>{_FROM})的?)?"
        r"(?:第?(?P<zh>[一二三四1-4])季度?|(?<![a-z])q(?P<q>[1-4])(?![0-9a-z])|\b(?P<en>first|second|third|fourth) quarter\b)"
        r"(?:,? (?:of )?(?P<year2>[12][0-9]{3})\b(?!-))?",
        _in_quarter,
    ),
    (
        ("年", "년"),  # 2025年, 去年, 去年夏天, 2025年底
        rf"(?:(?<![0-9〇零一二三四五六七八九])(?P<year>{_Y}) ?[年년](?!前)|(?P<from>{_FROM}))的?"
        r"(?:(?P<part>年?[初底末]|[上下]半年|[春夏秋冬](?=[天季]))[天季]?)?",
        _in_year,
    ),
    (("天", "昨", "今", "明"), "(?P<day>大?前天|[昨今明][天日晚夜晨早]|大?[后後]天)", _near_day),
    (_WEEK_SIGNS, rf"{_NEAR}(?:{_WEEK})(?P<weekday>[一二三四五六天末]|日(?!程))?", _in_week),
    (
        _WEEK_SIGNS,  # 周三; not 每周三, 一周三次
        rf"(?<![一二三四五六七八九十两兩几幾每各0-9个個])(?:{_WEEK})(?P<weekday>[一二三四五六天]|日(?!程))(?!年)",
        _near_weekday,
    ),
    (("前",), rf"(?<![0-9第])(?P<count>{_N})(?:[个個]半(?P<month>月)|年半)(?:之|以)?前", _and_a_half_ago),
    (("前",), "半[个個]?(?P<unit>[年月])(?:之|以)?前", _half_ago),
    (("前",), rf"(?<![0-9第])(?P<count>{_N}|[0-9]{{3}}|[几幾数數])(?P<unit>{_UNIT})(?:之|以)?前", _ago),
    (
        ("前", "近", "过去", "過去", "这", "這"),  # 前两天, 最近三周, 这几天
        rf"(?:过去|過去|最近|近|前|这|這)的?(?P<count>{_N}|[几幾数數])(?P<unit>{_UNIT})",
        _since,
    ),
    (
        _MONTHS,  # 7 May 2023, 2nd of May
        rf"(?<![\w.-])(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?(?: of)? (?P<month>{_MONTH})\b\.?{_OF_YEAR}?",
        _in_month,
    ),
    (
        _MONTHS,  # May 2nd, May 2-5, May 2, 2023
        rf"(?<![\w-])(?P<month>{_MONTH})\.? (?:the )?(?P<day>[0-9]{{1,2}})(?:st|nd|rd|th)?(?![\w:%]|[./][0-9])"
        rf"(?: ?(?:-|–|to) ?(?P<last>[0-9]{{1,2}})(?:st|nd|rd|th)?\b)?{_OF_YEAR}?",
        _in_month,
    ),
    (_MONTHS, rf"(?<![\w-])(?:(?P<part>{_PART})[ -])?(?P<month>{_MONTH})\.?{_OF_YEAR}", _in_month),
    (_MONTHS, rf"\b(?P<back>last|this|past|previous|next) (?P<month>{_MONTH})\b", _named_month_near),
    (_MONTHS, rf"\b(?:(?P<part>{_PART})[ -]|(?:{_BEFORE}) )(?P<month>{_MONTH})\b(?!-)", _in_month),
    (_MONTHS, rf"(?<![\w-])(?P<month>{_NO_VERB})\b(?!-)", _in_month),
    (("19", "20"), rf"\b(?:{_BEFORE}|year|early|late) (?P<year>(?:19|20)[0-9]{{2}})\b(?![-.:/%])", _in_year),
    (
        ("day", "night", "morrow", "this "),
        r"\b(?P<day>day before yesterday|yesterday|last night|today|tonight|tomorrow|this (?:morning|afternoon|evening))\b",
        _near_day,
    ),
    (
        ("last ", "this ", "previous ", "next "),
        r"\b(?P<back>last|this|previous|next) (?P<unit>week(?:end)?|month|year|quarter|spring|summer|autumn|fall|winter)\b",
        _near_span,
    ),
    (_WEEKDAYS, rf"\b(?P<back>last|this|past|previous|next|on) (?P<weekday>{_WEEKDAY})\b", _near_weekday),
    ((" ago",), r"\bhalf an? (?P<unit>year|month) ago\b", _half_ago),
    ((" ago",), rf"\b(?P<count>{_COUNT}) (?P<unit>day|week|month|year)s? ago\b", _ago),
    (
        ("past ", "last ", "previous "),
        rf"\b(?:past|last|previous) (?:(?P<count>{_COUNT}) )?(?P<unit>day|week|month|year)s?\b",
        _since,
    ),
)  # fmt: skip
