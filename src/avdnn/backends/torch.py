"""torch: TorchScript and exported programs, and weights that spandrel knows, on CPU and GPU.

Codes are turned to values and back inside torch, host arrays go in as views, and networks run
channels last, frozen or compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ..errors import DeviceError, InferenceError, ModelError
from ..frame import Arrays, Layout, ModelInfo, Precision, Shape, Shapes
from . import Options, _cpu, _torch_cuda, _torch_device
from ._cuda_arrays import on_device
from ._heap import keep_pages
from ._memory import exhausted
from ._tensors import check_shapes, is_picture
from ._torch_codes import Codes, as_tensor, check
from ._torch_file import first_line, read
from ._torch_fused import captured
from ._torch_network import Network, precision_of
from ._torch_open import batch, declare, find_out, make_ready
from ._torch_trial import Found, named
from ._workers import Workers

SUFFIXES: tuple[str, ...] = (".pt", ".pt2", ".ts", ".pth", ".safetensors", ".ckpt")

KEYS: Mapping[str, str] = {
    "optimize": "1 (default): freeze TorchScript and lay tensors out channels last, 0: as it is",
    "compile": "1: compile the network (slow start; needs a C++ compiler), 0 (default): do not",
    "capture": "1 (default where possible): replay jobs on GPU frames as a CUDA graph, 0: do not",
}


def describe() -> Mapping[str, Any]:
    """The installed version and the devices that torch sees."""
    _torch_device.framework()
    return {"version": _torch_device.version(), "devices": _torch_device.devices()}


def precisions(options: Options) -> tuple[Precision, ...]:
    """What `options.device` computes in hardware, the fastest first."""
    return _torch_device.precisions(_torch_device.resolve(options.device))


def load(model: Path, options: Options) -> Torch:
    """Read a program, find out what it takes, and make it ready."""
    torch = _torch_device.framework()
    device = _torch_device.resolve(options.device)
    allowed = _torch_device.precisions(device)
    if options.precision not in allowed:
        raise DeviceError(
            f"torch: {device} does not compute in {options.precision}; it does in "
            f"{', '.join(allowed)}",
            device=device,
        )
    flags = {key: _flag(options.config, key, key == "optimize") for key in KEYS}
    if "capture" not in options.config:
        flags["capture"] = options.stream is not None and device.startswith("cuda")
    if device == "cpu":
        keep_pages()
        torch.set_num_threads(options.threads or _cpu.cores())
    elif device.startswith("cuda"):
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
    program = read(model, device)
    if options.precision in program.refuses:
        raise ModelError(
            f"{model}: {program.facts.get('architecture', 'its network')} does not compute in "
            f"{options.precision}",
            backend="torch",
        )
    if options.scale == 0:
        message = "scale=0: the model's tensors hold (x - mean) / scale, so it is not 0"
        raise ModelError(message, backend="torch")
    layout = options.layout or Layout.NCHW
    network = Network(program, layout, optimize=flags["optimize"])
    found = find_out(network, model, options, torch.device(device))
    if device.startswith("cuda"):
        # Weights are converted on the current stream, and jobs run on others.
        torch.cuda.current_stream(device).synchronize()
    owned = network.storages()
    make_ready(network, model, options, found, torch.device(device), flags)
    made = Torch(network, model, found, options, device, owned)
    made.captures = flags["capture"]
    return made


class Torch:
    """A program that is ready to run, and the threads that run it.

    Device arrays run at once on the calling thread, on `options.stream`, and give torch tensors.
    """

    info: ModelInfo
    captures = False

    def __init__(
        self,
        network: Network,
        model: Path,
        found: Found,
        options: Options,
        device: str,
        owned: frozenset[int],
    ) -> None:
        import torch

        self._network = network
        self._device = torch.device(device)
        self._stream = options.stream
        self._owned = owned
        self._worked: set[Shape] = set()
        self._last: Shape = ()
        self._shapes: dict[Shape, Shapes] = {}
        sample = options.sample
        if options.stream is not None:
            sample = str(network.dtype).removeprefix("torch.")
        self._codes = _codes(options, sample, network.dtype)
        source, outputs = declare(found, model, options, sample)
        self._source, self._names = source, [spec.name for spec in outputs]
        self._pictures = {spec.name for spec in outputs if is_picture(spec)}
        threads = 1 if self._on_cpu or not options.asynchronous else 2
        slots = (options.nireq or threads + 1) if options.asynchronous else 1
        self._ferries: SimpleQueue[_torch_cuda.Ferry] = SimpleQueue()
        for _ in range(0 if self._on_cpu else threads):
            self._ferries.put(_torch_cuda.Ferry(self._device))
        self._workers = Workers("torch", slots, min(threads, slots))
        self.info = ModelInfo(
            inputs=(source,),
            outputs=outputs,
            memory=frozenset({"host", "cuda"} if device.startswith("cuda") else {"host"}),
            max_batch=batch(network, found, options),
            max_in_flight=slots,
            device=device,
            precision=precision_of(network.dtype, options.precision),
            facts={
                "format": network.program.kind,
                "runtime": f"torch {_torch_device.version()}",
                **({"scale": found.scale} if found.scale else {}),
                **network.program.facts,
            },
        )

    @property
    def _on_cpu(self) -> bool:
        return bool(self._device.type == "cpu")

    def output_shapes(self, inputs: Shapes) -> Shapes:
        """Shapes of all outputs, from one run on zeros."""
        import torch

        check_shapes(inputs, self.info.inputs, "torch")
        shape = tuple(inputs[self._source.name])
        if shape not in self._shapes:
            zeros = torch.zeros(shape, dtype=getattr(torch, self._source.dtype))
            made = self._workers.submit(partial(self._on_host, zeros)).result()
            self._shapes[shape] = {name: tuple(array.shape) for name, array in made.items()}
        return self._shapes[shape]

    def infer_async(self, inputs: Arrays) -> Future[Arrays]:
        """Start one inference: host arrays on a worker, device arrays at once on the stream."""
        if not self._on_cpu and any(on_device(array) for array in inputs.values()):
            return self._on_stream(inputs)
        return self._workers.submit(partial(self._infer, inputs))

    def capture(self, work: Callable[[], object]) -> Any:
        """What `work` puts into the stream, this network's jobs among it, as a CUDA graph.

        `work` has run before. ModelError where its course may depend on the pixels, or where
        something that it does cannot be recorded.
        """
        import torch

        with torch.inference_mode(), _torch_cuda.ordered_on(self._stream, self._device):
            self._network.check_course(self._last, self._device)
            try:
                return captured(work)
            except Exception as error:
                # Whatever a program does that cannot be recorded ends it in its own way.
                text = f"it cannot be recorded: {first_line(_first(error))}"
                raise ModelError(text, backend="torch") from error

    def close(self) -> None:
        """Wait for running jobs and free the network."""
        self._workers.close()
        self._network.call = _closed

    def _infer(self, inputs: Arrays) -> Arrays:
        tensors = {name: as_tensor(array) for name, array in inputs.items()}
        self._check(tensors)
        made = self._on_host(tensors[self._source.name])
        return {name: tensor.numpy() for name, tensor in made.items()}

    def _on_host(self, tensor: Any) -> dict[str, Any]:
        """Host tensors from a host tensor, by way of the device."""
        import torch

        if self._on_cpu:
            with torch.inference_mode():
                return self._run(tensor)
        ferry = self._ferries.get()
        try:
            with torch.inference_mode(), ferry.aboard():
                made = self._run(ferry.over(tensor))
                return {name: ferry.back(value) for name, value in made.items()}
        finally:
            self._ferries.put(ferry)

    def _on_stream(self, inputs: Arrays) -> Future[Arrays]:
        """A future that is done at once: what it holds is ordered on the stream."""
        import torch

        future: Future[Arrays] = Future()
        try:
            tensors = {
                name: _torch_cuda.as_tensor(array, self._device) for name, array in inputs.items()
            }
            if self._source.dtype == "bfloat16":
                # CuPy has no bfloat16 and shows it as uint16.
                tensors = {name: value.view(torch.bfloat16) for name, value in tensors.items()}
            self._check(tensors)
            with torch.inference_mode(), _torch_cuda.ordered_on(self._stream, self._device):
                made = self._run(tensors[self._source.name])
                # Other holders of GPU memory do not know bfloat16; its bits pass as integers.
                brain = torch.bfloat16
                future.set_result(
                    {k: v.view(torch.int16) if v.dtype is brain else v for k, v in made.items()}
                )
        except InferenceError as error:
            future.set_exception(error)
        return future

    def _check(self, tensors: Mapping[str, Any]) -> None:
        tensor = next(iter(tensors.values()), None)
        shape = () if tensor is None else tensor.shape
        dtype = "" if tensor is None else str(tensor.dtype).removeprefix("torch.")
        check(list(tensors), shape, dtype, self._source)

    def _run(self, tensor: Any) -> dict[str, Any]:
        """All outputs that are wanted, as new tensors on the tensor's device."""
        try:
            made = dict(named(self._network(self._codes.enter(tensor))))
            made = {name: made[name] for name in self._names}
        except Exception as error:
            # A program may raise anything; all of it means that this job failed.
            raise InferenceError(self._failure(error, tensor), backend="torch") from error
        self._last = tuple(tensor.shape)
        self._worked.add(self._last)
        foreign = {*self._owned, tensor.untyped_storage().data_ptr()}
        results = {}
        for name, value in made.items():
            value = value.unsqueeze(0) if value.dim() == 3 else value
            if value.is_floating_point() and name in self._pictures:
                value = self._codes.leave(value, name)
            elif value.is_floating_point():
                value = value.float()
            shared = value.untyped_storage().data_ptr() in foreign or 0 in value.stride()
            results[name] = value.clone() if shared else value
        return results

    def _failure(self, error: Exception, tensor: Any) -> str:
        text = f"torch: the model failed: {first_line(error)}"
        others = {shape for shape in self._worked if shape != tuple(tensor.shape)}
        if others and not exhausted(error):
            shape = "x".join(map(str, next(iter(others))))
            text += f" (it runs on {shape}: other sizes may not be possible)"
        return text


def _first(error: BaseException) -> BaseException:
    """The error that all others came of."""
    before = error.__cause__ or error.__context__
    return error if before is None else _first(before)


def _closed(_: Any) -> Any:
    raise RuntimeError("the model is closed")


def _flag(config: Mapping[str, str], key: str, default: bool) -> bool:
    text = config.get(key, str(int(default)))
    if text not in ("0", "1"):
        raise ModelError(f"{key}={text}: 0 or 1 is wanted", backend="torch")
    return text == "1"


def _codes(options: Options, sample: str, dtype: Any) -> Codes:
    scale = 255.0 if options.scale is None else options.scale
    return Codes(sample, options.peak, scale, options.mean or 0.0, dtype)
