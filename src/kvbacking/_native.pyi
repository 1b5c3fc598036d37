"""Native core of kvbacking. Private: use the package's own names."""

from collections.abc import Sequence
import enum
from typing import Literal

import numpy
import numpy.typing


def check_names() -> list[str]:
    """Every check by name."""

def check_enabled(name: str) -> bool:
    """
    True, except in a mutation build for the one check that is switched off.
    """

def element_size(dtype: str) -> int:
    """
    Bytes of one element of NumPy's `dtype` name. Raises ValueError for an element type that is not supported.
    """

class Layout:
    """Element type, shape and strides in elements; owns no memory."""

    @staticmethod
    def dense(dtype: str, shape: Sequence[int]) -> Layout:
        """C-contiguous."""

    @staticmethod
    def padded_rows(dtype: str, shape: Sequence[int], row_element_stride: int) -> Layout:
        """Dense rows, `row_element_stride` elements apart."""

    @staticmethod
    def strided(dtype: str, shape: Sequence[int], element_strides: Sequence[int]) -> Layout:
        """Any strides, in elements."""

    @property
    def dtype(self) -> str:
        """NumPy's name."""

    @property
    def shape(self) -> list[int]: ...

    @property
    def element_strides(self) -> list[int]: ...

    def element_count(self) -> int:
        """Product of the shape."""

    def byte_count(self) -> int:
        """Logical bytes, padding not counted."""

    def span_byte_count(self) -> int:
        """Bytes from the first to one past the last element."""

    def row_length(self) -> int:
        """Elements of the last dimension; 1 for a scalar."""

    def row_count(self) -> int:
        """Product of the other dimensions."""

    def is_dense(self) -> bool:
        """Whether it is C-contiguous."""

    def is_row_padded(self) -> bool:
        """Whether rows are dense and a constant stride apart."""

    def overlaps_itself(self) -> bool:
        """Whether two indices may share an element (conservative)."""

    def __repr__(self) -> str: ...

class Allocation:
    """
    Page-aligned memory with a canary page before and canary bytes after it.
    """

    @staticmethod
    def create(byte_count: int, from_system: bool = False) -> Allocation:
        """
        A payload of `byte_count` bytes, contents undefined; `from_system`: pages that go back at once. Raises AllocationError.
        """

    @property
    def address(self) -> int: ...

    @property
    def byte_count(self) -> int: ...

    def arm_canaries(self, seed: int) -> None:
        """Fills the canaries with a pattern made of `seed`."""

    def check_canaries(self) -> tuple[int, int, int] | None:
        """
        None, or (offset from the payload, expected byte, actual byte) of the first damage.
        """

    def bytes(self) -> numpy.typing.NDArray[numpy.int8]:
        """
        A writable int8 array over the payload that keeps it alive. Never copies.
        """

    @staticmethod
    def granularity() -> int:
        """max(page size, 16384) bytes."""

    @staticmethod
    def live_count() -> int:
        """Allocations alive now."""

    @staticmethod
    def fail_nth_create(n: int) -> None:
        """
        Test hook: the nth next create() fails as an exhausted system would (0: never).
        """

def copy_elements(source: numpy.ndarray, destination: numpy.ndarray, bypass_caches: bool = False) -> None:
    """
    Copies every element; equal dtypes or fp16/fp32 either way; the two may overlap. Raises ValueError on different shapes, another pair of dtypes or a destination that overlaps itself.
    """

class ParityResult:
    @property
    def max_abs_error(self) -> float: ...

    @property
    def max_abs_index(self) -> int: ...

    @property
    def max_rel_error(self) -> float: ...

    @property
    def max_rel_index(self) -> int: ...

    @property
    def over_tolerance_count(self) -> int: ...

    @property
    def first_over_index(self) -> int: ...

    @property
    def mean_abs_error(self) -> float: ...

    @property
    def cosine(self) -> float: ...

class ScanResult:
    @property
    def element_count(self) -> int: ...

    @property
    def nan_count(self) -> int: ...

    @property
    def first_nan_index(self) -> int: ...

    @property
    def inf_count(self) -> int: ...

    @property
    def first_inf_index(self) -> int: ...

    @property
    def live_nan_count(self) -> int: ...

    @property
    def live_inf_count(self) -> int: ...

    @property
    def live_all_zero(self) -> bool: ...

    @property
    def min(self) -> float: ...

    @property
    def max(self) -> float: ...

    @property
    def tail_dirty_count(self) -> int: ...

    @property
    def first_tail_dirty_index(self) -> int: ...

    @property
    def residue_count(self) -> int: ...

    @property
    def first_residue_index(self) -> int: ...

    @property
    def parity(self) -> ParityResult | None: ...

    @property
    def digest(self) -> str: ...

