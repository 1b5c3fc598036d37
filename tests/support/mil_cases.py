"""The cases of tests/property/test_mil_ops.py: ops over dtypes, ranks, negative axes and broadcasting.

Where coremltools infers no value, a case's `reference` writes the definition down in NumPy.
"""

from __future__ import annotations

from mil_cases_control import CONTROL
from mil_cases_elementwise import ARITHMETIC, ELEMENTWISE, LOGIC
from mil_cases_math import ATTENTION, NORMALIZE, PRODUCTS, REDUCE
from mil_cases_more import MOVES, RECURRENT, SAMPLING
from mil_cases_tensor import INDEX, RUNTIME_SHAPES, SHAPE, UPDATE
from mil_cases_vision import CONV, POOL
from mil_engine import Case

FAMILIES: dict[str, list[Case]] = {
    "elementwise": ELEMENTWISE,
    "arithmetic": ARITHMETIC,
    "logic": LOGIC,
    "shape": SHAPE,
    "index": INDEX,
    "runtime_shapes": RUNTIME_SHAPES,
    "reduce": REDUCE,
    "normalize": NORMALIZE,
    "products": PRODUCTS,
    "attention": ATTENTION,
    "conv": CONV,
    "pool": POOL,
    "update": UPDATE,
    "sampling": SAMPLING,
    "moves": MOVES,
    "recurrent": RECURRENT,
    "control": CONTROL,
}
OPSETS = {"attention": "iOS18", "update": "iOS18"}
