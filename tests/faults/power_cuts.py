"""States that a power cut may leave, enumerated from the writes of a run: strace tells them with their bytes. What a file was given since its last
fsync may be there, be lost, or be torn; names given since the last fsync of their directory may be there or not, whatever happened to the bytes."""
import collections
import os
import random
import re
import shutil

from work import without_speed

TRACED = "openat,write,pwrite64,ftruncate,fallocate,fsync,fdatasync,rename,renameat,renameat2,linkat,unlink,unlinkat,mkdir,mkdirat"
LINE = re.compile(r"(?:\d+ +)?(\w+)\((.*)\) += (\d+)")
HELD = re.compile(r"(?:\d+|AT_FDCWD)<([^>]*)>")


def text(quoted):
    return bytes.fromhex(quoted.replace("\\x", ""))


def operations(case, log, **environment):
    """What a run does to its folder, in order: ("create", path), ("data", path, offset, bytes), ("size", path, n), ("room", path, n), ("sync", path),
    ("rename", from, to), ("remove", path), ("mkdir", path); paths within the folder."""
    folder = case.fresh()
    words = ["taskset", "-c", str(min(os.sched_getaffinity(0))), "strace", "-f", "-qq", "-y", "-xx", "-s", "10000000", "-o", str(log), "-e", f"trace={TRACED}"]
    code, _, error = case.program.run(case.work.words, folder, words, **environment)
    if code != case.code:
        raise RuntimeError(f"{case.work.name}: traced, it ends with {code}: {error}")
    position, done = collections.Counter(), []

    def held(word):
        return text(HELD.match(word)[1]).decode()

    def at(directory, name):
        path = os.path.normpath(os.path.join(held(directory) if directory else str(folder), text(name.strip('"')).decode()))
        return os.path.relpath(path, folder)

    for line in log.read_text().splitlines():
        call = LINE.match(line)
        if not call:
            continue
        name, words = call[1], call[2].split(", ")
        if name == "openat":
            if "O_CREAT" in line:
                done.append(("create", at(words[0], words[1])))
        elif name in ("write", "pwrite64", "ftruncate", "fallocate", "fsync", "fdatasync"):
            if not held(words[0]).startswith(str(folder)):
                continue
            path = os.path.relpath(held(words[0]), folder)
            if name == "write":
                done.append(("data", path, position[path], text(words[1].strip('"'))[:int(call[3])]))
                position[path] += int(call[3])
            elif name == "pwrite64":
                done.append(("data", path, int(words[3]), text(words[1].strip('"'))[:int(call[3])]))
            elif name == "ftruncate":
                done.append(("size", path, int(words[1])))
            elif name == "fallocate":
                done.append(("room", path, int(words[2]) + int(words[3])))
            else:
                done.append(("sync", path))
        elif name == "rename":
            done.append(("rename", at("", words[0]), at("", words[1])))
        elif name in ("renameat", "renameat2"):
            done.append(("rename", at(words[0], words[1]), at(words[2], words[3])))
        elif name == "unlink":
            done.append(("remove", at("", words[0])))
        elif name == "unlinkat":
            done.append(("remove", at(words[0], words[1])))
        elif name == "mkdir":
            done.append(("mkdir", at("", words[0])))
        else:
            raise SystemExit(f"{name} is not understood")
    shutil.rmtree(folder)
    return done