def scan(array: numpy.ndarray, *, live: int | None = None, axis: int = 0, threads: int = 1, fill_pattern: int | None = None, reference: numpy.ndarray | None = None, max_abs: float = 0.0, max_rel: float = 0.0) -> ScanResult:
    """
    One pass over every logical byte of `array`. Never copies it; the GIL is released. Raises ValueError.
    """

class HostInfo:
    @property
    def kind(self) -> str: ...

    @property
    def runtime_version(self) -> str: ...

    @property
    def os(self) -> str: ...

    @property
    def os_build(self) -> str: ...

    @property
    def chip(self) -> str: ...

    @property
    def deployment_target(self) -> str: ...

    @property
    def build_sdk(self) -> str: ...

    @property
    def python_sdk(self) -> str: ...

    @property
    def page_size(self) -> int: ...

    @property
    def surface_max_width(self) -> int: ...

    @property
    def surface_max_height(self) -> int: ...

    @property
    def surface_max_bytes_per_row(self) -> int: ...

    @property
    def surface_max_alloc_size(self) -> int: ...

    @property
    def supports_state(self) -> bool: ...

    @property
    def supports_functions(self) -> bool: ...

    @property
    def supports_compute_plan(self) -> bool: ...

def host_info() -> HostInfo:
    """What this process runs on."""

def memory_footprint_byte_count() -> int:
    """
    Physical footprint (macOS) or resident set (Linux) of this process, in bytes.
    """

def live_counts() -> dict[str, int]:
    """Native objects alive now, by kind."""

def created_counts() -> dict[str, int]:
    """
    Native memory and wrappers made since the process began: allocation, allocated_bytes, array, surface.
    """

def require_same_process() -> None:
    """Raises UnsupportedPlatformError in a child after fork()."""

class HostConditions:
    @property
    def thermal(self) -> str | None: ...

    @property
    def low_power(self) -> bool | None: ...

    @property
    def busy_ticks(self) -> int: ...

    @property
    def total_ticks(self) -> int: ...

def host_conditions() -> HostConditions:
    """
    Heat, low power mode and CPU time; None and 0 where the system does not tell.
    """

class SignpostEvent:
    @property
    def stage(self) -> str: ...

    @property
    def begins(self) -> bool: ...

    @property
    def interval(self) -> int: ...

    @property
    def at_ns(self) -> int: ...

def record_signposts(on: bool) -> None:
    """Starts or stops recording the stage marks."""

def take_signposts() -> list[SignpostEvent]:
    """The marks recorded since the last call, in order."""

class SurfaceProbeStep:
    @property
    def step(self) -> str: ...

    @property
    def outcome(self) -> str: ...

    @property
    def domain(self) -> str: ...

    @property
    def code(self) -> int: ...

    @property
    def message(self) -> str: ...

    @property
    def bytes_per_row(self) -> int: ...

def probe_surface(model: Model, inputs: dict[str, object], output: str) -> list[SurfaceProbeStep]:
    """
    Which treatment of a surface's array makes the framework refuse it as the backing of `output`. Raises ContractError.
    """

def hold_autorelease_pool(hold: bool) -> None:
    """
    Makes this thread keep one autorelease pool over all its calls, or drains it. For one experiment.
    """

def half_conversion_engine() -> str:
    """vImage or Highway."""

def convert_half_to_float(source: numpy.ndarray, destination: numpy.ndarray) -> None:
    """
    Dense float16 to dense float32 of the same shape, by half_conversion_engine(). Raises ValueError.
    """

def surface_refusal(dtype: str, shape: Sequence[int]) -> str | None:
    """Why this system allows no surface for such an array, or None."""

class OwnedSurface:
    """A surface that its user fills."""

    @staticmethod
    def create(dtype: str, shape: Sequence[int], zeroed: bool = True) -> OwnedSurface:
        """
        Raises ContractError with the reason when this system allows no such surface, AllocationError.
        """

    @property
    def shape(self) -> list[int]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def id(self) -> int: ...

    @property
    def bytes_per_row(self) -> int: ...

    @property
    def byte_count(self) -> int: ...

    @property
    def input_name(self) -> str:
        """The input that it last was; empty: never."""

    def map(self, writable: bool) -> numpy.ndarray:
        """
        An array over the memory, which stays locked while it lives. Never copies. Raises BackingInUseError.
        """

