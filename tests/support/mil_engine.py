"""Runs small MIL programs on the simulator's engine and on coremltools' own value inference.

With KVB_MIL_RUN (a path of the native `mil_run`) the engine runs alone, without framework and extension.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Case:
    """One op (or a few) over `inputs`. `build` gets one MIL var per input and returns one or a tuple; bool results are
    cast to int32 by the caller. `reference` computes the same in NumPy; None asks coremltools."""

    name: str
    build: Callable[..., Any]
    inputs: Arrays
    reference: Callable[..., Any] | None = None
    tolerance: float = 2e-5


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    previous = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    os.environ["TQDM_DISABLE"] = "1"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)


def as_tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def visible(mb: Any, var: Any) -> Any:
    """A var that a model may return: no bools, no small integers."""
    from coremltools.converters.mil.mil import types

    return var if var.dtype in (types.fp32, types.fp16, types.int32) else mb.cast(x=var, dtype="int32")


def write_program(cases: list[Case], path: Path, opset: str, precision: str = "fp32") -> None:
    """One package whose outputs are named r_CASE_N."""
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb  # noqa: N813
    from coremltools.converters.mil.mil import types

    target = getattr(ct.target, opset)
    kinds = {"float32": types.fp32, "int32": types.int32, "float16": types.fp16}
    names = [f"{case.name}_{name}" for case in cases for name in case.inputs]
    specs = [mb.TensorSpec(a.shape, kinds[a.dtype.name]) for case in cases for a in case.inputs.values()]

    def body(*args: Any) -> Any:
        given = iter(args)
        outputs = []
        for case in cases:
            results = as_tuple(case.build(mb, **{name: next(given) for name in case.inputs}))
            outputs += [mb.identity(x=visible(mb, r), name=f"r_{case.name}_{i}") for i, r in enumerate(results)]
        return tuple(outputs)

    # The builder reads the argument names off the function.
    namespace: dict[str, Any] = {"body": body}
    exec(f"def program({', '.join(names)}): return body({', '.join(names)})", namespace)
    with quiet():
        program = mb.program(input_specs=specs, opset_version=target)(namespace["program"])
        pipeline = ct.PassPipeline.DEFAULT if precision == "fp16" else ct.PassPipeline.EMPTY
        model = ct.convert(
            program,
            convert_to="mlprogram",
            minimum_deployment_target=target,
            compute_precision=ct.precision.FLOAT16 if precision == "fp16" else ct.precision.FLOAT32,
            skip_model_load=True,
            pass_pipeline=pipeline,
        )
        model.save(str(path))
        # its scratch folder complains when the collector takes it: here, where warnings are off, and not in a test
        del model, program
        gc.collect()


def expected(case: Case, opset: str) -> list[np.ndarray]:
    if case.reference is not None:
        return [np.asarray(r) for r in as_tuple(case.reference(**case.inputs))]
    import coremltools as ct
    from coremltools.converters.mil import Builder as mb  # noqa: N813

    found: list[np.ndarray] = []

    def body() -> Any:
        constants = {name: mb.const(val=value) for name, value in case.inputs.items()}
        results = as_tuple(case.build(mb, **constants))
        for result in results:
            assert result.val is not None, f"coremltools infers no value for {case.name}: give a reference"
            found.append(np.asarray(result.val))
        return results[0]

    with quiet():
        mb.program(input_specs=[], opset_version=getattr(ct.target, opset))(body)
    return found


def inputs_of(cases: list[Case]) -> Arrays:
    return {f"{case.name}_{name}": value for case in cases for name, value in case.inputs.items()}


def run_cases(cases: list[Case], path: Path) -> Arrays:
    return run(path, inputs_of(cases))


def run(path: Path, inputs: Mapping[str, np.ndarray]) -> Arrays:
    executable = os.environ.get("KVB_MIL_RUN")
    if executable:
        return run_alone(executable, path, inputs)
    import kvbacking

    return dict(kvbacking.Model.load(path).predict(dict(inputs)))


def run_alone(executable: str, path: Path, inputs: Mapping[str, np.ndarray], *options: str) -> Arrays:
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/inputs.txt", "w") as listing:
            for i, (name, array) in enumerate(inputs.items()):
                array.tofile(f"{folder}/{i}.bin")
                listing.write(f"{name} {array.dtype} {','.join(map(str, array.shape)) or '-'} {i}.bin\n")
        done = subprocess.run([executable, str(path), folder, *options], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(done.stderr.strip())
        results = {}
        for line in Path(folder, "outputs.txt").read_text().splitlines():
            name, dtype, dims = line.split()
            shape = [] if dims == "-" else [int(d) for d in dims.split(",")]
            results[name] = np.fromfile(f"{folder}/out.{name}.bin", dtype=dtype).reshape(shape)
        return results


def mismatches(cases: list[Case], results: Mapping[str, np.ndarray], opset: str) -> list[str]:
    """Every difference, in words; empty when all cases agree."""
    problems = []
    for case in cases:
        for i, want in enumerate(expected(case, opset)):
            got = results[f"r_{case.name}_{i}"]
            if got.shape != (want.shape or (1,)) and got.shape != want.shape:
                problems.append(f"{case.name}: shape {got.shape}, expected {want.shape}")
                continue
            difference = np.abs(got.astype(np.float64).reshape(want.shape) - want.astype(np.float64))
            allowed = case.tolerance * (1.0 + np.abs(want.astype(np.float64)))
            same = (got.reshape(want.shape) == want) | (
                np.isnan(got.astype(np.float64).reshape(want.shape)) & np.isnan(want.astype(np.float64))
            )
            if not np.all(same | (difference <= allowed)):
                problems.append(f"{case.name}: differs by {np.nanmax(difference):.3g}")
    return problems
