"""Places of tables and files: local paths and URIs."""

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
# `s3` and `s3a` name the same places; this is Hadoop's name.
S3 = "s3a"
HDFS = "hdfs"
SCHEMES = ("s3", S3, "abfss", "gs", HDFS, "file")
ALLOWED = f"a local folder, or a URI of {', '.join(f'{scheme}://' for scheme in SCHEMES)}"


class PlaceError(ValueError):
    """A place that cannot be used; the message is one line."""


def canonical(place: str) -> str:
    """A place in the one form in which it is kept: local paths absolute, `s3://` as `s3a://`, no slash at the end.

    Raises:
        PlaceError: it is a URI of another scheme than `SCHEMES`.
    """
    scheme = scheme_of(place)
    if not scheme:
        return os.path.abspath(place)  # noqa: PTH100 -- links stay
    if scheme not in SCHEMES:
        raise PlaceError(f"{place}: allowed is {ALLOWED}")
    if scheme == "s3":
        place = S3 + place[len(scheme) :]
    return place.rstrip("/")


def scheme_of(place: str) -> str:
    """The scheme of a URI, in lower case; "" of a local path."""
    found = _SCHEME.match(place)
    return found[1].lower() if found else ""
