from kvbacking.cli import main

main(prog_name="kvbacking")
