#!/usr/bin/env python3
"""Docs that cannot rot. Standard library only; run by `./dev test`, or by hand:

    python3 tests/docs/docs_test.py [ROOT]

1. heads      each op file has a head with What, Shapes, Forward, Backward, Push, Pull, Assumes and its derivation page
2. equations  each number of the head is defined once, stands in the page with the same text, and is implemented by a
              code line of OP.hpp or of OP_*.cpp beside it; each number a comment of the code mentions is defined
              by the head
3. links      each relative link of the Markdown pages points to a file
4. paths      no text file names a home or workspace directory
5. headers    the public headers of cmake/headers.cmake are stepzero.hpp and what it includes
6. folders    the includes between the folders of stepzero/ are those that ARCHITECTURE.md draws, and none goes back
7. words      docs/architectures.md has a row for each word of architecture files, as python/stepzero/words.py defines it
"""
import ast
import os
import re
import subprocess
import sys
from pathlib import Path

WORDS = ("What", "Shapes", "Forward", "Backward", "Push", "Pull", "Assumes")
NOT_OPS = {"op.hpp", "all.hpp", "moments.hpp", "function_kernel.hpp", "heads.hpp", "attention_sight.hpp", "attention_turn.hpp", "attention_moments.hpp", "kernel_draw.hpp", "attention_expect.hpp",
           "head_tools.hpp", "attention_heads.hpp", "single_draw.hpp", "head_variance.hpp", "drawn_sums.hpp", "experts_routing.hpp", "experts_weightless.hpp", "lora_weightless.hpp", "weightless_step.hpp", "window.hpp", "drawn_channels.hpp"}  # the contract, the list, and what ops share
PAGE = re.compile(r"Derived in (docs/derivations/\w+\.md)")
DEFINED = re.compile(r"^(.*?\S)\s{2,}\((\d+)\)(?:\s{2,}.*)?$")  # "Forward    Y = S E,   ...      (1)"
MENTIONED = re.compile(r"(?<![\w)\]])\((\d+)\)")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|\b(?:src|href)=\"([^\"]+)\"")
FOREIGN = re.compile(r"(?<![\w.\-])/(?:home|root|work|Users)/[\w.\-]+")


class Report:
    def __init__(self):
        self.passed = 0
        self.failed = 0

    def check(self, ok, where, problem):
        if ok:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED  {where}: {problem}")
        return ok


def collapse(text):
    return " ".join(text.split())


def read(path):
    return path.read_text(encoding="utf-8")


