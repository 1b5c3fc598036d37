"""The steps behind scripts/mac-proof."""
