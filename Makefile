# make help lists the targets; scripts/ holds what they do.
PYTHON ?= python3
VENV   ?= .venv
RUN    := $(VENV)/bin/python

.PHONY: help demo test check bench bench-gpu clean
help:             ## this list
	@grep -hE '^[a-z%-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

demo: $(VENV)/.demo   ## make a clip, enlarge it with a bundled model, show the result in .demo/
	$(RUN) scripts/demo.py

test: $(VENV)/.test   ## all tests that need no container engine
	$(RUN) -m pytest -m "not image"

check: $(VENV)/.check ## formatting, lint and types
	scripts/check $(VENV)

bench: $(VENV)/.test  ## frames per second of every backend, written to benchmarks/
	$(RUN) scripts/bench.py

bench-gpu:            ## the same on an NVIDIA GPU, with the Python that has torch and CuPy
	$(PYTHON) scripts/bench_gpu.py

clean:                ## remove what the targets made
	rm -rf $(VENV) .demo

$(VENV)/.%: pyproject.toml scripts/setup
	PYTHON="$(PYTHON)" scripts/setup $(VENV) $*

-include images/images.mk
