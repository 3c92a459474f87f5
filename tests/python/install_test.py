#!/usr/bin/env python3
"""The package as it is installed: its examples, its types, the wheel, the notebooks.

    python3 tests/python/install_test.py [BUILD] [--all]

Standard library only; what is there of torch, mypy and Jupyter is used. --all: the wheel built and installed into a fresh environment, under every Python
that is here; the notebooks in Jupyter."""
import doctest
import importlib.util
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
import zipfile

from setting import ALL, ROOT, stepzero

from stepzero import _lib, arch, errors, face, results, verbs


class Package(unittest.TestCase):
    def test_its_examples_run(self):
        modules = [stepzero, face, results, verbs, errors, arch, _lib]
        if importlib.util.find_spec("torch"):
            modules += [importlib.import_module("stepzero.torch." + path.stem) for path in sorted((ROOT / "python/stepzero/torch").glob("[a-z]*.py"))]
        seen = 0
        for module in modules:
            result = doctest.testmod(module, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
            self.assertEqual(result.failed, 0, module.__name__)
            seen += result.attempted
        self.assertGreater(seen, 15)

    def test_its_types_are_checked(self):
        if not shutil.which("mypy"):
            self.skipTest("mypy is not installed: ./dev python installs it")
        done = subprocess.run(["mypy", "--strict", "--config-file", ROOT / "pyproject.toml", "--cache-dir", ROOT / "build/mypy", "--python-executable", sys.executable, *(path for path in sorted((ROOT / "python/stepzero").glob("*.py")) if not path.with_suffix(".pyi").exists()),
                               *([ROOT / "python/stepzero/torch", ROOT / "python/stepzero/integrations"] if importlib.util.find_spec("torch") else []), "--exclude", "words"],
                              cwd=ROOT, capture_output=True, text=True)
        self.assertEqual([line for line in done.stdout.splitlines() if ": error:" in line and "words.py" not in line], [])

    def test_importing_it_loads_little(self):
        """Classes, json and ctypes come with the first call; torch only with stepzero.torch."""
        code = "import sys; before = set(sys.modules); import stepzero; print(sorted(set(sys.modules) - before))"
        loaded = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("ctypes", loaded)
        self.assertNotIn("torch", loaded)
        self.assertIn("load", dir(stepzero))

    def test_a_wheel_is_all_that_is_needed(self):
        sys.path.insert(0, str(ROOT / "python"))
        import stepzero_build

        os.environ["STEPZERO_BUILD"] = str(pathlib.Path(os.environ["STEPZERO_LIBRARY"]).parent)
        with tempfile.TemporaryDirectory() as folder:
            made = [pathlib.Path(folder, stepzero_build.build_wheel(folder)).read_bytes() for _ in range(2)]
            self.assertEqual(*made)  # the same bytes each time
            with zipfile.ZipFile(io.BytesIO(made[0])) as wheel:
                wheel.extractall(folder)
                record = [n for n in wheel.namelist() if n.endswith("RECORD")][0]
                self.assertEqual({line.split(",")[0] for line in wheel.read(record).decode().split()}, set(wheel.namelist()))
            clean = {k: v for k, v in os.environ.items() if not k.startswith("STEPZERO_") and k != "PYTHONPATH"}
            done = subprocess.run([sys.executable, "-c", "import stepzero; print(stepzero.__file__, stepzero.load('gpt2').predict(seq_len=8).loss.predicted)"],
                                  cwd=folder, env=clean, capture_output=True, text=True)
            self.assertTrue(done.stdout.startswith(folder), done.stderr)

    def test_the_library_exports_its_functions_alone(self):
        symbols = subprocess.run(["nm", "-D", "--defined-only", os.environ["STEPZERO_LIBRARY"]], capture_output=True, text=True).stdout
        names = {line.split()[-1] for line in symbols.splitlines() if line.split()[1] in "TW" and not line.split()[-1].startswith("_")}
        header = (ROOT / "stepzero" / "capi" / "c.h").read_text()
        declared = {word.split("(")[0].split()[-1].lstrip("*") for word in header.split("SZ_API ")[1:] if "(" in word and not word.startswith("__")}
        self.assertEqual(names, {n for n in declared if n.startswith("sz_")})


class Notebooks(unittest.TestCase):
    """Every cell runs; by Jupyter where --all asks for it."""

    def test_run(self):
        for path in sorted((ROOT / "examples/notebooks").glob("*.ipynb")):
            cells = ["".join(c["source"]) for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]
            if "stepzero.torch" in "".join(cells) and not importlib.util.find_spec("torch"):
                continue
            code = "\n".join(cells)
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "100"})
            self.assertEqual(done.returncode, 0, f"{path.name}\n{done.stderr}")

    @unittest.skipUnless(ALL, "--all: needs Jupyter")
    def test_run_in_jupyter(self):
        import nbclient
        import nbformat

        for path in sorted((ROOT / "examples/notebooks").glob("*.ipynb")):
            notebook = nbformat.read(path, as_version=4)
            nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
            shown = [o for c in notebook.cells if c.cell_type == "code" for o in c.outputs if "text/html" in o.get("data", {})]
            self.assertTrue(shown, path.name)
            print(f"{path.name}: {sum(c.cell_type == 'code' for c in notebook.cells)} cells")


