package main

import (
	"context"

	"brine/bench/report"
)

// maxMinions is the largest fleet: each minion needs a file descriptor at both ends.
const maxMinions = 9900

// scenario is one load, which may produce several figures.
type scenario struct {
	name string
	run  func(ctx context.Context, b *bench, k kind) error
	// brineOnly excludes stock Salt, because it lacks the feature or takes too long.
	brineOnly bool
	// most, if not 0, bounds the repetitions, and stockRepeat those with stock Salt if they take
	// long.
	most, stockRepeat int
}

func (s scenario) times(repeat int) int {
	if repeat == 0 {
		repeat = 1 << 10
	}
	if s.most > 0 {
		repeat = min(repeat, s.most)
	}
	return repeat
}

var scenarios = []scenario{
	{name: "programs", run: runPrograms},
	{name: "minion", run: runMinion},
	{name: "requests-zeromq", run: func(ctx context.Context, b *bench, k kind) error { return runRequests(ctx, b, k, "zeromq") }},
	{name: "requests-tcp", run: func(ctx context.Context, b *bench, k kind) error { return runRequests(ctx, b, k, "tcp") }},
	{name: "cluster", run: runCluster, brineOnly: true, most: 3},
	{name: "ping", run: runPing, stockRepeat: 3},
	{name: "publish-zeromq", run: func(ctx context.Context, b *bench, k kind) error { return runPublish(ctx, b, k, "zeromq", maxMinions) }, stockRepeat: 3},
	{name: "publish-tcp", run: func(ctx context.Context, b *bench, k kind) error { return runPublish(ctx, b, k, "tcp", 2000) }, stockRepeat: 3},
	{name: "stalled", run: runStalled, brineOnly: true},
	{name: "memory-zeromq", run: func(ctx context.Context, b *bench, k kind) error { return runMemory(ctx, b, k, "zeromq") }, most: 3, stockRepeat: 1},
	{name: "memory-tcp", run: func(ctx context.Context, b *bench, k kind) error { return runMemory(ctx, b, k, "tcp") }, most: 3, stockRepeat: 1},
	{name: "curve", run: runCurve, most: 2, stockRepeat: 1},
	{name: "restart", run: runRestart, most: 1, stockRepeat: 1},
	{name: "api", run: runAPI, brineOnly: true, most: 3},
	{name: "jobs", run: runJobs, brineOnly: true, most: 1},
	{name: "highstate", run: runHighstate, stockRepeat: 3},
	{name: "lowstate", run: runLowstate},
	{name: "templates", run: runTemplates, stockRepeat: 3},
	{name: "pillar", run: runPillar, stockRepeat: 3},
	{name: "files", run: runFiles, most: 3, stockRepeat: 1},
	{name: "crowd", run: runCrowd, brineOnly: true, most: 1},
	{name: "gitfs", run: runGitfs, most: 3, stockRepeat: 1},
}

