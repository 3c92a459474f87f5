"""The compiled library, called from a thread of its own, so that Ctrl-C is heard at once and a bar can be shown meanwhile.

A callback from C into Python would be simpler and does not work: an interrupt that arrives inside it is swallowed. So the library reads
one word, `stop`, and writes one, `progress` (stepzero/capi/c.h)."""
import ctypes
import importlib
import json
import os
import pathlib
import sys
import threading
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence

from .errors import LibraryNotFound, error_of

FINE, FAILED, STOPPED, BUSY = range(4)


class Watch(ctypes.Structure):
    _fields_ = [("progress", ctypes.c_double), ("stop", ctypes.c_int32), ("threads", ctypes.c_int32)]
    progress: float
    stop: int
    threads: int


def _candidates() -> Iterable[pathlib.Path]:
    named = os.environ.get("STEPZERO_LIBRARY")
    if named:
        yield pathlib.Path(named)
    here = pathlib.Path(__file__).resolve().parent
    yield here / "libstepzero_c.so"
    yield here.parents[1] / "build" / "release" / "libstepzero_c.so"


def _load() -> ctypes.CDLL:
    tried: List[str] = []
    for path in _candidates():
        if path.exists():
            return ctypes.CDLL(str(path))
        tried.append(str(path))
    raise LibraryNotFound("libstepzero_c.so was not found; looked at " + ", ".join(tried) + "\n  pip install . builds it; or set STEPZERO_LIBRARY")


_library: Optional[ctypes.CDLL] = None
_lock = threading.Lock()


def library() -> ctypes.CDLL:
    """Loaded at the first call: importing the package costs nothing."""
    global _library
    with _lock:
        if _library is None:
            lib = _load()
            lib.sz_version.restype = ctypes.c_char_p
            lib.sz_text.restype = ctypes.c_char_p
            lib.sz_text.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
            lib.sz_status.argtypes = [ctypes.c_void_p]
            lib.sz_free.argtypes = [ctypes.c_void_p]
            lib.sz_free.restype = None
            _library = lib
    return _library


def _function(name: str, memory: bool) -> Any:
    """A call that takes a request, the addresses of memory where it works on some, and a watch."""
    try:
        function = getattr(library(), "sz_" + name)
    except AttributeError:
        raise LibraryNotFound(f"the library has no {name}: it is older than the package\n  pip install . builds both; or set STEPZERO_LIBRARY") from None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, *([ctypes.POINTER(ctypes.c_void_p)] if memory else []), ctypes.POINTER(Watch)]
    return function


def version() -> str:
    return str(library().sz_version().decode())


class Texts:
    """What a call gave, copied out of the library when it is asked for."""

    def __init__(self, pointer: int) -> None:
        self._pointer = pointer

    def __getitem__(self, what: str) -> str:
        return str(library().sz_text(self._pointer, what.encode()).decode("utf-8", "replace"))

    def json(self) -> Any:
        return json.loads(self["json"])

    def __del__(self) -> None:
        if _library is not None:
            _library.sz_free(self._pointer)


class _Bar:
    """After a second, on a terminal or in a notebook; nowhere else."""

    def __init__(self, what: str, wanted: Optional[bool]) -> None:
        self._what, self._start, self._shown = what, time.monotonic(), False
        self._display: Any = None
        self._notebook = "ipykernel" in sys.modules
        self._on = (self._notebook or sys.stderr.isatty()) if wanted is None else wanted

    def tell(self, share: float) -> None:
        if not self._on or time.monotonic() - self._start < 1:
            return
        text = f"{self._what} {100 * min(max(share, 0.0), 1.0):3.0f} %"
        if self._notebook:
            self._tell_notebook(text)
        else:
            sys.stderr.write("\r" + text)
            sys.stderr.flush()
        self._shown = True

    def _tell_notebook(self, text: str) -> None:
        display = importlib.import_module("IPython.display").display
        data = {"text/plain": text}
        if self._display is None:
            self._display = display(data, raw=True, display_id=True)
        else:
            self._display.update(data, raw=True)

    def end(self) -> None:
        if self._shown and not self._notebook:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


def call(name: str, request: Dict[str, Any], data: Optional[Sequence[int]] = None, threads: int = 0, progress: Optional[bool] = None) -> Texts:
    """Runs one call of the library; `data` are addresses, for those that work on the caller's memory. Ctrl-C ends it within milliseconds, and leaves nothing behind."""
    lib = library()
    watch = Watch(0.0, 0, threads)
    text = json.dumps(request).encode()
    done = threading.Event()
    given: List[int] = []
    function = _function(name, data is not None)

    def work() -> None:
        try:
            memory = [] if data is None else [(ctypes.c_void_p * len(data))(*data)]
            given.append(function(text, *memory, ctypes.byref(watch)))
        finally:
            done.set()

    bar = _Bar(name, progress)
    worker = threading.Thread(target=work, name="stepzero " + name, daemon=True)
    worker.start()
    try:
        while not done.wait(0.02):
            bar.tell(watch.progress)
    except BaseException:
        watch.stop = 1
        done.wait()
        if given:
            Texts(given[0])
        raise
    finally:
        bar.end()
    result = Texts(given[0])
    status = lib.sz_status(given[0])
    if status == FINE:
        return result
    raise error_of(status, result["error"], result["hint"])


def listing(name: str) -> Any:
    """One of the calls that take nothing."""
    function = getattr(library(), "sz_" + name)
    function.restype = ctypes.c_void_p
    result = Texts(function())
    return result.json()[name]
