#!/usr/bin/python3
"""The documentation as pages that need no network: docs/site/build.py PROGRAM OUT. What README and docs say, the explorer in front, and a gallery of
reports that PROGRAM makes now, each with its command."""
import concurrent.futures
import html
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

import markdown

ROOT = pathlib.Path(__file__).resolve().parents[2]
FRONT = ("README", "ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")
MENU = (("index.html", "stepzero"), ("explorer.html", "Explorer"), ("gallery.html", "Gallery"), ("docs/models.html", "Models"), ("docs/schemes.html", "Schemes"),
        ("docs/audit.html", "Audit"), ("docs/train.html", "Train"), ("docs/python.html", "Python"), ("docs/torch.html", "PyTorch"), ("docs/stories.html", "Stories"),
        ("docs/accuracy.html", "Accuracy"), ("docs/claims.html", "Claims"), ("contents.html", "All pages"))
# What each report shows, and its command.
GALLERY = (
    ("GPT-2 as it is drawn", "gpt2 --compare-schemes xavier-normal,deepnet"), ("Four times as deep and post-norm: ranks collapse", "gpt2 --set layers=48 --set norm_placement=post --scheme xavier-normal --seq-len 64"),
    ("GPT-2 measured beside its prediction", "gpt2 --measure --seeds 2 --seq-len 64"), ("Llama 3 8B", "llama-3-8b --seq-len 128"), ("Llama 3 405B, without its weights", "llama-3-405b --seq-len 64"),
    ("Mixtral: experts", "mixtral-8x7b --seq-len 64"), ("DeepSeek V2 Lite: latent attention", "deepseek-v2-lite --seq-len 32"), ("Gemma 2: sandwich norms and caps", "gemma-2-2b --seq-len 64"),
    ("Qwen 3: norms of queries and keys", "qwen3-0.6b --seq-len 64"), ("OLMo 2: norms on branches", "olmo-2-1b --seq-len 64"), ("BERT: post-norm, both ways", "bert-base --seq-len 64"), ("ModernBERT", "modernbert-base --seq-len 64"),
    ("T5: encoder and decoder", "t5-small --seq-len 32"), ("BART", "bart-base --seq-len 32"), ("ViT: images", "vit-base"), ("ResNet-8: convolutions", "resnet-8"), ("ALBERT: one layer's weights for all", "albert-base-v2 --seq-len 64"),
    ("Pythia: parallel blocks", "pythia-160m --seq-len 64"), ("GPT-2 under muP", "gpt2 --scheme mup --seq-len 64"), ("A ReLU network drawn too large", "gpt2 --set activation=relu --set init_std=0.08 --seq-len 64"))


def page(path, title, body):
    up = "../" * path.count("/")
    menu = " ".join(f'<a href="{up}{to}">{name}</a>' for to, name in MENU)
    return (f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f'<title>{html.escape(title)}</title>\n<link rel="stylesheet" href="{up}site.css">\n<nav>{menu}</nav>\n<main>\n{body}\n</main>\n</html>\n')


def address(source):
    """docs/models.md -> docs/models.html; README.md -> index.html"""
    return "index.html" if source == "README.md" else re.sub(r"(README)?\.md$", lambda m: "index.html" if m[1] else ".html", source)


