# Everything a developer types. `make` alone builds.
GO      ?= go
PROGRAMS := salt salt-master salt-minion salt-key salt-call salt-run salt-cp salt-api salt-syndic
PKGS    := ./...
export CGO_ENABLED = 0
# The same for every go command, also those that tests start, so that each package is compiled once.
export GOFLAGS := $(strip $(filter-out -trimpath,$(shell $(GO) env GOFLAGS)) -trimpath)

.PHONY: packages release tools pam normal durable durable-apart federation build reference man demo demo-cluster demo-console test test-all check fmt vet lint deadcode race fuzz fuzz-count fuzz-keep bench bench-console console bench-quick soak git-size microbench interop changelog clean help hub

build: ## the static binary bin/brine, and a link for each of Salt's programs
	$(GO) build -ldflags '-s -w' -o bin/brine ./cmd/brine
	@cd bin && for p in $(PROGRAMS); do ln -sf brine $$p; done

pam: ## bin/brine-pam, which asks PAM for masters whose external_auth has it; needs a C compiler
	CGO_ENABLED=1 $(GO) build -tags pam -o bin/brine-pam ./cmd/brine-pam

hub: ## bin/brine-hub, the bus of a federation of sites
	$(GO) build -ldflags '-s -w' -o bin/brine-hub ./cmd/brine-hub

reference: ## docs/reference, from the declarations in the code
	$(GO) run ./cmd/brine doc --dir docs/reference

packages: ## deb, rpm and apk packages for amd64 and arm64, in bin/packages
	packaging/build bin/packages

release: ## all artefacts of a release in bin/release: packages, archives, SBOM, sums, signed by BRINE_SIGN_KEY
	@[ -z "$$(git status --porcelain)" ] || { echo "a release is made of a commit: commit or remove these first"; git status --short; exit 1; }
	rm -rf bin/release
	packaging/release bin/release

man: build ## manual pages of all programs, in bin/man
	@bin/brine man --dir bin/man

demo: build ## two masters and four minions on loopback, one master dies and returns
	@bin/brine demo

demo-cluster: build ## three masters without a shared directory, six minions; a master dies, one joins, one leaves
	@bin/brine demo cluster

demo-console: build ## two masters with their web consoles and three minions, until Ctrl-C
	@bin/brine demo console

tools: ## what tests need of Debian's packages and this machine has not
	@test/tools/install

# Tests of the source, which read all of it: make lint runs them.
SOURCE_TESTS := test/(arguments|english|layers|vetrules)
# Tests that start many processes (daemons, database servers, git), need the NATS server, or measure.
# Those of DECLARED link the whole program to read its declarations, and those of internal/ha search at random.
SLOW_FLEETS := test/(api|badinput|cli|cluster|console|durable|federation|git|guides|ha|interop|jobcache|metrics|packages|secrets|stores|syndic)
DECLARED := internal/cli/(complete|doc|man|selfcheck)|test/differences
SLOW := bench(/.*)?|cmd/brine-hub|internal/(cli/hub|daemons/hub/.*)|internal/ha/(record|voter)|$(DECLARED)|internal/catalogue/states/(databases|packages|vcs)|$(SLOW_FLEETS)|$(SOURCE_TESTS)
# Tests whose subject is another process, which is built without the race detector: daemons, or
# the programs that states call, one after the other; that read the source; or that compute in one goroutine.
APART := $(SOURCE_TESTS)|bench/scale|internal/cli/complete|test/(api|badinput|cli|cluster|console|durable|federation|git|guides|ha|interop|jobcache|metrics|packages|registration|secrets|syndic)|internal/catalogue/states/(accounts|archives|databases|files|packages|pki|services|shell|system|vcs)

# Half the time of a first run is compilation: leave out debug information and symbols (a sixth of the time to
# link), and vet, which make check runs once for all.
TEST := $(GO) test -vet=off -ldflags='-s -w' -timeout 30m

# More packages at a time than processors: many tests wait rather than compute. The longest is first.
test: tools ## the tests of packages and of masters and minions in one process, but for the slowest
	$(TEST) -p 4 -short brine/test/fleet $$($(GO) list $(PKGS) | grep -vE '^brine/($(SLOW))$$')

# Two processors are idle for a third of the time with three packages at a time.
test-all: tools ## all tests
	$(TEST) -p 4 brine/test/cluster brine/internal/catalogue/states/services brine/internal/catalogue/states/packages $(PKGS)

race: tools ## under the race detector, which needs cgo, the tests that run Brine in their own process
	CGO_ENABLED=1 $(TEST) -p 3 -race $$($(GO) list $(PKGS) | grep -vE '^brine/($(APART))$$')

fmt: ## fail if gofmt would change a file
	@files=$$(gofmt -l bench cmd internal test); if [ -n "$$files" ]; then echo "gofmt these:"; echo "$$files"; exit 1; fi

vet: ## go vet
	$(GO) vet $(PKGS)

lint: ## staticcheck and the rules of this project, which are in test/vetrules, english, layers and arguments
	$(GO) tool staticcheck $(PKGS)
	$(GO) vet -vettool=$$($(GO) tool -n vetrules) $(PKGS)
	$(TEST) $$($(GO) list $(PKGS) | grep -E '^brine/($(SOURCE_TESTS))$$')

deadcode: ## functions that neither a program nor a test reaches
	@found=$$($(GO) run golang.org/x/tools/cmd/deadcode@$$($(GO) list -m -f '{{.Version}}' golang.org/x/tools) -test $(PKGS)) && [ -z "$$found" ] || { echo "$$found"; exit 1; }

