"""The test of the test: programs that break a promise, made by a preloaded library, must each be caught."""
import power_cuts
import system_calls
from work import files


def no_fsync(case, shim, log):
    return power_cuts.run(case, log, 300, 1, LD_PRELOAD=shim, STEPZERO_FAULT="no-fsync")[1]


def early_name_after_a_cut(case, shim, log):
    return power_cuts.run(case, log, 300, 1, LD_PRELOAD=shim, STEPZERO_FAULT="early-name")[1]


def early_name_on_a_full_disk(case, shim, log):
    return one_call(case, shim, log, "early-name")


def swallowed_error(case, shim, log):
    return one_call(case, shim, log, "swallow")


def one_call(case, shim, log, fault):
    problems = []
    for k in (1, 2, 3):
        problems += system_calls.run_one(case, shim, "pwrite64", "ENOSPC", k, True, log, LD_PRELOAD=shim, STEPZERO_FAULT=fault)[2]
    return problems


def leftover(case, shim, log):
    """What the harness says of a folder with a file that belongs to nobody."""
    folder = case.fresh()
    case.program.run(case.work.words, folder)
    (folder / ".w.safetensors.1-00000000.tmp").write_bytes(b"half")
    return system_calls.judge(case, None, case.code, "", files(folder))


MUTANTS = [no_fsync, early_name_after_a_cut, early_name_on_a_full_disk, swallowed_error, leftover]


def run(case, shim, log):
    """The mutants that were not caught; and those which the harness accuses without a fault."""
    wrong = [f"mutant {mutant.__name__} is not caught" for mutant in MUTANTS if not mutant(case, shim, log)]
    wrong += [f"without a fault: {problem}" for problem in power_cuts.run(case, log, 300, 1, LD_PRELOAD=shim)[1] + one_call(case, shim, log, "none")]
    return wrong
