# The front door. The build itself is CMakeLists.txt; what is missing on the machine is installed by tools/setup.sh.
BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
SOAK_SECONDS ?= 3600
SOAK_MATCH   ?= .

.PHONY: all demo test test-asan test-tsan numa soak bench lab docs amalgamation deb install format clean

all: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) --parallel $(JOBS)

$(BUILD)/CMakeCache.txt:
	@tools/setup.sh build
	@cmake -S . -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX)

# Builds no more than the tour needs.
demo: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) --parallel $(JOBS) --target demo
	@$(BUILD)/examples/demo

# Everything: gcc and clang, sanitizers, aarch64, models, faults, fuzzing, installation, style.
test:
	@tools/setup.sh build test docs deb
	@tools/test.py --jobs $(JOBS)

test-asan test-tsan:
	@tools/setup.sh build test
	@tools/test.py --jobs $(JOBS) --only $(@:test-%=%)

# Topology once more, on a machine with several nodes that qemu emulates.
numa:
	@tools/setup.sh build numa
	@$(MAKE) --no-print-directory all
	@tests/numa/run.py $(BUILD)

# The stress tests whose name contains SOAK_MATCH again and again with fresh seeds, for SOAK_SECONDS; the first failure or hang
# ends it. Ten minutes under preemption: make soak SOAK_SECONDS=600 SOAK_MATCH=preempt
soak: all
	@tools/soak.py --build $(BUILD) --seconds $(SOAK_SECONDS) --match '^stress_.*$(SOAK_MATCH)'

# Weft beside its peers. QUICK=1: minutes instead of half an hour; ONLY=spawn_1p,mpmc_2p; AGAINST=go,tokio
bench:
	@tools/setup.sh build bench
	@$(MAKE) --no-print-directory all
	@tools/bench.py --build $(BUILD)

# The six models of scheduling, measured against each other; QUICK=1 for less of it. docs/models.md tells what it shows.
lab:
	@tools/setup.sh build lab
	@$(MAKE) --no-print-directory all
	@tools/lab.py --build $(BUILD)

# Manual pages and HTML, in $(BUILD)/man and $(BUILD)/docs.
docs:
	@tools/setup.sh docs
	@tools/man.py $(BUILD)/man
	@tools/docs.py $(BUILD)/man $(BUILD)/docs

# All of the library in one file: $(BUILD)/amalgamation/weft.c, and weft.h.
amalgamation:
	@tools/setup.sh amalgamation
	@tools/amalgamate.py $(BUILD)/amalgamation

# libweft1, libweft-dev and weft-tools for Debian, in $(BUILD)/deb.
deb:
	@tools/setup.sh build deb
	@tools/deb.sh $(BUILD)/deb

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)
	-@[ "$$(id -u)" -ne 0 ] || [ -n "$(DESTDIR)" ] || ldconfig

format:
	@clang-format -i $$(git ls-files -co --exclude-standard src posix include tests bench examples lab web tools | grep '\.[ch]$$')

clean:
	@rm -rf $(BUILD)
