"""A callback for Hugging Face's Trainer.

    trainer = Trainer(model, args, callbacks=[StepzeroCallback(expect="scheme:hf")])

Before training the weights are audited; the first step is recorded and held against the prediction. Both go to the log, to the trainer's history and,
where a run of wandb is under way, to its tables. fail_on="error" ends training before it begins. Nothing is done per step."""
import importlib
import sys
from typing import Any, Dict, List

from .first_step import FirstStep

try:
    _Base: Any = importlib.import_module("transformers").TrainerCallback
except ImportError:  # the trainer calls these methods by name
    _Base = object


def _wandb() -> Any:
    wandb = sys.modules.get("wandb")
    return wandb if wandb is not None and getattr(wandb, "run", None) is not None else None


class StepzeroCallback(_Base):  # type: ignore[misc]
    def __init__(self, **options: Any) -> None:
        self.first = FirstStep(**options)

    def _numbers(self, state: Any) -> Any:
        def tell(numbers: Dict[str, float]) -> None:
            history = getattr(state, "log_history", None)
            if history is not None:
                history.append({**numbers, "step": getattr(state, "global_step", 0)})
            if _wandb() is not None:
                _wandb().log(numbers, commit=False)

        return tell

    @staticmethod
    def _table(name: str, columns: List[str], rows: List[List[Any]]) -> None:
        if _wandb() is not None:
            _wandb().log({name: _wandb().Table(columns=columns, data=rows)}, commit=False)

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.first.begin(model, self._numbers(state), self._table, getattr(state, "is_world_process_zero", True))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.first.end(self._numbers(state), self._table, getattr(state, "is_world_process_zero", True))
