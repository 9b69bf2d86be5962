"""What breaks my cache: two consecutive prompts or request bodies, and where they part.

Providers match a prompt from its first token, in the order tools, system, messages. So a request
body is laid out in that order, compared, and the first difference is traced to a likely cause.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from kvcore.costs.estimate import ModelChoice, as_choice, evaluate
from kvcore.costs.prices import rates
from kvcore.costs.rules import Rules, rules_for
from kvcore.costs.tokens import Counter, common_prefix, counter_for
from kvcore.costs.workload import Workload

EXCERPT = 60
TOP = 2_000
"""Characters that count as the top of a prompt."""
FILE_MARK = "<file"


@dataclass(frozen=True)
class Cause:
    """What probably made the prompts differ, and what to do about it."""

    kind: str
    sentence: str
    fix: str


@dataclass(frozen=True)
class Diagnosis:
    """Where two prompts part and what that does to the cache.

    Tokens are counted by `counter`. `cacheable_tokens` is the shared prefix by the provider's
    minimum and granularity; `fixed_tokens` the prefix that would be shared with all of `causes`
    mended, None where nothing is to be mended. `breaks` is False when the second prompt repeats
    or simply continues the first.
    """

    breaks: bool
    shared_tokens: int
    first_tokens: int
    second_tokens: int
    where: str
    first_excerpt: str
    second_excerpt: str
    causes: tuple[Cause, ...]
    cacheable_tokens: int | None
    minimum_tokens: int | None
    fixed_tokens: int | None
    fixed_cacheable_tokens: int | None
    counter: Counter

    @property
    def cause(self) -> Cause:
        return self.causes[0]

    @property
    def over_minimum(self) -> bool | None:
        """Whether what is shared now is long enough to be cached; None without known rules."""
        return None if self.cacheable_tokens is None else self.cacheable_tokens > 0

    @property
    def sentence(self) -> str:
        share = f"{self.shared_tokens:,} of {self.second_tokens:,} tokens are shared"
        if not self.breaks:
            return f"{share}: {self.cause.sentence}"
        return f"{share}; then {self.where} differs. {self.cause.sentence}"


def diagnose(
    first: str, second: str, *, model: str | None = None, provider: str | None = None
) -> Diagnosis:
    """Compare two prompts or request bodies (JSON text). Raises TextTooLong.

    With a model that can be priced the provider's minimum is applied; without one it is left out.
    """
    counter = counter_for(model)
    rules = rules_for(rates(model, provider)) if model else None
    before, after = _layouts(first, second)
    causes: list[Cause] = []
    first_ids, second_ids = counter.encode(before.text), counter.encode(after.text)
    shared = common_prefix(first_ids, second_ids)
    position = common_prefix(before.text, after.text)
    mended = (before, after)
    while len(causes) < 5 and (found := _cause(*mended)) is not None:
        cause, mend = found
        if causes and (cause.kind in _HARMLESS or cause.kind in {c.kind for c in causes}):
            break
        causes.append(cause)
        if mend is None:
            break
        mended = mend(*mended)
    breaks = bool(causes) and causes[0].kind not in _HARMLESS
    fixed = None
    if breaks:
        fixed = common_prefix(*(counter.encode(layout.text) for layout in mended))
    if before.model != after.model:
        shared = 0
    return Diagnosis(
        breaks=breaks,
        shared_tokens=shared,
        first_tokens=len(first_ids),
        second_tokens=len(second_ids),
        where=_where(before, after, position) if breaks else "",
        first_excerpt=_excerpt(before.text, position) if breaks else "",
        second_excerpt=_excerpt(after.text, position) if breaks else "",
        causes=tuple(causes) or (_NOTHING,),
        cacheable_tokens=rules.cacheable(shared) if rules else None,
        minimum_tokens=_minimum(rules),
        fixed_tokens=None if fixed is None else max(fixed, shared),
        fixed_cacheable_tokens=rules.cacheable(max(fixed, shared)) if rules and fixed else None,
        counter=_with_files(counter, before, after),
    )


def _with_files(counter: Counter, before: _Layout, after: _Layout) -> Counter:
    """The counter, saying also that it left files out where there were any."""
    if FILE_MARK not in before.text and FILE_MARK not in after.text:
        return counter
    note = "Images and files are compared but not counted: their tokens depend on the model."
    return replace(counter, sentence=f"{counter.sentence} {note}")


def worth_a_month(
    diagnosis: Diagnosis,
    model: ModelChoice | str | tuple[str, str],
    workload: Workload,
    *,
    at: datetime | date | None = None,
) -> Decimal:
    """What mending the causes saves a month, at the traffic of `workload`.

    The prompt is as long as the second one pasted; its stable prefix is what is shared now, or
    what would be shared. Raises PriceError.
    """
    if not diagnosis.fixed_tokens or not diagnosis.second_tokens:
        return Decimal(0)
    choice = as_choice(model)
    found = rates(
        choice.model,
        choice.provider,
        at,
        batch=workload.batch,
        service_tier=choice.service_tier,
        speed=choice.speed,
        geo=choice.geo,
        contract=choice.contract,
    )
    rules = rules_for(found)

    def bill(stable: int) -> Decimal:
        changing = diagnosis.second_tokens - min(stable, diagnosis.second_tokens)
        traffic = replace(
            workload,
            prefix_tokens=diagnosis.second_tokens - changing,
            changing_tokens=changing,
            turns=1,
            calls_per_turn=1,
            events=(),
            unstable_top=False,
        )
        return evaluate(found, rules, traffic).cheapest_total

    return bill(diagnosis.shared_tokens) - bill(diagnosis.fixed_tokens)


def _minimum(rules: Rules | None) -> int | None:
    return rules.minimum.tokens if rules and rules.minimum else None


def _where(before: _Layout, after: _Layout, position: int) -> str:
    if before.model != after.model:
        return "the model"
    own = before.sections[before.section_at(position)].path if before.sections else ""
    return (before if own.startswith("tools") else after).place(position)


def _excerpt(text: str, position: int) -> str:
    return text[max(0, position - EXCERPT // 3) : position + EXCERPT]


# Laying a prompt out as the provider reads it.


@dataclass(frozen=True)
class _Section:
    path: str
    text: str


@dataclass(frozen=True)
class _Layout:
    """A prompt as sections in the order the provider matches them; plain text is one section."""

    sections: tuple[_Section, ...]
    model: str | None = None
    settings: tuple[tuple[str, str], ...] = ()
    is_body: bool = False

    @property
    def text(self) -> str:
        return "\n".join(section.text for section in self.sections)

    def place(self, position: int) -> str:
        """Where a character of the whole text stands, in words."""
        start = 0
        for section in self.sections:
            end = start + len(section.text)
            if position <= end:
                within = section.text[: position - start]
                line = within.count("\n") + 1
                column = len(within) - (within.rfind("\n") + 1) + 1
                return f"{section.path}, line {line}, character {column},"
            start = end + 1
        return "the end"

    def section_at(self, position: int) -> int:
        start = 0
        for index, section in enumerate(self.sections):
            start += len(section.text) + 1
            if position < start:
                return index
        return len(self.sections) - 1

    def without(self, start: int, end: int) -> _Layout:
        """The layout without the characters [start, end) of its text, within one section."""
        index = self.section_at(start)
        before = sum(len(section.text) + 1 for section in self.sections[:index])
        section = self.sections[index]
        text = section.text[: start - before] + section.text[end - before :]
        changed = replace(section, text=text)
        sections = (*self.sections[:index], changed, *self.sections[index + 1 :])
        return replace(self, sections=sections)

    def mapped(self, change: Callable[[str], str]) -> _Layout:
        sections = tuple(_Section(s.path, change(s.text)) for s in self.sections)
        return replace(self, sections=sections)


_BODY_PARTS = (
    ("tools", ("tools", "functions", "toolConfig")),
    ("system", ("system", "instructions", "systemInstruction", "system_instruction")),
    ("messages", ("messages", "input", "contents")),
)
_SETTINGS = ("tool_choice", "thinking", "reasoning", "reasoning_effort", "speed", "response_format")
_MARKS = ("cache_control", "prompt_cache_breakpoint", "cachePoint")


def _layouts(first: str, second: str) -> tuple[_Layout, _Layout]:
    bodies = (_body(first), _body(second))
    if None in bodies:
        return _plain(first), _plain(second)
    return _from_body(bodies[0]), _from_body(bodies[1])


def _body(text: str) -> Mapping[str, Any] | None:
    if not text.lstrip().startswith("{"):
        return None
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    inner = body.get("body") if isinstance(body.get("body"), dict) else body
    names = [name for _, group in _BODY_PARTS[1:] for name in group]
    return inner if any(name in inner for name in names) else None


def _plain(text: str) -> _Layout:
    return _Layout((_Section("the prompt", text),))


def _from_body(body: Mapping[str, Any]) -> _Layout:
    sections = [s for part, names in _BODY_PARTS for s in _part(body, part, names)]
    settings = tuple((name, _dumped(body[name])) for name in _SETTINGS if name in body)
    model = body.get("model") if isinstance(body.get("model"), str) else None
    return _Layout(tuple(sections), model, settings, is_body=True)


def _part(body: Mapping[str, Any], part: str, names: tuple[str, ...]) -> Iterator[_Section]:
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        items = value if isinstance(value, list) else [value]
        for index, item in enumerate(items):
            label = f"{part}[{index}]" if isinstance(value, list) else part
            yield from _item(label, item)


def _item(label: str, item: Any) -> Iterator[_Section]:
    if isinstance(item, str):
        yield _Section(label, item)
        return
    if isinstance(item, Mapping) and "role" in item:
        yield _Section(f"{label}.role", f"<{item['role']}>")
        rest = {k: v for k, v in item.items() if k != "role"}
        yield from _content(label, rest)
        return
    if isinstance(item, Mapping) and isinstance(item.get("text"), str):
        yield _Section(label, item["text"])
        return
    yield _Section(label, _dumped(item))


def _content(label: str, rest: Mapping[str, Any]) -> Iterator[_Section]:
    for key, value in rest.items():
        if isinstance(value, str):
            yield _Section(f"{label}.{key}", value)
        elif isinstance(value, list):
            for index, block in enumerate(value):
                text = block.get("text") if isinstance(block, Mapping) else block
                name = f"{label}.{key}[{index}]"
                yield _Section(name, text if isinstance(text, str) else _dumped(block))
        elif key not in _MARKS:
            yield _Section(f"{label}.{key}", _dumped(value))


def _dumped(value: Any, sort: bool = False) -> str:
    return json.dumps(_unmarked(value), ensure_ascii=False, sort_keys=sort)


def _unmarked(value: Any) -> Any:
    """Without the marks that place a breakpoint, which are no part of the prompt, and with files
    replaced by their fingerprints: their encoded bytes are not what the model counts."""
    if isinstance(value, Mapping):
        return {k: _unmarked(v) for k, v in value.items() if k not in _MARKS}
    if isinstance(value, list):
        return [_unmarked(v) for v in value]
    return _fingerprint(value) if _is_file(value) else value


_ENCODED = re.compile(r"(?:data:[\w/+.-]*;base64,)?[A-Za-z0-9+/=_\n-]+")


def _is_file(value: Any) -> bool:
    return isinstance(value, str) and len(value) > 400 and _ENCODED.fullmatch(value) is not None


def _fingerprint(encoded: str) -> str:
    return f"{FILE_MARK} {hashlib.sha256(encoded.encode()).hexdigest()[:12]}>"


# Finding the cause.

_Mend = Callable[[_Layout, _Layout], tuple[_Layout, _Layout]]
_NOTHING = Cause("identical", "The two prompts are the same.", "Nothing to mend.")
_ENDING = Cause(
    "ending differs",
    "Only the end differs, which is the part that is meant to change.",
    "Nothing to mend.",
)
_CONTINUES = Cause(
    "continues",
    "The second prompt continues the first: this is how a cache wants it.",
    "Nothing to mend.",
)


_HARMLESS = ("continues", "ending differs")
ENDING_SHARE = 0.8
"""A plain prompt of which this share is common parts only at its end."""


def _continues(before: _Layout, after: _Layout) -> bool:
    if before.model != after.model or before.settings != after.settings:
        return False
    if not before.is_body:
        return after.text.startswith(before.text)
    if after.sections[: len(before.sections)] == before.sections:
        return True
    return _only_last_message_differs(before, after)


def _only_last_message_differs(before: _Layout, after: _Layout) -> bool:
    """The usual changing part: all up to the first body's last message is the same, and what
    differs in that message is not followed by text that comes again."""
    last = _last_message(before)
    if last == 0 or after.sections[:last] != before.sections[:last]:
        return False
    return not _repeats_after_difference(before, after)


REPEATED = 400
"""Characters of the same text after a difference that are worth moving in front of it."""


def _repeats_after_difference(before: _Layout, after: _Layout) -> bool:
    """Whether the section where two prompts part goes on with the same text a little later."""
    position = common_prefix(before.text, after.text)
    index = after.section_at(position)
    if before.section_at(position) != index:
        return False
    first, second = before.sections[index].text, after.sections[index].text
    start = common_prefix(first, second)
    for skipped in (50, 150, 500, 1500):
        chunk = first[start + skipped : start + skipped + REPEATED]
        if len(chunk) == REPEATED and chunk in second[start:]:
            return True
    return False


def _last_message(layout: _Layout) -> int:
    roles = [i for i, s in enumerate(layout.sections) if s.path.endswith(".role")]
    return roles[-1] if roles else 0


def _cause(before: _Layout, after: _Layout) -> tuple[Cause, _Mend | None] | None:
    if before.model != after.model:
        sentence = f"The model changed from {before.model} to {after.model}."
        fix = "Stay with one model through a conversation: every model has its own cache."
        return Cause("model switch", sentence, fix), _same_model
    if before.text == after.text and before.settings == after.settings:
        return None
    if _continues(before, after):
        return (_CONTINUES, None) if after.text != before.text else None
    if before.settings != after.settings and _continues(
        before, replace(after, settings=before.settings)
    ):
        return _settings_cause(before, after)
    position = common_prefix(before.text, after.text)
    one_text = not before.is_body or _last_message(before) == 0
    if one_text and position >= ENDING_SHARE * min(len(before.text), len(after.text)):
        return _ENDING, None
    if before.is_body and after.is_body:
        path = after.sections[after.section_at(position)].path
        own = before.sections[before.section_at(position)].path
        if path.startswith("tools") or own.startswith("tools"):
            return _tools_cause(before, after, position)
    return _text_cause(before, after, position)


def _same_model(before: _Layout, after: _Layout) -> tuple[_Layout, _Layout]:
    return before, replace(after, model=before.model)


def _same_settings(before: _Layout, after: _Layout) -> tuple[_Layout, _Layout]:
    return before, replace(after, settings=before.settings)


def _settings_cause(before: _Layout, after: _Layout) -> tuple[Cause, _Mend]:
    names = {name for name, _ in set(before.settings) ^ set(after.settings)}
    listed = ", ".join(sorted(names))
    sentence = f"The prompt is the same, but {listed} changed, which loses cached messages."
    return Cause("setting changed", sentence, f"Keep {listed} as it was."), _same_settings


def _tools(layout: _Layout) -> list[str]:
    return [s.text for s in layout.sections if s.path.startswith("tools")]


def _canonical(text: str) -> str:
    try:
        return _dumped(json.loads(text), sort=True)
    except (ValueError, RecursionError):
        return text


def _tools_cause(before: _Layout, after: _Layout, position: int) -> tuple[Cause, _Mend | None]:
    first, second = _tools(before), _tools(after)
    if sorted(first) == sorted(second):
        sentence = "The same tools are sent in another order."
        return Cause("tools reordered", sentence, "Sort the tools by name."), _sort_tools
    if [_canonical(t) for t in first] == [_canonical(t) for t in second]:
        return _KEYS_REORDERED, _canonical_json
    if sorted(map(_canonical, first)) == sorted(map(_canonical, second)):
        sentence = "The same tools are sent in another order, with their JSON keys reordered too."
        fix = "Sort the tools by name and write JSON with sorted keys."
        return Cause("tools reordered", sentence, fix), _sort_canonical_tools
    found = _volatile_cause(before, after, position)
    if found is not None:
        return found
    names = f"{len(first)} before, {len(second)} now"
    sentence = f"The tools changed ({names}), which loses everything after them too."
    return Cause("tools changed", sentence, "Send the same tools in every request."), None


_KEYS_REORDERED = Cause(
    "JSON keys reordered",
    "The same JSON is written with its keys in another order.",
    "Write JSON with sorted keys.",
)


def _with_tools(layout: _Layout, texts: list[str]) -> _Layout:
    kept = tuple(s for s in layout.sections if not s.path.startswith("tools"))
    tools = tuple(_Section(f"tools[{i}]", text) for i, text in enumerate(texts))
    return replace(layout, sections=tools + kept)


def _sort_tools(before: _Layout, after: _Layout) -> tuple[_Layout, _Layout]:
    return _with_tools(before, sorted(_tools(before))), _with_tools(after, sorted(_tools(after)))


def _sort_canonical_tools(before: _Layout, after: _Layout) -> tuple[_Layout, _Layout]:
    return _sort_tools(*_canonical_json(before, after))


def _canonical_json(before: _Layout, after: _Layout) -> tuple[_Layout, _Layout]:
    return before.mapped(_canonical), after.mapped(_canonical)


_MONTHS = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*"
_WEEKDAYS = r"(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?"

# In this order: the first kind whose pattern covers the difference in both prompts is the cause.
_VOLATILE: tuple[tuple[str, re.Pattern[str], str, str], ...] = (
    (
        "timestamp",
        re.compile(
            r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
            r"|\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b"
            r"|\b\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?[AaPp]\.?[Mm]\.?)?\b"
            rf"|\b(?:{_WEEKDAYS},? )?(?:\d{{1,2}}(?:st|nd|rd|th)? {_MONTHS}|"
            rf"{_MONTHS} \d{{1,2}}(?:st|nd|rd|th)?),?(?: \d{{4}})?"
            rf"|\b{_WEEKDAYS}\b"
            r"|\b1[5-9]\d{8}(?:\d{3}|\d{6})?(?:\.\d+)?\b"
        ),
        "A date or time is written into the prompt.",
        "Move it behind the stable text, or round it to the day.",
    ),
    (
        "random id",
        re.compile(
            r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"
            r"|\b(?:req|msg|sess|session|run|trace|call|toolu|chatcmpl|conv|thread|user|id)"
            r"[-_:=][A-Za-z0-9_-]{6,}"
            r"|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{8,}\b"
            r"|\b(?=[A-Za-z0-9_-]*\d)(?=[A-Za-z0-9_-]*[A-Za-z])[A-Za-z0-9_-]{16,}\b"
        ),
        "An id that is new in every request is written into the prompt.",
        "Leave it out, or move it behind the stable text.",
    ),
    (
        "user name",
        re.compile(
            r"(?i:\b(?:user(?: ?name)?|name|customer|client|account|tenant|company|caller|from)"
            r"(?:[ \t]+is)?[ \t]*[:=]?[ \t]+)(?-i:[\w.'@+-]+(?:[ \t]+[A-Z][\w.'-]*){0,3})"
            r"|\b(?:Hello|Hi|Dear|You are helping|You assist|assistant (?:of|for))[ ,]+"
            r"[A-Z][\w'-]*(?: [A-Z][\w'-]*){0,2}"
            r"|[\w.+-]+@[\w-]+\.[\w.]+"
        ),
        "Text about the user stands before text that all users share.",
        "Put what all share first and what is personal after it.",
    ),
    (
        "counter",
        re.compile(r"\d[\d.,]*"),
        "A number that changes from request to request is written into the prompt.",
        "Move it behind the stable text.",
    ),
)


def _volatile_cause(before: _Layout, after: _Layout, position: int) -> tuple[Cause, _Mend] | None:
    for kind, pattern, sentence, fix in _VOLATILE:
        if _covering(pattern, before.text, position) and _covering(pattern, after.text, position):
            return Cause(kind, sentence, fix), _removing(pattern)
    return None


def _covering(pattern: re.Pattern[str], text: str, position: int) -> tuple[int, int] | None:
    """The match that holds the character at `position`, or ends right there."""
    start = max(0, position - 200, text.rfind("\n", 0, position) + 1)
    window = text[start : position + 200]
    at = position - start
    for match in pattern.finditer(window):
        if match.start() <= at <= match.end() and match.start() < match.end():
            return start + match.start(), start + match.end()
    return None


def _removing(pattern: re.Pattern[str], most: int = 50) -> _Mend:
    """Both prompts without the matches that differ: as if they had been moved to the end."""

    def mend(before: _Layout, after: _Layout) -> tuple[_Layout, _Layout]:
        for _ in range(most):
            position = common_prefix(before.text, after.text)
            first = _covering(pattern, before.text, position)
            second = _covering(pattern, after.text, position)
            if before.text == after.text or first is None or second is None:
                break
            before, after = before.without(*first), after.without(*second)
        return before, after

    return mend


def _text_cause(before: _Layout, after: _Layout, position: int) -> tuple[Cause, _Mend | None]:
    if " ".join(before.text.split()) == " ".join(after.text.split()):
        sentence = "Only white space or line endings differ."
        cause = Cause("white space", sentence, "Build the prompt from the same template bytes.")
        return cause, _collapse
    if _same_json_around(before.text, after.text, position):
        return _KEYS_REORDERED, _embedded_canonical
    found = _volatile_cause(before, after, position)
    if found is not None:
        return found
    return _changed_text(before, after, position)


def _collapse(before: _Layout, after: _Layout) -> tuple[_Layout, _Layout]:
    return (
        before.mapped(lambda text: " ".join(text.split())),
        after.mapped(lambda text: " ".join(text.split())),
    )


def _json_around(text: str, position: int) -> tuple[int, int, Any] | None:
    """The innermost-first JSON object or list in the text that holds `position`."""
    decoder = json.JSONDecoder()
    start = position
    for _ in range(40):
        start = max(text.rfind("{", 0, start + 1), text.rfind("[", 0, start + 1))
        if start < 0:
            return None
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            end = -1
        if end > position:
            return start, end, value
        start -= 1
    return None


def _same_json_around(first: str, second: str, position: int) -> bool:
    one, two = _json_around(first, position), _json_around(second, position)
    return one is not None and two is not None and one[2] == two[2]


def _embedded_canonical(before: _Layout, after: _Layout) -> tuple[_Layout, _Layout]:
    position = common_prefix(before.text, after.text)
    return _sorted_at(before, position), _sorted_at(after, position)


def _sorted_at(layout: _Layout, position: int) -> _Layout:
    text = layout.text
    start, end, value = _json_around(text, position)
    return replace(
        layout,
        sections=(_Section("the prompt", text[:start] + _dumped(value, sort=True) + text[end:]),),
        is_body=False,
    )


def _changed_text(before: _Layout, after: _Layout, position: int) -> tuple[Cause, _Mend | None]:
    path = after.sections[after.section_at(position)].path
    if path.startswith("messages") and before.section_at(position) < _last_message(before):
        sentence = "An earlier message was edited, dropped or summarised."
        fix = "Only add to the end of a conversation; compact rarely and all at once."
        return Cause("earlier message changed", sentence, fix), None
    if path.startswith("system"):
        sentence = "The system text itself changed, which loses the messages after it too."
        fix = "Keep it word for word, and put what changes into the last message."
        return Cause("system text changed", sentence, fix), _drop_difference
    place = "near the top of the prompt " if position < TOP else ""
    sentence = f"The text {place}itself changed."
    fix = "Move what changes behind what stays."
    return Cause("text changed", sentence, fix), _drop_difference


def _drop_difference(before: _Layout, after: _Layout) -> tuple[_Layout, _Layout]:
    """Both prompts without what differs inside the section where they part."""
    position = common_prefix(before.text, after.text)
    index = after.section_at(position)
    if before.section_at(position) != index:
        return before, after
    first, second = before.sections[index].text, after.sections[index].text
    start = common_prefix(first, second)
    shortest = min(len(first), len(second)) - start
    end = min(shortest, common_prefix(first[::-1], second[::-1]))
    offset = sum(len(section.text) + 1 for section in after.sections[:index])
    return (
        before.without(offset + start, offset + len(first) - end),
        after.without(offset + start, offset + len(second) - end),
    )
