package core

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"brine/internal/call/fn"
	"brine/internal/catalogue/modules/core"
	"brine/internal/catalogue/modules/files"
	"brine/internal/catalogue/modules/network"
	"brine/internal/catalogue/modules/shell"
	"brine/internal/catalogue/states/statetest"
	"brine/internal/host"
	"brine/internal/py/value"
	"brine/internal/sls/state"
)

// TestAgainstStock calls functions and sets variables with states.
func TestAgainstStock(t *testing.T) {
	statetest.Run(t, statetest.Table{Name: "testdata/core", States: Modules(), Functions: slices.Concat(core.Modules(), files.Modules(&host.Machine{}))})
}

func TestRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/core") }

// TestParity covers rare arguments and errors.
func TestParity(t *testing.T) {
	statetest.Run(t, statetest.Table{Name: "testdata/parity", States: Modules(),
		Functions: slices.Concat(core.Modules(), files.Modules(&host.Machine{}), []fn.Module{core.Grains(fileGrains{t})})})
}

func TestParityRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/parity") }

// fileGrains are the grains of the private machine's file alone.
type fileGrains struct{ t *testing.T }

func (s fileGrains) Grains() *value.Dict { return statetest.Stored(s.t, value.NewDict(0)) }

func (fileGrains) Change(*value.Dict, []string) {}

func (fileGrains) Refresh(context.Context, bool) error { return nil }

// TestHTTP queries a test server.
func TestHTTP(t *testing.T) { statetest.Run(t, httpTable(t)) }

func TestHTTPRecordingIsTrue(t *testing.T) { statetest.VerifyTable(t, httpTable) }

// TestHTTPOdd covers missing and odd arguments.
func TestHTTPOdd(t *testing.T) { statetest.Run(t, oddHTTPTable(t)) }

func TestHTTPOddRecordingIsTrue(t *testing.T) { statetest.VerifyTable(t, oddHTTPTable) }

func oddHTTPTable(t *testing.T) statetest.Table {
	t.Helper()
	tab := httpTable(t)
	tab.Name = "testdata/http_odd"
	return tab
}

func httpTable(t *testing.T) statetest.Table {
	t.Helper()
	tab := statetest.Table{Name: "testdata/http", States: Modules(),
		Functions: slices.Concat(core.Modules(), network.Modules(network.Sources{Machine: &host.Machine{}}))}
	if !statetest.Inside() {
		l, err := net.Listen("tcp", "127.88.7.6:18080")
		if err != nil {
			t.Fatal(err)
		}
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/none" {
				w.WriteHeader(http.StatusNotFound)
			}
			_, _ = io.WriteString(w, r.Method+" "+r.URL.Path+" welcome 42")
		})}
		go func() { _ = s.Serve(l) }()
		t.Cleanup(func() { _ = s.Close() })
	}
	return tab
}

// TestHTTPTypes checks that unknown types of comparison are rejected.
func TestHTTPTypes(t *testing.T) {
	for _, a := range []httpArgs{{Match: "x", MatchType: "regex", StatusType: "string"}, {Status: int64(200), MatchType: "string", StatusType: "range"}} {
		if r := a.answer(t.Context(), nil, false); r.Verdict != state.Failed || !strings.Contains(r.Comment, "_type is ") {
			t.Errorf("%+v: %+v", a, r)
		}
	}
}

// TestOdd covers missing and odd arguments, and requisites.
func TestOdd(t *testing.T) {
	statetest.Run(t, statetest.Table{Name: "testdata/odd", States: Modules(),
		Functions: slices.Concat(core.Modules(), files.Modules(&host.Machine{}), shell.Modules(), []fn.Module{core.Grains(fileGrains{t})})})
}

func TestOddRecordingIsTrue(t *testing.T) { statetest.Verify(t, "testdata/odd") }