// figures are what the scenarios measure, in the order of the report.
func figures() []*report.Figure {
	return []*report.Figure{
		{Name: "return-zeromq", Title: "A job return, 500 minions, zeromq: master CPU", Unit: "ms", AtMost: 0.3},
		{Name: "return-tcp", Title: "A job return, 500 minions, tcp: master CPU", Unit: "ms", AtMost: 0.3},
		{Name: "return-paced-zeromq", Title: "A job return at 100 per second, zeromq: master CPU", Unit: "ms"},
		{Name: "return-paced-tcp", Title: "A job return at 100 per second, tcp: master CPU", Unit: "ms"},
		{Name: "return-p50-zeromq", Title: "Latency of a return at 100 per second, zeromq: median", Unit: "ms"},
		{Name: "return-p99-zeromq", Title: "Latency of a return at 100 per second, zeromq: 99 %", Unit: "ms"},
		{Name: "return-p50-tcp", Title: "Latency of a return at 100 per second, tcp: median", Unit: "ms"},
		{Name: "return-p99-tcp", Title: "Latency of a return at 100 per second, tcp: 99 %", Unit: "ms"},
		{Name: "cluster-cpu-ratio", Title: "A job return at three masters of a cluster beside one: CPU", Unit: "times", AtMost: 1.5},
		{Name: "cluster-bytes-ratio", Title: "A job return at three masters of a cluster beside one: bytes", Unit: "times", AtMost: 1.5},
		{Name: "cluster-cpu-own", Title: "A job return at a master of its own: CPU", Unit: "ms"},
		{Name: "cluster-cpu-one", Title: "A job return at a cluster of one: CPU", Unit: "ms"},
		{Name: "cluster-cpu-three", Title: "A job return at a cluster of three: CPU of all", Unit: "ms"},
		{Name: "cluster-bytes-own", Title: "A job return at a master of its own: bytes read and written", Unit: "KB"},
		{Name: "cluster-bytes-one", Title: "A job return at a cluster of one: bytes read and written", Unit: "KB"},
		{Name: "cluster-bytes-three", Title: "A job return at a cluster of three: bytes read and written by all", Unit: "KB"},
		{Name: "event-zeromq", Title: "An event of 5 KB with one reader, zeromq: master CPU", Unit: "ms", AtMost: 0.15},
		{Name: "event-tcp", Title: "An event of 5 KB with one reader, tcp: master CPU", Unit: "ms", AtMost: 0.15},
		{Name: "event-lost", Title: "Events that the reader missed", Unit: ""},
		{Name: "signin-zeromq", Title: "Sign-in of a known minion, zeromq: master CPU", Unit: "ms", AtMost: 3.5},
		{Name: "signin-tcp", Title: "Sign-in of a known minion, tcp: master CPU", Unit: "ms", AtMost: 3.5},
		{Name: "ping-cpu", Title: "salt '*' test.ping, 1,000 minions: CLI and master CPU", Unit: "s", AtMost: 0.6},
		{Name: "ping-cli", Title: "salt '*' test.ping, 1,000 minions: CLI CPU", Unit: "s"},
		{Name: "ping-wall", Title: "salt '*' test.ping, 1,000 minions: time", Unit: "s"},
		{Name: "ping-lost", Title: "salt '*' test.ping, 1,000 minions: not shown", Unit: ""},
		{Name: "publish-cpu-zeromq", Title: "A publication to 9,900, 1 % stalled, zeromq: master CPU each", Unit: "µs", AtMost: 10},
		{Name: "publish-last-zeromq", Title: "A publication to 9,900, 1 % stalled, zeromq: the last one", Unit: "s", AtMost: 0.15},
		{Name: "publish-lost-zeromq", Title: "Publications to 9,900, 1 % stalled, zeromq: lost", Unit: ""},
		{Name: "publish-cpu-tcp", Title: "A publication to 2,000, 1 % stalled, tcp: master CPU each", Unit: "µs"},
		{Name: "publish-last-tcp", Title: "A publication to 2,000, 1 % stalled, tcp: the last one", Unit: "s", AtMost: 0.05},
		{Name: "publish-lost-tcp", Title: "Publications to 2,000, 1 % stalled, tcp: lost", Unit: ""},
		{Name: "stalled-publish", Title: "What 1 % of stalled subscribers add to the rest: CPU", Unit: "%", AtMost: 5},
		{Name: "stalled-return", Title: "What 1 % that sends garbage adds to a return: CPU", Unit: "%", AtMost: 5},
		{Name: "api-p50", Title: "A runner through salt-api at 100 per second: median", Unit: "ms"},
		{Name: "api-p99", Title: "A runner through salt-api at 100 per second: 99 %", Unit: "ms"},
		{Name: "api-under-p50", Title: "The same without salt-api: median", Unit: "ms"},
		{Name: "api-under-p99", Title: "The same without salt-api: 99 %", Unit: "ms"},
		{Name: "api-added-p99", Title: "What salt-api adds at 100 per second: 99 %", Unit: "ms", AtMost: 5},
		{Name: "api-memory", Title: "Idle salt-api: PSS", Unit: "MB"},
		{Name: "api-memory-streams", Title: "500 readers of its events: PSS", Unit: "MB", AtMost: 100},
		{Name: "api-memory-busy", Title: "salt-api with 500 readers, after 200 commands per second: PSS", Unit: "MB"},
		{Name: "api-streams-lost", Title: "500 readers, 200 commands per second: events that a reader missed", Unit: ""},
		{Name: "api-streams-ended", Title: "500 readers, 200 commands per second: readers cut off", Unit: ""},
		{Name: "api-streams-p99", Title: "200 commands per second with 500 readers: 99 %", Unit: "ms"},
		{Name: "memory-idle", Title: "Idle master: PSS of all its processes", Unit: "MB", AtMost: 40},
		{Name: "memory-minion-zeromq", Title: "Master memory per connected minion, zeromq", Unit: "KB", AtMost: 30},
		{Name: "memory-minion-tcp", Title: "Master memory per connected minion, tcp", Unit: "KB", AtMost: 30},
		{Name: "memory-curve-zeromq", Title: "Master memory with 1,000 minions, zeromq", Unit: "MB", X: "requests"},
		{Name: "memory-own-zeromq", Title: "The same without mapped files, zeromq", Unit: "MB", X: "requests"},
		{Name: "memory-curve-tcp", Title: "Master memory with 1,000 minions, tcp", Unit: "MB", X: "requests"},
		{Name: "memory-own-tcp", Title: "The same without mapped files, tcp", Unit: "MB", X: "requests"},
		{Name: "memory-idle-minion", Title: "Idle minion: PSS of all its processes", Unit: "MB", AtMost: 20},
		{Name: "cpu-salt-call", Title: "salt-call --local test.ping: CPU", Unit: "s", AtMost: 0.03},
		{Name: "cpu-salt-version", Title: "salt --version: CPU", Unit: "s", AtMost: 0.01},
		{Name: "cpu-salt-key", Title: "salt-key -L, 5,000 keys: CPU", Unit: "s", AtMost: 0.03},
		{Name: "start-master", Title: "Master start to first sign-in: time", Unit: "s", AtMost: 0.2},
		{Name: "start-minion", Title: "Minion start to ready: time", Unit: "s", AtMost: 0.1},
		{Name: "curve-return", Title: "A job return: master CPU", Unit: "ms", X: "minions"},
		{Name: "curve-signin", Title: "A sign-in: master CPU", Unit: "ms", X: "minions"},
		{Name: "curve-publish", Title: "A publication: master CPU for each subscriber", Unit: "µs", X: "minions"},
		{Name: "restart-cpu", Title: "5,000 minions sign in after a master's restart: master CPU", Unit: "s", AtMost: 20},
		{Name: "restart-wall", Title: "5,000 minions sign in after a master's restart: time", Unit: "s"},
		{Name: "restart-vain", Title: "5,000 minions sign in after a restart: answers without effect", Unit: ""},
		{Name: "restart-late", Title: "5,000 minions sign in after a restart: not answered in time", Unit: ""},
		{Name: "restart-hints", Title: "5,000 minions sign in after a restart: put off by the master", Unit: ""},
		{Name: "restart-salt-cpu", Title: "The same by the rules of Salt's minions: master CPU", Unit: "s", AtMost: 20},
		{Name: "restart-salt-wall", Title: "The same by the rules of Salt's minions: time", Unit: "s"},
		{Name: "restart-salt-vain", Title: "The same by the rules of Salt's minions: answers without effect", Unit: ""},
		{Name: "restart-salt-late", Title: "The same by the rules of Salt's minions: not answered in time", Unit: ""},
		{Name: "restart-salt-hints", Title: "The same by the rules of Salt's minions: put off by the master", Unit: ""},
		{Name: "highstate-first", Title: "salt-call --local state.apply, 1,000 file.managed, first run: CPU", Unit: "s", Ratio: 10},
		{Name: "highstate-memory-first", Title: "The same: its own memory, at most", Unit: "MB", Ratio: 5},
		{Name: "highstate-resident-first", Title: "The same with pages of files: resident memory, at most", Unit: "MB"},
		{Name: "highstate-second", Title: "salt-call --local state.apply, 1,000 file.managed, second run: CPU", Unit: "s", Ratio: 10},
		{Name: "highstate-memory-second", Title: "The same: its own memory, at most", Unit: "MB", Ratio: 5},
		{Name: "highstate-resident-second", Title: "The same with pages of files: resident memory, at most", Unit: "MB"},
		{Name: "lowstate", Title: "salt-call --local state.show_lowstate, 1,000 states from jinja and yaml: CPU", Unit: "s", Ratio: 20},
		{Name: "templates", Title: "salt-call --local state.apply, map.jinja and 20 templates: CPU", Unit: "s", Ratio: 10},
		{Name: "pillar", Title: "Pillar of 200 lines with jinja for one of 100 minions: master CPU", Unit: "ms", Ratio: 20},
		{Name: "files-1mb-cpu", Title: "A file of 1 MB to 100 minions: master CPU for a MB", Unit: "ms", Ratio: 5},
		{Name: "files-1mb-both", Title: "The same: CPU of master and minions for a MB", Unit: "ms", Ratio: 5},
		{Name: "files-1mb-rate", Title: "A file of 1 MB to 100 minions: in a second", Unit: "MB"},
		{Name: "files-1mb-slowest", Title: "The same: the slowest minion's time beside the median", Unit: ""},
		{Name: "files-100kb-cpu", Title: "A file of 100 KB to 100 minions: master CPU for a MB", Unit: "ms", Ratio: 5},
		{Name: "files-100kb-both", Title: "The same: CPU of master and minions for a MB", Unit: "ms", Ratio: 5},
		{Name: "files-100kb-rate", Title: "A file of 100 KB to 100 minions: in a second", Unit: "MB"},
		{Name: "files-100kb-slowest", Title: "The same: the slowest minion's time beside the median", Unit: ""},
		{Name: "files-1mb-salt-cpu", Title: "The same by Salt's protocol, of 1 MB: master CPU for a MB", Unit: "ms"},
		{Name: "files-1mb-salt-both", Title: "The same: CPU of master and minions for a MB", Unit: "ms"},
		{Name: "files-1mb-salt-rate", Title: "The same by Salt's protocol, of 1 MB: in a second", Unit: "MB"},
		{Name: "files-1mb-salt-slowest", Title: "The same: the slowest minion's time beside the median", Unit: ""},
		{Name: "files-100kb-salt-cpu", Title: "The same by Salt's protocol, of 100 KB: master CPU for a MB", Unit: "ms"},
		{Name: "files-100kb-salt-both", Title: "The same: CPU of master and minions for a MB", Unit: "ms"},
		{Name: "files-100kb-salt-rate", Title: "The same by Salt's protocol, of 100 KB: in a second", Unit: "MB"},
		{Name: "files-100kb-salt-slowest", Title: "The same: the slowest minion's time beside the median", Unit: ""},
		{Name: "crowd-memory", Title: "A file of 1 MB to 1,000 minions at once: master's memory at most", Unit: "MB"},
		{Name: "crowd-wall", Title: "A file of 1 MB to 1,000 minions at once: time", Unit: "s"},
		{Name: "crowd-salt-memory", Title: "A file of 1 MB to 200 minions at once by Salt's protocol: master's memory at most", Unit: "MB"},
		{Name: "crowd-salt-wall", Title: "A file of 1 MB to 200 minions at once by Salt's protocol: time", Unit: "s"},
		{Name: "gitfs-run-cpu", Title: "First state run from gitfs, 10,000 files, of 100 minions at once: master CPU each", Unit: "ms", Ratio: 5},
		{Name: "gitfs-run-wall", Title: "First state run from gitfs, 10,000 files, of 100 minions at once: time", Unit: "s", Ratio: 5},
		{Name: "gitfs-update", Title: "Update and list of gitfs, 10,000 files: CPU of master and runners", Unit: "s", Ratio: 5},
		{Name: "jobs-lookup", Title: "salt-run jobs.list_job: master CPU", Unit: "s", X: "jobs kept"},
		{Name: "jobs-lookup-cli", Title: "salt-run jobs.list_job: CLI CPU", Unit: "s", X: "jobs kept"},
	}
}
