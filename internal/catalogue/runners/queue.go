package runners

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"brine/internal/base/salt"
	"brine/internal/call/fn"
	"brine/internal/py/json"
	"brine/internal/py/value"
)

// queues holds lists of items in a bank of the master's cache. Masters with a
// shared cache share them. A queue holds an item only once.
type queues struct {
	cache Cache
	bus   Firer
	mu    *sync.Mutex
}

// queueBank is the bank with a list for each queue.
const queueBank = "queues"

// queueBackend is the name of Salt's default backend, accepted as an alias for
// this one.
const queueBackend = "sqlite"

func init() { runners.Register("queue", queueModule) }

func queueModule(d Deps) fn.Module {
	q := queues{d.Cache, d.Bus, &sync.Mutex{}}
	return fn.Module{Name: "queue", Doc: `Queues of items, for the reactor or for runners.`, Funcs: []fn.Func{
		fn.Of("insert", q.insert, `Add one or more items to a queue.`, fn.Example("salt-run queue.insert myqueue myitem"),
			fn.Example(`salt-run queue.insert myqueue "['item1', 'item2']"`)),
		fn.Of("delete", q.remove, `Delete one or more items from a queue.`, fn.Example("salt-run queue.delete myqueue myitem")),
		fn.Of("list_queues", q.list, `Return the names of the queues.`, fn.Example("salt-run queue.list_queues")),
		fn.Of("list_length", q.length, `Return the length of a queue.`, fn.Example("salt-run queue.list_length myqueue")),
		fn.Of("list_items", q.items, `Return the items of a queue.`, fn.Example("salt-run queue.list_items myqueue")),
		fn.Of("pop", q.pop, `Remove a number of items, or all, from the head of a queue and return them.`, fn.Example("salt-run queue.pop myqueue"),
			fn.Example("salt-run queue.pop myqueue all")),
		fn.Of("process_queue", q.process, `Remove items from a queue and fire them as an event salt/queue/QUEUE/process, for the reactor.`,
			fn.Example("salt-run queue.process_queue myqueue 6")),
		fn.Of("insert_runner", q.insertRunner, `Add a runner to a queue; the default queue is the option runner_queue.`,
			fn.Example("salt-run queue.insert_runner test.stdout_print queue=runners")),
		fn.Of("process_runner", q.processRunner, `Remove runners from a queue and run them.`, fn.Example("salt-run queue.process_runner 5 queue=runners")),
	}}
}

// known rejects other backends and invalid queue names.
func (queues) known(queue, backend, fun string) error {
	if backend != queueBackend {
		return fn.Invalidf(`Function "%s.%s" is not available`, backend, fun)
	}
	if salt.CheckID(queue) != nil || strings.HasPrefix(queue, ".") {
		return fn.Invalidf("%.100q is not a valid queue name", queue)
	}
	return nil
}

// shown formats an item as a string, and a runner in Salt's form.
func shown(item any) (string, error) {
	if s, ok := item.(string); ok {
		return s, nil
	}
	b, err := json.Dump(item, json.Format{})
	return strings.ReplaceAll(string(b), `"`, "'"), err
}

func (q queues) load(queue string) ([]any, error) {
	v, _, err := q.cache.Fetch(queueBank, queue)
	if err != nil {
		return nil, fn.Errorf("cannot read the queue %s: %w", queue, err)
	}
	l, _ := v.(*value.List)
	if l == nil {
		return nil, nil
	}
	return l.Items, nil
}

func (q queues) store(queue string, items []any) error {
	if err := q.cache.Store(queueBank, queue, &value.List{Items: items}); err != nil {
		return fn.Errorf("cannot store the queue %s: %w", queue, err)
	}
	return nil
}

type queueItemsArgs struct {
	Queue   string `salt:"queue" doc:"name of the queue"`
	Items   any    `salt:"items" doc:"item, or a list of them"`
	Backend string `salt:"backend" doc:"only sqlite, an alias for the master's cache" default:"sqlite"`
}

// given returns the items of the arguments: strings, or maps for runners.
func (a queueItemsArgs) given() (items []any, several bool, err error) {
	switch x := a.Items.(type) {
	case *value.List:
		for _, it := range x.Items {
			items = append(items, value.Str(it))
		}
		return items, true, nil
	case *value.Dict:
		return []any{x}, false, nil
	case nil:
		return nil, false, fn.Invalidf("items must be a string or a list of strings")
	}
	return []any{value.Str(a.Items)}, false, nil
}

