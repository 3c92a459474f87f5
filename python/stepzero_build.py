"""The build backend of pip install . and python3 -m build --wheel: CMake makes the library behind C, this file zips the wheel. Standard
library only, so that no package index is needed."""
import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sysconfig
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "stepzero"
EPOCH = (1980, 1, 1, 0, 0, 0)  # of every file, so that the same sources make the same bytes


def _project(key):
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(rf'^{key} = "(.*)"$', text, re.M).group(1)


def _metadata():
    return (f"Metadata-Version: 2.1\nName: {_project('name')}\nVersion: {_project('version')}\nSummary: {_project('description')}\n"
            f"Requires-Python: {_project('requires-python')}\nLicense-File: LICENSE\n")


def _tag():
    """A library built here needs glibc 2.34 and libstdc++ of GCC 11; one that was built before may need whatever is on this machine.

    libstdc++ inside the library would need a later glibc: its own code asks for functions of the machine it was built on."""
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    own = "STEPZERO_BUILD" not in os.environ and platform == "linux_x86_64"
    return "py3-none-" + ("manylinux_2_34_x86_64" if own else platform)


def _library():
    build = pathlib.Path(os.environ.get("STEPZERO_BUILD", ROOT / "build" / "wheel"))
    if not (build / "libstepzero_c.so").exists() or "STEPZERO_BUILD" not in os.environ:
        options = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_UNITY_BUILD=ON", "-DSTEPZERO_PROGRAM=OFF", "-DSTEPZERO_TESTS=OFF", "-DSTEPZERO_BENCH=OFF",
                   "-DSTEPZERO_PORTABLE=ON", "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,-s"]
        subprocess.run(["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", *options], check=True)
        subprocess.run(["cmake", "--build", str(build), "--target", "stepzero_c"], check=True)
    return build / "libstepzero_c.so"


def _write(wheel, name, data, records, mode=0o644):
    info = zipfile.ZipInfo(name, EPOCH)
    info.external_attr = mode << 16
    info.compress_type = zipfile.ZIP_DEFLATED
    wheel.writestr(info, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    records.append(f"{name},sha256={digest},{len(data)}")


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    stem = f"{_project('name')}-{_project('version')}"
    name = f"{stem}-{_tag()}.whl"
    info = f"{stem}.dist-info"
    records = []
    with zipfile.ZipFile(pathlib.Path(wheel_directory) / name, "w") as wheel:
        for path in sorted([*PACKAGE.rglob("*.py"), *PACKAGE.glob("*.pyi"), PACKAGE / "py.typed"]):
            _write(wheel, f"stepzero/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes(), records)
        _write(wheel, "stepzero/libstepzero_c.so", _library().read_bytes(), records, 0o755)
        _write(wheel, f"{info}/METADATA", _metadata().encode(), records)
        _write(wheel, f"{info}/LICENSE", (ROOT / "LICENSE").read_bytes(), records)
        _write(wheel, f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: stepzero_build\nRoot-Is-Purelib: false\nTag: {_tag()}\n".encode(), records)
        _write(wheel, f"{info}/entry_points.txt", b"[pytest11]\nstepzero = stepzero.pytest_plugin\n", records)
        records.append(f"{info}/RECORD,,")
        _write(wheel, f"{info}/RECORD", ("\n".join(records) + "\n").encode(), [])
    return name


def build_sdist(sdist_directory, config_settings=None):
    stem = f"{_project('name')}-{_project('version')}"
    files = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], check=True, capture_output=True).stdout.decode().split("\0")
    with tarfile.open(pathlib.Path(sdist_directory) / f"{stem}.tar.gz", "w:gz") as archive:
        for file in filter(None, files):
            archive.add(ROOT / file, f"{stem}/{file}", recursive=False)
        own = ROOT / "build" / "PKG-INFO"
        own.parent.mkdir(exist_ok=True)
        own.write_text(_metadata(), encoding="utf-8")
        archive.add(own, f"{stem}/PKG-INFO")
    return f"{stem}.tar.gz"