class Site:
    def __init__(self, program, out):
        self.program, self.out = program, out
        sources = sorted(str(p.relative_to(ROOT)) for p in [*(ROOT / f"{name}.md" for name in FRONT), *(ROOT / "docs").rglob("*.md")])
        self.pages = {source: address(source) for source in sources}
        self.titles = {}

    def link(self, source, match):
        """Links to pages lead to pages, to pictures and tables to copies of them; a link to a file of the sources is its name."""
        whole, to, text = match[0], html.unescape(match[1]), match[2]
        if re.match(r"[a-z]+:|#", to):
            return whole
        path, _, part = to.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(source), path))
        if target in self.pages:
            here = os.path.relpath(self.pages[target], os.path.dirname(self.pages[source]) or ".")
            return f'<a href="{here}{"#" + part if part else ""}">{text}</a>'
        if target.startswith("docs/") and (ROOT / target).is_file():
            self.copy(target)
            return whole
        return text

    def copy(self, path):
        to = self.out / path
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / path, to)

    def write(self, path, text):
        to = self.out / path
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text, encoding="utf-8")

    def body(self, source):
        text = (ROOT / source).read_text(encoding="utf-8")
        self.titles[source] = re.search(r"^#\s*(.*)$", text, re.M)[1]
        made = markdown.markdown(text, extensions=["tables", "fenced_code", "toc", "sane_lists"], output_format="html")
        made = re.sub(r'<a href="([^"]*)">(.*?)</a>', lambda m: self.link(source, m), made, flags=re.S)
        for picture in re.findall(r'<img [^>]*src="([^":]*)"', made):
            self.copy(os.path.normpath(os.path.join(os.path.dirname(source), picture)))
        return made.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")

    def report(self, number):
        title, words = GALLERY[number]
        name = f"gallery/{number + 1:02}.html"
        done = subprocess.run([self.program, "report", *shlex.split(words), "--no-remedies", "-o", f"{number + 1:02}.html"], cwd=self.out / "gallery",
                              capture_output=True, text=True, env={**os.environ, "LC_ALL": "C.UTF-8", "COLUMNS": "100"})
        if done.returncode:
            sys.exit(f"{words}: {done.stderr}")
        verdict = done.stdout.split("\n\n")[1].splitlines()[0]  # below the model's name
        return (f'<li><a href="{name}"><strong>{html.escape(title)}</strong></a>\n<p>{html.escape(verdict)}</p>\n'
                f'<p><code>stepzero report {html.escape(words)}</code></p></li>')

    def make(self):
        shutil.rmtree(self.out, ignore_errors=True)
        (self.out / "gallery").mkdir(parents=True)
        for source, to in self.pages.items():
            made = self.body(source)
            if source == "README.md":
                made = ('<iframe src="explorer.html" title="The explorer: a model\'s signal under sliders"></iframe>\n'
                        '<p>This page computes, in your browser, and sends nothing. <a href="explorer.html">Whole window</a></p>\n' + made)
            self.write(to, page(to, self.titles[source], made))
        shutil.copyfile(ROOT / "web" / "explorer.html", self.out / "explorer.html")
        shutil.copyfile(ROOT / "docs" / "site" / "site.css", self.out / "site.css")
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            cards = list(pool.map(self.report, range(len(GALLERY))))
        self.write("gallery.html", page("gallery.html", "Gallery", f'<h1>Twenty reports</h1>\n<ul class="gallery">\n{chr(10).join(cards)}\n</ul>'))
        rows = "\n".join(f'<li><a href="{to}">{html.escape(self.titles[source])}</a></li>' for source, to in sorted(self.pages.items()))
        self.write("contents.html", page("contents.html", "All pages", f"<h1>All pages</h1>\n<ul>\n{rows}\n</ul>"))
        self.check()

    def check(self):
        """Every link leads somewhere, and nothing asks the network."""
        broken, count = [], 0
        for path in sorted(self.out.rglob("*.html")):
            if path.parent.name == "gallery" or path.name == "explorer.html":
                continue
            text = path.read_text(encoding="utf-8")
            for tag, to in re.findall(r'<(\w+)[^>]* (?:href|src)="([^"]*)"', text):
                count += 1
                if re.match(r"https?:", to):
                    if tag != "a":
                        broken.append(f"{path.relative_to(self.out)}: {to} is fetched")
                    continue
                file, _, part = to.partition("#")
                target = path if not file else path.parent / file
                if not target.is_file():
                    broken.append(f"{path.relative_to(self.out)}: {to}")
                elif part and target.suffix == ".html" and f'id="{part}"' not in target.read_text(encoding="utf-8"):
                    broken.append(f"{path.relative_to(self.out)}: {to}: no such place")
        print(f"{len(self.pages) + 2} pages, {len(GALLERY)} reports, {count} links")
        if broken:
            sys.exit("\n".join(broken))


if __name__ == "__main__":
    Site(str(pathlib.Path(sys.argv[1]).resolve()), pathlib.Path(sys.argv[2]).resolve()).make()
