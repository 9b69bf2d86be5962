"""What a user typed, shown as text: never as Markdown, a link, a picture or a formula."""

from __future__ import annotations

import re

_BREAKS = re.compile(r"\s+")
# Marks that start something wherever they stand, an underscore at the edge of a word, and what
# starts a list or a heading at the beginning.
_MARKUP = re.compile(r"[\\`*\[\](){}<>!$:|~^&@]|(?<![^\W_])_|_(?![^\W_])|^[-+#=]|(?<=^\d)\.")
# Streamlit makes links of bare addresses after escapes are resolved. A word joiner, which has no
# width, keeps them apart.
_ADDRESSES = re.compile(r"(https?\\:|www|\\@)(?=[/.\w])", re.IGNORECASE)
_JOINER = "\u2060"


class Escaped(str):
    """Text that has been through `as_text`."""


def as_text(value: object, max_length: int = 200) -> Escaped:
    """`value` on one line, cut to `max_length`, with all that Markdown would act on escaped.

    What has been escaped already stays as it is.
    """
    if isinstance(value, Escaped):
        return value
    line = _BREAKS.sub(" ", str(value)).strip()
    if len(line) > max_length:
        line = line[: max_length - 1] + "…"
    return Escaped(_ADDRESSES.sub(rf"\1{_JOINER}", _MARKUP.sub(r"\\\g<0>", line)))
