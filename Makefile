# rea: build, demonstrate, check. `make help` lists the targets.

GO      ?= go
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS := -s -w -buildid= -X main.version=$(VERSION)
# Static and reproducible: no C, no build paths, no host's VCS stamp inside.
BUILD   := CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'
WORKER  := images/worker/rea-worker
TOOLS   := $(GO) tool -modfile=.ci/tools.mod

.DEFAULT_GOAL := check
.PHONY: help check build worker demo test test-v2 setup race fuzz probe soak bench lint fmt vet generate clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: bin/rea ## build bin/rea, with the worker inside it

# Go decides what is up to date; its cache makes an unchanged build cheap.
.PHONY: bin/rea
bin/rea: worker
	@mkdir -p bin
	$(BUILD) -o bin/rea ./cmd/rea

worker: ## build the program that runs inside the containers
	@$(BUILD) -o $(WORKER).new ./cmd/rea-worker
	@if cmp -s $(WORKER).new $(WORKER); then rm $(WORKER).new; else mv $(WORKER).new $(WORKER); fi

setup: ## install and start what runs need: container engine, OCI runtime
	@deploy/bootstrap.sh

demo: setup build ## set up, build, and compare two versions of a small application
	@testdata/notes/demo.sh

test: build ## set up, build, and run every test against the real engine and the real OCI runtime
	@deploy/bootstrap.sh --tests
	REA_TEST_REQUIRE=all $(GO) test -race -count=1 -timeout 20m ./...

test-v2: ## run the sandbox's tests on an emulated host with cgroup v2 and systemd (SHORT=1: a few of them)
	@mkdir -p .cache/guest
	@$(GO) build -o .cache/guest/guest ./sandbox/sandboxtest/guest
	@.cache/guest/guest $(if $(SHORT),-short)

fuzz: ## fuzz every parser for a short while each (FUZZTIME=20s)
	@.ci/fuzz $(or $(FUZZTIME),20s)

probe: build ## show every control as a process inside sees it, for each driver
	@$(GO) test -count=1 -v -run '^Test(Conformance|Privileged|Ordinary)$$/^Controls$$' ./sandbox/oci ./sandbox/docker

soak: build ## kill cores at random over 1,000 runs with each driver, and flood one with 10 GiB (SOAK=1000)
	REA_TEST_SOAK=$(or $(SOAK),1000) $(GO) test -count=1 -v -timeout 120m -run '^Test(Soak|CrashAtEachLine)$$' ./orchestrator
	REA_TEST_FLOOD=10737418240 $(GO) test -count=1 -v -timeout 60m -run '^TestRealFlood$$' ./orchestrator/run

bench: build ## measure what users wait for, each figure beside an alternative in the same run
	@.ci/bench

generate: build ## write docs/tools.md, and under docs/public the product catalog, the skill and conversations to replay
	@rm -rf docs/public
	@bin/rea generate-docs docs
	@bin/rea skill install --to docs/public/skill
	@cp -r orchestrator/mcp/testdata/conversations docs/public/conformance

fmt: ## format
	gofmt -w cmd orchestrator sandbox providers evidence images testdata

vet: ## gofmt and go vet
	@test -z "$$(gofmt -l cmd orchestrator sandbox providers evidence images testdata | tee /dev/stderr)"
	$(GO) vet ./...

lint: ## golangci-lint: staticcheck, layering and trust boundary (depguard), forbidden calls
	$(TOOLS) golangci-lint run ./...

check: build vet lint test ## the whole local check

clean: ## remove what was built
	rm -rf bin $(WORKER) $(WORKER).new
