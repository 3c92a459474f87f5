"""Ends that are asked for: a signal while a file is written, threads that cannot be had, standard streams that are full or closed."""
import os
import shutil
import subprocess

from work import PATIENCE, files


def run(case, log):
    """What is wrong; `case`: init of a file."""
    wrong = []
    for name, code in (("INT", 130), ("TERM", 143), ("HUP", 129)):
        folder = case.fresh()
        # on one core, so by one thread: another might have written the rest by the time the word is read
        got, _, _ = case.program.run(case.work.words, folder, ["taskset", "-c", str(min(os.sched_getaffinity(0))), "strace", "-f", "-qq", "-o", str(log), "-e", f"inject=pwrite64:signal={name}:when=3"])
        if got != code or files(folder) != case.old:
            wrong.append(f"SIG{name} while a file is written: code {got}, {sorted(files(folder))}")
        shutil.rmtree(folder)
    for streams in ("2>&-", "2>/dev/full", "<&- >&- 2>&-"):
        folder = case.fresh()
        for words, code, new in ((["predict", "no-such-model"], 2, False), (case.work.words, case.code, True)):
            got = subprocess.run(["bash", "-c", f'exec "$@" {streams}', "-", case.program.path, *words], cwd=folder, env=case.program.environment,
                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE).returncode
            # results that cannot be written are an error, files are written all the same
            if got != code and not (new and ">&- 2" in streams and got == 2) or (files(folder) != case.new if new else files(folder) != case.old):
                wrong.append(f"{words[0]} {streams}: code {got}, {sorted(files(folder))}")
        shutil.rmtree(folder)
    return wrong
