#!/usr/bin/python3
"""A second tokenizer, slow and plain, for tokenizer.json files of the model BPE.

    witness_bpe.py make DIR [SEED]            small vocabularies of every kind, trained here, and the ids of a mixed text: DIR/<case>.json
    witness_bpe.py encode TOKENIZER TEXT OUT  one case from a tokenizer.json and a text

Nothing here shares a line with stepzero: regular expressions are run as they stand by Python's `regex` module (python3-regex), normal forms
and categories come from `unicodedata`, merging is the textbook's loop. With a SEED the text is random. A case is
{"tokenizer": the tokenizer.json, "text": ..., "ids": [...]}.
"""
import json
import random
import sys
import unicodedata
from pathlib import Path

import regex

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
            r"\s*[\r\n]+|\s+(?!\S)|\s+"]
CLIP = r"'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+"
BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
RIGHT_TO_LEFT = r"\d{1,3}(?=(?:\d{3})*(?!\d))"

# What a text may bring: languages, code, marks, numbers, spaces of every kind, line ends, things that look like added tokens.
TEXT = """The quick brown fox doesn't jump; it's WE'LL see, they'VE said I'M sure.  Two  spaces,   three,\ttab\t\t.
def main(argc, **argv):\r\n    if argc >= 2 and argv["x"] != None:\r\n        return 3.14159e-10 + 0x1F600  # why\r\n\r\n\r\n
Größe, Übermut und die Straße: ſchön, das „Weiß“ – ’s ist so. ÉTÉ, e\u0301te\u0301, A\u030A\u0301, ǅ, ﬁ, İI, ΣΑΣ, Ångström Å.
我们今天去了北京，天气很好！二〇二四年12月31日 12345678 ９８７ ½ Ⅷ ² ১২৩ ٣٤٥. 日本語テスト、カタカナ。 한국어 각 \u1100\u1161\u11a8 हिन्दी में क़।
Marks: q\u0307\u0323, a\u0323\u0307, a\u0301\u0301, a\u0315\u0300\u05ae\u0301b, \u0b47\u0300\u0b3e, \u1100\u0300\u1161, e\u0334\u0301, \u0958, \u2126, \U0001d15e
👍🏽 👩‍👩‍👧 🇩🇪 emoji🙂text \u200b\u200d zero\u00a0width\u3000wide\u2028line\u0085next\x1f\x00\x7f
<|end|> <mask>x  <mask>  y<mask>, word keyword word, <s>a</s> <0x41> ▁ ▁▁a _under_score_ snake_case CamelCaseXMLHttp ABCdef ABC 1,000,000.00 $9.99
'S 'T 'ſ 'll'd s's''t O'Neill rock'n'roll      (indented)\n\n\n   \n trailing   """

PIECES = [" ", "  ", "\n", "\r\n", "\t", "'", "'s", "'LL", "a", "the", "The", "E", "é", "e\u0301", "\u0323", "\u0307", "ß", "ſ", "K", "Å", "中", "文", "。", "ア",
          "각", "\u1100", "\u1161", "\u11a8", "1", "23", "4567", "９", "½", "Ⅷ", ".", ",", "!?", "/", "_", "-", "(", ")", "[", "$", "…", "👍", "🏽", "\u200d", "\u00a0",
          "\u3000", "\u0085", "\x00", "<|end|>", "<mask>", "word", "<s>", "▁", "<", "|", "ǅ", "ʰ", "\u0915", "\u093c", "\U0001d165", "\u2028", "\ud7a3", "İ", "Σ"]


def random_text(seed):
    rng = random.Random(seed)
    alphabet = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
    decomposing = [c for c in alphabet if unicodedata.normalize("NFD", c) != c or unicodedata.combining(c)]
    return "".join(rng.choice(decomposing if rng.random() < 0.04 else alphabet if rng.random() < 0.05 else PIECES) for _ in range(3000))


# ---- byte-level ----

def byte_names():
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    names = {b: chr(b) for b in kept}
    for b in range(256):
        if b not in names:
            names[b] = chr(256 + len(names) - len(kept))
    return names


BYTES = byte_names()


# ---- cutting ----

def cut_at(pieces, matches_of, behavior, inverted=False):
    out = []
    for piece, first in pieces:
        parts, at = [], 0  # (begin, end, is a match)
        for begin, end in matches_of(piece):
            if begin > at:
                parts.append((at, begin, inverted))
            parts.append((begin, end, not inverted))
            at = end
        if at < len(piece):
            parts.append((at, len(piece), inverted))
        out += [(piece[b:e], first and b == 0) for b, e in joined(parts, behavior) if e > b]
    return out


