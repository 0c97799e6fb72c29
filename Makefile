# Berth. `make` lists what can be made.

BIN       := .dev/bin
VERSITYGW := v1.8.0
GOLANGCI  := v2.15.0
TFLINT    := v0.64.0
TFSEC     := v1.26.0
CYCLONEDX := v1.9.0
GO        := go
PACKAGES  := ./...
# Tests that race against each other on purpose; the race detector runs on these.
RACE_PACKAGES := ./models/... ./controlplane/... ./events/... ./client/...

export PATH := $(CURDIR)/$(BIN):$(PATH)

.DEFAULT_GOAL := help
.PHONY: help run up down clean test test-race lint bench setup build dev gcc browser test-crash soak lint-terraform lint-kubernetes image sbom

help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: setup build ## Start the local cloud, send a real file through it, serve until ^C
	@$(BIN)/berthdev run

up: setup build ## Start the local cloud in the background and write .dev/env
	@$(BIN)/berthdev up

down: dev ## Stop the local cloud; its data stays
	@$(BIN)/berthdev down

clean: dev ## Stop the local cloud and remove all it has stored and built
	@$(BIN)/berthdev clean
	@rm -rf .dev

test: setup browser dev ## Run every test on real PostgreSQL, S3 and SQS
	@BERTH_TEST_BROWSER=1 $(BIN)/berthdev exec -- $(GO) test -p 2 -timeout 20m $(PACKAGES)

test-race: setup dev gcc ## Run the core's tests with the race detector
	@$(BIN)/berthdev exec -- env CGO_ENABLED=1 $(GO) test -race -p 2 -timeout 20m $(RACE_PACKAGES)

test-crash: setup dev ## Crash every flow at every boundary, soak for a minute, reconcile a million keys, settle 30,000 events
	@$(BIN)/berthdev exec -- env BERTH_CRASH=full $(GO) test -count=1 -parallel 4 -timeout 30m -v ./internal/crash >.dev/test-crash.log || \
		{ grep -v '^=== ' .dev/test-crash.log; exit 1; }
	@$(BIN)/berthdev exec -- env BERTH_RECONCILE_KEYS=1000000 $(GO) test -count=1 -timeout 15m -v -run '^TestMemoryIsFlat' ./controlplane/reconcile >>.dev/test-crash.log || \
		{ grep -v '^=== ' .dev/test-crash.log; exit 1; }
	@$(BIN)/berthdev exec -- env BERTH_TEST_FILES=10000 $(GO) test -count=1 -timeout 15m -v -run '^TestEveryFileOnceThoughToldThrice$$' ./events >>.dev/test-crash.log || \
		{ grep -v '^=== ' .dev/test-crash.log; exit 1; }
	@grep -E '^(ok|FAIL)|crashes|lives|kills|keys|files:' .dev/test-crash.log

# Of the soak, in seconds.
SECONDS := 600
soak: setup dev ## Kill and stop real berthds under load for SECONDS=600, and judge what is left
	@$(BIN)/berthdev exec -- env BERTH_SOAK=$(SECONDS) $(GO) test -count=1 -timeout 24h -v -run '^TestSoak$$' ./internal/crash

