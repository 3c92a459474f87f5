"""The files of the wheel, with the library of this build: debian/module.py BUILD FOLDER"""
import os
import pathlib
import sys
import tempfile
import zipfile

sys.path.insert(0, "python")
os.environ["STEPZERO_BUILD"] = sys.argv[1]
import stepzero_build  # noqa: E402  (it reads the variable)

folder = pathlib.Path(sys.argv[2])
folder.mkdir(parents=True, exist_ok=True)
with tempfile.TemporaryDirectory() as place:
    with zipfile.ZipFile(pathlib.Path(place) / stepzero_build.build_wheel(place)) as wheel:
        wheel.extractall(folder)
for info in folder.glob("*.dist-info"):
    for name in ("RECORD", "WHEEL", "LICENSE"):  # of the packager's own: dpkg knows its files
        (info / name).unlink()
