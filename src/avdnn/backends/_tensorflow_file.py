"""TensorFlow files: frozen graphs and SavedModel folders, read as graphs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import ModelError
from . import _formats

NO_RESULTS = ("Const", "Placeholder", "PlaceholderWithDefault", "NoOp", "Assert", "SaveV2")


@dataclass(frozen=True, slots=True)
class Source:
    """A graph as its file has it: `inputs` and `outputs` map the names for people to tensors."""

    definition: Any
    graph: Any
    kind: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


def read(tf: Any, model: Path) -> Source:
    """The graph in a frozen GraphDef or a SavedModel folder, its variables made constants."""
    kind = _formats.check(model, "tensorflow")
    if kind is _formats.Kind.SAVED_MODEL and not model.is_dir():
        raise ModelError(
            f"{model}: belongs to a SavedModel; give its folder, {model.parent}",
            backend="tensorflow",
        )
    if kind is _formats.Kind.SAVED_MODEL:
        return _saved(tf, model)
    definition = tf.compat.v1.GraphDef()
    from google.protobuf.message import DecodeError

    try:
        definition.ParseFromString(model.read_bytes())
    except DecodeError as error:
        message = f"{model}: the TensorFlow GraphDef is cut or damaged"
        raise ModelError(message, backend="tensorflow") from error
    graph = _import(tf, model, definition)
    nodes = {node.name: node for node in definition.node}
    used = {re.sub(r"^\^|:\d+$", "", name) for node in definition.node for name in node.input}
    inputs = {name: f"{name}:0" for name, node in nodes.items() if node.op == "Placeholder"}
    outputs = {
        name: f"{name}:0"
        for name, node in nodes.items()
        if name not in used and name != "init" and node.op not in NO_RESULTS
        if graph.get_operation_by_name(name).outputs
    }
    if "y" in outputs:
        outputs = {"y": "y:0"}
    return Source(definition, graph, kind.value, inputs, outputs)


def _import(tf: Any, model: Path, definition: Any) -> Any:
    graph = tf.Graph()
    try:
        with graph.as_default():
            tf.import_graph_def(definition, name="")
    except (ValueError, tf.errors.OpError) as error:
        unknown = re.search(r"Op type not registered '(\w+)'", str(error))
        what = (
            f"needs the custom operation {unknown[1]}, which TensorFlow does not have"
            if unknown
            else f"TensorFlow cannot read it: {first_line(error)}"
        )
        raise ModelError(f"{model}: {what}", backend="tensorflow") from error
    return graph


def _saved(tf: Any, model: Path) -> Source:
    from tensorflow.python.framework.convert_to_constants import (
        convert_variables_to_constants_v2,
    )

    try:
        with tf.device("cpu"):
            loaded = tf.saved_model.load(str(model))
            signatures = dict(loaded.signatures)
            key = (
                "serving_default" if "serving_default" in signatures else next(iter(signatures), "")
            )
            frozen = convert_variables_to_constants_v2(signatures[key]) if key else None
    except (OSError, ValueError, RuntimeError, KeyError, tf.errors.OpError) as error:
        message = f"{model}: TensorFlow cannot read it: {first_line(error)}"
        raise ModelError(message, backend="tensorflow") from error
    if frozen is None:
        message = f"{model}: the SavedModel has no signature to call"
        raise ModelError(message, backend="tensorflow")
    inputs = {tensor.op.name: tensor.name for tensor in frozen.inputs}
    given = signatures[key].structured_outputs
    names = sorted(given) if isinstance(given, Mapping) else []
    if len(names) != len(frozen.outputs):
        names = [tensor.op.name for tensor in frozen.outputs]
    outputs = dict(zip(names, (tensor.name for tensor in frozen.outputs), strict=True))
    definition = frozen.graph.as_graph_def()
    graph = _import(tf, model, definition)
    return Source(definition, graph, f"TensorFlow SavedModel, signature {key}", inputs, outputs)


def first_line(error: BaseException) -> str:
    """What TensorFlow has to say, without the nodes that it names around it."""
    text = str(getattr(error, "message", None) or error)
    after_nodes = text.rpartition("\nNode: ")[2] if text.startswith("Graph execution") else text
    lines = [line.strip() for line in after_nodes.splitlines() if line.strip()]
    if after_nodes is not text:
        del lines[0]
    told = [re.sub(r"^\(\d+\) \w+: ", "", line) for line in lines]
    told = [line for line in told if not re.match(r"\[\[|\d+ root error", line)]
    return (told or [type(error).__name__])[0]
