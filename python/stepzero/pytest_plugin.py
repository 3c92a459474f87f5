"""The fixture stepzero_check, for test suites of models.

    def test_init(stepzero_check):
        stepzero_check(MyModel(config), expect="scheme:mitchell")

    def test_laws(stepzero_check):
        stepzero_check(MyModel(config), golden=True)     # pytest --stepzero-update writes stepzero_laws/test_laws.json beside the test
"""
import pathlib
import re
from typing import Any, Callable

import pytest


def pytest_addoption(parser: Any) -> None:
    parser.getgroup("stepzero").addoption("--stepzero-update", action="store_true", default=False,
                                          help="write the laws of tensors that stepzero_check(golden=True) compares with")


@pytest.fixture
def stepzero_check(request: Any) -> Callable[..., Any]:
    """check(module, expect=...), and with golden=True also the laws kept beside the test."""
    calls = []

    def run(weights: Any, expect: Any = None, golden: bool = False, **options: Any) -> Any:
        import stepzero.torch as szt
        from stepzero import golden as laws

        __tracebackhide__ = True
        if not golden:
            return szt.check(weights, expect if expect is not None else "scheme:hf", **options)
        found = szt.check(weights, expect, **options) if expect is not None else szt.audit(weights, consequences=False, **options)
        calls.append(1)
        name = re.sub(r"[^\w.-]+", "_", request.node.name) + (f".{len(calls)}" if len(calls) > 1 else "")
        path = pathlib.Path(str(request.node.fspath)).parent / "stepzero_laws" / f"{name}.json"
        if request.config.getoption("--stepzero-update"):
            laws.write(path, found)
            return found
        if not path.exists():
            pytest.fail(f"{path} does not exist: pytest --stepzero-update writes it", pytrace=False)
        changed = laws.compare(path, found)
        if changed:
            pytest.fail(f"{type(weights).__name__}: {len(changed)} tensors follow another law than {path.name} says\n  " + "\n  ".join(changed[:20]) +
                        "\n  pytest --stepzero-update writes the new ones", pytrace=False)
        return found

    return run