check: fmt vet lint test-all race ## what CI runs

FUZZTIME ?= 30s
FUZZED = $$(grep -rlE '^func Fuzz' --include='*_test.go' internal test | grep -v test/fuzztest | xargs -n 1 dirname | sort -u)
fuzz: ## every fuzz target for FUZZTIME, guided by coverage
	@for p in $(FUZZED); do \
		for f in $$(grep -hoE '^func Fuzz\w+' $$p/*_test.go | cut -c 6-); do \
			echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) ./$$p || exit 1; \
		done; \
	done

fuzz-count: ## every fuzz target for FUZZTIME without instrumentation, at full speed; the sum of executions at the end
	@log=$$(mktemp); \
	BRINE_FUZZ_COUNT=$(FUZZTIME) BRINE_FUZZ_LOG=$$log $(GO) test -count 1 -p 1 -timeout 0 -run '^Fuzz' $$(printf './%s ' $(FUZZED)); failed=$$?; \
	awk '{ n[$$1 " " $$2] += $$3; all += $$3 } END { for (t in n) print n[t], t; print all, "executions" }' $$log | sort -n; \
	rm -f $$log; exit $$failed

fuzz-keep: ## copy the inputs that make fuzz has found and that cover more than the seeds to testdata/fuzz
	@BRINE_FUZZ_KEEP=$$($(GO) env GOCACHE)/fuzz $(GO) test -count 1 -p 1 -cover -run '^Fuzz' $$(printf './%s ' $(FUZZED))

bench: build ## all figures of docs/performance.md, beside stock Salt if BRINE_STOCK_SALT names it; takes most of an hour
	$(GO) run ./bench -out docs/performance $(BENCHFLAGS)
	$(if $(BENCHFLAGS),,$(MAKE) bench-console)

console: build tools ## check the pages of the web console with TypeScript, and try each in Chromium; what is served is their source, so nothing is built
	$(GO) test -count=1 -v -run '^(TestTypes|TestPolicy|TestAxe|TestThemesAndScreens)$$' ./test/console

bench-console: build tools ## the figures of docs/console.md: the web console of 5,000 minions in Chromium
	$(GO) test -count=1 -v -run '^TestFigures$$' ./test/console

bench-quick: build ## the same with a tenth of the load, once, in some minutes
	$(GO) run ./bench -scale 0.1 -repeat 1 $(BENCHFLAGS)

SOAK ?= 1h
soak: build ## a busy master for SOAK, whose memory must not grow
	$(GO) run ./bench -soak $(SOAK)

git-size: ## gitfs with a repository of 1 GB and 1,000 branches
	BRINE_GIT_SIZE=full $(GO) test -count 1 -v -timeout 30m -run TestLargeRepository ./internal/files/fileserver/gitfs

microbench: ## benchmarks of the packages
	$(GO) test -run '^$$' -bench . -benchmem $(PKGS)

# The names of tests that need stock Salt match STOCK_TESTS, but for those of test/interop.
STOCK_TESTS := Stock|Salt|(Is|Are)True
# On two busy processors stock Salt's programs take over an hour; -v shows what has passed until then.
INTEROP_TIME ?= 4h
# INTEROP selects tests of test/interop, such as 'TestPairs|TestQueue'.
INTEROP ?= .
interop: build tools ## all tests against stock Salt, whose source tree BRINE_STOCK_SALT names
	@test -n "$$BRINE_STOCK_SALT" || { echo "set BRINE_STOCK_SALT to a source tree of Salt 3007"; exit 1; }
	@failed=0; \
	$(GO) test -count=1 -timeout $(INTEROP_TIME) -v -run '$(INTEROP)' ./test/interop & \
	$(GO) test -count=1 -timeout $(INTEROP_TIME) -run '$(STOCK_TESTS)' ./internal/... $$($(GO) list ./test/... | grep -v /interop) || failed=1; \
	wait $$! || failed=1; \
	exit $$failed

DURABLE ?= 1000x50
durable: ## jobs x minions over three masters, hot and with a shared directory, that are killed in turn: each must run once and return once; with BRINE_STOCK_SALT also with a stock minion
	BRINE_DURABLE=$(DURABLE) $(GO) test -count=1 -v -timeout 120m -run 'TestManyJobs$$|TestManyJobsShared|TestManyJobsOfStock|TestLedger' ./test/durable

durable-apart: ## the same over three masters of a cluster without a shared directory, through random faults of masters and network; with BRINE_STOCK_SALT also with a stock minion; as root
	BRINE_CLOCK=1 BRINE_DURABLE=$(DURABLE) $(GO) test -count=1 -v -timeout 120m -run 'TestManyJobsApart|TestLedger' ./test/durable

FEDERATION ?= 2000
federation: ## commands over three sites by a hub of three nodes, through faults of nodes, masters and links: each must run once, and be complete above
	BRINE_FEDERATION=$(FEDERATION) $(GO) test -count=1 -v -timeout 60m -run TestManyCommands ./test/federation

NORMAL ?= 1h
normal: ## three hot masters and their minions for NORMAL: nothing may be logged at level error
	BRINE_NORMAL=$(NORMAL) $(GO) test -count=1 -v -timeout 0 -run TestNormalHour ./test/ha

changelog: ## move the fragments of changelog/ into CHANGELOG.md
	@changelog/gather

clean: ## remove bin
	rm -rf bin

help: ## this list
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*##/\t/'
