"""Our declarations of Apple's API: a wrong spelling or value is noticed, and ours agree with the references."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import subprocess
import sys

import pytest
from conftest import ROOT, linux_only

pytestmark = linux_only

METADATA = '''
constants = """$MLModelErrorDomain$kCVPixelBufferWidthKey@^{__CFString=}$"""
enums = """$MLComputeUnitsAll@2$kCVReturnError@-6660$"""
functions = {"CVPixelBufferCreate": (b"i", "", {})}
r(b"MLModel", b"predictionFromFeatures:error:", {"arguments": {}})
'''


def declared(**changes: object) -> object:
    import declarations

    parts = {
        "methods": {
            ("MLModel", "predictionFromFeatures:error:"): declarations.Method(
                result="id", arguments=("id", "NSError **")
            )
        },
        "enums": {"MLComputeUnitsAll": 2, "kCVReturnError": -6660, "NSOrderedSame": 0},
        "functions": {"CVPixelBufferCreate", "printf"},
        "constants": {"MLModelErrorDomain", "kCVPixelBufferWidthKey"},
        "owners": {"MLModel"},
    }
    return declarations.Declarations(**(parts | changes))  # type: ignore[arg-type]


def metadata_failures(ours: object) -> list[str]:
    import check_declarations

    return list(check_declarations.metadata_failures(ours, check_declarations.Reference([METADATA])))


def test_agreement_is_silent() -> None:
    assert metadata_failures(declared()) == []


def test_each_kind_of_difference_is_named() -> None:
    import declarations

    wrong_selector = {
        ("MLModel", "predictFromFeatures:error:"): declarations.Method(result="id", arguments=("NSError **",))
    }
    for change, expected in (
        ({"enums": {"MLComputeUnitsAll": 3}}, "enum value MLComputeUnitsAll: 3 declared, 2 in the reference"),
        ({"enums": {"MLComputeUnitsEverything": 2}}, "enum value MLComputeUnitsEverything: unknown"),
        ({"functions": {"CVPixelBufferMake"}}, "function CVPixelBufferMake: unknown"),
        ({"constants": {"MLModelErrorPlace"}}, "constant MLModelErrorPlace: unknown"),
        ({"methods": wrong_selector}, "-[MLModel predictFromFeatures:error:]: unknown"),
    ):
        (failure,) = metadata_failures(declared(**change))
        assert failure.startswith(expected)


def test_the_compiler_reads_our_headers(sdk: pathlib.Path) -> None:
    import declarations

    ours = declarations.read(sdk)
    assert ours.enums["MLMultiArrayDataTypeFloat16"] == 0x10000 | 16
    assert ours.enums["MLFeatureTypeMultiArray"] == 5
    assert "CVPixelBufferGetIOSurface" in ours.functions
    assert "kCVPixelBufferIOSurfacePropertiesKey" in ours.constants
    method = ours.methods["MLModel", "predictionFromFeatures:options:error:"]
    assert method.arguments[1].startswith("MLPredictionOptions")


def test_the_link_table_holds_every_declared_function_and_constant(sdk: pathlib.Path) -> None:
    import check_declarations
    import declarations
    import libraries

    table = libraries.load()
    ours = declarations.read(sdk)
    assert list(check_declarations.table_failures(ours, table)) == []
    ours = dataclasses.replace(ours, functions=ours.functions | {"CVPixelBufferOfAnotherKind"})
    (failure,) = check_declarations.table_failures(ours, table)
    assert failure.startswith("CVPixelBufferOfAnotherKind: declared, and missing")


def compare(sdk: pathlib.Path) -> subprocess.CompletedProcess[str]:
    cache = ROOT / "build/darwin/references"
    tool = ROOT / "scripts/darwin/check_declarations.py"
    command = [sys.executable, tool, "--sdk", sdk, "--cache", cache, "--require"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode == 3:
        pytest.skip(result.stderr.strip())
    return result


def test_our_headers_agree_with_the_references(sdk: pathlib.Path) -> None:
    result = compare(sdk)
    assert result.returncode == 0, result.stderr


def test_a_wrong_header_disagrees_with_the_references(sdk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    import make_minisdk

    headers = tmp_path / "include"
    shutil.copytree(ROOT / "src/simulator/include", headers)
    base = headers / "CoreML/MLBase.h"
    text = base.read_text()
    assert "MLComputeUnitsCPUAndGPU = 1" in text
    base.write_text(text.replace("MLComputeUnitsCPUAndGPU = 1", "MLComputeUnitsCPUAndGPU = 4"))
    make_minisdk.make(tmp_path / "sdk", headers)
    result = compare(tmp_path / "sdk")
    assert result.returncode == 1
    assert "enum value MLComputeUnitsCPUAndGPU: 4 declared, 1 in the reference" in result.stderr


def test_an_unreachable_registry_is_said_aloud(sdk: pathlib.Path, tmp_path: pathlib.Path) -> None:
    tool = ROOT / "scripts/darwin/check_declarations.py"
    environment = {"PATH": "/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": "/dev/null", "HOME": str(tmp_path)}
    for required, code in ((False, 0), (True, 3)):
        command = [sys.executable, str(tool), "--sdk", str(sdk), "--cache", str(tmp_path), *(["--require"] * required)]
        result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert result.returncode == code
        assert "NOT COMPARED" in result.stderr
