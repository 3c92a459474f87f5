"""What every trainer's callback does: an audit before the first step, a record of it, and nothing afterwards."""
import logging
from typing import Any, Callable, Dict, List, Optional, Union

import stepzero.torch as szt
from stepzero.results import Audit, Comparison, Finding
from stepzero.torch.checking import CheckError, counted, describe

log = logging.getLogger("stepzero")

# Rows of a table for a logger: its name, its columns, its rows.
Table = Callable[[str, List[str], List[List[Any]]], None]
Numbers = Callable[[Dict[str, float]], None]


class FirstStep:
    """expect: what the weights must be; fail_on: "error", "warning", "note", or None: findings are only told; record: also the first step."""

    def __init__(self, expect: Union[None, str, szt.Expect] = None, fail_on: Optional[str] = "error", record: bool = True, config: Any = None) -> None:
        self.expect = szt.Expect.of(expect) if expect is not None else szt.Expect()
        self.fail_on, self.wants_record, self.config = fail_on, record, config
        self.audit: Optional[Audit] = None
        self.comparison: Optional[Comparison] = None
        self._recorder: Optional[szt.Recorder] = None

    def begin(self, module: Any, numbers: Numbers, table: Table, speaks: bool = True) -> None:
        self.audit = found = szt.audit(module, config=self.config if self.config is not None else self.expect.config, scheme=self.expect.scheme,
                                       consequences=False)
        if speaks:
            for f in found.findings:
                log.log(logging.ERROR if f.severity == "error" else logging.WARNING, "%s", f)
            if not found.findings:
                log.info("%d tensors, scheme %s: nothing found", len(found.tensors), found.scheme)
            numbers({"stepzero/errors": self._count("error"), "stepzero/warnings": self._count("warning")})
            table("stepzero/findings", ["severity", "finding", "where", "evidence", "remedy"], [_row(f) for f in found.findings])
        if self.fail_on is not None:
            expect = szt.Expect(self.expect.scheme, self.expect.config, None, self.expect.findings, self.fail_on)
            wrong = counted(found, expect)
            if wrong:
                raise CheckError(describe(found, wrong, expect, type(module).__name__, None), found)
        if self.wants_record:
            self._open(module)

    def _count(self, severity: str) -> float:
        return float(sum(f.severity == severity for f in self.audit.findings)) if self.audit else 0.0

    def _open(self, module: Any) -> None:
        try:
            self._recorder = szt.record(module, config=self.config if self.config is not None else self.expect.config, scheme=self.expect.scheme or "hf").__enter__()
        except ValueError as error:  # a model without a configuration: there is nothing to hold a step against
            log.info("the first step is not recorded: %s", error)

    def end(self, numbers: Numbers, table: Table, speaks: bool = True) -> None:
        """After the first step; after that it does nothing."""
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        recorder.__exit__()
        try:
            self.comparison = seen = recorder.compare()
        except ValueError as error:
            log.warning("the first step was not recorded: %s", error)
            return
        if speaks:
            log.info("%s", seen)
            numbers({"stepzero/within_5_spreads": seen.within(5)})
            table("stepzero/first_step", ["where", "what", "predicted", "seen", "z"], [[r.where, r.what, r.predicted, r.measured, r.z] for r in seen.rows[:50]])


def _row(f: Finding) -> List[Any]:
    return [f.severity, f.id, f.where, f.evidence, f.remedy]
