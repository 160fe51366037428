"""The few libbpf calls that the rig needs, through ctypes: build, load, constants, maps, attach, live frames."""

import ctypes
import mmap
import os
import platform
import struct
from pathlib import Path

from .system import RUN_DIR, BenchError, run

SOURCES = Path(__file__).resolve().parent.parent / "bpf"
XDP_FLAGS_DRV_MODE = 1 << 2
_LIVE_FRAMES = 1 << 1
_c = ctypes


class _TestRunOpts(ctypes.Structure):
    """`struct bpf_test_run_opts` of libbpf 1.x."""

    _fields_ = [("sz", _c.c_size_t), ("data_in", _c.c_void_p), ("data_out", _c.c_void_p),
                ("data_size_in", _c.c_uint32), ("data_size_out", _c.c_uint32), ("ctx_in", _c.c_void_p),
                ("ctx_out", _c.c_void_p), ("ctx_size_in", _c.c_uint32), ("ctx_size_out", _c.c_uint32),
                ("retval", _c.c_uint32), ("repeat", _c.c_int), ("duration", _c.c_uint32), ("flags", _c.c_uint32),
                ("cpu", _c.c_uint32), ("batch_size", _c.c_uint32)]


def _library():
    try:
        lib = ctypes.CDLL("libbpf.so.1", use_errno=True)
    except OSError:
        raise BenchError("libbpf.so.1 is missing; run `make setup`") from None
    pointer, text, integer = _c.c_void_p, _c.c_char_p, _c.c_int
    for name, result, args in (
            ("bpf_object__open_file", pointer, [text, pointer]), ("bpf_object__load", integer, [pointer]),
            ("bpf_object__close", None, [pointer]), ("bpf_object__find_map_by_name", pointer, [pointer, text]),
            ("bpf_object__find_program_by_name", pointer, [pointer, text]), ("bpf_map__fd", integer, [pointer]),
            ("bpf_program__fd", integer, [pointer]),
            ("bpf_map__set_initial_value", integer, [pointer, pointer, _c.c_size_t]),
            ("bpf_map_lookup_elem", integer, [integer, pointer, pointer]),
            ("bpf_map_update_elem", integer, [integer, pointer, pointer, _c.c_uint64]),
            ("bpf_xdp_attach", integer, [integer, integer, _c.c_uint32, pointer]),
            ("bpf_prog_test_run_opts", integer, [integer, pointer]), ("libbpf_num_possible_cpus", integer, [])):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, args
    return lib


def compile_object(name: str) -> Path:
    """Builds `bench/bpf/NAME.bpf.c` with clang and returns the object's path."""
    RUN_DIR.mkdir(mode=0o700, exist_ok=True)
    target = RUN_DIR / f"{name}.bpf.o"
    run(["clang", "-O2", "-g", "-Wall", "-Werror", "-target", "bpf", f"-I/usr/include/{platform.machine()}-linux-gnu",
         "-c", str(SOURCES / f"{name}.bpf.c"), "-o", str(target)])
    return target


class Program:
    """A loaded object file: its programs, maps, and the constants set before loading."""

    def __init__(self, name: str, constants: bytes | None = None):
        self.name = name
        self.lib = _library()
        self.object = self.lib.bpf_object__open_file(os.fsencode(compile_object(name)), None)
        if not self.object:
            raise BenchError(f"bpf object {name}: {os.strerror(ctypes.get_errno())}")
        if constants is not None:
            # A name with a leading dot is looked up as the section's own, whatever prefix the map carries.
            section = self.lib.bpf_object__find_map_by_name(self.object, b".rodata")
            if self.lib.bpf_map__set_initial_value(section, constants, len(constants)) != 0:
                raise BenchError(f"bpf object {name}: its constants do not take {len(constants)} bytes")
        if self.lib.bpf_object__load(self.object) != 0:
            raise BenchError(f"bpf object {name}: cannot load: {os.strerror(ctypes.get_errno())}; run as root")

    def fd(self, program: str) -> int:
        """The file descriptor of a program by its function's name."""
        return self.lib.bpf_program__fd(self.lib.bpf_object__find_program_by_name(self.object, program.encode()))

    def attach(self, program: str, ifindex: int) -> None:
        """Attaches to a device of the current namespace in native mode, in place of what is there."""
        _attach(self.lib, ifindex, self.fd(program), f"{self.name}:{program}")

    def percpu_sum(self, map_name: str) -> int:
        """The sum over all CPUs of the 64-bit counter under key 0."""
        values = (_c.c_uint64 * self.lib.libbpf_num_possible_cpus())()
        if self.lib.bpf_map_lookup_elem(self._map(map_name), _c.byref(_c.c_uint32(0)), values) != 0:
            raise BenchError(f"bpf map {map_name}: {os.strerror(ctypes.get_errno())}")
        return sum(values)

    def fill(self, map_name: str, values: list[int]) -> None:
        """Writes 64-bit entries from the first on into an array that can be mapped."""
        with mmap.mmap(self._map(map_name), 8 * (1 << 20), mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE) as memory:
            memory[:8 * len(values)] = struct.pack(f"={len(values)}Q", *values)

    def set_u32(self, map_name: str, key: int, value: int) -> None:
        """Writes a 32-bit entry (of a devmap: the ifindex)."""
        if self.lib.bpf_map_update_elem(self._map(map_name), _c.byref(_c.c_uint32(key)),
                                        _c.byref(_c.c_uint32(value)), 0) != 0:
            raise BenchError(f"bpf map {map_name}: {os.strerror(ctypes.get_errno())}")

    def run_live(self, program: str, frame: bytes, repeat: int, batch: int = 64) -> None:
        """Runs a program `repeat` times over live frames in the kernel, on the calling core."""
        data = ctypes.create_string_buffer(frame, len(frame))
        context = (_c.c_uint32 * 6)(0, len(frame), 0, 0, 0, 0)  # struct xdp_md: data, data_end, ...
        opts = _TestRunOpts(sz=ctypes.sizeof(_TestRunOpts), data_in=ctypes.addressof(data), data_size_in=len(frame),
                            ctx_in=ctypes.addressof(context), ctx_size_in=ctypes.sizeof(context), repeat=repeat,
                            flags=_LIVE_FRAMES, batch_size=batch)
        if self.lib.bpf_prog_test_run_opts(self.fd(program), ctypes.byref(opts)) != 0:
            raise BenchError(f"live frames: {os.strerror(ctypes.get_errno())}")

    def close(self) -> None:
        """Unloads; what is attached stays attached."""
        self.lib.bpf_object__close(self.object)

    def _map(self, name: str) -> int:
        return self.lib.bpf_map__fd(self.lib.bpf_object__find_map_by_name(self.object, name.encode()))


def detach(ifindex: int) -> None:
    """Takes the XDP program off a device of the current namespace."""
    _attach(_library(), ifindex, -1, "none")


def _attach(lib, ifindex: int, fd: int, what: str) -> None:
    error = lib.bpf_xdp_attach(ifindex, fd, XDP_FLAGS_DRV_MODE, None)
    if error != 0:
        raise BenchError(f"xdp program {what} on ifindex {ifindex}: {os.strerror(-error)}")
