#!/usr/bin/env python3
"""Writes unicode_data.cpp beside this file: what Unicode says of its characters, from Python's unicodedata.

Three short texts, which unicode.cpp reads once:
    categories   the general category of every code point in order, as runs: Cc32Zs is 32 times Cc, once Zs
    decompositions  "@C0 41+300": from U+00C0 on, one word a code point; + composes again, - does not
    classes      "@300 15*e6": canonical combining classes (hexadecimal) as runs
    lower        "@41 1a*20": to lower case by adding, as runs (all hexadecimal; of two code points, U+0130, none)
"""
import pathlib
import sys
import unicodedata as u

POINTS = range(sys.maxunicode + 1)


def runs(values):
    """(first, how many, value) of equal neighbours"""
    out = []
    for at, value in enumerate(values):
        if out and out[-1][2] == value:
            out[-1][1] += 1
        else:
            out.append([at, 1, value])
    return out


def spelt(values, word, nothing):
    """"@first" wherever a value follows one that is nothing"""
    words, expected = [], None
    for first, count, value in runs(values):
        if value == nothing:
            continue
        if first != expected:
            words.append(f"@{first:x}")
        expected = first + count
        words += word(count, value)
    return " ".join(words)


def decomposition(c):
    mapping = u.decomposition(chr(c))
    if not mapping or mapping.startswith("<"):
        return None
    parts = mapping.lower().split()
    parts = [p.lstrip("0") for p in parts]
    composes = u.normalize("NFC", "".join(chr(int(p, 16)) for p in parts)) == chr(c)
    return ("+" if composes else "-").join(parts)


def counted(count, value):
    return [f"{count:x}*{value}"]


def lower(c):
    small = chr(c).lower()
    return f"{(ord(small) - c) % 0x110000:x}" if len(small) == 1 and ord(small) != c else None


def lines(text):
    """String literals that fit the page."""
    out = []
    while text:
        out.append(f'    "{text[:132]}"')
        text = text[132:]
    return "\n".join(out)


categories = "".join(f"{value}{count if count > 1 else ''}" for _, count, value in runs([u.category(chr(c)) for c in POINTS]))
texts = [("categories", categories),
         ("decompositions", spelt([decomposition(c) for c in POINTS], lambda n, v: [v] * n, None)),
         ("classes", spelt([f"{u.combining(chr(c)):x}" for c in POINTS], counted, "0")),
         ("lower", spelt([lower(c) for c in POINTS], counted, None))]
body = "\n\n".join(f"const std::string_view {name} =\n{lines(text)};" for name, text in texts)
pathlib.Path(__file__).with_name("unicode_data.cpp").write_text(f"""// Unicode {u.unidata_version}. Made by unicode_data.py, which says how to read it: do not edit.
#include "stepzero/io/unicode.hpp"

// clang-format off
namespace stepzero::unicode_data {{

{body}

}}  // namespace stepzero::unicode_data
""")
