.DEFAULT_GOAL := help
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory

VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
GOLANGCI := v2.15.0
FUZZTIME ?= 60s

# Packages with concurrency of their own and no need of the kernel: tested with the race detector.
RACE := ./agent/ledger/... ./agent/process/... ./agent/profile/... ./agent/push/... ./agent/symbols/... ./agent/workload/... ./devserver/... ./symbolizer/...

.PHONY: help
help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' Makefile

.PHONY: build
build: ## bin/vramprof, bin/vramprof-agent and bin/vramprof-symbolizer: static, no clang and no C compiler needed
	@CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ ./cmd/...

.PHONY: demo
demo: setup-demo build ## Two demo deployments profiled on this machine: top stacks, and a page to explore them (root)
	@go run ./integration/demo

.PHONY: test
test: setup-test ## Every test, in under 20 minutes on 2 cores (root)
	go test -p 2 -timeout 15m $$(go list ./... | grep -vxF "$$(go list $(RACE) ./integration/...)")
	go test -p 2 -timeout 15m -race $(RACE)
	@# An agent sees the whole machine, and keeps open what programs with a GPU map: these run one at a time.
	go test -p 1 -timeout 15m ./integration/...

.PHONY: bench
bench: setup-test ## What a probe, a frame and a whole allocation cost, from one run (root)
	@go run ./integration/bench

.PHONY: fuzz
fuzz: ## Every parser of foreign bytes, FUZZTIME (60s) each
	@for package in $$(go list ./...); do \
		for target in $$(go test -list '^Fuzz' "$$package" | grep '^Fuzz' || true); do \
			echo "$$package $$target"; \
			go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$package"; \
		done; \
	done

.PHONY: lint
lint: .tools/bin/golangci-lint-$(GOLANGCI) ## The rules of .golangci.yml, gofmt among them
	@$< run ./...

.tools/bin/golangci-lint-$(GOLANGCI):
	@echo "setup: building golangci-lint $(GOLANGCI)"
	@mkdir -p .tools
	@GOBIN=$(CURDIR)/.tools/bin GOFLAGS= go install -trimpath github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI) 2>.tools/golangci-lint.log || { tail .tools/golangci-lint.log; exit 1; }
	@mv .tools/bin/golangci-lint $@

.PHONY: generate
generate: setup-generate ## Everything generated: the API from proto/, the BPF objects, the page
	@.tools/npm/node_modules/.bin/buf lint
	@.tools/npm/node_modules/.bin/buf generate
	@go generate ./...

.PHONY: checkgenerate
checkgenerate: ## Fails if generating again changes a file
	@internal/tools/checkgenerate.sh

.PHONY: screenshot
screenshot: setup-test ## The page's picture in README.md, taken anew (root)
	go test -run TestPage -count 1 ./integration/page -screenshot $(CURDIR)/docs/page.png

.PHONY: setup-demo
setup-demo: ## Install what `make demo` needs and this machine lacks
	@internal/tools/setup.sh demo

.PHONY: setup-test
setup-test: ## Install what `make test` needs and this machine lacks
	@internal/tools/setup.sh test
	@go run ./integration/pythons/list

.PHONY: setup-generate
setup-generate: .tools/npm/package-lock.json ## Install what `make generate` needs and this machine lacks

.tools/npm/package-lock.json: internal/tools/npm/package.json internal/tools/npm/package-lock.json
	@internal/tools/setup.sh generate
	@mkdir -p .tools/npm
	@cp internal/tools/npm/package.json .tools/npm/
	@cd .tools/npm && cp ../../internal/tools/npm/package-lock.json . && npm ci --silent --no-audit --no-fund || { rm package-lock.json; exit 1; }
