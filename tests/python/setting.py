"""Where the package and its library lie, for the tests here: [BUILD] [--all] on the command line, taken away from it."""
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
ALL = "--all" in sys.argv
words = [w for w in sys.argv[1:] if w != "--all"]
BUILD = pathlib.Path(words[0]).resolve() if words and not words[0].startswith("-") else pathlib.Path(os.environ.get("STEPZERO_LIBRARY", ROOT / "build/release/x")).resolve().parent
os.environ["STEPZERO_LIBRARY"] = str(BUILD / "libstepzero_c.so")
os.environ["PYTHONPATH"] = str(ROOT / "python")
sys.path.insert(0, str(ROOT / "python"))
import stepzero  # noqa: E402,F401
