# Everything a developer types. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:

# The tools, each pinned. Those that generate code are pinned in proto/generate.sh and package.json.
GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION := v0.12.0

TOOLS := $(CURDIR)/.tools/bin
GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
GOFUMPT := $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)

VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
# Flags for go test, such as TESTFLAGS='-run TestX -count=1'.
TESTFLAGS ?=
FUZZTIME ?= 20s

# Hand-written Go files, and the folders of the modules beside this one.
FIND = find . \( -name '.?*' -o -name node_modules -o -name demo-out \) -prune -o
GO_FILES = $(shell $(FIND) -name '*.go' ! -name '*.pb.go' ! -name '*.connect.go' -print)
NESTED = $(shell $(FIND) -mindepth 2 -name go.mod -printf '%h ')

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

##### To begin with

.PHONY: bootstrap
bootstrap: ## Install PostgreSQL, Redis and what else is missing (Debian, Ubuntu)
	@deploy/bootstrap.sh

.PHONY: tools
tools: $(GOLANGCI_LINT) $(GOFUMPT) ## Build the pinned tools into .tools (minutes, once)

.PHONY: build
build: ## Build bin/errand
	go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/errand ./cmd/errand

.PHONY: demo
demo: bootstrap build ## The main job on a real video; MEDIA=FILE for your own, else a sample is made
	go build -trimpath -o bin/errand-demo ./cmd/errand-demo
	@bin/errand-demo $(if $(MEDIA),--media "$(MEDIA)")

##### While you work

.PHONY: fmt
fmt: $(GOFUMPT) ## Format the code
	@$(GOFUMPT) -w $(GO_FILES)

.PHONY: generate
generate: ## Generate code from proto/
	proto/generate.sh

.PHONY: test-short
test-short: ## The quick tests: no race detector, short loops
	go test -short $(TESTFLAGS) ./...

.PHONY: fuzz
fuzz: ## Fuzz each target for FUZZTIME (default 20s)
	@grep -rnoE --include='*_test.go' --exclude-dir=node_modules '^func Fuzz[A-Za-z0-9_]+' . | \
	while IFS=: read -r file _ func; do \
		echo "== $$file $${func#func }"; \
		go test -run '^$$' -fuzz "^$${func#func }$$" -fuzztime $(FUZZTIME) "./$$(dirname "$$file")"; \
	done

##### What must pass

.PHONY: test
test: bootstrap check-fmt check-tidy check-generated lint test-nested test-go ## Everything that must pass

.PHONY: check-fmt
check-fmt: $(GOFUMPT) ## Fail when code is not formatted
	@unformatted=$$($(GOFUMPT) -l $(GO_FILES)); \
	if [ -n "$$unformatted" ]; then echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi

.PHONY: check-tidy
check-tidy: ## Fail when go.mod does not say what is imported
	@go mod tidy -diff || { echo "go.mod is not tidy (run go mod tidy)"; exit 1; }

.PHONY: check-generated
check-generated: ## Fail when generated code is not up to date
	proto/generate.sh --check

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Lint the code, go vet included
	$(GOLANGCI_LINT) run --allow-parallel-runners ./...

.PHONY: test-nested
test-nested: ## Test the modules beside this one
	@for dir in $(NESTED); do echo "== $$dir"; (cd "$$dir" && go vet ./... && go test -race $(TESTFLAGS) ./...); done

.PHONY: test-go
test-go: ## Run all Go tests with the race detector
	go test -race -timeout 20m $(TESTFLAGS) ./...

$(GOFUMPT):
	GOBIN=$(TOOLS) go install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	mv $(TOOLS)/gofumpt $@

$(GOLANGCI_LINT):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(TOOLS)/golangci-lint $@
