"""A callback for Lightning.

    trainer = lightning.Trainer(callbacks=[StepzeroCallback(expect="scheme:hf", config=config)])

Before the fit the weights are audited; the first batch is recorded and held against the prediction. Both go to the log and to the trainer's loggers:
numbers to all, tables to those that take them. fail_on="error" ends the fit before it begins. Nothing is done per step."""
import importlib
from typing import Any, Dict, List

from .first_step import FirstStep

_Base: Any = object
for _name in ("lightning.pytorch", "pytorch_lightning"):
    try:
        _Base = importlib.import_module(_name).Callback
        break
    except ImportError:  # the trainer calls these methods by name
        pass


class StepzeroCallback(_Base):  # type: ignore[misc]
    """`model` names the attribute of the LightningModule that holds the model; empty: it is the model."""

    def __init__(self, model: str = "", **options: Any) -> None:
        self.first, self.model = FirstStep(**options), model

    def _numbers(self, trainer: Any) -> Any:
        def tell(numbers: Dict[str, float]) -> None:
            for logger in getattr(trainer, "loggers", []):
                logger.log_metrics(numbers, step=getattr(trainer, "global_step", 0))

        return tell

    def _table(self, trainer: Any) -> Any:
        def tell(name: str, columns: List[str], rows: List[List[Any]]) -> None:
            for logger in getattr(trainer, "loggers", []):
                if hasattr(logger, "log_table"):
                    logger.log_table(key=name, columns=columns, data=rows)
                elif hasattr(getattr(logger, "experiment", None), "add_text"):  # tensorboard
                    lines = [columns, ["---"] * len(columns), *rows]
                    logger.experiment.add_text(name, "\n".join("| " + " | ".join(str(c) for c in line) + " |" for line in lines))

        return tell

    def _of(self, module: Any) -> Any:
        for part in filter(None, self.model.split(".")):
            module = getattr(module, part)
        return module

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        self.first.begin(self._of(pl_module), self._numbers(trainer), self._table(trainer), getattr(trainer, "is_global_zero", True))

    def on_train_batch_end(self, trainer: Any, *_: Any, **__: Any) -> None:
        self.first.end(self._numbers(trainer), self._table(trainer), getattr(trainer, "is_global_zero", True))
