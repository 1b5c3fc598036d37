"""python -m mlx_bridge: builds the bridge, or says why it cannot."""

import mlx_bridge

try:
    print(f"mlx bridge: {mlx_bridge.build().relative_to(mlx_bridge.ROOT)}")
except mlx_bridge.UnavailableError as reason:
    print(f"mlx bridge: {reason}; the tests over it are skipped below")
