package engine

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"brine/internal/call/fn"
	"brine/internal/py/value"
)

// conditions decide by commands, functions and files whether a state runs, and
// by commands whether it succeeded.
type conditions struct {
	ctx      context.Context
	log      *slog.Logger
	slots    slots
	newCall  func() *fn.Call
	anywhere *value.Dict // the option global_state_conditions
}

// unmet checks onlyif, unless and creates. It returns nil if the state must
// run, otherwise the content of its result.
func (k *conditions) unmet(c *fn.Call, low *value.Dict) *value.Dict {
	opts := commandOptions(c, low)
	var comments []string
	var failure error
	skip := false
	note := func(comment string, stop bool, err error) {
		comments = append(comments, comment)
		skip = skip || stop
		if failure == nil {
			failure = err
		}
	}
	if v, ok := low.Get("onlyif"); ok {
		note(k.onlyif(c, v, opts))
	}
	if v, ok := low.Get("unless"); ok {
		note(k.unless(c, v, opts))
	}
	if v, ok := low.Get("creates"); ok {
		comment, stop := creates(v)
		note(comment, stop, nil)
	}
	if !skip && failure == nil {
		return nil
	}
	res := value.DictOf("result", true, "comment", strings.Join(comments, "\n"))
	if failure != nil {
		res = value.DictOf("result", false, "comment", failure.Error())
	}
	for _, k := range []string{"__sls__", "__id__", "name"} {
		res.Set(k, low.At(k))
	}
	if failure == nil {
		res.Set("skip_watch", true)
	}
	return res
}

// commandOptions are the arguments of a state that also apply to the commands
// of its conditions.
func commandOptions(c *fn.Call, low *value.Dict) *value.Dict {
	var without []any
	switch x := low.At("cmd_opts_exclude").(type) {
	case nil:
	case *value.List:
		without = x.Items
	default:
		without = []any{x}
	}
	d := value.DictOf("ignore_retcode", true, "python_shell", true)
	for _, k := range []string{"cwd", "root", "runas", "env", "prepend_path", "timeout", "success_retcodes"} {
		if v := low.At(k); v != nil && !slices.Contains(without, any(k)) {
			d.Set(k, v)
		}
	}
	if v, ok := low.Get("shell"); ok && !slices.Contains(without, any("shell")) {
		d.Set("shell", v)
	} else if v := c.Grains.Get("shell"); v != nil {
		d.Set("shell", v)
	}
	return d
}

// retcode runs a command; ok is false if it cannot be run.
func (k *conditions) retcode(c *fn.Call, cmd string, opts *value.Dict) (good, ok bool) {
	code, err := c.Funcs.Call(k.ctx, c, "cmd.retcode", []any{cmd}, opts)
	if err != nil {
		k.log.Warn("cannot run the command of a condition", "err", err)
		return false, false
	}
	return value.Equal(code, int64(0)), true
}

func items(v any) []any {
	if l, ok := v.(*value.List); ok {
		return l.Items
	}
	return []any{v}
}

// onlyif reports true for stop as soon as one condition does not hold. The error
// is that of a function.
func (k *conditions) onlyif(c *fn.Call, v any, opts *value.Dict) (comment string, stop bool, err error) {
	const no, yes = "onlyif condition is false", "onlyif condition is true"
	for _, it := range items(v) {
		switch x := it.(type) {
		case string:
			if good, _ := k.retcode(c, x, opts); !good {
				return no, true, nil
			}
		case *value.Dict:
			if !x.Has("fun") {
				return k.noFunction("onlyif", x), false, nil
			}
			if holds, err := k.holds(c, x); err != nil || !holds {
				return no, err == nil, err
			}
		default:
			return "onlyif execution failed, bad type passed", false, nil
		}
		comment = yes
	}
	return comment, false, nil
}

