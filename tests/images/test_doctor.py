"""Each classic failure of a container, made to happen, and the fix that the doctor names."""

from __future__ import annotations

import os
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..conftest import require
from .conftest import Image, image

pytestmark = pytest.mark.image

LIBRARIES = "/usr/lib/x86_64-linux-gnu"
PACKAGES = "/opt/avdnn/lib/python3.13/site-packages"
HIDE = "--volume=/dev/null:{}:ro"
GROUP = 12345


@pytest.fixture
def render_node(open_folder: Path) -> Path:
    """A device node with the numbers of a render node and most likely no driver behind it."""
    require("root", os.geteuid() == 0, "only root makes device nodes")
    path = open_folder / "renderD128"
    try:
        os.mknod(path, 0o020660, os.makedev(226, 128))
    except PermissionError:
        require("mknod", False, "this machine may not make device nodes")
    os.chown(path, 0, GROUP)
    path.chmod(0o660)
    return path


@pytest.fixture
def gpu_node(open_folder: Path) -> Path:
    """A stand-in for /dev/nvidia0."""
    require("root", os.geteuid() == 0, "only root makes device nodes")
    path = open_folder / "nvidia0"
    os.mknod(path, 0o020666, os.makedev(195, 0))
    return path


@pytest.fixture
def volume() -> Iterator[str]:
    name = f"avdnn-test-{uuid.uuid4().hex[:12]}"
    yield name
    subprocess.run(["docker", "volume", "rm", "-f", name], check=True, capture_output=True)


def device(node: Path, name: str) -> str:
    return f"--device={node}:/dev/{name}"


def test_a_sound_container_has_no_failure(any_image: Image, shared: Path) -> None:
    found = any_image.doctor(data=shared)
    failed = {name for name, finding in found.items() if finding["status"] == "fail"}
    assert failed <= ({"nvidia-gpu"} if any_image.name in ("cuda", "tensorflow") else set())
    assert found["data"]["status"] == found["cache"]["status"] == "ok"


def test_an_image_finds_its_own_backend(any_image: Image) -> None:
    for entry in any_image.facts["Config"]["Env"]:
        if entry.startswith("AVDNN_BACKEND="):
            name = entry.split("=")[1]
    assert any_image.doctor()[f"backend-{name}"]["message"].startswith("2")


def test_a_render_node_of_another_group_prints_the_group(
    openvino: Image, render_node: Path
) -> None:
    found = openvino.doctor(device(render_node, "dri/renderD128"))["intel-access"]
    assert found["status"] == "fail"
    assert "Permission denied" in found["message"]
    assert found["fix"] == f"docker run --device /dev/dri --group-add {GROUP}"


def test_the_printed_group_opens_the_render_node(openvino: Image, render_node: Path) -> None:
    options = (device(render_node, "dri/renderD128"), f"--group-add={GROUP}")
    found = openvino.doctor(*options)
    # Opened by right; the stand-in has no card behind it, unless this machine has one.
    access = found["intel-access"]
    assert access["status"] == "ok" or "no driver stands behind it" in access["message"]
    assert found["intel-runtime"]["status"] == "ok"


def test_a_missing_compute_runtime_is_found(openvino: Image, render_node: Path) -> None:
    hidden = HIDE.format(f"{LIBRARIES}/libze_intel_gpu.so.1")
    found = openvino.doctor(device(render_node, "dri/renderD128"), f"--group-add={GROUP}", hidden)
    assert found["intel-runtime"]["status"] == "fail"


def test_the_cpu_image_names_the_one_for_intel(cpu: Image, render_node: Path) -> None:
    found = cpu.doctor(device(render_node, "dri/renderD128"), f"--group-add={GROUP}")
    assert "avdnn:openvino" in found["intel-runtime"]["fix"]


@pytest.mark.parametrize("name", ["cuda", "tensorflow"])
def test_no_gpu_passed_in(name: str) -> None:
    found = image(name).doctor()["nvidia-gpu"]
    assert (found["status"], "--gpus all" in found["fix"]) == ("fail", True)


def test_a_gpu_without_the_drivers_library_names_the_capabilities(
    openvino: Image, gpu_node: Path
) -> None:
    found = openvino.doctor(device(gpu_node, "nvidia0"))["nvidia-driver"]
    assert found["status"] == "fail"
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility" in found["fix"]


DRIVER = r"""
#include <string.h>
int cuDriverGetVersion(int *out) { *out = VERSION; return 0; }
int cuInit(unsigned flags) { return flags != 0; }
int cuGetErrorName(int code, const char **out) { *out = "NONE"; return code; }
int cuDeviceGetCount(int *out) { *out = 1; return 0; }
int cuDeviceGet(int *out, int index) { *out = index; return 0; }
int cuDeviceGetName(char *out, int size, int device) { strncpy(out, "Card", size); return device; }
int cuDeviceGetUuid_v2(char *out, int device) { memset(out, 17, 16); return device; }
int cuDeviceGetPCIBusId(char *out, int size, int device) {
  strncpy(out, "0000:01:00.0", size);
  return device;
}
"""