def joined(parts, behavior):
    if behavior == "Removed":
        return [(b, e) for b, e, m in parts if not m]
    if behavior == "Isolated":
        return [(b, e) for b, e, _ in parts]
    out = []
    if behavior == "Contiguous":
        for b, e, m in parts:
            if out and out[-1][2] == m:
                out[-1][1] = e
            else:
                out.append([b, e, m])
    if behavior == "MergedWithPrevious":
        before = False
        for b, e, m in parts:
            if m and not before and out:
                out[-1][1] = e
            else:
                out.append([b, e, m])
            before = m
    if behavior == "MergedWithNext":
        before = False
        for b, e, m in reversed(parts):
            if m and not before and out:
                out[-1][0] = b
            else:
                out.append([b, e, m])
            before = m
        out.reverse()
    return [(o[0], o[1]) for o in out]


def by_regex(source):
    # [..] inside [..] are read by version 1 alone
    compiled = regex.compile(source, (regex.V1 if source == BLOOM else regex.V0) | regex.MULTILINE)
    return lambda piece: [m.span() for m in compiled.finditer(piece)]


def by_text(literal):
    return by_regex(regex.escape(literal, special_only=True))


def by_character(test):
    return lambda piece: [(i, i + 1) for i, c in enumerate(piece) if test(c)]


def is_punctuation(c):
    return unicodedata.category(c)[0] == "P" or c in "$+<=>^`|~"


def pattern_of(step):
    given = step["pattern"]
    return by_regex(given["Regex"]) if "Regex" in given else by_text(given["String"])


def pre_tokenize(step, pieces):
    if step is None:
        return pieces
    kind = step["type"]
    if kind == "Sequence":
        for inner in step["pretokenizers"]:
            pieces = pre_tokenize(inner, pieces)
        return pieces
    if kind == "ByteLevel":
        if step.get("add_prefix_space", True):
            pieces = [(p if p.startswith(" ") else " " + p, f) for p, f in pieces]
        if step.get("use_regex", True):
            pieces = cut_at(pieces, by_regex(GPT2), "Isolated")
        return [("".join(BYTES[b] for b in p.encode()), f) for p, f in pieces]
    if kind == "Split":
        return cut_at(pieces, pattern_of(step), step["behavior"], step.get("invert", False))
    if kind == "Digits":
        return cut_at(pieces, by_character(lambda c: unicodedata.category(c)[0] == "N"), "Isolated" if step["individual_digits"] else "Contiguous")
    if kind == "Punctuation":
        return cut_at(pieces, by_character(is_punctuation), step.get("behavior", "Isolated"))
    if kind == "WhitespaceSplit":
        return cut_at(pieces, by_regex(r"\s"), "Removed")
    if kind == "Whitespace":
        return cut_at(pieces, by_regex(r"\w+|[^\w\s]+"), "Removed", True)
    if kind == "Metaspace":
        mark, scheme, out = step["replacement"], step.get("prepend_scheme", "always"), []
        for p, f in pieces:
            p = p.replace(" ", mark)
            front = scheme == "always" or (scheme == "first" and f)
            out.append((mark + p if front and not p.startswith(mark) else p, f))
        return cut_at(out, by_text(mark), "MergedWithNext") if step.get("split", True) else out
    raise ValueError(kind)


def normalize(step, text):
    if step is None:
        return text
    kind = step["type"]
    if kind == "Sequence":
        for inner in step["normalizers"]:
            text = normalize(inner, text)
        return text
    if kind in ("NFC", "NFD"):
        return unicodedata.normalize(kind, text)
    if kind == "Lowercase":
        return "".join(c.lower() for c in text)
    if kind == "Prepend":
        return step["prepend"] + text if text else text
    if kind == "Replace":
        given = step["pattern"]
        return text.replace(given["String"], step["content"]) if "String" in given else regex.sub(given["Regex"], lambda _: step["content"], text)
    raise ValueError(kind)


# ---- merging ----

