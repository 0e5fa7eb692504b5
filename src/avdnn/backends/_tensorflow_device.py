"""Devices, precisions, threads and the session's configuration of TensorFlow."""

from __future__ import annotations

from typing import Any

from .. import sess_config
from ..errors import DeviceError, HostMemoryOnly
from ..frame import Precision
from . import Options, _cpu

ON = 1
"""RewriterConfig.Toggle: an optimisation that runs."""


def devices(tf: Any) -> dict[str, str]:
    """Name and description of each device that TensorFlow sees."""
    found = {"cpu": "the processor"}
    for index, device in enumerate(tf.config.list_physical_devices("GPU")):
        details = tf.config.experimental.get_device_details(device)
        found[f"gpu:{index}"] = str(details.get("device_name", device.name))
    return found


def resolve(tf: Any, options: Options) -> str:
    """`cpu` or `gpu:N`, after checking that it exists; TensorFlow's own choice for "".

    One that is missing is HostMemoryOnly where the caller's frames are on a GPU.
    """
    there, name = devices(tf), options.device
    wanted = name.lower().replace("cuda", "gpu")
    if not wanted:
        return "gpu:0" if "gpu:0" in there else "cpu"
    device = "gpu:0" if wanted == "gpu" else wanted
    if device not in there:
        on_gpu = options.stream is not None
        raise (HostMemoryOnly if on_gpu else DeviceError)(
            f"tensorflow has no device {name}; there are: {', '.join(there)}"
            f"{'; it takes no frames on a GPU' if on_gpu else ''}",
            device=name,
        )
    return device


def precisions(device: str) -> tuple[Precision, ...]:
    """What the hardware computes in, the fastest first."""
    if device != "cpu":
        return (Precision.FLOAT16, Precision.FLOAT32)
    return tuple(found for found in _cpu.precisions() if found is not Precision.FLOAT16)


def session_config(tf: Any, device: str, options: Options) -> Any:
    """The session's settings: `sess_config` first, then what it leaves open."""
    config = tf.compat.v1.ConfigProto()
    text = options.config.get("sess_config", "")
    data = sess_config.parse(text) if text else b""
    config.MergeFromString(data)
    told = dict(sess_config.fields(data))
    if "gpu_options.allow_growth" not in told:
        config.gpu_options.allow_growth = True
    if options.threads:
        config.intra_op_parallelism_threads = options.threads
    elif not config.intra_op_parallelism_threads:
        config.intra_op_parallelism_threads = _cpu.cores()
    if not config.inter_op_parallelism_threads:
        config.inter_op_parallelism_threads = 1
    if device == "cpu":
        config.device_count["GPU"] = 0
    elif options.device:
        index = device.partition(":")[2]
        listed = config.gpu_options.visible_device_list
        if listed not in ("", index):
            raise DeviceError(
                f"device={options.device} is not the device {listed} of sess_config={text}",
                device=options.device,
            )
        config.gpu_options.visible_device_list = index
    rewrite = config.graph_options.rewrite_options
    if options.precision is Precision.BFLOAT16:
        rewrite.auto_mixed_precision_onednn_bfloat16 = ON
    elif options.precision is Precision.FLOAT16:
        rewrite.auto_mixed_precision = ON
    elif device != "cpu":
        tf.config.experimental.enable_tensor_float_32_execution(False)
    return config


def threads(options: Options) -> tuple[int, int]:
    """Runs at once and jobs in flight: all runs share the session's threads, four fill one run."""
    if not options.asynchronous:
        return 1, 1
    if options.nireq:
        return options.nireq, options.nireq
    runs = max(1, (options.threads or _cpu.cores()) // 4)
    return runs, runs + 1