class Installed(unittest.TestCase):
    @unittest.skipUnless(ALL, "--all: builds the library")
    def test_in_a_fresh_environment(self):
        """pip install . without an index; then the same wheel under every Python that is here."""
        with tempfile.TemporaryDirectory() as folder:
            begin = time.monotonic()
            subprocess.run([sys.executable, "-m", "venv", folder + "/venv"], check=True)
            clean = {k: v for k, v in os.environ.items() if not k.startswith("STEPZERO_") and k != "PYTHONPATH"}
            subprocess.run([folder + "/venv/bin/pip", "install", "--no-index", "--quiet", str(ROOT)], check=True, env=clean)
            print(f"pip install . in a fresh environment: {time.monotonic() - begin:.0f} s")
            code = "import stepzero, sys; print('%d.%d' % sys.version_info[:2], stepzero.load('gpt2').predict(seq_len=8).loss.predicted)"
            said = {subprocess.run([folder + "/venv/bin/python", "-c", code], cwd=folder, env=clean, check=True, capture_output=True, text=True).stdout.split()[1]}
            place = next(pathlib.Path(folder, "venv/lib").glob("python*/site-packages"))
            needed = subprocess.run(["objdump", "-p", place / "stepzero/libstepzero_c.so"], capture_output=True, text=True, check=True).stdout
            needed = sorted(line.split()[1] for line in needed.splitlines() if "NEEDED" in line)
            print("the library needs", ", ".join(needed))
            self.assertLessEqual(set(needed), {"libc.so.6", "libm.so.6", "libstdc++.so.6", "libgcc_s.so.1", "ld-linux-x86-64.so.2"})
            symbols = subprocess.run(["objdump", "-T", place / "stepzero/libstepzero_c.so"], capture_output=True, text=True, check=True).stdout
            for family, most in (("GLIBC_", (2, 34)), ("GLIBCXX_", (3, 4, 29)), ("CXXABI_", (1, 3, 13))):  # what manylinux_2_34 has
                highest = max(tuple(map(int, v.split("."))) for v in re.findall(rf"\b{family}([0-9.]+)", symbols))
                self.assertLessEqual(highest, most, family)
            pythons = sorted(pathlib.Path.home().glob(".pyenv/versions/3.*/bin/python3"))
            versions = []
            for python in pythons:
                if subprocess.run([python, "-c", "import sys; sys.exit(sys.version_info < (3, 8))"]).returncode:
                    continue
                out = subprocess.run([python, "-c", code], cwd=folder, env={**clean, "PYTHONPATH": str(place)}, check=True, capture_output=True, text=True).stdout.split()
                versions.append(out[0])
                said.add(out[1])
            print("the same file under", ", ".join(versions))
            self.assertEqual(len(said), 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
