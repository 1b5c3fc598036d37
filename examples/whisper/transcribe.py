"""Speech to text through kvbacking's memory, and what is known about the memory of every window.

scripts/fetch-whisper tiny.en --runtime
python examples/whisper/transcribe.py speech.wav build/whisper/tiny.en [raw [encoder.mlpackage]]
"""

import sys

from kvbacking.whisper import Transcriber


def main(wav: str, checkpoint: str, mechanism: str = "raw", package: str | None = None) -> None:
    with Transcriber(checkpoint, package, mechanism=mechanism, on_fault="control") as transcriber:
        result = transcriber.transcribe(wav)
    print(result.text)
    print(f"\nruntime {result.runtime}, mechanism {result.mechanism}, {result.sets_created} sets", file=sys.stderr)
    for window in result.windows:
        ms = {name: round(value / 1e6, 1) for name, value in window.intervals_ns.items()}
        print(f"{window.start_s:6.1f} to {window.end_s:6.1f} s  path {window.path}  {ms} ms", file=sys.stderr)
        for name, evidence in window.evidence.items():
            facts = {f: getattr(evidence, f) for f in ("accepted", "finite", "tail_zero", "fresh", "bytes_copied")}
            print(f"    {name}: {facts} {evidence.digest}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
