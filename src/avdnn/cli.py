"""The command line: arguments to calls; no logic.

Commands import what they need when they run, so that --help is quick.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from . import __version__
from .command import outcome

EXIT_CODES = """Exit codes: 0 done; 1 failed; 2 usage; 3 device or backend unavailable;
130 interrupted by Ctrl-C; 143 terminated by SIGTERM."""

RUN_HELP = """Run a video through a chain of filters, as ffmpeg -vf does.

\b
avdnn run -i IN.mp4 -vf "dnn_processing=dnn_backend=openvino:model=M.xml" OUT.mp4
avdnn run IN.mp4 OUT.mp4        the bundled x2 model on the best installed backend

Options before -i belong to the input, those after it to the output.

\b
Input    -f -ss -sseof -t -to -itsoffset -re -readrate -r -s -pix_fmt -hwaccel -hwaccel_device
         -hwaccel_output_format -decoders N|auto (sessions of a GPU's decoder that share the file)
Output   -vf -filter_complex -c:v -crf -preset -b:v -q:v -tag:v -pix_fmt -r -s -f
         -ss -t -to -frames:v -shortest -aspect -an -sn -dn -map -metadata -map_metadata
         -map_chapters -disposition -c:a copy -c:s copy; any other -NAME VALUE goes to
         the encoder or the muxer
Any      -y -n -benchmark -loglevel -stats -nostats -init_hw_device -filter_hw_device

\b
--model NAME         without -vf: a bundled model or a file
--backend, --device, --precision, --nireq, --async, --batch-size, --fit, --overlap,
--on-nan, --strict   for dnn filters that do not set it in their text
--progress KIND      auto, plain, json (lines on standard output) or none
--debug              show the traceback of an error
"""

HELP_OPTIONS = ["-h", "--help"]

app = typer.Typer(
    name="avdnn",
    help="FFmpeg's DNN video filters: any network, every frame, any hardware.",
    epilog=EXIT_CODES,
    context_settings={"help_option_names": HELP_OPTIONS},
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
_log = logging.getLogger("avdnn")


def _version(wanted: bool) -> None:
    if wanted:
        print(f"avdnn {__version__}")
        raise typer.Exit


@app.callback()
def _all(
    debug: Annotated[bool, typer.Option("--debug", help="Show an error's traceback.")] = False,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    if debug:
        _log.setLevel(logging.DEBUG)


@app.command(
    help=RUN_HELP,
    epilog=EXIT_CODES,
    options_metavar="[-i] INPUT [OPTIONS] OUTPUT",
    context_settings={
        "allow_extra_args": True,
        "ignore_unknown_options": True,
        "help_option_names": ["--help"],  # -h would be seen in -hwaccel
    },
)
def run(context: typer.Context) -> None:
    if context.args[:1] == ["-h"]:
        print(context.get_help())
        return

    from .command import arguments, loglevel

    job = arguments.parse(context.args)
    loglevel.apply(job.loglevel, debug=job.debug)

    from . import pipeline
    from . import progress as shown

    progress = shown.create(job.progress)
    try:
        report = pipeline.run(job, progress=progress)
    finally:
        progress.close()
    if job.benchmark:
        from .command.benchmark import report_text

        print(report_text(report), file=sys.stderr)


@app.command(help="Show what a model wants and what happens to a frame.")
def inspect(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A file, or a bundled name.")],
    size: Annotated[str, typer.Option(metavar="WxH", help="The frames' size.")] = "",
    backend: Annotated[str, typer.Option(help="auto: the best installed one.")] = "auto",
    device: Annotated[str, typer.Option(help="In the backend's own words.")] = "",
    json: Json = False,
) -> None:
    from .command import inspection, quantities

    frame = quantities.size(size, "--size") if size else None
    found = inspection.inspect(model, backend=backend, device=device, size=frame)
    print(found.as_json() if json else found.as_text())


@app.command(help="List the backends: version, devices, files they read.")
def backends(json: Json = False) -> None:
    from .command import listing

    facts = listing.backend_facts()
    print(listing.as_json(facts) if json else listing.backends_text(facts))


@app.command(help="List the bundled models.")
def models(json: Json = False) -> None:
    from .command import listing
    from .models import registry

    print(listing.as_json(list(registry().values())) if json else listing.models_text())


@app.command(help="Check what works on this machine, and say what to do.")
def doctor(
    model: Annotated[
        Path | None, typer.Argument(metavar="MODEL", help="Also check what runs this file.")
    ] = None,
    json: Json = False,
) -> None:
    from . import doctor as health

    findings = health.doctor(model)
    print(health.as_json(findings) if json else health.report(findings))
    raise typer.Exit(health.exit_code(findings))


@app.command(
    help="Compare two videos frame by frame. Exit code 1 if the number, sizes, times or range of "
    "frames differ, or if pixels pass a limit; without a limit their values do not decide."
)
def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A video or picture.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another one.")],
    max_diff: Annotated[
        float | None, typer.Option(help="The largest difference of a sample, in codes, to allow.")
    ] = None,
    min_psnr: Annotated[
        float | None, typer.Option(help="The PSNR, in dB, that every frame must have.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Write a PNG of where the worst frame is worst.")
    ] = None,
    json: Json = False,
) -> None:
    from . import compare as comparing
    from .compare.comparison import Limits

    limits = Limits(max_diff=max_diff, min_psnr=min_psnr)
    found = comparing.compare(first, second, limits=limits, picture=picture)
    print(found.as_json() if json else found.as_text())
    raise typer.Exit(found.exit_code)


@app.command(help="Convert a model file to another format, and compare.")
def convert(
    source: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file.")],
    target: Annotated[
        Path, typer.Argument(metavar="NEW", help="The new file; its name says the format.")
    ],
    size: Annotated[str, typer.Option(metavar="WxH", help="Fix the pictures' size.")] = "",
    overwrite: Annotated[bool, typer.Option("-y", help="Overwrite the target.")] = False,
) -> None:
    from . import convert as converting
    from .command import quantities

    frame = quantities.size(size, "--size")[::-1] if size else None
    print(converting.convert(source, target, size=frame, overwrite=overwrite))


@app.command(help="Print TensorFlow's sess_config=, or explain one.")
def sess_config(
    text: Annotated[str, typer.Argument(metavar="0x...", help="Explain this one.")] = "",
    visible_devices: Annotated[str, typer.Option(help="GPUs by number: 0 or 0,2.")] = "",
    memory_fraction: Annotated[
        float | None, typer.Option(help="The part of each GPU's memory to use, at most 1.")
    ] = None,
    allow_growth: Annotated[
        bool | None, typer.Option(help="Take GPU memory as it is needed.", show_default=False)
    ] = None,
    intra_threads: Annotated[int | None, typer.Option(help="Threads of one operation.")] = None,
    inter_threads: Annotated[int | None, typer.Option(help="Operations at once.")] = None,
) -> None:
    from . import sess_config as config

    if text:
        for name, value in config.fields(config.parse(text)):
            print(f"{name} {value.hex() if isinstance(value, bytes) else value}")
        return
    made = config.build(
        visible_devices=visible_devices,
        memory_fraction=memory_fraction,
        allow_growth=allow_growth,
        intra_threads=intra_threads,
        inter_threads=inter_threads,
    )
    print(made)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; the console entry."""
    return outcome.exit_code(app, list(sys.argv[1:] if argv is None else argv))
