"""Asset keys, and the names that Dagster's steps have for them.

A source table may be called anything. Its asset key may be, too; but Dagster makes the names of a step's outputs from keys
by replacing a character or two, and takes only ASCII letters, digits and `_` in them. Left to that, a table called `注文`
would stop the definitions from loading, and so would the tables `a.b` and `a_b` together.
"""

import hashlib
import re

from dagster import AssetCheckSpec, AssetKey

_PLAIN = re.compile(r"[A-Za-z0-9]+(_[A-Za-z0-9]+)*")
_LIKE_A_DIGEST = re.compile(r".*_[0-9a-f]{16}")


def asset_key(name: str, *parts: str) -> AssetKey:
    """The key of one asset of a feed.

    The feed goes first, other than in the table's path: Dagster's graph labels an asset with its key's last part, and
    there would be five assets called `shop`.
    """
    return AssetKey([name, *parts])


def output_name(key: AssetKey) -> str:
    """A name of ASCII letters, digits and `_` that no other key has."""
    joined = "__".join(key.path)
    plain = all(_PLAIN.fullmatch(part) for part in key.path) and not _LIKE_A_DIGEST.fullmatch(joined)
    if plain:
        return joined
    digest = hashlib.sha256("\0".join(key.path).encode()).hexdigest()[:16]
    return f"{re.sub('[^A-Za-z0-9_]', '_', joined)}_{digest}"


class CheckSpec(AssetCheckSpec):
    """A check whose output has a name of its own, whatever its asset's key."""

    def get_python_identifier(self) -> str:
        """What Dagster calls the check's output."""
        return f"{output_name(self.asset_key)}__check__{self.name}"
