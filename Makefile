# Everything a developer types. `make help` lists it.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c

GOLANGCI_LINT_VERSION := v2.15.0
GOFUMPT_VERSION := v0.12.0
TOOLS := $(CURDIR)/.tools/bin
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)

# Hand-written Go files.
GO_FILES = $(shell git ls-files --cached --others --exclude-standard '*.go' | grep -v -e '\.pb\.go$$' -e '\.connect\.go$$')

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-18s %s\n", $$1, $$2}'

.PHONY: bootstrap
bootstrap: ## Install PostgreSQL, Redis and npm when they are missing (Debian, Ubuntu)
	deploy/bootstrap.sh

.PHONY: build
build: ## Build bin/errand
	go build -trimpath -ldflags "-X main.version=$(VERSION)" -o bin/errand ./cmd/errand

.PHONY: generate
generate: ## Generate code from proto/
	proto/generate.sh

.PHONY: check-generated
check-generated: ## Fail when generated code is not up to date
	proto/generate.sh --check

$(TOOLS)/gofumpt-$(GOFUMPT_VERSION):
	GOBIN=$(TOOLS) go install mvdan.cc/gofumpt@$(GOFUMPT_VERSION)
	mv $(TOOLS)/gofumpt $@

$(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION):
	GOBIN=$(TOOLS) go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	mv $(TOOLS)/golangci-lint $@

.PHONY: fmt
fmt: $(TOOLS)/gofumpt-$(GOFUMPT_VERSION) ## Format the code
	$< -w $(GO_FILES)

.PHONY: check-fmt
check-fmt: $(TOOLS)/gofumpt-$(GOFUMPT_VERSION)
	@unformatted=$$($< -l $(GO_FILES)); \
	if [ -n "$$unformatted" ]; then echo "not formatted (run make fmt):"; echo "$$unformatted"; exit 1; fi

.PHONY: lint
lint: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION) ## Lint the code
	$< run ./...

.PHONY: test-go
test-go: ## Run all Go tests with the race detector
	go test -race -timeout 20m ./...

.PHONY: test
test: bootstrap check-fmt check-generated lint test-go ## Everything that must pass

.PHONY: test-short
test-short: ## The quick tests: no race detector
	go test ./...

.PHONY: fuzz
fuzz: ## Fuzz each target for 20 s
	@for pkg in $$(grep -rl 'func Fuzz' --include='*_test.go' . | xargs -n1 dirname | sort -u); do \
		for target in $$(grep -hoE 'func Fuzz[A-Za-z]+' $$pkg/*_test.go | sed 's/func //'); do \
			echo "$$pkg $$target"; go test -run '^$$' -fuzz "^$$target$$" -fuzztime 20s $$pkg; \
		done; \
	done
