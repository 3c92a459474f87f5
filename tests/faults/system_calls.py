"""The k-th system call of every kind fails, for every k of a run without faults: strace injects the error."""
import collections
import re
import shutil

from work import files

# Not brk: the kernel's refuses by returning the old end, which strace cannot. Not futex, nor the end of the process: they do not fail so.
ERRORS = {
    "openat": ("EMFILE", "EACCES", "EINTR"), "read": ("EIO", "EINTR"), "pread64": ("EIO", "EINTR"), "write": ("ENOSPC", "EIO", "EINTR"),
    "writev": ("ENOSPC", "EIO"), "pwrite64": ("ENOSPC", "EIO", "EINTR"), "fsync": ("EIO", "ENOSPC"), "fdatasync": ("EIO",), "ftruncate": ("EIO", "ENOSPC"),
    "fallocate": ("ENOSPC", "EIO", "EINTR", "EOPNOTSUPP"), "rename": ("EIO", "EACCES"), "renameat": ("EIO", "EACCES", "ENOSPC"),
    "renameat2": ("EIO", "EACCES", "EINVAL", "ENOSPC"), "linkat": ("EIO",), "unlink": ("EIO", "EACCES"), "unlinkat": ("EIO", "EACCES"), "mkdir": ("EACCES", "ENOSPC"),
    "mmap": ("ENOMEM", "EACCES"), "mprotect": ("ENOMEM",), "munmap": ("EINVAL",), "madvise": ("EINVAL",), "close": ("EIO", "EINTR"),
    "fstat": ("EIO",), "newfstatat": ("EIO", "EACCES"), "statx": ("EIO",), "fstatfs": ("EIO", "ENOSYS"), "flock": ("EINTR", "ENOLCK"), "lseek": ("EIO",),
    "getdents64": ("EIO",), "fchmod": ("EPERM",), "readlink": ("EACCES",), "ioctl": ("EIO",), "fcntl": ("EINVAL",), "clone3": ("EAGAIN",),
    "prlimit64": ("EPERM",), "getrandom": ("EAGAIN", "ENOSYS"), "sched_getaffinity": ("EINVAL",), "access": ("EACCES",), "sysinfo": ("EINVAL",),
    "getrusage": ("EINVAL",), "rt_sigaction": ("EINVAL",), "rt_sigprocmask": ("EINVAL",),
}
# oneDNN maps memory for the code that it makes, and uses it without a look. Counted by itself: nothing of ours can stop it; files stay OLD.
DNNL = "died in oneDNN"
CALL = re.compile(r"(?:\d+ +)?(\w+)\(")


def kinds_of(case, log):
    """kind -> (how often it is called, how often of these before main): by the thread that does so most, as strace counts for each thread alone."""
    folder = case.fresh()
    case.program.run(case.work.words, folder, ["strace", "-f", "-o", str(log)])
    threads, before = collections.defaultdict(collections.Counter), None
    for line in log.read_text(errors="replace").splitlines():
        if before is None and "rt_sigaction(SIGINT" in line:  # what main does first
            before = sum(threads.values(), collections.Counter())
        if call := CALL.match(line):
            threads[line.split()[0]][call[1]] += 1
    return {kind: (most, before[kind]) for kind in ERRORS if (most := max(count[kind] for count in threads.values()))}


def judge(case, hit, code, error, found, started=True, codes=(2,)):
    """What is wrong with a run one call of which failed; hit: the line of the trace that says which, and None where it came to none.
    Before main (not started) the loader and the start-up of libraries may die as they like, as long as nothing was touched."""
    if code is None:
        return ["it hangs"]
    if not started and code != case.code:
        return [] if found == case.old else ["files changed before main"]
    if code < 0:
        return [f"it dies by signal {-code}: {error.strip()[-200:]}"]
    cleaned = re.search(r"unlink", hit or "")  # a clean-up that fails leaves what it was to take away
    wrong = case.judge(found, leftovers=bool(cleaned))
    if code == case.code:
        if not case.is_new(found):
            wrong.append(f"code {code}, and the files are not NEW")
    elif code not in codes:
        wrong.append(f"code {code}: {error.strip()[-200:]!r}")
    if code not in (0, case.code) and not error.strip() and not re.search(r"write\(2", hit or ""):
        wrong.append(f"code {code} without a word")
    return wrong


def short_writes(case, shim, place):
    """How many writes to files there are."""
    folder = case.fresh()
    case.program.run(case.work.words, folder, LD_PRELOAD=shim, STEPZERO_FAULT="short:0", STEPZERO_COUNT=str(place))
    shutil.rmtree(folder)
    return int(place.read_text().split()[0])


def cases_of(case, shim, log):
    for k in range(1, short_writes(case, shim, log) + 1):
        yield "short write", "", k, True
    for kind, (count, before) in kinds_of(case, log).items():
        for error in ERRORS[kind]:
            for k in range(1, count + 1):
                yield kind, error, k, k > before


def run_one(case, shim, kind, error, k, started, log, **environment):
    folder = case.fresh()
    if kind == "short write":
        code, _, told = case.program.run(case.work.words, folder, LD_PRELOAD=shim, STEPZERO_FAULT=f"short:{k}", **environment)
        return True, code, judge(case, None, code, told, taken(folder))
    words = ["strace", "-f", "-qq", "--seccomp-bpf", "-o", str(log), "-e", f"trace={kind}", "-e", f"inject={kind}:error={error}:when={k}"]
    code, _, told = case.program.run(case.work.words, folder, words, **environment)
    hit = next((line for line in log.read_text(errors="replace").splitlines() if "(INJECTED)" in line), None)
    problems = judge(case, hit, code, told, found := taken(folder), started)
    if code == -11 and kind == "mmap" and not case.judge(found):  # once more, with the stack of the call
        again = case.fresh()
        case.program.run(case.work.words, again, ["strace", "-k", *words[1:]], **environment)
        stack = re.search(r"^.*\(INJECTED\)(\n >.*)*", log.read_text(errors="replace"), re.M)
        if stack and "libdnnl" in stack[0]:
            problems = [DNNL]
    return hit, code, problems


def taken(folder):
    found = files(folder)
    shutil.rmtree(folder)
    return found


def run(case, shim, log, choose=lambda cases: cases):
    """Counts of what happened, and the violations."""
    count, wrong = collections.Counter(), []
    for kind, error, k, started in choose(list(cases_of(case, shim, log))):
        hit, code, problems = run_one(case, shim, kind, error, k, started, log)
        if not hit:  # another order of the threads
            continue
        count["cases"] += 1
        if problems == [DNNL]:
            count["died in oneDNN"] += 1
            continue
        count["done all the same" if code == case.code else "refused" if started else "refused before main"] += 1
        wrong += [f"{case.work.name}: {kind} {k} {error}: {problem}" for problem in problems]
    return count, wrong
