"""kill -9 at random moments; then the same command again must leave the whole output, and nothing else."""
import collections
import os
import random
import shutil
import signal
import subprocess
import time

from work import PATIENCE, files


def duration(case):
    times = []
    for _ in range(5):
        folder = case.fresh()
        start = time.monotonic()
        case.program.run(case.work.words, folder)
        times.append(time.monotonic() - start)
    return sorted(times)[2]


def run(case, runs, seed):
    random_ = random.Random(f"{case.work.name} {seed}")
    count, wrong = collections.Counter(), []
    usual = duration(case)
    for _ in range(runs):
        folder = case.fresh()
        # half of them late, where files get their names
        delay = usual * (random_.random() if random_.random() < 0.5 else random_.uniform(0.6, 1.1))
        process = subprocess.Popen([case.program.path, *case.work.words], cwd=folder, env=case.program.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        killed = process.wait(PATIENCE) == -signal.SIGKILL
        found = files(folder)
        problems = case.judge(found, leftovers=True)
        count["runs"] += 1
        count["killed"] += killed
        count["OLD" if found == case.old else "NEW" if case.is_new(found) else "on the way"] += 1
        count["temporaries left"] += any(name not in case.old and name not in case.new for name in found)
        words = case.work.resume[1] if case.work.resume and os.path.exists(folder / case.work.resume[0]) else case.work.words
        code, _, error = case.program.run(words, folder)
        last = files(folder)
        if not case.is_new(last):
            problems.append(f"the same command again: code {code}, not NEW: {error.strip()[-200:]!r}")
        elif code != case.code and not case.is_new(found):
            problems.append(f"the same command again: code {code}: {error.strip()[-200:]!r}")
        elif code == case.code and set(last) != set(case.new):
            problems.append(f"the same command again leaves {sorted(set(last) - set(case.new))}")
        wrong += [f"{case.work.name}: killed after {delay * 1e3:.1f} ms: {problem}" for problem in problems]
        shutil.rmtree(folder)
    return count, wrong
