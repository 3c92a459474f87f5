#!/usr/bin/python3
"""Mean, std, min and max of every tensor of a bf16 safetensors file, by PyTorch; the faster of two ways. One JSON line."""
import json
import struct
import sys
import time

import numpy
import torch

path, threads = sys.argv[1], int(sys.argv[2])
torch.set_num_threads(threads)
raw = numpy.memmap(path, mode="r", dtype=numpy.uint8)
length = struct.unpack("<Q", raw[:8].tobytes())[0]
header = json.loads(raw[8:8 + length].tobytes())
header.pop("__metadata__", None)
tensors = []
for entry in header.values():
    begin, end = entry["data_offsets"]
    tensors.append(torch.from_numpy(numpy.array(raw[8 + length + begin:8 + length + end]).view(numpy.int16)).view(torch.bfloat16))


def direct(t):
    return t.mean(), t.std(), t.min(), t.max()


def widened(t):
    t = t.float()
    return t.mean(), t.std(), t.min(), t.max()


best = {}
for name, way in (("direct", direct), ("widened", widened)):
    for _ in range(2):
        start = time.perf_counter()
        try:
            for t in tensors:
                way(t)
        except RuntimeError:
            continue
        best[name] = min(best.get(name, 1e9), time.perf_counter() - start)
print(json.dumps({"seconds": min(best.values()), **best}))