def driver(folder: Path, version: int) -> str:
    """Compile a driver library that has one card and no video part; the option that mounts it."""
    source, library = folder / "cuda.c", folder / "libcuda.so.1"
    source.write_text(DRIVER)
    command = ["cc", "-shared", "-fPIC", f"-DVERSION={version}", str(source), "-o", str(library)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        require("cc", False, "there is no C compiler")
    return f"--volume={library}:{LIBRARIES}/libcuda.so.1:ro"


def test_a_missing_video_capability_is_named(
    openvino: Image, gpu_node: Path, open_folder: Path
) -> None:
    found = openvino.doctor(device(gpu_node, "nvidia0"), driver(open_folder, 13000))
    assert "cuda:0 Card GPU-11111111-1111-" in found["nvidia-gpu"]["message"]
    assert found["nvdec"]["status"] == "fail"
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,video,utility" in found["nvdec"]["fix"]


def test_a_driver_too_old_for_the_wheels(gpu_node: Path, open_folder: Path) -> None:
    cuda = image("cuda")
    found = cuda.doctor(device(gpu_node, "nvidia0"), driver(open_folder, 12020))["nvidia-driver"]
    assert found["status"] == "fail"
    assert "avdnn:tensorflow" in found["fix"]


def test_a_missing_cudnn_is_named() -> None:
    hidden = f"--tmpfs={PACKAGES}/nvidia/cudnn/lib"
    found = image("cuda").doctor(hidden)["cudnn"]
    assert found["status"] == "fail"
    assert "nvidia-cudnn-cu13" in found["fix"]


def test_a_backend_whose_library_is_missing_shows_the_loaders_error(openvino: Image) -> None:
    found = openvino.doctor(f"--tmpfs={PACKAGES}/openvino/libs")["backend-openvino"]
    assert found["status"] == "fail"
    assert "cannot open shared object file" in found["message"]


def test_a_processor_without_avx(cpu: Image, open_folder: Path) -> None:
    old = open_folder / "cpuinfo"
    old.write_text("processor\t: 0\nflags\t\t: fpu sse2 ssse3 sse4_1 sse4_2\n")
    found = cpu.doctor(f"--volume={old}:/proc/cpuinfo:ro")["cpu-instructions"]
    assert found["status"] == "fail"
    assert "TensorFlow needs avx" in found["message"]


def test_small_shared_memory(openvino: Image) -> None:
    found = openvino.doctor("--shm-size=1m")["shm"]
    assert (found["status"], found["fix"]) == ("warn", "docker run --shm-size 256m")


def test_a_cache_that_cannot_be_written(openvino: Image, open_folder: Path) -> None:
    found = openvino.doctor(f"--volume={open_folder}:/cache:ro")["cache"]
    assert (found["status"], "-v avdnn-cache:/cache" in found["fix"]) == ("warn", True)


def test_a_named_cache_volume_serves_any_user(openvino: Image, volume: str) -> None:
    for user in ("4242:4242", "10001:10001", "0:0"):
        found = openvino.doctor(f"--volume={volume}:/cache", f"--user={user}")["cache"]
        assert found["status"] == "ok", found


def test_a_read_only_root_wants_a_temporary_folder(openvino: Image) -> None:
    assert openvino.doctor("--read-only")["tmp"]["fix"] == "docker run --tmpfs /tmp"
    assert openvino.doctor("--read-only", "--tmpfs=/tmp")["tmp"]["status"] == "ok"


def test_nothing_mounted_at_data(openvino: Image) -> None:
    found = openvino.doctor()["data"]
    assert (found["status"], '-v "$PWD:/data"' in found["fix"]) == ("warn", True)


def test_a_read_only_data_mount(openvino: Image, shared: Path) -> None:
    found = openvino.doctor(f"--volume={shared}:/data:ro")["data"]
    assert (found["status"], found["fix"]) == ("fail", "mount it writable: without :ro")


def test_another_users_data_folder_names_the_user_option(openvino: Image, shared: Path) -> None:
    shared.chmod(0o755)
    found = openvino.doctor(data=shared)["data"]
    assert found["status"] == "fail"
    assert '--user "$(id -u):$(id -g)"' in found["fix"]


def test_root_without_capabilities_is_not_above_permissions(openvino: Image, shared: Path) -> None:
    require("root", os.geteuid() == 0, "only root gives a folder to somebody else")
    os.chown(shared, 1234, 1234)
    shared.chmod(0o755)
    assert openvino.doctor("--user=0", data=shared)["data"]["status"] == "ok"
    found = openvino.doctor("--user=0", "--cap-drop=ALL", data=shared)["data"]
    assert found["status"] == "fail"
    assert "belongs to 1234:1234" in found["message"]


def test_a_model_for_another_image(openvino: Image, shared: Path) -> None:
    (shared / "net.pt").touch()
    done = openvino.run("doctor", "net.pt", data=shared)
    assert done.returncode == 3
    assert "use the image avdnn:cuda" in done.stdout
