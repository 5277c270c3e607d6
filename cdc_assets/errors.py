"""Errors as people are told of them."""

_CALLING = "An error occurred while calling "


def first_line(error: Exception) -> str:
    """Return the type of an error and the first line of what it says: the others are a stack."""
    kind = type(error).__name__
    try:
        lines = str(error).strip().split("\n")
    except Exception:  # noqa: BLE001 -- Py4J asks the JVM for the text of its errors, and that may be gone
        return kind
    # Py4J says in the first line which of its objects it called, and in the second what happened.
    said = lines[1].removeprefix(": ") if lines[0].startswith(_CALLING) and len(lines) > 1 else lines[0]
    return f"{kind}: {said}" if said else kind