class ComputeUnits(enum.Enum):
    cpu_only = 0

    cpu_and_gpu = 1

    all = 2

    cpu_and_ne = 3

class TensorSpec:
    @property
    def name(self) -> str: ...

    @property
    def kind(self) -> str: ...

    @property
    def shape(self) -> list[int]: ...

    @property
    def dtype(self) -> str | None:
        """NumPy's name; None where the framework's type is not one of ours."""

    @property
    def flexible(self) -> bool: ...

    @property
    def optional(self) -> bool: ...

    @property
    def enumerated_shapes(self) -> list[list[int]]: ...

    @property
    def ranges(self) -> list[tuple[int, int]]: ...

class Model:
    @staticmethod
    def load(path: str, *, compute_units: ComputeUnits = ComputeUnits.all, function: str | None = None, cache_dir: str = '', cache_key: str = '') -> Model:
        """
        Compiles (into `<cache_dir>/<cache_key>.mlmodelc` when given) and loads. Raises ModelError.
        """

    @property
    def inputs(self) -> list[TensorSpec]: ...

    @property
    def outputs(self) -> list[TensorSpec]: ...

    @property
    def states(self) -> list[TensorSpec]: ...

    @property
    def compiled_path(self) -> str: ...

    @property
    def compute_units(self) -> ComputeUnits: ...

    def release_idle_inputs(self) -> None:
        """Frees the input buffers that nothing holds now."""

    def functions(self) -> list[str]:
        """
        Names of the functions of a multi-function package; empty where they cannot be listed.
        """

    def predict(self, inputs: dict[str, numpy.ndarray | OwnedSurface], state: State | None = None) -> dict[str, numpy.ndarray]:
        """
        One prediction without backings; every output is copied into memory of its own.
        """

class State:
    """A stateful model's buffers; one call at a time."""

    @staticmethod
    def create(model: Model) -> State:
        """
        New buffers, all zero. Raises UnsupportedPlatformError before macOS 15.
        """

    def names(self) -> list[str]:
        """Sorted names of the states."""

    def read(self, name: str) -> numpy.ndarray:
        """A copy of one buffer."""

    def write(self, name: str, array: numpy.ndarray, origin: Sequence[int] = []) -> None:
        """
        Copies `array` (any strides) into one buffer: its whole shape, or the box that begins at `origin`.
        """

    def zero(self) -> None:
        """Zeroes every buffer."""

    def snapshot(self) -> dict[str, numpy.ndarray]:
        """Copies of every buffer."""

    def restore(self, arrays: dict[str, numpy.ndarray]) -> None:
        """Copies a snapshot back."""

class PlannedOperation:
    @property
    def function(self) -> str: ...

    @property
    def op(self) -> str: ...

    @property
    def outputs(self) -> list[str]: ...

    @property
    def preferred_device(self) -> str: ...

    @property
    def supported_devices(self) -> list[str]: ...

    @property
    def cost(self) -> float | None: ...

def compute_plan(model: Model, timeout_s: float = 120.0) -> list[PlannedOperation]:
    """
    Where Core ML expects to run each operation. Raises UnsupportedPlatformError, ModelError.
    """

class CheckFailure:
    @property
    def output(self) -> str: ...

    @property
    def check(self) -> str: ...

    @property
    def expected(self) -> str: ...

    @property
    def actual(self) -> str: ...

class Contract:
    def __init__(self, *, outputs: Sequence[tuple[str, str, Sequence[int]]], live: int, axis: int, tail_zero: bool, max_abs: float, max_rel: float, unbacked: Sequence[str], sensitive_to: Sequence[str], allow_all_zero: bool) -> None: ...

def check_contract(model: Model, contract: Contract) -> list[CheckFailure]:
    """Every mismatch between the two at once; empty when they agree."""

