"""The names of step outputs, which are derived from asset keys.

A source table and its asset key may have any name. But Dagster derives the names of a step's outputs from asset keys,
and allows only ASCII letters, digits and `_` in them. With Dagster's own derivation a table called `注文` would stop the
definitions from loading, and so would the two tables `a.b` and `a_b`.
"""

import hashlib
import re

from dagster import AssetCheckSpec, AssetKey

_PLAIN_NAME = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")
_WITH_DIGEST = re.compile(r".*_[0-9a-f]{16}")


def build_output_name(key: AssetKey) -> str:
    """Return a unique name for a key, of ASCII letters, digits and `_`."""
    joined = "__".join(key.path)
    is_plain = all(_PLAIN_NAME.fullmatch(part) for part in key.path) and not _WITH_DIGEST.fullmatch(joined)
    if is_plain:
        return joined
    digest = hashlib.sha256("\0".join(key.path).encode()).hexdigest()[:16]
    return f"{re.sub('[^A-Za-z0-9_]', '_', joined)}_{digest}"


class CheckSpec(AssetCheckSpec):
    """A check whose output has a valid and unique name for every asset key."""

    def get_python_identifier(self) -> str:
        """Return the name of the check's output; Dagster calls this method."""
        return f"{build_output_name(self.asset_key)}__check__{self.name}"