def characters(word, model):
    """The word as tokens: characters, bytes where a character has none, or the unknown one."""
    vocab, out = model["vocab"], []
    prefix, suffix = model.get("continuing_subword_prefix") or "", model.get("end_of_word_suffix") or ""
    for i, c in enumerate(word):
        dressed = (prefix if i > 0 else "") + c + (suffix if i == len(word) - 1 else "")
        spelt = [f"<0x{b:02X}>" for b in dressed.encode()]
        if dressed in vocab:
            out.append(dressed)
        elif model.get("byte_fallback") and all(s in vocab for s in spelt):
            out += spelt
        elif model.get("unk_token"):
            if not (model.get("fuse_unk") and i > 0 and unknown):
                out.append(model["unk_token"])
            unknown = True
            continue
        else:
            raise ValueError(f"{c!r} has no token")
        unknown = False
    return out


def merge(tokens, ranks, prefix):
    """The pair of the lowest rank, its leftmost place, again and again."""
    while True:
        best = min(((ranks[pair], i) for i, pair in enumerate(zip(tokens, tokens[1:])) if pair in ranks), default=None)
        if best is None:
            return tokens
        i = best[1]
        tokens[i:i + 2] = [tokens[i] + tokens[i + 1][len(prefix):]]


def rules_of(model):
    pairs = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    return {pair: rank for rank, pair in enumerate(pairs)}


# ---- added tokens ----

def is_word(c):
    return regex.match(r"\w", c) is not None


def split_added(text, tokens):
    """[(text, None) or (None, id)]"""
    out, done, at = [], 0, 0
    while at < len(text):
        here = [t for t in tokens if t["content"] and text.startswith(t["content"], at)]
        if not here:
            at += 1
            continue
        t = max(here, key=lambda t: len(t["content"]))
        begin, end = at, at + len(t["content"])
        at = end
        if t["single_word"] and ((begin > 0 and is_word(text[begin - 1])) or (end < len(text) and is_word(text[end]))):
            continue
        if t["lstrip"]:
            begin = max(done, len(regex.sub(r"\s+\Z", "", text[:begin])))
        if t["rstrip"]:
            end += regex.match(r"\s*", text[end:]).end()
        out += [(text[done:begin], None), (None, t["id"])]
        done = at = end
    return out + [(text[done:], None)]


def encode(tokenizer, text):
    model, added = tokenizer["model"], tokenizer.get("added_tokens", [])
    ranks, prefix, cache, ids = rules_of(model), model.get("continuing_subword_prefix") or "", {}, []
    raw = [t for t in added if not t["normalized"]]
    later = [dict(t, content=normalize(tokenizer.get("normalizer"), t["content"])) for t in added if t["normalized"]]
    begins = True
    for piece, token in split_added(text, raw):
        if token is not None:
            ids.append(token)
        for part, inner in split_added(normalize(tokenizer.get("normalizer"), piece), later) if piece else []:
            if inner is not None:
                ids.append(inner)
            for word, _ in pre_tokenize(tokenizer.get("pre_tokenizer"), [(part, begins)]) if part else []:
                if word not in cache:
                    whole = model.get("ignore_merges") and word in model["vocab"]
                    cache[word] = [word] if whole else merge(characters(word, model), ranks, prefix)
                ids += [model["vocab"][t] for t in cache[word]]
            begins = begins and not part and inner is None
        begins = begins and not piece and token is None
    return ids


# ---- small vocabularies ----

def train(tokenizer, text, alphabet, merges):
    """Fills model.vocab and model.merges: the most frequent pair of neighbours, the first of equals, again and again."""
    model = tokenizer["model"]
    model["vocab"] = {t: i for i, t in enumerate(alphabet)}
    model["merges"] = []
    prefix = model.get("continuing_subword_prefix") or ""
    pieces = pre_tokenize(tokenizer.get("pre_tokenizer"), [(normalize(tokenizer.get("normalizer"), text), True)])
    words = [characters(p, model) for p, _ in pieces]
    for _ in range(merges):
        counts = {}
        for w in words:
            for pair in zip(w, w[1:]):
                if not any(t.startswith("<0x") or t == model.get("unk_token") for t in pair):
                    counts[pair] = counts.get(pair, 0) + 1
        if not counts:
            break
        a, b = max(counts, key=counts.get)
        model["merges"].append(f"{a} {b}")
        model["vocab"].setdefault(a + b[len(prefix):], len(model["vocab"]))
        rule = {(a, b): 0}
        words = [merge(w, rule, prefix) for w in words]


def added_token(content, special=True, **flags):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": special} | flags