class Disk:
    """What is on the disk for certain, and what is on its way there."""

    def __init__(self, case):
        self.names = dict(enumerate(case.old))  # a number stands for a file, whatever it is called
        self.certain = {name: number for number, name in self.names.items()}  # the names on the disk
        self.names_now = dict(self.certain)
        self.bytes = {number: case.old[name] for number, name in self.names.items()}
        self.waiting = collections.defaultdict(list)  # number -> changes since its fsync
        self.renames = collections.defaultdict(list)  # directory -> changes of its names since its fsync

    def do(self, step):
        kind, path = step[0], step[1]
        folder = os.path.dirname(path)
        if kind == "create":
            number = len(self.bytes)
            self.bytes[number] = b""
            self.names_now[path] = number
            self.renames[folder].append(("put", path, number))
        elif kind == "mkdir":
            self.renames[folder].append(("put", path + "/", None))
        elif kind == "rename":
            number = self.names_now.pop(path)
            self.names_now[step[2]] = number
            self.renames[folder].append(("move", path, number, step[2]))
        elif kind == "remove":
            self.renames[folder].append(("take", path, self.names_now.pop(path, None)))
        elif kind == "sync":
            if path in self.names_now:
                number = self.names_now[path]
                self.bytes[number] = apply(self.bytes[number], self.waiting.pop(number, []))
            else:
                folder = "" if path == "." else path
                self.certain = named(self.certain, self.renames.pop(folder, []))
        else:
            self.waiting[self.names_now[path]].append(step)

    def state(self, random_):
        """One state that a power cut may leave: path -> bytes; and a word for which it is."""
        tree, word = self.certain, []
        for folder, changes in sorted(self.renames.items()):
            # a journal keeps their order; one that does not, keeps those that need each other together
            count = random_.randint(0, len(changes))
            kept = changes[:count] if random_.random() < 0.7 else possible(tree, [c for c in changes if random_.random() < 0.5])
            tree = named(tree, kept)
            word.append((folder, tuple(id(c) for c in kept)))
        found = {}
        for path, number in tree.items():
            if number is None or any(f"{parent}/" not in tree for parent in self.made(path)):
                continue
            changes = list(self.waiting.get(number, []))
            way = random_.choice(("none", "all", "first", "some", "torn")) if changes else "all"
            if way == "none":
                changes = []
            elif way == "first":
                changes = changes[:random_.randint(0, len(changes))]
            elif way == "some":
                changes = [c for c in changes if random_.random() < 0.5]
            elif way == "torn":
                i = random_.randrange(len(changes))
                if changes[i][0] == "data":
                    changes[i] = (*changes[i][:3], changes[i][3][:random_.randint(0, len(changes[i][3]))])
            word.append((path, tuple((c[0], c[2], len(c[3]) if c[0] == "data" else 0) for c in changes)))
            found[path] = without_speed(apply(self.bytes[number], changes))
        return found, tuple(word)

    def made(self, path):
        """Directories above it that this run has made."""
        parents, above = [], os.path.dirname(path)
        while above:
            if any(change[1] == above + "/" for changes in self.renames.values() for change in changes):
                parents.append(above)
            above = os.path.dirname(above)
        return parents


def named(tree, changes):
    tree = dict(tree)
    for change in changes:
        if change[0] == "put":
            tree[change[1]] = change[2]
        elif change[0] == "take":
            tree.pop(change[1], None)
        else:
            tree.pop(change[1], None)
            tree[change[3]] = change[2]
    return tree


def possible(tree, changes):
    """Without the moves of names that were never put."""
    there, kept = set(tree), []
    for change in changes:
        if change[0] == "move" and change[1] not in there:
            continue
        there.add(change[1])
        kept.append(change)
    return kept


def apply(data, changes):
    data = bytearray(data)
    for change in changes:
        kind, n = change[0], change[2]
        if kind == "data":
            data.extend(bytes(max(0, n - len(data))))
            data[n:n + len(change[3])] = change[3]
        elif kind == "room":
            data.extend(bytes(max(0, n - len(data))))
        else:
            data = data[:n] + bytes(max(0, n - len(data)))
    return bytes(data)


def run(case, log, states, seed, **environment):
    """So many different states; after each operation as many, and after the last, when the program has said that all is well, twice."""
    steps = operations(case, log, **environment)
    random_ = random.Random(f"{case.work.name} {seed}")
    seen, wrong, tried = set(), [], 0
    while len(seen) < states and tried < 8 * states:
        disk = Disk(case)
        for moment in range(len(steps) + 1):
            for _ in range(2 if moment == len(steps) else 1):
                found, word = disk.state(random_)
                tried += 1
                if len(seen) == states or (moment, word) in seen:
                    continue
                seen.add((moment, word))
                problems = case.judge(found, leftovers=True)
                if moment == len(steps) and not case.is_new(found):
                    problems.append("the program has ended well, and the files are not NEW")
                wrong += [f"{case.work.name}: a cut after {moment} of {len(steps)} operations: {problem}" for problem in problems]
            if moment < len(steps):
                disk.do(steps[moment])
    return collections.Counter(states=len(seen), operations=len(steps)), wrong
