"""A backend whose model is a Python function, to try what filters do around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avdnn import backends
from avdnn.backends import Options
from avdnn.frame import Arrays, Layout, ModelInfo, Precision, Shapes, TensorSpec

Function = Callable[[Any, Precision], Any]


@dataclass
class FakeModule:
    """Stands in for a backend module; `function` maps one NCHW batch to another."""

    function: Function
    able: tuple[Precision, ...] = (Precision.FLOAT32,)
    channels: int = 1
    dtype: str = "float32"
    fixed_batch: int | None = None
    size: tuple[int, int] = (-1, -1)
    in_flight: int = 3
    loaded: list[Options] = field(default_factory=list)
    open: int = 0
    batches: list[int] = field(default_factory=list)

    SUFFIXES = (".fake",)
    KEYS: Mapping[str, str] = field(default_factory=dict)

    def precisions(self, options: Options) -> tuple[Precision, ...]:
        return self.able

    def load(self, model: Path, options: Options) -> FakeBackend:
        self.loaded.append(options)
        self.open += 1
        return FakeBackend(self, options)

    def describe(self) -> Mapping[str, Any]:
        return {"version": "0", "devices": {}}


class FakeBackend:
    def __init__(self, module: FakeModule, options: Options) -> None:
        self._module = module
        self._options = options
        self._pool = ThreadPoolExecutor(module.in_flight)
        shape = (module.fixed_batch or -1, module.channels, *module.size)
        spec = TensorSpec("x", shape, module.dtype, Layout.NCHW)
        self.info = ModelInfo(
            inputs=(spec,),
            outputs=(TensorSpec("y", (-1, -1, -1, -1), "float32", Layout.NCHW),),
            max_batch=module.fixed_batch,
            max_in_flight=module.in_flight,
            device="fake",
            precision=options.precision,
        )
        self._closed = False

    def output_shapes(self, inputs: Shapes) -> Shapes:
        made = self._module.function(np.zeros(inputs["x"], np.float32), self._options.precision)
        return {"y": made.shape}

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        self._module.batches.append(len(inputs["x"]))
        return self._pool.submit(self._run, inputs["x"])

    def _run(self, x: Any) -> Arrays:
        return {"y": self._module.function(x, self._options.precision)}

    def close(self) -> None:
        self._pool.shutdown()
        if not self._closed:
            self._module.open -= 1
        self._closed = True


def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, module: FakeModule) -> str:
    """Make `module` the only backend; returns the filter text that runs it."""
    (tmp_path / "net.fake").write_bytes(b"model")
    monkeypatch.setattr(backends, "module", lambda name: module)
    monkeypatch.setattr(backends, "NAMES", ("native",))
    monkeypatch.setattr(backends, "reads", lambda name, model: True)
    monkeypatch.setattr(backends, "keys", lambda name: module.KEYS)
    return f"dnn_processing=dnn_backend=native:model={tmp_path / 'net.fake'}"
