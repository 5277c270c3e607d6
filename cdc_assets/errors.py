"""Errors of what people ask for, and short texts of errors, for logs and checks."""

_PY4J_PREFIX = "An error occurred while calling "


class OperationError(ValueError):
    """What a person asks for cannot be done; the message is one line, and says why and what to do."""


def first_line(error: Exception) -> str:
    """Return the type of an error and the first line of its message; a JVM error's other lines are its stack trace."""
    type_name = type(error).__name__
    try:
        lines = str(error).strip().split("\n")
    except Exception:  # noqa: BLE001 -- Py4J reads the text of its errors from the JVM, which may have ended
        return type_name
    # Py4J names the called object in the first line and the Java exception in the second.
    is_py4j = lines[0].startswith(_PY4J_PREFIX) and len(lines) > 1
    message = lines[1].removeprefix(": ") if is_py4j else lines[0]
    return f"{type_name}: {message}" if message else type_name
