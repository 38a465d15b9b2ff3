# The front door. The build itself is CMakeLists.txt; what is missing on the machine is installed by tools/setup.sh.
BUILD  ?= build
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)
SOAK_SECONDS ?= 3600

.PHONY: all demo test test-asan test-tsan soak bench install format clean

all: $(BUILD)/CMakeCache.txt
	@cmake --build $(BUILD) --parallel $(JOBS)

$(BUILD)/CMakeCache.txt:
	@tools/setup.sh build
	@cmake -S . -B $(BUILD) -DCMAKE_INSTALL_PREFIX=$(PREFIX)

demo: all
	@$(BUILD)/examples/demo

# Everything: gcc and clang, sanitizers, aarch64, models, faults, fuzzing, installation, style.
test:
	@tools/setup.sh build test
	@tools/test.py --jobs $(JOBS)

test-asan test-tsan:
	@tools/setup.sh build test
	@tools/test.py --jobs $(JOBS) --only $(@:test-%=%)

# The stress tests again and again with fresh seeds, for SOAK_SECONDS; the first failure or hang ends it.
soak: all
	@tools/soak.py --build $(BUILD) --seconds $(SOAK_SECONDS)

bench:
	@tools/setup.sh build bench
	@$(MAKE) --no-print-directory all
	@tools/bench.py --build $(BUILD)

install: all
	@cmake --install $(BUILD) --prefix $(PREFIX)
	-@[ "$$(id -u)" -ne 0 ] || [ -n "$(DESTDIR)" ] || ldconfig

format:
	@clang-format -i $$(git ls-files -co --exclude-standard src posix include tests bench examples lab | grep '\.[ch]$$')

clean:
	@rm -rf $(BUILD)