lint: $(BIN)/golangci-lint-$(GOLANGCI) ## Check format, imports between rooms, and common mistakes
	@bad=$$(gofmt -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$bad" ]; then echo "not gofmt'd:"; echo "$$bad"; exit 1; fi
	@$(GO) vet ./...
	@$(BIN)/golangci-lint-$(GOLANGCI) run

lint-terraform: $(BIN)/tflint-$(TFLINT) $(BIN)/tfsec-$(TFSEC) ## Lint the Terraform modules and look for holes in them; builds the linters once, some minutes
	@$(BIN)/tflint-$(TFLINT) --recursive --chdir infra/terraform --config $(CURDIR)/infra/terraform/.tflint.hcl
	@$(BIN)/tfsec-$(TFSEC) infra/terraform --no-color --concise-output --exclude-downloaded-modules

# A module of its own: Kubernetes' types are no part of Berth's.
lint-kubernetes: ## Read the manifests as strictly as an API server
	@cd infra/kubernetes/check && $(GO) run . $(addprefix ../../../,$(filter-out %/kustomization.yaml,$(wildcard infra/kubernetes/*.yaml)))

bench: setup build ## Measure the speeds that ARCHITECTURE.md promises
	@$(BIN)/berthdev exec -- $(GO) test -p 1 -run '^$$' -bench . -timeout 60m $(PACKAGES)

image: ## Build the image (needs Docker)
	docker build -f infra/Dockerfile --target berthd -t berthd:local .

sbom: $(BIN)/cyclonedx-gomod-$(CYCLONEDX) build ## Write what berthd is made of to .dev/berthd.cdx.json
	@$(BIN)/cyclonedx-gomod-$(CYCLONEDX) bin -json -output .dev/berthd.cdx.json $(BIN)/berthd

setup: $(BIN)/versitygw-$(VERSITYGW) ## Install what the local cloud and the tests need
	@if command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		echo "installing PostgreSQL"; \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -q && apt-get install -yq --no-install-recommends postgresql-common && \
		{ own=/etc/postgresql-common/createcluster.conf; cp -p $$own $$own.berth; echo 'create_main_cluster = false' >>$$own; } && \
		apt-get install -yq --no-install-recommends postgresql; status=$$?; \
		[ ! -e /etc/postgresql-common/createcluster.conf.berth ] || mv /etc/postgresql-common/createcluster.conf.berth /etc/postgresql-common/createcluster.conf; \
		exit $$status; \
	fi; \
	echo "PostgreSQL is missing: install its server (Debian, Ubuntu: sudo apt-get install postgresql; macOS: brew install postgresql; Fedora: sudo dnf install postgresql-server), then try again." >&2; \
	exit 1

browser: web/test/node_modules/.package-lock.json web/node_modules/.package-lock.json ## Install what the tests in a real browser need
	@command -v chromium >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing Chromium" && \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends chromium; } || \
		{ echo "chromium is missing: the tests of pages and Uppy run in it" >&2; exit 1; }

# npm's own mark of what it has installed.
%/node_modules/.package-lock.json: %/package-lock.json
	@command -v npm >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && echo "installing node" && \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends nodejs npm; } || \
		{ echo "node and npm are missing: the tests of pages and Uppy run in them" >&2; exit 1; }
	@cd $* && npm ci --loglevel=error
	@touch $@

build: ## Build berthd, berth and berthdev into .dev/bin
	@mkdir -p $(BIN)
	@$(GO) build -trimpath -o $(BIN)/ ./cmd/berthd ./cmd/berth ./cmd/berthdev

dev:
	@mkdir -p $(BIN)
	@$(GO) build -trimpath -o $(BIN)/ ./cmd/berthdev

# cgo, which the race detector needs, needs a C compiler.
gcc:
	@command -v gcc >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		apt-get update -q && DEBIAN_FRONTEND=noninteractive apt-get install -yq --no-install-recommends gcc libc6-dev; } || \
		{ echo "gcc is missing: the race detector needs it" >&2; exit 1; }

# Tools outside go.mod, pinned by the file's name. The plain name is what others look for.
$(BIN)/versitygw-$(VERSITYGW):
	@echo "building versitygw $(VERSITYGW) (once)"
	@GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/versity/versitygw/cmd/versitygw@$(VERSITYGW)
	@mv $(BIN)/versitygw $@ && ln -sf $(@F) $(BIN)/versitygw

$(BIN)/golangci-lint-$(GOLANGCI):
	@echo "building golangci-lint $(GOLANGCI) (once)"
	@GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI)
	@mv $(BIN)/golangci-lint $@

$(BIN)/tflint-$(TFLINT):
	@echo "building tflint $(TFLINT) (once)"
	@GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/terraform-linters/tflint@$(TFLINT)
	@mv $(BIN)/tflint $@

$(BIN)/tfsec-$(TFSEC):
	@echo "building tfsec $(TFSEC) (once)"
	@GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/aquasecurity/tfsec/cmd/tfsec@$(TFSEC)
	@mv $(BIN)/tfsec $@

$(BIN)/cyclonedx-gomod-$(CYCLONEDX):
	@echo "building cyclonedx-gomod $(CYCLONEDX) (once)"
	@GOBIN=$(CURDIR)/$(BIN) $(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX)
	@mv $(BIN)/cyclonedx-gomod $@
