"""Which outputs of a contract are which layer's keys, values, scales and states, by name."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvbacking.contract import KVContract
from kvbacking.errors import ContractError

KEY_WORDS, VALUE_WORDS = frozenset({"k", "key", "keys"}), frozenset({"v", "value", "values"})
SCALE_WORDS = frozenset({"scale", "scales"})
CONVOLUTION_WORDS, RECURRENT_WORDS = frozenset({"conv", "convolution"}), frozenset({"recurrent", "ssm"})


def layers_of(
    contract: KVContract, keys: Sequence[str] | None, values: Sequence[str] | None
) -> tuple[list[tuple[tuple[str, str], int | None]], bool]:
    """((key output, value output), index on axis 0 or None) per layer, and whether each layer has outputs of its
    own."""
    if (keys is None) != (values is None):
        raise ContractError("[mlx.handoff] name both, keys and values, or neither")
    if keys is None or values is None:
        k_names = _named(contract.outputs, KEY_WORDS, SCALE_WORDS, "keys")
        v_names = _named(contract.outputs, VALUE_WORDS, SCALE_WORDS, "values")
    else:
        for given in (keys, values):
            if isinstance(given, str) or not isinstance(given, Sequence):
                raise TypeError(f"keys and values must be sequences of names, got {type(given).__name__}")
        k_names, v_names = list(keys), list(values)
    if len(k_names) != len(v_names) or not k_names:
        raise ContractError(f"[mlx.handoff] {len(k_names)} outputs of keys, {len(v_names)} of values")
    for name in (*k_names, *v_names):
        _check_rows(contract, name)
    for names in (k_names, v_names):
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ContractError(f"[mlx.handoff] {', '.join(twice)} named for more than one layer")
    for k, v in zip(k_names, v_names, strict=True):
        if contract.shapes[k][:3] != contract.shapes[v][:3]:
            raise ContractError(f"[mlx.handoff] {k} {contract.shapes[k]} and {v} {contract.shapes[v]} do not fit")
    if len(k_names) == 1 and contract.shapes[k_names[0]][0] > 1:
        return [((k_names[0], v_names[0]), i) for i in range(contract.shapes[k_names[0]][0])], False
    for name in (*k_names, *v_names):
        if contract.shapes[name][0] != 1:
            raise ContractError(f"[mlx.handoff] {name}: an output per layer begins with 1, got {contract.shapes[name]}")
    return [((k, v), None) for k, v in zip(k_names, v_names, strict=True)], True


def scales_of(
    contract: KVContract, layers: list[tuple[tuple[str, str], int | None]], scales: Sequence[str] | None
) -> list[str | None]:
    """The output that scales each layer's INT8 values; None where values are no integers. Refuses INT8 without one."""
    values = list(dict.fromkeys(names[1] for names, _ in layers))
    integers = [name for name in values if contract.dtypes[name] == "int8"]
    if not integers:
        if scales is not None:
            raise ContractError(f"[mlx.handoff] scales are for int8 values, {', '.join(values)} are not")
        return [None] * len(layers)
    if scales is None and not any(SCALE_WORDS & _words(name) for name in contract.outputs):
        raise ContractError(
            f"[mlx.handoff] {', '.join(integers)}: int8 needs the outputs that scale it (scales=), "
            "[layers, heads, capacity, 1]"
        )
    names = _named(contract.outputs, SCALE_WORDS, frozenset(), "scales") if scales is None else list(scales)
    if len(names) != len(values) or len(integers) != len(values):
        raise ContractError(f"[mlx.handoff] {len(values)} outputs of values, {len(integers)} int8, {len(names)} scales")
    for value, name in zip(values, names, strict=True):
        _check_rows(contract, name)
        expected = (*contract.shapes[value][:3], 1)
        if contract.shapes[name] != expected or contract.dtypes[name] not in ("float16", "float32"):
            raise ContractError(
                f"[mlx.handoff] {name} scales {value}: expected float16 or float32 {list(expected)}, got "
                f"{contract.dtypes[name]} {list(contract.shapes[name])}"
            )
    found = dict(zip(values, names, strict=True))
    return [found[pair[1]] for pair, _ in layers]


def states_of(contract: KVContract, count: int, states: Sequence[tuple[str, str]] | None) -> list[tuple[str, str]]:
    """(convolution, recurrent) outputs per ArraysCache, backed or not."""
    outputs = contract.outputs + contract.unbacked
    if not count:
        if states:
            raise ContractError(f"[mlx.handoff] {len(states)} pairs of states, no cache is an ArraysCache")
        return []
    if states is None:
        convolutions = _named(outputs, CONVOLUTION_WORDS, frozenset(), "states")
        recurrent = _named(outputs, RECURRENT_WORDS, frozenset(), "states")
        if len(convolutions) != len(recurrent):
            raise ContractError(
                f"[mlx.handoff] {len(convolutions)} outputs of convolutions, {len(recurrent)} recurrent ones"
            )
        states = list(zip(convolutions, recurrent, strict=True))
    if len(states) != count:
        raise ContractError(f"[mlx.handoff] {len(states)} pairs of states for {count} caches of class ArraysCache")
    for pair in states:
        if isinstance(pair, str) or len(pair) != 2 or (unknown := sorted(set(pair) - set(outputs))):
            raise ContractError(
                f"[mlx.handoff] states are (convolution, recurrent) of the outputs {list(outputs)}, got {pair!r}"
                + (f" with unknown {unknown}" if len(pair) == 2 else "")
            )
    return list(states)


def _check_rows(contract: KVContract, name: str) -> None:
    shape = contract.shapes.get(name)
    if shape is None:
        raise ContractError(f"[mlx.handoff] {name!r} is no backed output of the contract: {contract.outputs}")
    if len(shape) != 4 or contract.axis != 2:
        raise ContractError(
            f"[mlx.handoff] {name}: expected [layers, heads, capacity, size] with live rows on axis 2, got "
            f"{list(shape)} with axis {contract.axis}"
        )


def _words(name: str) -> set[str]:
    return set(re.split(r"[_.\d]+", name.lower()))


def _named(outputs: Sequence[str], words: frozenset[str], without: frozenset[str], what: str) -> list[str]:
    """Outputs with one of `words` in their name and none of `without`, by their number: `key_cache_0`, `key_cache_1`,
    or `key_cache` alone."""
    found: dict[int, str] = {}
    for name in outputs:
        if words & _words(name) and not without & _words(name):
            number = re.search(r"(\d+)$", name)
            index = int(number[1]) if number else 0
            if index in found:
                raise ContractError(
                    f"[mlx.handoff] {found[index]} and {name} both look like {what}: name them ({what}=)"
                )
            found[index] = name
    if sorted(found) != list(range(len(found))) or not found:
        raise ContractError(
            f"[mlx.handoff] {list(outputs)}: no run of outputs 0, 1, ... for {what}: name them ({what}=)"
        )
    return [found[i] for i in range(len(found))]
