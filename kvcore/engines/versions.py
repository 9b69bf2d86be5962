"""Engine version strings, compared as numbers."""

from __future__ import annotations

import re


class PlanError(ValueError):
    """A plan that cannot be made; the message names what is wrong and what to do."""


def version_tuple(version: str) -> tuple[int, int, int]:
    """(major, minor, patch) of "0.33", "v0.20.2rc1.dev129+g1a2b" or 0.33.

    Raises PlanError for anything that does not begin with a number.
    """
    match = re.match(r"\s*v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?", str(version))
    if not match:
        raise PlanError(f"“{version}” is not a version; write one such as 0.33.")
    major, minor, patch = (int(part or 0) for part in match.groups())
    return major, minor, patch
