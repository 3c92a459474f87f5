"""stepzero on live PyTorch modules.

    import stepzero.torch as szt

    szt.init_(model, scheme="hf", seed=7)      # in place, the bits of `stepzero init`, on any sharding
    szt.audit(model)                           # what is wrong with these weights; nothing is copied
    szt.check(model, expect="scheme:hf")       # an AssertionError with the table of departures
    with szt.record(model) as rec:             # the statistics of one step of your own
        model(**batch).loss.backward()
    rec.compare()                              # beside the prediction, z per node
"""
from .auditing import audit
from .checking import CheckError, Expect, check
from .filling import init_
from .recording import Recorder, record

__all__ = ["CheckError", "Expect", "Recorder", "audit", "check", "init_", "record"]
