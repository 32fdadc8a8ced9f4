package userfs

import (
	"context"
	"maps"
	"slices"
	"time"

	"brine/internal/base/salt"
	"brine/internal/files/fetch"
	"brine/internal/files/fileserver"
	"brine/internal/py/value"
)

// begin calls init once, and asks for the intervals of updates.
func (f *FS) begin(ctx context.Context) {
	f.mu.Lock()
	begun := f.up.begun
	f.up.begun = true
	f.mu.Unlock()
	if begun {
		return
	}
	if f.Has("init") {
		if _, err := f.c.Modules.Update(ctx, f.c.Name, "init", nil, nil); err != nil {
			f.c.Log.Error("a file server backend in Python cannot prepare itself", "fileserver_backend", f.c.Name, "err", err)
		}
	}
	every := map[string]time.Duration{}
	if f.Has("update_intervals") {
		v, err := f.c.Modules.Update(ctx, f.c.Name, "update_intervals", nil, nil)
		if err != nil {
			f.c.Log.Error("cannot get the intervals of updates of a file server backend", "fileserver_backend", f.c.Name, "err", err)
		}
		d, _ := v.(*value.Dict)
		for id, seconds := range d.All() {
			every[value.Str(id)] = interval(seconds)
		}
	}
	if len(every) == 0 {
		every[""] = f.c.Interval
	}
	f.mu.Lock()
	f.up.every = every
	f.mu.Unlock()
}

// interval reads a number of seconds; 0 means Salt's default.
func interval(v any) time.Duration {
	switch x := v.(type) {
	case int64:
		if x > 0 && x < 1<<30 {
			return time.Duration(x) * time.Second
		}
	case float64:
		if x > 0 && x < 1<<30 {
			return time.Duration(x * float64(time.Second))
		}
	}
	return usualInterval
}

// Interval returns the interval of updates of a backend by the options.
func Interval(opts *value.Dict, name string) time.Duration {
	return interval(opts.At(name + "_update_interval"))
}

// due returns the ids whose update is due, and records that it begins; whole means that the backend has no
// ids.
func (f *FS) due() (ids []string, whole bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for id, every := range f.up.every {
		if last, ok := f.up.last[id]; ok && now.Sub(last) < every {
			continue
		}
		f.up.last[id] = now
		if id == "" {
			return nil, true
		}
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids, false
}

// round makes the updates that are due; some reports whether there were any.
func (f *FS) round(ctx context.Context) (some bool, err error) {
	f.begin(ctx)
	ids, whole := f.due()
	switch {
	case whole:
		return true, f.update(ctx, nil, nil)
	case len(ids) > 0:
		return true, f.update(ctx, nil, []any{value.Strings(ids)})
	}
	return false, nil
}

// update calls the function update.
func (f *FS) update(ctx context.Context, kwargs *value.Dict, args []any) error {
	if !f.Has("update") {
		return nil
	}
	_, err := f.c.Modules.Update(ctx, f.c.Name, "update", args, kwargs)
	f.store.sweep()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.up.fault = ""; err != nil {
		f.up.fault = err.Error()
		return err
	}
	f.up.good = time.Now()
	return nil
}

// Update implements fileserver.Backend.
func (f *FS) Update(ctx context.Context) (fileserver.Changes, error) { return f.UpdateOnly(ctx, nil) }

// UpdateOnly implements fileserver.Fetcher. The module itself reports changes on the event bus.
func (f *FS) UpdateOnly(ctx context.Context, names []string) (fileserver.Changes, error) {
	if !f.usable() {
		return fileserver.Changes{}, nil
	}
	var kwargs *value.Dict
	if len(names) > 0 {
		kwargs = value.DictOf("remotes", value.Strings(names))
	}
	return fileserver.Changes{}, f.update(ctx, kwargs, nil)
}

// Due implements fileserver.Fetcher. An update runs in the background, so that an endless one does not delay
// those of other backends. Its error is returned by a later call.
func (f *FS) Due(ctx context.Context, _ bool) (fileserver.Changes, bool, error) {
	f.mu.Lock()
	running, done := f.up.running, f.up.done
	f.up.done = nil
	f.up.running = true
	f.mu.Unlock()
	if running {
		return fileserver.Changes{}, false, nil
	}
	go func() {
		var r *result
		if f.usable() {
			if some, err := f.round(ctx); some {
				r = &result{err}
			}
		}
		f.mu.Lock()
		f.up.running, f.up.done = false, r
		f.mu.Unlock()
	}()
	if done == nil {
		return fileserver.Changes{}, false, nil
	}
	return fileserver.Changes{}, true, done.err
}

// alone makes the updates that are due on a masterless minion, before its files are used.
func (f *FS) alone(ctx context.Context) {
	if !f.c.Alone {
		return
	}
	f.up.first.Lock()
	defer f.up.first.Unlock()
	if _, err := f.round(ctx); err != nil {
		f.c.Log.Error("cannot update a file server; serving its old files", "fileserver_backend", f.c.Name, "err", err)
	}
}

// Told implements fileserver.Fetcher. Each master updates its own copies.
func (f *FS) Told(fetch.States, bool) {}

// Remotes implements fileserver.Fetcher.
func (f *FS) Remotes() *value.Dict {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := value.DictOf("updated", nil, "error", nil)
	if !f.up.good.IsZero() {
		d.Set("updated", f.up.good.UTC().Format(time.RFC3339))
	}
	if f.up.fault != "" {
		d.Set("error", f.up.fault)
	}
	for _, id := range slices.Sorted(maps.Keys(f.up.last)) {
		if id != "" {
			d.Set(id, f.up.last[id].UTC().Format(time.RFC3339))
		}
	}
	return value.DictOf(f.c.Name, d)
}

// errEndless is the error of content that does not end.
var errEndless = salt.Errorf(salt.Invalid, "serve_file does not end: it returned more than %d bytes", int64(maxContent))
