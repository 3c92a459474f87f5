#!/usr/bin/env python3
"""docs/images/record.svg: a step of a small GPT-2 in torch beside its prediction, as a notebook shows it.

    python3 tests/python/picture.py BUILD
"""
import re

from setting import ROOT  # first: it says where the package and the library lie

import torch
import torch_models as tm

import stepzero.torch as szt

torch.set_num_threads(1)
module = szt.init_(tm.gpt2(n_layer=12, n_embd=128, n_head=4, n_positions=64), seed=1)
ids = torch.randint(0, 211, (2, 33), generator=torch.Generator().manual_seed(0))
with szt.record(module, labels=ids[:, 1:]) as rec:
    module(ids[:, :-1], ids[:, 1:]).backward()
seen = rec.compare()
print("\n".join(repr(seen).splitlines()[:8]))
charts = re.findall(r"<svg.*?</svg>", seen._repr_html_(), re.S)
inside = "".join(f'<g transform="translate({340 * i + 10},10)">{re.sub("^<svg[^>]*>|</svg>$", "", chart)}</g>' for i, chart in enumerate(charts))
(ROOT / "docs/images/record.svg").write_text(f'<svg xmlns="http://www.w3.org/2000/svg" width="690" height="130" font-size="10" font-family="sans-serif">'
                                             f'<rect width="690" height="130" fill="white"/>{inside}</svg>\n', encoding="utf-8")