func (q queues) insert(_ context.Context, _ *fn.Call, a queueItemsArgs) (any, error) {
	if err := q.known(a.Queue, a.Backend, "insert"); err != nil {
		return nil, err
	}
	items, several, err := a.given()
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	all, err := q.load(a.Queue)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, it := range all {
		name, err := shown(it)
		if err != nil {
			return nil, err
		}
		there[name] = true
	}
	for _, it := range items {
		name, err := shown(it)
		if err != nil {
			return nil, fn.Errorf("an item cannot be stored: %w", err)
		}
		if there[name] {
			which := "Item already exists"
			if several {
				which = "One or more items already exists"
			}
			return fmt.Sprintf("%s in this queue. sqlite error: UNIQUE constraint failed: %s.name", which, a.Queue), nil
		}
		there[name] = true
	}
	return true, q.store(a.Queue, append(slices.Clone(all), items...))
}

func (q queues) remove(_ context.Context, _ *fn.Call, a queueItemsArgs) (bool, error) {
	if err := q.known(a.Queue, a.Backend, "delete"); err != nil {
		return false, err
	}
	items, _, err := a.given()
	if err != nil {
		return false, err
	}
	gone := map[string]bool{}
	for _, it := range items {
		name, err := shown(it)
		if err != nil {
			return false, err
		}
		gone[name] = true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	all, err := q.load(a.Queue)
	if err != nil {
		return false, err
	}
	left := slices.DeleteFunc(slices.Clone(all), func(it any) bool { name, _ := shown(it); return gone[name] })
	return true, q.store(a.Queue, left)
}

type queueBackendArgs struct {
	Backend string `salt:"backend" doc:"only sqlite, an alias for the master's cache" default:"sqlite"`
}

func (q queues) list(_ context.Context, _ *fn.Call, a queueBackendArgs) (*value.List, error) {
	if a.Backend != queueBackend {
		return nil, fn.Invalidf(`Function "%s.list_queues" is not available`, a.Backend)
	}
	names, err := q.cache.List(queueBank)
	slices.Sort(names)
	return value.Strings(names), err
}

type queueArgs struct {
	Queue   string `salt:"queue" doc:"name of the queue"`
	Backend string `salt:"backend" doc:"only sqlite, an alias for the master's cache" default:"sqlite"`
}

func (q queues) length(_ context.Context, _ *fn.Call, a queueArgs) (int, error) {
	if err := q.known(a.Queue, a.Backend, "list_length"); err != nil {
		return 0, err
	}
	all, err := q.load(a.Queue)
	return len(all), err
}

func (q queues) items(_ context.Context, _ *fn.Call, a queueArgs) (*value.List, error) {
	if err := q.known(a.Queue, a.Backend, "list_items"); err != nil {
		return nil, err
	}
	all, err := q.load(a.Queue)
	if err != nil {
		return nil, err
	}
	return texts(all)
}

// texts formats items in Salt's form.
func texts(items []any) (*value.List, error) {
	out := &value.List{}
	for _, it := range items {
		name, err := shown(it)
		if err != nil {
			return nil, err
		}
		out.Append(name)
	}
	return out, nil
}

type popArgs struct {
	Queue    string `salt:"queue" doc:"name of the queue"`
	Quantity any    `salt:"quantity" doc:"number of items, or all" default:"1"`
	Backend  string `salt:"backend" doc:"only sqlite, an alias for the master's cache" default:"sqlite"`
	IsRunner bool   `salt:"is_runner" doc:"return runners as maps" default:"false"`
}

func (q queues) pop(_ context.Context, _ *fn.Call, a popArgs) (*value.List, error) {
	if err := q.known(a.Queue, a.Backend, "pop"); err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	all, err := q.load(a.Queue)
	if err != nil {
		return nil, err
	}
	n := len(all)
	if a.Quantity != "all" {
		text := value.Str(a.Quantity)
		if n, err = strconv.Atoi(strings.TrimSpace(text)); err != nil {
			return nil, fn.Invalidf("Quantity must be an integer or \"all\".\nError: \"invalid literal for int() with base 10: '%s'\".", text)
		}
		if n < 0 { // like LIMIT -1
			n = len(all)
		}
	}
	n = min(n, len(all))
	taken := all[:n]
	var out *value.List
	if a.IsRunner {
		out = value.ListOf(taken...)
	} else if out, err = texts(taken); err != nil {
		return nil, err
	}
	if n == 0 {
		return out, nil
	}
	return out, q.store(a.Queue, slices.Clone(all[n:]))
}

func (q queues) process(ctx context.Context, c *fn.Call, a popArgs) (any, error) {
	items, err := q.pop(ctx, c, a)
	if err != nil {
		if c.Report(value.DictOf("errors", err.Error())); salt.KindOf(err) != salt.Unavailable {
			return false, nil
		}
		return nil, err
	}
	data := value.DictOf("items", items, "backend", a.Backend, "queue", a.Queue)
	return data, q.bus.Fire(salt.Tag("queue", a.Queue, "process"), data.Clone())
}

type insertRunnerArgs struct {
	Fun     string `salt:"fun" doc:"the runner"`
	Args    any    `salt:"args" doc:"list of its arguments, or a string with commas" default:"null"`
	Kwargs  any    `salt:"kwargs" doc:"map of its keyword arguments" default:"null"`
	Queue   any    `salt:"queue" doc:"name of the queue; null: the option runner_queue" default:"null"`
	Backend any    `salt:"backend" doc:"only sqlite, or null" default:"null"`
}

// runnerQueue returns the queue of runners. Salt's default backend for it needs
// PostgreSQL; here it is a normal queue.
func runnerQueue(c *fn.Call, queue, backend any) (name, kind string, err error) {
	conf, _ := c.Config.Get("runner_queue").(*value.Dict)
	if queue == nil {
		queue = conf.At("queue")
	}
	if backend == nil {
		if backend = conf.At("backend"); backend == nil {
			backend = queueBackend
		}
	}
	if queue == nil {
		return "", "", fn.Invalidf("no queue is named, and the option runner_queue names none")
	}
	return value.Str(queue), value.Str(backend), nil
}

func (q queues) insertRunner(ctx context.Context, c *fn.Call, a insertRunnerArgs) (any, error) {
	name, backend, err := runnerQueue(c, a.Queue, a.Backend)
	if err != nil {
		return nil, err
	}
	args, kwargs := value.Strings(value.Split(a.Args)), value.NewDict(0)
	if l, ok := a.Args.(*value.List); ok {
		args = l
	}
	switch k := a.Kwargs.(type) {
	case nil:
	case *value.Dict:
		kwargs = k
	default:
		return nil, fn.Invalidf("kwargs must be a map")
	}
	return q.insert(ctx, c, queueItemsArgs{Queue: name, Items: value.DictOf("fun", a.Fun, "args", args, "kwargs", kwargs), Backend: backend})
}

type processRunnerArgs struct {
	Quantity any `salt:"quantity" doc:"number of runners, or all" default:"1"`
	Queue    any `salt:"queue" doc:"name of the queue; null: that of the option runner_queue" default:"null"`
	Backend  any `salt:"backend" doc:"only sqlite, or null" default:"null"`
}

func (q queues) processRunner(ctx context.Context, c *fn.Call, a processRunnerArgs) (any, error) {
	name, backend, err := runnerQueue(c, a.Queue, a.Backend)
	if err != nil {
		return nil, err
	}
	v, err := q.process(ctx, c, popArgs{Queue: name, Quantity: a.Quantity, Backend: backend, IsRunner: true})
	if err != nil {
		return nil, err
	}
	d, ok := v.(*value.Dict)
	if !ok {
		return nil, fn.Errorf("cannot take runners from the queue %s; the progress events say why", name)
	}
	items, _ := d.At("items").(*value.List)
	for _, it := range items.Items {
		run, ok := it.(*value.Dict)
		if !ok {
			return nil, fn.Errorf("the queue %s contains an item that is not a runner: %.100s", name, value.Str(it))
		}
		if _, err := c.Funcs.Call(ctx, c, run.Str("fun"), run.List("args"), run.Dict("kwargs")); err != nil {
			return nil, fn.Errorf("%s of the queue %s failed; the runners behind it were removed from the queue and not run: %w", run.Str("fun"), name, err)
		}
	}
	return nil, nil
}
