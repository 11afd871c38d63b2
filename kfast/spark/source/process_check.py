"""What Spark's Python processes do before they use kfast, and may have to do without it.

Owns the error of a process that lacks kfast, or has one of another version. Spark pickles sources
and readers by the names of their classes, and where kfast is missing it reports that a module was
not found, below a trace of Java. So they are pickled as bytes beside the function that loads them,
which is pickled by value: `load` and what it calls run where nothing of kfast can be imported. They
import modules of Python only, inside, and raise errors of Python only.

The driver's side is `worker_check`.
"""

from __future__ import annotations

HINT = (
    "install kfast[spark] of the driver's version for this interpreter on all nodes, or pack an "
    "environment and give it to Spark as spark.archives; PYSPARK_PYTHON names the interpreter, on "
    "the driver too (docs/cluster.md)"
)


def load(payload: bytes) -> object:
    """Unpickle an object of kfast; raises ``ImportError`` that names the process if it cannot be.

    Runs in Spark's processes. What it costs where nothing is wrong is the unpickling.
    """
    import pickle  # noqa: PLC0415 - see above

    try:
        return pickle.loads(payload)
    except (ImportError, AttributeError, TypeError) as error:
        process = describe_process()
        if isinstance(error, ImportError) and not process["kfast"]:
            problem = f"this Python process of Spark cannot import kfast\ncause: {process['error']}"
        else:
            problem = (
                "this Python process of Spark has another kfast than the one that started the "
                f"query\ncause: {error}"
            )
        raise ImportError(f"{problem}\nfound: {located(process)}\ntry: {HINT}") from None


def describe_process() -> dict[str, str]:
    """Describe the process: host, executable, versions; an empty version is that of none."""
    import importlib.util  # noqa: PLC0415 - see above
    import platform  # noqa: PLC0415
    import sys  # noqa: PLC0415

    process = {
        "host": platform.node(),
        "executable": sys.executable,
        "python": platform.python_version(),
        "kfast": "",
        "pyarrow": "installed" if importlib.util.find_spec("pyarrow") is not None else "",
        "error": "",
    }
    try:
        import kfast._native.fetch_response  # noqa: PLC0415 - compiled for one version of Python

        process["kfast"] = str(kfast.__version__)
    except ImportError as error:
        process["error"] = str(error)
    return process


def described_process(_: object) -> str:
    """Describe the process as JSON; a function for Spark's workers."""
    import json  # noqa: PLC0415 - see above

    return json.dumps(describe_process())


def located(process: dict[str, str]) -> str:
    """Describe a process in a line."""
    text = f"{process['executable']} on {process['host']}: Python {process['python']}, "
    text += f"kfast {process['kfast']}" if process["kfast"] else "no kfast"
    return text if process["pyarrow"] else f"{text}, no pyarrow"