class InputEvidence:
    @property
    def name(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def source_address(self) -> int: ...

    @property
    def array_address(self) -> int | None: ...

    @property
    def surface_id(self) -> int: ...

    @property
    def same_storage(self) -> bool | None: ...

    @property
    def unchanged(self) -> bool | None: ...

    @property
    def bytes_copied(self) -> int: ...

    @property
    def reason(self) -> str: ...

class OutputEvidence:
    @property
    def name(self) -> str: ...

    @property
    def mechanism(self) -> str: ...

    @property
    def proposed(self) -> bool: ...

    @property
    def allowed(self) -> bool | None: ...

    @property
    def accepted(self) -> bool | None: ...

    @property
    def same_object(self) -> bool | None: ...

    @property
    def same_storage(self) -> bool | None: ...

    @property
    def in_range(self) -> bool | None: ...

    @property
    def shape(self) -> list[int]: ...

    @property
    def strides(self) -> list[int]: ...

    @property
    def dtype(self) -> str: ...

    @property
    def layout_ok(self) -> bool | None: ...

    @property
    def direct_write(self) -> str: ...

    @property
    def bytes_copied(self) -> int: ...

    @property
    def digest(self) -> str | None: ...

    @property
    def finite(self) -> bool | None: ...

    @property
    def non_zero(self) -> bool | None: ...

    @property
    def min(self) -> float | None: ...

    @property
    def max(self) -> float | None: ...

    @property
    def tail_zero(self) -> bool | None: ...

    @property
    def canaries_intact(self) -> bool | None: ...

    @property
    def row_gaps_touched(self) -> bool | None: ...

    @property
    def complete(self) -> bool | None: ...

    @property
    def fresh(self) -> bool | None: ...

    @property
    def distinct(self) -> bool | None: ...

    @property
    def checked(self) -> list[str]: ...

class Mechanism(enum.Enum):
    framework = 0

    raw = 1

    surface = 2

    pool = 3

    external = 4

class Reuse(enum.Enum):
    same = 0

    rewrap = 1

    new = 2

class Verify(enum.Enum):
    off = 0

    layout = 1

    scan = 2

    full = 3

class OnIgnored(enum.Enum):
    copy = 0

    error = 1

class SessionStats:
    @property
    def predictions(self) -> int: ...

    @property
    def proposed(self) -> int: ...

    @property
    def accepted(self) -> int: ...

    @property
    def ignored(self) -> int: ...

    @property
    def copied(self) -> int: ...

    @property
    def failed(self) -> int: ...

    @property
    def bytes_copied(self) -> int: ...

    @property
    def input_bytes_copied(self) -> int: ...

    @property
    def input_buffers_created(self) -> int: ...

    @property
    def sets_created(self) -> int: ...

    @property
    def quarantined(self) -> int: ...

    @property
    def backing_in_use(self) -> int: ...

    @property
    def degraded_reason(self) -> str: ...

class Prediction:
    @property
    def path(self) -> Literal['backing', 'copy', 'framework']: ...

    def names(self) -> list[str]:
        """Backed outputs first, then the others, in the contract's order."""

    def evidence(self) -> list[OutputEvidence]:
        """One record per output."""

    def inputs(self) -> list[InputEvidence]:
        """How each input reached the framework."""

    @property
    def live(self) -> int: ...

    @property
    def predict_ns(self) -> int: ...

    @property
    def verify_ns(self) -> int: ...

    @property
    def copy_ns(self) -> int: ...

    def view(self, name: str) -> numpy.ndarray:
        """
        A read-only array over the output's memory that keeps the set busy. Never copies. Raises BackingInUseError after release().
        """

    def release(self) -> None:
        """Lets go of the set; idempotent."""

    @property
    def released(self) -> bool: ...

class Session:
    @staticmethod
    def create(model: Model, contract: Contract, *, mechanism: Mechanism, depth: int, on_ignored: OnIgnored, verify: Verify, reuse: Reuse, scan_threads: int = 1, external: Sequence[Sequence[tuple[str, object]]] = [], allow_input_surfaces: bool = False) -> Session:
        """
        Refuses everything that can be refused before a prediction: ContractError, AllocationError.
        """

    def predict(self, inputs: dict[str, numpy.ndarray | OwnedSurface], *, live: int | None = None, fill_byte: int | None = None, state: State | None = None, borrow: Sequence[str] = [], borrow_required: bool = True) -> Prediction:
        """
        One prediction into the lowest free set. Copies the inputs but those in `borrow` and surfaces; the GIL is released.
        """

    def stats(self) -> SessionStats:
        """Counters since the session was made."""

    def close(self) -> None:
        """Idempotent; predictions and views stay valid."""

    @property
    def closed(self) -> bool: ...
