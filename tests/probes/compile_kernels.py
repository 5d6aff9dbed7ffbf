"""Compile the kernels for sm_90 on a machine without a GPU; prints one JSON object per variant.

Needs torch and triton, and no TRITON_INTERPRET.
"""

from __future__ import annotations

import json
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from lineage.probes import kernel, kernel_update

TYPES = {
    "program_tensor": "*i32",
    "partial": "*fp64",
    "out": "*fp64",
    "factors": "*fp64",
    "programs": "i32",
    "tensors": "i32",
}


def compiled(function: Any, constants: dict[str, Any]) -> Any:
    signature = {n: "constexpr" if n in constants else TYPES.get(n, "*i64") for n in function.arg_names}
    places = {(function.arg_names.index(n),): v for n, v in constants.items()}
    try:
        source = ASTSource(fn=function, signature=signature, constexprs=places)
    except TypeError:  # Triton before 3.3
        signature = {n: t for n, t in signature.items() if t != "constexpr"}
        source = ASTSource(fn=function, signature=signature, constants=constants)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": kernel._WARPS})


def main() -> None:
    for kind in (0, 1, 2):
        for aligned in (False, True):
            for digest in (False, True):
                tile = kernel.TILE_OF_DIGEST if digest else kernel.TILE
                constants = {"KIND": kind, "ALIGNED": aligned, "DIGEST": digest}
                made = compiled(kernel._partial, {**constants, "TILE": tile, "PER": kernel.RUN // tile})
                wide = made.asm["ptx"].count("ld.global.v4")
                print(json.dumps({**constants, "wide_loads": wide, "cubin": len(made.asm["cubin"])}))
    constants = {"KP": 0, "KA": 0, "KB": 0, "ALIGNED": True, "SCALE": 2.0**40}
    tile = kernel_update.TILE
    made = compiled(kernel_update._partial, {**constants, "TILE": tile, "PER": kernel.RUN // tile})
    print(json.dumps({"wide_loads": made.asm["ptx"].count("ld.global.v4"), "cubin": len(made.asm["cubin"])}))
    print(json.dumps({"total": len(compiled(kernel._total, {"WIDE": 128, "FACTOR": True}).asm["cubin"])}))


if __name__ == "__main__":
    main()
