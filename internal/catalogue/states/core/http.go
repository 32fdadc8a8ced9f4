package core

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"brine/internal/base/wait"
	"brine/internal/call/fn"
	"brine/internal/py/pyre"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

func init() {
	units.Declare("http", func() state.Module {
		return state.Module{Name: "http", Doc: `Ask a web server, and succeed if its answer is as expected.
		Further arguments are those of the function http.query.`, Funcs: []state.Func{
			state.Of("query", httpQuery, `Ask a web server once.`),
			state.Of("wait_for_successful_query", httpWait, `Ask a web server again and again until its answer is as expected.`),
		}}
	})
}

type httpArgs struct {
	Name       string    `salt:"name" doc:"address"`
	Match      any       `salt:"match" doc:"what the text of the answer must have" default:"null"`
	MatchType  string    `salt:"match_type" doc:"string, or pcre for a regular expression" default:"string"`
	Status     any       `salt:"status" doc:"status that the answer must have" default:"null"`
	StatusType string    `salt:"status_type" doc:"string, list or pcre" default:"string"`
	WaitFor    any       `salt:"wait_for" doc:"seconds to go on asking while there is no answer at all" default:"null"`
	Kwargs     fn.Kwargs `salt:"kwargs"`
}

// answer sends one request and checks the response. The request may change
// something on the server, so a test run only queries test_url.
func (a httpArgs) answer(ctx context.Context, e *state.Env, test bool) state.Result {
	if a.Match == nil && a.Status == nil {
		return state.Result{Verdict: state.Failed, Comment: " Either match text (match) or a status code (status) is required."}
	}
	// Salt then compares nothing, without an error.
	switch {
	case a.MatchType != "string" && a.MatchType != "pcre":
		return state.Result{Verdict: state.Failed, Comment: fmt.Sprintf("match_type is %q, but must be string or pcre", a.MatchType)}
	case a.StatusType != "string" && a.StatusType != "list" && a.StatusType != "pcre":
		return state.Result{Verdict: state.Failed, Comment: fmt.Sprintf("status_type is %q, but must be string, list or pcre", a.StatusType)}
	}
	kw := a.Kwargs.Clean()
	if !kw.Has("decode") {
		kw.Set("decode", false)
	}
	kw.Set("text", true)
	kw.Set("status", true)
	if test {
		kw.Set("test", true)
	}
	fun := "http.query"
	if value.Truth(a.WaitFor) && !test {
		fun = "http.wait_for_successful_query"
		kw.Set("wait_for", a.WaitFor)
	}
	v, err := e.Exec(ctx, fun, kw, a.Name)
	if err != nil {
		return state.Result{Verdict: state.Failed, Comment: err.Error()}
	}
	data, _ := v.(*value.Dict)
	r := state.Result{Extra: value.DictOf("data", data)}
	c := httpCheck{result: &r}
	err = c.text(a, data.Str("text"))
	if err == nil {
		err = c.status(a, data)
	}
	if err != nil {
		r.Verdict, r.Comment = state.Failed, err.Error()
		return r
	}
	r.Comment = strings.TrimSpace(strings.Join(c.said, " "))
	if test {
		r.Verdict = state.Undecided
		r.Comment += " (TEST MODE"
		if u, ok := kw.Get("test_url"); ok {
			r.Comment += ", TEST URL WAS: " + value.Str(u)
		}
		r.Comment += ")"
	}
	return r
}

// httpCheck compares a response with the expected one.
type httpCheck struct {
	result *state.Result
	said   []string
}

func (c *httpCheck) add(ok bool, what string) {
	if ok {
		c.said = append(c.said, what+" was found.")
	} else {
		c.said = append(c.said, what+" was not found.")
	}
	switch {
	case !ok:
		c.result.Verdict = state.Failed
	case c.result.Verdict == state.Undecided:
		c.result.Verdict = state.Succeeded
	}
}

func found(pattern any, text string) (bool, error) {
	re, err := pyre.Compile(value.Str(pattern), 0)
	if err != nil {
		return false, err
	}
	m, err := re.Search(text)
	return m != nil, err
}

func (c *httpCheck) text(a httpArgs, text string) error {
	switch {
	case a.Match == nil:
	case a.MatchType == "string":
		c.add(strings.Contains(text, value.Str(a.Match)), `Match text "`+value.Str(a.Match)+`"`)
	case a.MatchType == "pcre":
		ok, err := found(a.Match, text)
		c.add(ok, `Match pattern "`+value.Str(a.Match)+`"`)
		return err
	}
	return nil
}

func (c *httpCheck) status(a httpArgs, data *value.Dict) error {
	got := value.Str(data.At("status"))
	switch {
	case a.Status == nil:
	case a.StatusType == "string":
		c.add(got == value.Str(a.Status), "Status "+value.Str(a.Status))
	case a.StatusType == "pcre":
		ok, err := found(a.Status, got)
		c.add(ok, `Status pattern "`+value.Str(a.Status)+`"`)
		return err
	case a.StatusType == "list":
		for _, s := range value.Texts(a.Status) {
			if s == got {
				c.add(true, "Status "+s)
			}
		}
		if c.result.Verdict != state.Succeeded {
			c.said = append(c.said, "Statuses "+value.Str(a.Status)+" were not found.")
			c.result.Verdict = state.Failed
		}
	}
	return nil
}

func httpQuery(_ context.Context, e *state.Env, a httpArgs) (state.Plan, error) {
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result { return a.answer(ctx, e, test) }}, nil
}

type httpWaitArgs struct {
	Name    string    `salt:"name" doc:"address"`
	WaitFor float64   `salt:"wait_for" doc:"seconds to go on asking" default:"300"`
	Kwargs  fn.Kwargs `salt:"kwargs"`
}

func httpWait(_ context.Context, e *state.Env, a httpWaitArgs) (state.Plan, error) {
	q := httpArgs{Name: a.Name, MatchType: "string", StatusType: "string", Kwargs: fn.Kwargs{Dict: a.Kwargs.Clean()}}
	pause := 100 * time.Millisecond
	for name, to := range map[string]*any{"match": &q.Match, "status": &q.Status} {
		*to = q.Kwargs.At(name)
		q.Kwargs.Delete(name)
	}
	for name, to := range map[string]*string{"match_type": &q.MatchType, "status_type": &q.StatusType} {
		if v, ok := q.Kwargs.Get(name); ok {
			*to = value.Str(v)
			q.Kwargs.Delete(name)
		}
	}
	if v, ok := q.Kwargs.Get("request_interval"); ok {
		seconds, err := strconv.ParseFloat(value.Str(v), 64)
		if err != nil || seconds < 0 {
			return state.Plan{}, fn.Errorf("request_interval is a number of seconds, not %s", value.Repr(v))
		}
		pause = time.Duration(seconds * float64(time.Second))
	}
	return state.Plan{Whole: func(ctx context.Context, test bool) state.Result {
		end := time.Now().Add(time.Duration(a.WaitFor * float64(time.Second)))
		for {
			r := q.answer(ctx, e, test)
			if test || r.Verdict == state.Succeeded || time.Now().After(end) {
				return r
			}
			if !wait.Sleep(ctx, pause) {
				return state.Result{Verdict: state.Failed, Comment: ctx.Err().Error()}
			}
		}
	}}, nil
}