def make(pre, alphabet, normalizer=None, added=(), merges=90, pairs=False, **model):
    tokenizer = {"version": "1.0", "added_tokens": [], "normalizer": normalizer, "pre_tokenizer": pre, "model": {"type": "BPE", **model}}
    train(tokenizer, TEXT, alphabet, merges)
    if pairs:
        tokenizer["model"]["merges"] = [m.split(" ") for m in tokenizer["model"]["merges"]]
    vocab = tokenizer["model"]["vocab"]
    for t in added:
        known = vocab.get(t["content"])
        next_id = max([*vocab.values(), *(a["id"] for a in tokenizer["added_tokens"])]) + 1
        tokenizer["added_tokens"].append({"id": next_id if known is None else known, **t})
    return tokenizer


def cut_by(source, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": {"Regex": source}, "behavior": behavior, "invert": invert}


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def byte_level(prefix=False, words=False):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": words}


def all_cases():
    every_byte = [BYTES[b] for b in range(256)]
    fallback = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    some = sorted({c for c in TEXT if c.isascii() and c.isprintable() and c != " "} | set("äöüß▁中"))
    dressed = sorted({"##" + c for c in some} | set(some))
    ended = every_byte + [b + "</w>" for b in every_byte]
    marks = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    prepended = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, marks]}
    clip_text = {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Lowercase"}]}
    end, mask = added_token("<|end|>"), added_token("<mask>", lstrip=True)
    thousands = {"type": "Digits", "individual_digits": False}
    return {
        "gpt2": make(byte_level(words=True), every_byte, added=[added_token("<|end|>", normalized=True)]),
        "roberta": make(byte_level(True, True), every_byte, added=[end, mask]),
        "llama3": make(sequence(cut_by(LLAMA3), byte_level()), every_byte, added=[end], pairs=True, ignore_merges=True),
        "qwen": make(sequence(cut_by(QWEN), byte_level()), every_byte, {"type": "NFC"}, [end, added_token("word", False, single_word=True)]),
        "o200k": make(sequence(cut_by(O200K), byte_level()), every_byte, added=[end]),
        "deepseek": make(sequence(*map(cut_by, DEEPSEEK), byte_level()), every_byte),
        "smollm": make(sequence({"type": "Digits", "individual_digits": True}, byte_level(words=True)), every_byte),
        "falcon": make(sequence({"type": "Punctuation", "behavior": "Contiguous"}, byte_level(words=True), thousands, cut_by("[0-9][0-9][0-9]")), every_byte),
        "bloom": make(sequence(cut_by(BLOOM), byte_level()), every_byte),
        "right-to-left": make(sequence(cut_by(RIGHT_TO_LEFT), byte_level()), every_byte),
        "clip": make(sequence(cut_by(CLIP, "Removed", True), byte_level()), ended, clip_text, end_of_word_suffix="</w>"),
        "llama2": make(None, fallback + some, prepended, [added_token("<s>", rstrip=True), added_token("</s>", normalized=True)],
                       unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        "gemma": make({"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}, fallback + some, marks,
                      [added_token("▁▁", False)], unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        "metaspace": make({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True}, ["<unk>"] + some, added=[end, mask],
                          unk_token="<unk>", fuse_unk=True),
        "words": make({"type": "Whitespace"}, ["[UNK]"] + dressed, unk_token="[UNK]", continuing_subword_prefix="##"),
        "line-ends": make(sequence(cut_by(r"^[ \t]+|[\r\n]|\s+$|[^\S\r\n]", "MergedWithNext"), byte_level()), every_byte),
        "composed": make(byte_level(), every_byte, {"type": "NFC"}, merges=0),
        "decomposed": make(byte_level(), every_byte, {"type": "NFD"}, merges=0),
        "lower": make(byte_level(), every_byte, {"type": "Lowercase"}, merges=0),
    }


def write(path, tokenizer, text):
    case = {"tokenizer": tokenizer, "text": text, "ids": encode(tokenizer, text)}
    path.write_text(json.dumps(case, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


def main(verb, *args):
    if verb == "make":
        folder = Path(args[0])
        folder.mkdir(parents=True, exist_ok=True)
        for name, tokenizer in all_cases().items():
            write(folder / f"{name}.json", tokenizer, random_text(f"{args[1]} {name}") if len(args) > 1 else TEXT)
    elif verb == "encode":
        write(Path(args[2]), json.loads(Path(args[0]).read_text(encoding="utf-8")), Path(args[1]).read_bytes().decode())
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:]) if len(sys.argv) > 2 else sys.exit(__doc__)