// unless reports true for stop if all conditions hold. The error is that of a
// function.
func (k *conditions) unless(c *fn.Call, v any, opts *value.Dict) (comment string, stop bool, err error) {
	const no, yes = "unless condition is false", "unless condition is true"
	for _, it := range items(v) {
		switch x := it.(type) {
		case string:
			if good, ran := k.retcode(c, x, opts); ran && !good {
				return no, false, nil
			}
		case *value.Dict:
			if !x.Has("fun") {
				return k.noFunction("unless", x), false, nil
			}
			if holds, err := k.holds(c, x); err != nil || !holds {
				return no, false, err
			}
		default:
			comment, stop = "unless condition is false, bad type passed", false
			continue
		}
		comment, stop = yes, true
	}
	return comment, stop, nil
}

// noFunction warns about a condition without a function, and returns the comment.
func (k *conditions) noFunction(keyword string, entry *value.Dict) string {
	comment := fmt.Sprintf("no `fun` argument in %s: %s", keyword, value.Repr(entry))
	k.log.Warn(comment)
	return comment
}

// holds calls an execution function as a condition. The state fails if the
// function does, as in Salt.
func (k *conditions) holds(c *fn.Call, entry *value.Dict) (bool, error) {
	fun, want := value.Str(entry.At("fun")), entry.At("get_return")
	kwargs := entry.Clone()
	args := items2(entry.At("args"))
	for _, k := range []string{"fun", "args", "get_return"} {
		kwargs.Delete(k)
	}
	kwargs, err := k.slots.fill(k.ctx, c, kwargs)
	if err == nil {
		args, err = k.slots.list(k.ctx, c, args)
	}
	var got any
	own := k.newCall().Prepare()
	if err == nil {
		got, err = own.Funcs.Call(k.ctx, own, fun, args, kwargs)
	}
	if err != nil {
		k.log.Warn("the function of a condition failed", "fun", fun, "err", err)
		return false, err
	}
	if s, ok := want.(string); ok && s != "" {
		got, _ = value.Traverse(got, s, ":")
	}
	return own.Retcode() == 0 && value.Truth(got), nil
}

func items2(v any) []any {
	if v == nil {
		return nil
	}
	return items(v)
}

// creates reports true for stop if all files exist.
func creates(v any) (comment string, stop bool) {
	exists := func(v any) bool {
		_, err := os.Stat(value.Str(v))
		return err == nil
	}
	switch x := v.(type) {
	case string:
		if exists(x) {
			return x + " exists", true
		}
	case *value.List:
		if !slices.ContainsFunc(x.Items, func(it any) bool { return !exists(it) }) {
			return "All files in creates exist", true
		}
	}
	return "Creates files not found", false
}

// checkCmd lets commands decide whether a state succeeded.
func (k *conditions) checkCmd(c *fn.Call, low *value.Dict) *value.Dict {
	opts := value.DictOf("ignore_retcode", true, "python_shell", true)
	if v := c.Grains.Get("shell"); v != nil {
		opts.Set("shell", v)
	}
	res := value.DictOf("result", false)
	for _, k := range []string{"__sls__", "__id__", "name"} {
		res.Set(k, low.At(k))
	}
	for _, it := range items(low.At("check_cmd")) {
		if good, _ := k.retcode(c, value.Str(it), opts); !good {
			res.Set("comment", "check_cmd determined the state failed")
			res.Set("result", false)
			return res
		}
		res.Set("comment", "check_cmd determined the state succeeded")
		res.Set("result", true)
	}
	return res
}

// global checks the option global_state_conditions: of the conditions for a
// state, one must match the minion.
func (k *conditions) global(c *fn.Call, low *value.Dict) bool {
	mod := value.Str(low.At("state"))
	full := mod + "." + value.Str(low.At("fun"))
	asked := false
	for about, v := range k.anywhere.All() {
		if about != "*" && about != full && about != mod {
			continue
		}
		items := []any{v}
		if l, ok := v.(*value.List); ok {
			items = l.Items
		}
		for _, it := range items {
			asked = true
			ok, err := c.Funcs.Call(k.ctx, c, "match.compound", []any{it}, nil)
			if err != nil {
				k.log.Error("cannot check a global state condition", "condition", value.Str(it), "err", err)
			}
			if value.Truth(ok) {
				return true
			}
		}
	}
	return !asked
}