def split_head(text):
    """The head is the first run of comment lines; the rest, numbered from 1 as in the file, is code."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith("//")), len(lines))
    end = begin
    while end < len(lines) and lines[end].startswith("//"):
        end += 1
    head = [line[2:].rstrip() for line in lines[begin:end]]
    return head, [(i + 1, line) for i, line in enumerate(lines) if i >= end]


def equations(head):
    """[(number, text)] as the head defines them, the label (Forward, Backward, ...) taken off."""
    found = []
    for line in head:
        match = DEFINED.match(line)
        if match:
            text = re.sub(r"^\s*[A-Z]\w+\s{2,}", "", match.group(1))
            found.append((int(match.group(2)), collapse(text)))
    return found


def mentions(code):
    """[(line number, number, is it on a line with code)] for each "(n)" in a comment of the code."""
    found = []
    for number, line in code:
        before, comment, after = line.partition("//")
        if comment:
            found += [(number, int(n), bool(before.strip())) for n in MENTIONED.findall(after)]
    return found


def check_op(report, root, path):
    name = path.relative_to(root).as_posix()
    head, code = split_head(read(path))
    joined = "\n".join(head)
    for word in WORDS:
        report.check(re.search(rf"^\s+{word}\b", joined, re.M), name, f"the head has no line '{word}'")

    defined = equations(head)
    numbers = [n for n, _ in defined]
    report.check(numbers == list(range(1, len(numbers) + 1)) and numbers, name,
                 f"the head must define (1), (2), ... once each and in order, it defines {numbers}")
    parts = [(name, code)]
    for beside in sorted(path.parent.glob(path.stem + "_*.cpp")):
        parts.append((beside.relative_to(root).as_posix(), list(enumerate(read(beside).splitlines(), 1))))
    implemented = set()
    for part, lines in parts:
        for line, n, on_code in mentions(lines):
            report.check(n in numbers, f"{part}:{line}", f"mentions ({n}), the head of {name} does not define it")
            if on_code:
                implemented.add(n)
    for n in numbers:
        report.check(n in implemented, name, f"no code line ends in // ({n}), here or in {path.stem}_*.cpp")

    named = PAGE.search(joined)
    if not report.check(named, name, "the head has no line 'Derived in docs/derivations/X.md'"):
        return
    page = root / named.group(1)
    if not report.check(page.is_file(), name, f"{named.group(1)} does not exist"):
        return
    text = collapse(read(page))
    for n, equation in defined:
        report.check(f"{equation} ({n})" in text, named.group(1), f"lacks the equation of {name}:  {equation}   ({n})")


def check_links(report, root):
    pages = [root / top for top in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")]
    pages += sorted((root / "docs").rglob("*.md"))
    for page in pages:
        if not page.is_file():
            continue
        text = re.sub(r"^\s*(```|~~~).*?^\s*\1", "", read(page), flags=re.M | re.S)  # no links inside code
        text = re.sub(r"`[^`\n]*`", "", text)
        for match in LINK.finditer(text):
            target = (match.group(1) or match.group(2)).split("#")[0]
            if not target or re.match(r"[a-zA-Z][\w+.\-]*:|//", target):  # same page, or a URL
                continue
            base = root if target.startswith("/") else page.parent
            report.check((base / target.lstrip("/")).exists(), page.relative_to(root).as_posix(),
                         f"the link to {target} points to nothing")


def project_files(root):
    git = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"]
    try:
        listed = subprocess.run(git, capture_output=True, check=True).stdout
        return [root / os.fsdecode(name) for name in listed.split(b"\0") if name]
    except (OSError, subprocess.CalledProcessError):  # a source archive: no repository, or no git
        skip = {".git", "build", "node_modules", "__pycache__"}
        return [p for p in root.rglob("*") if p.is_file() and not skip & set(p.relative_to(root).parts)]


def check_paths(report, root):
    for path in project_files(root):
        if not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" in data[:8192]:  # not text
            continue
        name = path.relative_to(root).as_posix()
        bad = [f"line {i}: {found.group(0)}" for i, line in enumerate(data.decode("utf-8", "replace").split("\n"), 1)
               for found in [FOREIGN.search(line)] if found]
        report.check(not bad, name, "names a directory of one machine, " + ", ".join(bad[:5]))


def check_headers(report, root):
    listed = set(re.findall(r"stepzero/[\w/]+\.hpp", read(root / "cmake" / "headers.cmake")))
    included, new = set(), {"stepzero/stepzero.hpp"}
    while new:
        included |= new
        new = {name for header in new for name in re.findall(r'^#include "(stepzero/[^"]+)"', read(root / header), re.M)} - included
    report.check(listed == included, "cmake/headers.cmake", f"differs from what stepzero.hpp includes: {', '.join(sorted(listed ^ included))}")
    inside = [name for name in sorted(included) if name.split("/")[1] in {"ops", "kernels", "theory", "pass"}]
    report.check(not inside, "stepzero/stepzero.hpp", f"shows the inside: {', '.join(inside)}")


def folder_edges(root):
    """{folder: {folders that its files include}}"""
    edges = {}
    for path in sorted((root / "stepzero").glob("*/**/*.[hc]pp")):
        folder = path.relative_to(root / "stepzero").parts[0]
        included = re.findall(r'^#include "stepzero/(\w+)/', read(path), re.M)
        edges.setdefault(folder, set()).update(set(included) - {folder})
    return edges


def drawn_edges(root):
    """What ARCHITECTURE.md draws: a line for each folder, the folders that it includes behind it. [(folder, {folders})]"""
    block = re.search(r"## The folder graph\n.*?```\n(.*?)```", read(root / "ARCHITECTURE.md"), re.S)
    lines = block.group(1).splitlines() if block else []
    return [(line.split()[0], set(line.split()[1:])) for line in lines if line.strip()]


def check_folders(report, root):
    drawn = drawn_edges(root)
    seen = set()
    for folder, included in drawn:
        back = included - seen
        report.check(not back, "ARCHITECTURE.md", f"the folder graph goes back: {folder} includes {', '.join(sorted(back))}")
        seen.add(folder)
    edges = folder_edges(root)
    report.check(edges and set(edges) == seen, "ARCHITECTURE.md",
                 f"the folder graph differs from the folders there are: {', '.join(sorted(set(edges) ^ seen))}")
    for folder, included in drawn:
        there = edges.get(folder, set())
        report.check(not there - included, f"stepzero/{folder}", f"includes {', '.join(sorted(there - included))}: not in ARCHITECTURE.md")
        report.check(not included - there, "ARCHITECTURE.md", f"{folder} does not include {', '.join(sorted(included - there))}")


def words_table(root):
    """A row for each word: its call, and the first sentence of what it says."""
    tree = ast.parse(read(root / "python" / "stepzero" / "words.py"))
    rows = []
    for f in tree.body:
        if isinstance(f, ast.FunctionDef) and not f.name.startswith("_"):
            rows.append(f"| `{f.name}({ast.unparse(f.args)})` | {collapse(ast.get_docstring(f) or '')} |")
    return rows


def check_words(report, root):
    page = root / "docs" / "architectures.md"
    lines = read(page).splitlines()
    for row in words_table(root):
        report.check(row in lines, page.relative_to(root).as_posix(), f"lacks the row\n  {row}")


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parents[2]).resolve()
    report = Report()
    ops = sorted(p for p in (root / "stepzero" / "ops").glob("*.hpp") if p.name not in NOT_OPS)
    report.check(ops, "stepzero/ops", "no op files found")
    for path in ops:
        check_op(report, root, path)
    check_links(report, root)
    check_paths(report, root)
    check_headers(report, root)
    check_folders(report, root)
    check_words(report, root)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
