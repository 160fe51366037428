# Trivium: the commands of a working day. `make help` lists them.
#
#   make run    builds everything and starts the demo: real hosts, real traffic, a live view
#   make test   everything that CI runs

SHELL := /bin/bash
CARGO ?= cargo
# Namespaces, AF_XDP and BPF need root; building does not.
SUDO  := $(shell [ "$$(id -u)" = 0 ] || echo "sudo -E env PATH=$$PATH")
TARGET := $(or $(CARGO_TARGET_DIR),target)

.DEFAULT_GOAL := help
.PHONY: help setup build install run test soak bench bench-all fmt lint book hooks clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 10

setup: ## install what is missing (Debian packages; says what to do about Rust)
	@ci/setup

build: ## release build of the trivium binary, debug information beside it in trivium.debug
	$(CARGO) build --release --package daemon
	@ci/split-debug $(TARGET)/release/trivium

# Where `make install` puts things; DESTDIR stands in front of all of it, as packages need it.
PREFIX ?= /usr/local
BASH_COMPLETIONS ?= $(PREFIX)/share/bash-completion/completions
ZSH_COMPLETIONS ?= $(PREFIX)/share/zsh/site-functions
FISH_COMPLETIONS ?= $(PREFIX)/share/fish/vendor_completions.d
UNITS ?= $(PREFIX)/lib/systemd/system

install: ## install what `make build` has made (PREFIX=/usr/local, DESTDIR=)
	@ci/install "$(TARGET)/release/trivium" "$(DESTDIR)" "$(PREFIX)" \
		"$(BASH_COMPLETIONS)" "$(ZSH_COMPLETIONS)" "$(FISH_COMPLETIONS)" "$(UNITS)"

run: setup build ## build and start the demo (ARGS="--seconds 20" stops by itself)
	$(SUDO) $(TARGET)/release/trivium demo $(ARGS)

test: setup ## everything that CI runs
	@ci/test

soak: setup ## the long versions of the tests that CI runs scaled down
	@ci/soak

bench: setup build ## side by side with the peers; writes docs/benchmarks.md
	@ci/setup bench
	$(SUDO) bench/run $(ARGS)

bench-all: setup build ## every page of figures by this one build; takes hours
	@ci/setup bench
	$(SUDO) bench/all $(ARGS)

fmt: ## format the Rust sources
	$(CARGO) fmt --all

lint: ## formatting, clippy, rustdoc and dependency checks, warnings denied
	@ci/lint

# The release that builds the book if no mdbook is installed; mdbook 0.5 needs Rust 1.88.
MDBOOK_VERSION ?= 0.5.4
MDBOOK := $(or $(shell command -v mdbook),.cache/mdbook/bin/mdbook)

book: $(MDBOOK) ## the pages of docs/ as a book in book/, by mdbook
	$(MDBOOK) build
	@# mdbook takes the pages outside docs/ for pages of the book.
	@sed -i -E 's#(href="\.\./[^"]*)\.html#\1.md#g' book/*.html
	@find book -mindepth 2 -name '*.html' -exec sed -i -E 's#(href="\.\./\.\./[^"]*)\.html#\1.md#g' {} +

.cache/mdbook/bin/mdbook:
	$(CARGO) install --locked --root .cache/mdbook --no-default-features --features search --version $(MDBOOK_VERSION) mdbook

hooks: ## check commit messages when they are made (git's commit-msg hook)
	@mkdir -p "$$(git rev-parse --git-path hooks)"
	@printf '#!/bin/sh\nexec ci/commits.py --file "$$1"\n' > "$$(git rev-parse --git-path hooks)/commit-msg"
	@chmod +x "$$(git rev-parse --git-path hooks)/commit-msg"

clean: ## remove build outputs
	$(CARGO) clean
	rm -rf book
